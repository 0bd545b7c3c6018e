"""Attention against loops over places in float64, published slopes, borders of documents; perceptrons."""

import math

import pytest
import torch
from torch import Tensor

from explorer.models.transformer import (
    AlibiBias,
    Attention,
    Documents,
    GatedPerceptron,
    Perceptron,
    alibi_slopes,
    attend,
    gated_hidden,
)

# --- attention -------------------------------------------------------------------------------------------------------

WIDTH, HEADS, SEPARATOR = 12, 3, 0
TOKENS = torch.tensor([[5, 3, 0, 0, 7, 1, 4], [2, 2, 2, 2, 2, 2, 0], [0, 1, 0, 6, 6, 0, 9]])
NUMBERS = [[0, 0, 0, 1, 2, 2, 2], [0] * 7, [0, 1, 1, 2, 2, 2, 3]]  # of each place's document, by hand
PLACES = [[0, 1, 2, 0, 0, 1, 2], [0, 1, 2, 3, 4, 5, 6], [0, 0, 1, 0, 1, 2, 0]]


@pytest.mark.parametrize(
    "heads, exponents",
    [
        (1, [8]),
        (2, [4, 8]),
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_the_published_slopes(heads: int, exponents: list[float]) -> None:
    assert alibi_slopes(heads).tolist() == pytest.approx([2**-exponent for exponent in exponents], rel=1e-15)


def attention(*, alibi: bool) -> Attention:
    torch.manual_seed(0)
    made = Attention(WIDTH, heads=HEADS, branches=2).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    made.bias = AlibiBias(HEADS) if alibi else None
    return made


def naive(made: Attention, x_BTD: Tensor, *, slopes: list[float], numbers: list[list[int]]) -> Tensor:
    """One score at a time."""
    state, d = made.state_dict(), WIDTH // HEADS
    q, k, v = (x_BTD @ state["qkv.weight"].T + state["qkv.bias"]).split(WIDTH, dim=-1)
    y = torch.zeros_like(x_BTD)
    for b, document in enumerate(numbers):
        for h, slope in enumerate(slopes):
            own = slice(h * d, (h + 1) * d)
            for i in range(len(document)):
                seen = [j for j in range(i + 1) if document[j] == document[i]]
                scores = [float(q[b, i, own] @ k[b, j, own]) / math.sqrt(d) - slope * (i - j) for j in seen]
                total = sum(math.exp(score) for score in scores)
                for score, j in zip(scores, seen, strict=True):
                    y[b, i, own] += math.exp(score) / total * v[b, j, own]
    return y @ state["out.weight"].T + state["out.bias"]


@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_it_is_the_sum_over_what_a_place_may_see(alibi: bool, masked: bool) -> None:
    made, x = attention(alibi=alibi), torch.randn(3, 7, WIDTH, dtype=torch.float64)
    slopes = [2**-4, 2**-8, 2**-2] if alibi else [0.0] * 3
    documents = Documents(TOKENS, SEPARATOR) if masked else None
    expected = naive(made, x, slopes=slopes, numbers=NUMBERS if masked else [[0] * 7] * 3)
    assert torch.allclose(made(x, documents), expected, rtol=1e-12, atol=1e-12)
    other = naive(made, x, slopes=[slope + 0.01 for slope in slopes], numbers=[[0] * 7] * 3)
    assert not torch.allclose(made(x, documents), other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("alibi", [False, True])
def test_documents_apart_are_those_behind_a_mask(alibi: bool) -> None:
    """Outputs and gradients, as on a GPU, where a dense mask hides the other documents."""
    made, x, answers = attention(alibi=alibi), torch.randn(3, 7, WIDTH, dtype=torch.float64), list[list[Tensor]]()
    for apart in (True, False):
        documents = Documents(TOKENS, SEPARATOR)
        assert documents.apart
        documents.apart = apart
        y = made(x, documents)
        answers.append([y, *torch.autograd.grad(y.square().sum(), list(made.parameters()))])
        assert bool(documents._masks) != apart, "no score between two documents is computed"  # pyright: ignore
    torch.testing.assert_close(answers[0], answers[1], rtol=1e-9, atol=1e-10)
    assert not torch.allclose(made(x, Documents(TOKENS, 8)), answers[0][0], atol=1e-3)


@pytest.mark.parametrize("alibi", [False, True])
@torch.no_grad()
def test_what_a_document_becomes_does_not_depend_on_the_others(alibi: bool) -> None:
    """To the bit: in another row, at another place, among others of its length or by itself."""
    bias = AlibiBias(4) if alibi else None
    values, long, short = (torch.randn(length, 3, 4, 22) for length in (50, 300, 17))

    def attended(rows: list[list[Tensor]]) -> list[Tensor]:
        tokens = torch.ones(len(rows), sum(map(len, rows[0])), dtype=torch.int64)
        for row, parts in zip(tokens, rows, strict=True):
            row[torch.tensor([len(part) for part in parts]).cumsum(0) - 1] = SEPARATOR
        together = torch.stack([torch.cat(parts) for parts in rows])
        results = attend(together, bias=bias, documents=Documents(tokens, SEPARATOR)).flatten(0, 1)
        return list(results.split([len(part) for parts in rows for part in parts]))

    first = attended([[values]])[0]
    assert torch.equal(attended([[long, values, short], [values, short, long]])[1], first)
    assert torch.equal(attended([[long, values, short], [values, short, long]])[3], first)
    assert torch.equal(attended([[values.flip(0), values, values]])[1], first)


def test_places_count_from_the_start_of_a_document() -> None:
    assert Documents(TOKENS, SEPARATOR).places_BT.tolist() == PLACES
    assert Documents(TOKENS, 8).places_BT.tolist() == [list(range(7))] * 3


def test_the_bias_is_made_once_and_again_for_longer_rows() -> None:
    bias = AlibiBias(HEADS)
    long = bias(torch.zeros(2, HEADS, 9, 4))
    assert long.shape == (1, HEADS, 9, 9)
    at = long.data_ptr()
    short = bias(torch.zeros(1, HEADS, 4, 4))
    assert torch.equal(short, long[..., :4, :4]) and short.data_ptr() == at
    longer = bias(torch.zeros(1, HEADS, 11, 4))
    assert torch.equal(longer[..., :9, :9], long) and longer.data_ptr() != at
    assert not list(bias.parameters()) and not list(bias.buffers())


def test_what_was_made_in_inference_mode_serves_training() -> None:
    made = attention(alibi=True)
    x = torch.randn(1, 5, WIDTH, dtype=torch.float64)
    with torch.inference_mode():
        made(x)
    made(x).sum().backward()
    assert made.qkv.weight.grad is not None


def test_in_bfloat16_every_number_is_the_nearest_to_the_exact_one() -> None:
    """Where distances or slopes themselves are rounded first, it is not."""
    found = AlibiBias(12)(torch.zeros(1, 12, 400, 4, dtype=torch.bfloat16))
    slopes, distance = alibi_slopes(12)[:, None], torch.arange(399, -1, -1, dtype=torch.float64)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found[0, :, -1], (-slopes * distance).to(torch.bfloat16))
    assert not torch.equal(found[0, :, -1], -slopes.to(torch.bfloat16) * distance.to(torch.bfloat16))
    ahead = torch.ones(400, 400, dtype=torch.bool).triu(1)
    assert all(torch.equal(head.isneginf(), ahead) for head in found[0])


def test_a_pass_makes_one_mask_for_all_layers_that_share_a_bias() -> None:
    documents, bias = Documents(TOKENS, SEPARATOR), AlibiBias(HEADS)
    query = torch.zeros(3, HEADS, 7, 4)
    assert documents.mask(query, bias) is documents.mask(query, bias)
    assert documents.mask(query, bias).shape == (3, HEADS, 7, 7)
    assert documents.mask(query, None).shape == (3, 1, 7, 7)


# --- perceptrons -----------------------------------------------------------------------------------------------------


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def test_the_gated_form_is_its_closed_form() -> None:
    """One place, two numbers wide: sum over hidden units of down * gelu(gate . x) * (up . x)."""
    made = GatedPerceptron(2, hidden=8, branches=1).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    x = [0.7, -1.3]
    gate, up, down = (matrix.weight.tolist() for matrix in (made.gate, made.up, made.down))
    units = [
        gelu(sum(w * v for w, v in zip(gate[u], x, strict=True))) * sum(w * v for w, v in zip(up[u], x, strict=True))
        for u in range(8)
    ]
    expected = [sum(w * unit for w, unit in zip(row, units, strict=True)) for row in down]
    found = made(torch.tensor(x, dtype=torch.float64).view(1, 1, 2))
    assert found.flatten().tolist() == pytest.approx(expected, rel=1e-12)


def test_there_are_no_biases_and_nothing_in_is_nothing_out() -> None:
    assert [name for name, _ in GatedPerceptron(4, hidden=8, branches=1).named_parameters()] == [
        "gate.weight",
        "up.weight",
        "down.weight",
    ]
    assert not GatedPerceptron(4, hidden=8, branches=1)(torch.zeros(1, 3, 4)).any()


@pytest.mark.parametrize("hidden, expected", [(3072, 2048), (1024, 680), (352, 232), (48, 32), (8, 8), (1, 8)])
def test_two_thirds_to_the_nearest_eight(hidden: int, expected: int) -> None:
    assert gated_hidden(hidden) == expected
    assert hidden < 48 or abs(expected - 2 * hidden / 3) <= 4


def test_as_many_numbers_as_in_the_plain_form() -> None:
    plain, gated = (
        sum(parameter.numel() for parameter in made.parameters() if parameter.ndim == 2)
        for made in (Perceptron(96, hidden=384, branches=1), GatedPerceptron(96, hidden=gated_hidden(384), branches=1))
    )
    assert plain == gated

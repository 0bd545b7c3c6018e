"""Rotary positions against turns of complex numbers in float64, on own attentions and on those of others."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.errors import RecipeError
from explorer.methods.rotary import Turn, apply_rotary
from explorer.models.gpt import GPT
from explorer.models.table import MODELS
from explorer.models.transformer import Attention, Documents
from tests.architectures.models import NanoAttention
from tests.loop_for_tests import small_net

CONTEXT, SEPARATOR = 8, 3


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_formula(x_Td: np.ndarray, base: float) -> np.ndarray:
    half = x_Td.shape[1] // 2
    points = x_Td[:, :half] + 1j * x_Td[:, half : 2 * half]
    speeds = base ** (-2 * np.arange(half) / (2 * half))
    points = points * np.exp(1j * np.arange(len(x_Td))[:, None] * speeds)
    return np.concatenate((points.real, points.imag, x_Td[:, 2 * half :]), axis=1)


@pytest.mark.parametrize("width", [2, 6, 7])
@pytest.mark.parametrize("base", [10.0, 10_000.0])
def test_against_complex_numbers(width: int, base: float) -> None:
    query, key = drawn(2, 3, 5, width), drawn(2, 3, 5, width, seed=1)
    for given, found in zip((query, key), Turn(base)(query, key), strict=True):
        expected = [[by_formula(head.numpy(), base) for head in example] for example in given]
        np.testing.assert_allclose(found, np.array(expected), rtol=1e-12, atol=1e-12)


def test_a_score_depends_on_the_distance_only() -> None:
    query, key = drawn(4).expand(9, 4), drawn(4, seed=1).expand(9, 4)
    query, key = Turn(100.0)(query, key)
    scores = query @ key.T
    for distance in range(-8, 9):
        along = scores.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert scores.diagonal(0)[0] != pytest.approx(float(scores.diagonal(1)[0]), rel=1e-3)


def test_with_a_cache_queries_are_the_last_places() -> None:
    turn, query, key = Turn(100.0), drawn(1, 1, 6, 4), drawn(1, 1, 6, 4, seed=1)
    whole, keys = turn(query, key)
    last, same = turn(query[..., 4:, :], key)
    assert torch.equal(last, whole[..., 4:, :]) and torch.equal(same, keys)


def test_angles_are_made_again_for_longer_rows_and_other_formats() -> None:
    turn, x = Turn(100.0), drawn(1, 1, 6, 4)
    short, _ = turn(x[..., :2, :], x[..., :2, :])
    long, _ = turn(x, x)
    assert torch.equal(long[..., :2, :], short)
    half, _ = turn(x.bfloat16(), x.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), long, rtol=0.02, atol=0.02)
    with torch.inference_mode():
        turn(x.float(), x.float())
    weight = x.float().requires_grad_()
    turn(weight, weight)[0].sum().backward()


def gpt(**parameters: Any) -> GPT:
    spec = MODELS["gpt"](depth=2, width=16, heads=2, **parameters)  # pyright: ignore[reportCallIssue]
    torch.manual_seed(0)
    model = spec.build(example_shape=(CONTEXT,), classes=16)
    assert isinstance(model, GPT)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.double()


def test_positions_go_and_places_still_matter() -> None:
    model = gpt()
    before = set(model.state_dict())
    assert apply_rotary(model) == ["blocks.0.attention", "blocks.1.attention", "embed"]
    assert before - set(model.state_dict()) == {"embed.positions.weight"} and set(model.state_dict()) < before
    tokens = torch.arange(4 * CONTEXT)[None] % 16
    assert model(tokens).shape == (1, 4 * CONTEXT, 16), "rows may be longer than in training"
    order = torch.tensor([[1, 2, 3, 4], [2, 1, 3, 4]])
    one, other = model(order)[:, -1]
    assert not torch.allclose(one, other)
    unplaced = gpt(positions="none")
    unplaced.load_state_dict(model.state_dict())
    assert not torch.allclose(unplaced(order)[:, -1], model(order)[:, -1])


def test_documents_are_turned_by_themselves() -> None:
    """Each attends apart on a CPU, and under a mask elsewhere: the distances within are the same."""
    model = gpt(document_mask=True, separator=SEPARATOR)
    apply_rotary(model)
    first, second = torch.tensor([5, 7, SEPARATOR]), torch.tensor([9, 5, 1, 2])
    together = model(torch.cat((first, second))[None])[0]
    torch.testing.assert_close(together[:3], model(first[None])[0])
    torch.testing.assert_close(together[3:], model(second[None])[0])
    attention = model.get_submodule("blocks.0.attention")
    x, tokens = drawn(1, 7, 16), torch.cat((first, second))[None]
    apart, hidden = Documents(tokens, SEPARATOR), Documents(tokens, SEPARATOR)
    hidden.apart = False
    torch.testing.assert_close(attention(x, hidden), attention(x, apart))


def test_attention_of_another_package_computes_the_same() -> None:
    ours, theirs = Attention(32, heads=4, branches=1), NanoAttention()
    nn.init.normal_(ours.qkv.weight)
    theirs.c_attn.load_state_dict(ours.qkv.state_dict())
    theirs.c_proj.load_state_dict(ours.out.state_dict())
    x = drawn(2, 5, 32).float()
    plain = theirs(x)
    torch.testing.assert_close(plain, ours(x))
    assert apply_rotary(ours) == apply_rotary(theirs) == [""]
    torch.testing.assert_close(theirs(x), ours(x))
    assert not torch.allclose(theirs(x), plain, atol=1e-4)


class Written(nn.Module):
    """An attention whose scores no mode of the fused one sees."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(4, 12), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.c_attn(x).chunk(3, -1)
        return self.c_proj((query @ key.mT).softmax(-1) @ value)


def test_an_attention_that_it_cannot_reach_is_named() -> None:
    model = nn.Sequential(Written())
    apply_rotary(model)
    with pytest.raises(RecipeError, match=r"^found 0, which computes its scores in another way: expected scaled_dot"):
        model(torch.zeros(1, 3, 4))


@pytest.mark.parametrize("twice", [False, True])
def test_a_model_that_it_cannot_serve(twice: bool) -> None:
    model = gpt() if twice else small_net()
    if twice:
        apply_rotary(model)
    with pytest.raises(RecipeError, match=r"rotary: found nothing to change in .*: expected self-attention"):
        apply_rotary(model)


def test_a_base_out_of_range() -> None:
    with pytest.raises(RecipeError, match="base"):
        apply_rotary(gpt(), base=1.0)

"""ALiBi against attention written out in float64, and rows that are cut for training."""

import numpy as np
import pytest
import torch
from torch import nn

from explorer.data.sequences import Text
from explorer.engine.loop import Loop
from explorer.engine.task import LanguageModelling
from explorer.errors import RecipeError
from explorer.methods.alibi import Alibi, apply_alibi
from explorer.models.gpt import GPT
from explorer.models.table import MODELS
from explorer.models.transformer import Attention
from tests.loop_for_tests import noise_loop, small_net
from tests.planned_for_tests import planned

CONTEXT = 8


def slopes_of(heads: int) -> list[float]:
    """As the paper's code has them: geometric for a power of two, else filled up from the next power."""
    if heads & (heads - 1) == 0:
        first = 2 ** (-8 / heads)
        return [first ** (number + 1) for number in range(heads)]
    below = 1 << (heads.bit_length() - 1)
    return slopes_of(below) + slopes_of(2 * below)[0::2][: heads - below]


def by_formula(attention: Attention, x: np.ndarray, slopes: list[float]) -> np.ndarray:
    """One example, T x D: loops over heads and places."""
    weight, shift = (p.detach().numpy() for p in (attention.qkv.weight, attention.qkv.bias))
    q, k, v = np.split(x @ weight.T + shift, 3, axis=1)
    width = x.shape[1] // len(slopes)
    result = np.zeros_like(x)
    for head, slope in enumerate(slopes):
        part = slice(head * width, (head + 1) * width)
        for here in range(len(x)):
            scores = np.array([q[here, part] @ k[j, part] / width**0.5 - slope * (here - j) for j in range(here + 1)])
            weights = np.exp(scores - scores.max())
            result[here, part] = weights @ v[: here + 1, part] / weights.sum()
    return result @ attention.out.weight.detach().numpy().T + attention.out.bias.detach().numpy()


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6])
def test_against_attention_written_out(heads: int) -> None:
    attention = Attention(12, heads=heads, branches=1).double()
    nn.init.normal_(attention.qkv.weight, generator=torch.Generator().manual_seed(0))
    assert apply_alibi(attention) == [""]
    x = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = np.stack([by_formula(attention, example.numpy(), slopes_of(heads)) for example in x])
    np.testing.assert_allclose(attention(x).detach(), expected, rtol=1e-10, atol=1e-12)


def gpt(**parameters: object) -> GPT:
    spec = MODELS["gpt"](depth=2, width=16, heads=2, **parameters)  # pyright: ignore[reportCallIssue]
    model = spec.build(example_shape=(CONTEXT,), classes=256)
    assert isinstance(model, GPT)
    return model


def test_positions_go_and_rows_may_be_longer_than_in_training() -> None:
    model = gpt()
    with pytest.raises(RuntimeError):
        model(torch.zeros(1, CONTEXT + 1, dtype=torch.int64))
    before = set(model.state_dict())
    assert apply_alibi(model) == ["blocks.0.attention", "blocks.1.attention", "embed"]
    assert before - set(model.state_dict()) == {"embed.positions.weight"} and set(model.state_dict()) < before
    assert model(torch.zeros(1, 4 * CONTEXT, dtype=torch.int64)).shape == (1, 4 * CONTEXT, 256)


def test_it_is_the_model_that_is_built_so() -> None:
    ours, built = gpt(), gpt(positions="alibi")
    apply_alibi(ours)
    built.load_state_dict(ours.state_dict())
    tokens = torch.arange(2 * CONTEXT).view(2, CONTEXT)
    assert torch.equal(ours(tokens), built(tokens))


def alibi_loop(method: Alibi | None) -> Loop:
    blocks = torch.randint(0, 256, (12, CONTEXT + 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return noise_loop(
        [method] if method else [],
        model=gpt(),
        dataset=Text.of(blocks, blocks),
        task=LanguageModelling(classes=256),
        batch_size=4,
    )


def test_a_training_row_is_cut_into_rows_that_weigh_what_it_did() -> None:
    loop = alibi_loop(Alibi(train_length=0.25))
    loop.prepare_step()
    loop.read_share(loop.state.shares[0])
    batch, (tokens, labels) = loop.state.batch, loop.setting.batches.read(loop.state.examples)
    assert batch is not None
    assert torch.equal(batch.inputs, torch.cat([row.long().view(4, 2) for row in tokens]))
    assert torch.equal(batch.labels, torch.cat([row.long().view(4, 2) for row in labels]))
    assert batch.slots.tolist() == [slot for slot in range(4) for _ in range(4)]
    loss = nn.functional.cross_entropy(loop.setting.model(batch.inputs).flatten(0, 1), batch.labels.flatten())
    assert float(loop.step()) == pytest.approx(float(loss.detach()), rel=1e-5), "the mean over all tokens"


def test_whole_rows_are_left_alone() -> None:
    loop = alibi_loop(Alibi())
    loop.prepare_step()
    loop.read_share(loop.state.shares[0])
    assert loop.state.batch is not None and loop.state.batch.inputs.shape == (4, CONTEXT)


def test_weights_are_those_of_the_plain_run() -> None:
    ours, plain = alibi_loop(Alibi()).tensors(), alibi_loop(None).tensors()
    assert plain.keys() - ours.keys() == {"model/embed.positions.weight"}
    assert all(torch.equal(tensor, plain[name]) for name, tensor in ours.items())


@pytest.mark.parametrize("model", [small_net(), gpt(positions="alibi")], ids=["no attention", "ALiBi already"])
def test_a_model_that_it_cannot_serve(model: nn.Module) -> None:
    with pytest.raises(
        RecipeError, match=r"alibi: found nothing to change in .*: expected attention that takes a bias"
    ):
        apply_alibi(model)


def test_lengths_that_do_not_fit() -> None:
    with pytest.raises(RecipeError, match=r"found train_length 0.3: expected 1 divided by a whole number"):
        Alibi(train_length=0.3)
    assert Alibi(train_length=0.333).pieces == 3
    with pytest.raises(RecipeError, match=r"^found rows of 10 tokens to be cut into 4 equal ones"):
        Alibi(train_length=0.25).check(planned(example_shape=(10,)))
    Alibi(train_length=0.25).check(planned(example_shape=(12,)))

"""Normalised queries and keys against attention written out in float64, and what their scores cannot exceed."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.errors import RecipeError
from explorer.methods.qk_norm import Normalise, apply_qk_norm
from explorer.methods.rotary import apply_rotary
from explorer.models.table import MODELS
from explorer.models.transformer import Attention
from tests.architectures.models import NanoAttention
from tests.loop_for_tests import small_net


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attention(width: int, *, heads: int) -> Attention:
    made = Attention(width, heads=heads, branches=1).double()
    nn.init.normal_(made.qkv.weight, generator=torch.Generator().manual_seed(2))
    return made


def by_formula(made: Attention, x: np.ndarray) -> np.ndarray:
    """One example, T x D: loops over heads and places."""
    weight, shift = (parameter.detach().numpy() for parameter in (made.qkv.weight, made.qkv.bias))
    q, k, v = np.split(x @ weight.T + shift, 3, axis=1)
    width = x.shape[1] // made.heads
    result = np.zeros_like(x)
    for head in range(made.heads):
        part = slice(head * width, (head + 1) * width)
        one, other = (each[:, part] / np.sqrt((each[:, part] ** 2).mean(1, keepdims=True)) for each in (q, k))
        for here in range(len(x)):
            weights = np.exp(one[here] @ other[: here + 1].T / width**0.5)
            result[here, part] = weights @ v[: here + 1, part] / weights.sum()
    return result @ made.out.weight.detach().numpy().T + made.out.bias.detach().numpy()


@pytest.mark.parametrize("heads", [1, 3])
def test_against_attention_written_out(heads: int) -> None:
    made, x = attention(12, heads=heads), drawn(2, 5, 12)
    plain = made(x)
    assert apply_qk_norm(made) == [""]
    expected = np.stack([by_formula(made, example.numpy()) for example in x])
    np.testing.assert_allclose(made(x).detach(), expected, rtol=1e-6, atol=1e-9)
    assert not torch.allclose(made(x), plain, atol=1e-3)


def test_scores_are_bounded_however_large_the_weights() -> None:
    query, key = Normalise()(1e6 * drawn(1, 1, 50, 16), 1e6 * drawn(1, 1, 50, 16, seed=1))
    assert float((query @ key.mT / 4).abs().max()) <= 4.0001, "the root of the width"
    assert float((query @ query.mT / 4).diagonal(dim1=-2, dim2=-1).min()) > 3.999


def test_queries_of_length_zero_stay() -> None:
    query, _ = Normalise()(torch.zeros(1, 1, 2, 4), torch.ones(1, 1, 2, 4))
    assert not query.any()


def test_attention_of_another_package_computes_the_same() -> None:
    ours, theirs = Attention(32, heads=4, branches=1), NanoAttention()
    nn.init.normal_(ours.qkv.weight)
    theirs.c_attn.load_state_dict(ours.qkv.state_dict())
    theirs.c_proj.load_state_dict(ours.out.state_dict())
    x = drawn(2, 5, 32).float()
    for apply in (apply_qk_norm, apply_rotary):
        assert apply(ours) == apply(theirs) == [""]
        torch.testing.assert_close(theirs(x), ours(x))


def test_turning_and_normalising_commute() -> None:
    one, other, x = attention(12, heads=3), attention(12, heads=3), drawn(2, 5, 12)
    other.load_state_dict(one.state_dict())
    apply_qk_norm(one), apply_rotary(one)
    apply_rotary(other), apply_qk_norm(other)
    torch.testing.assert_close(one(x), other(x))


@pytest.mark.parametrize("twice", [False, True])
def test_a_model_that_it_cannot_serve(twice: bool) -> None:
    spec = MODELS["gpt"](depth=1, width=8, heads=2)  # pyright: ignore[reportCallIssue]
    model = spec.build(example_shape=(8,), classes=16) if twice else small_net()
    if twice:
        apply_qk_norm(model)
    with pytest.raises(RecipeError, match=r"qk_norm: found nothing to change in .*: expected self-attention"):
        apply_qk_norm(model)

"""Gated linear units against their formula in float64."""

from math import erf

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.engine.modules import initialise
from explorer.errors import RecipeError
from explorer.methods.gated_linear_units import apply_gated_linear_units
from explorer.models.table import MODELS
from explorer.models.transformer import GatedPerceptron, Perceptron
from tests.loop_for_tests import small_net


def by_formula(module: nn.Module, x: np.ndarray) -> np.ndarray:
    gate, up, down = (parameter.detach().numpy() for parameter in module.parameters())
    hidden = x @ gate.T
    gelu = hidden * np.vectorize(lambda value: (1 + erf(value / 2**0.5)) / 2)(hidden)
    return (gelu * (x @ up.T)) @ down.T


def test_a_perceptron_becomes_one_with_gates() -> None:
    model = nn.Sequential(Perceptron(12, hidden=48, branches=4)).double().eval()
    assert apply_gated_linear_units(model) == ["0"]
    assert [tuple(parameter.shape) for parameter in model.parameters()] == [(32, 12), (32, 12), (12, 32)], "no biases"
    assert not model[0].training and all(parameter.dtype == torch.float64 for parameter in model.parameters())
    nn.init.normal_(model.get_parameter("0.gate.weight"), generator=torch.Generator().manual_seed(0))
    x = torch.randn(2, 3, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    np.testing.assert_allclose(model(x).detach(), by_formula(model[0], x.numpy()), rtol=1e-10, atol=1e-14)


def build(seed: int = 0, **parameters: object) -> nn.Module:
    spec = MODELS["gpt"](depth=2, width=48, heads=2, **parameters)  # pyright: ignore[reportCallIssue]
    with torch.random.fork_rng():
        model = spec.build(example_shape=(8,), classes=16)
    initialise(model, seed=seed)
    return model


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_a_gpt_has_as_many_parameters_as_before() -> None:
    model = build()
    before = size(model)
    assert apply_gated_linear_units(model) == ["blocks.0.mlp", "blocks.1.mlp"]
    assert size(model) == before - 2 * 5 * 48, "two thirds of three matrices for two, and the biases gone"
    assert all(not isinstance(module, Perceptron) for module in model.modules())


def test_it_is_the_model_that_is_built_so() -> None:
    """The same names, shapes and initial weights: those are drawn by (seed, name)."""
    ours, built = build(seed=3), build(seed=3, glu=True)
    apply_gated_linear_units(ours, seed=3)
    assert list(ours.state_dict()) == list(built.state_dict())
    assert all(torch.equal(tensor, built.state_dict()[name]) for name, tensor in ours.state_dict().items())


def test_the_global_generator_is_left_alone() -> None:
    model = build()
    before = torch.get_rng_state()
    apply_gated_linear_units(model)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_shared_perceptron_stays_shared() -> None:
    shared = Perceptron(4, hidden=16, branches=1)
    model = nn.Sequential(shared, shared)
    assert apply_gated_linear_units(model) == ["0", "1"]
    assert model[0] is model[1] and isinstance(model[0], GatedPerceptron)
    x: Tensor = torch.randn(1, 2, 4)
    assert model(x).shape == x.shape


@pytest.mark.parametrize("model", [small_net(), build(glu=True)], ids=["no transformer", "gates already"])
def test_a_model_that_it_cannot_serve(model: nn.Module) -> None:
    with pytest.raises(
        RecipeError, match=r"gated_linear_units: found nothing to change in .*: expected a known feed-fo"
    ):
        apply_gated_linear_units(model)

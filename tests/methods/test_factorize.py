"""Factorisation against the best approximation of its rank, by eigenvectors in float64."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.errors import RecipeError
from explorer.methods.factorize import (
    Factorize,
    apply_factorize,
    factorised_convolution,
    factorised_linear,
    factors,
    saves,
)
from explorer.methods.weight_standardization import Standardised, apply_weight_standardization
from explorer.models.table import MODELS
from tests.loop_for_tests import noise_loop, small_net


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def best(matrix: np.ndarray, rank: int) -> np.ndarray:
    """The matrix projected on its `rank` strongest directions: the eigenvectors of M M^T."""
    _, vectors = np.linalg.eigh(matrix @ matrix.T)
    strongest = vectors[:, -rank:]
    return strongest @ strongest.T @ matrix


@pytest.mark.parametrize("shape, rank", [((6, 9), 2), ((9, 6), 4), ((5, 5), 5), ((4, 30), 1)])
def test_the_product_is_the_closest_of_its_rank(shape: tuple[int, int], rank: int) -> None:
    weight = normal(*shape)
    left, right = factors(weight, rank=rank)
    assert left.shape == (shape[0], rank) and right.shape == (rank, shape[1])
    np.testing.assert_allclose(left @ right, best(weight.numpy(), rank), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(left.T @ left, right @ right.T, rtol=1e-9, atol=1e-10)  # both carry as much


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_of_full_rank_is_the_same_map(bias: bool) -> None:
    layer = nn.Linear(5, 7, bias=bias).double()
    x = normal(3, 2, 5)
    torch.testing.assert_close(factorised_linear(layer, rank=5)(x), layer(x), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "kind, shape", [(nn.Conv1d, (2, 6, 9)), (nn.Conv2d, (2, 6, 7, 8)), (nn.Conv3d, (2, 6, 5, 4, 6))]
)
@pytest.mark.parametrize("rank", [2, 5])
def test_a_convolution_is_the_one_with_the_closest_filters(kind: type, shape: tuple[int, ...], rank: int) -> None:
    options = {"stride": 2, "padding": 2, "dilation": 2, "padding_mode": "circular"}
    layer, reference = (kind(6, 5, 3, **options).double() for _ in range(2))
    with torch.no_grad():
        reference.bias.copy_(layer.bias)
        closest = torch.from_numpy(best(layer.weight.detach().flatten(1).numpy(), rank))
        reference.weight.copy_(closest.view_as(layer.weight))
    x = normal(*shape)
    small = factorised_convolution(layer, rank=rank)
    assert [weight.shape[:2] for name, weight in small.named_parameters() if "weight" in name] == [(rank, 6), (5, rank)]
    torch.testing.assert_close(small(x), reference(x), rtol=1e-9, atol=1e-10)


def test_it_saves_where_both_factors_take_fewer_multiplications() -> None:
    assert not saves(torch.empty(6, 12), rank=4)  # 4 x 18 = 72
    assert saves(torch.empty(6, 12), rank=3)
    assert saves(torch.empty(8, 8, 3, 3), rank=7) and not saves(torch.empty(8, 8, 3, 3), rank=8)


class Odd(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return -super().forward(input)


def test_what_is_replaced_and_what_is_left_alone() -> None:
    tied = nn.Linear(8, 8)
    twin = nn.Linear(8, 8)
    twin.weight = tied.weight
    model = nn.Sequential(
        nn.Conv2d(8, 16, 3),
        nn.Conv2d(4, 16, 3),  # too narrow
        nn.Conv2d(8, 16, 3, groups=2),
        nn.Linear(8, 8),
        nn.Linear(8, 4),  # too few out
        tied,
        twin,  # a weight that is two layers'
        Odd(8, 8),
        nn.MultiheadAttention(8, 2),  # reads its layers' weights
        nn.Sequential(nn.Linear(8, 8)),
    )
    options = {"min_channels": 8, "linear_rank": 3, "min_features": 8}
    assert apply_factorize(model, **options) == ["0", "3", "9.0"]
    assert model.get_parameter("0.0.weight").shape == (2, 8, 3, 3), "a quarter of the narrower side"
    assert model.get_parameter("0.1.weight").shape == (16, 2, 1, 1)
    with pytest.raises(
        RecipeError, match="factorize: found nothing to change in Sequential: expected convolutions of 9"
    ):
        apply_factorize(nn.Sequential(nn.Conv2d(8, 8, 3)), min_channels=9)
    with pytest.raises(RecipeError, match="found nothing"):
        apply_factorize(nn.Sequential(nn.Linear(8, 8)), linear_rank=4, min_features=8)  # would not save


def test_nothing_is_drawn() -> None:
    before = torch.get_rng_state()
    model = nn.Sequential(nn.Linear(8, 8), nn.Conv2d(8, 8, 3)).requires_grad_(True)
    torch.set_rng_state(before)
    apply_factorize(model, min_channels=8, linear_rank=3, min_features=8)
    assert torch.equal(torch.get_rng_state(), before)


def test_its_defaults_leave_small_networks_alone() -> None:
    with pytest.raises(RecipeError, match="expected convolutions of 256 or more channels or linear layers of 256"):
        Factorize().change_model(noise_loop(model=MODELS["resnet8"]().build(example_shape=(2, 6, 4), classes=3)).state)


def test_both_factors_are_standardised_afterwards() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3))
    apply_factorize(model, min_channels=8)
    assert apply_weight_standardization(model) == ["0.0", "0.1"]
    assert all(isinstance(model.get_submodule(name), Standardised) for name in ("0.0", "0.1"))


def test_a_run_trains_the_factors() -> None:
    loop = noise_loop([Factorize(min_channels=8)], model=small_net())
    names = [name for name in loop.tensors() if name.startswith("model/3.")]
    assert names == ["model/3.0.weight", "model/3.1.weight", "model/3.1.bias"]
    before = {name: loop.tensors()[name].clone() for name in names}
    loop.step()
    assert not any(torch.equal(loop.tensors()[name], tensor) for name, tensor in before.items())

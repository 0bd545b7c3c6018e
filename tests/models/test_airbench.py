"""The network of the speed records: whitened patches, identities at the start, and images too small."""

from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from explorer.engine.leaves import leaves
from explorer.engine.method import Method
from explorer.engine.modules import initialise
from explorer.errors import RecipeError
from explorer.methods.label_smoothing import LabelSmoothing
from explorer.models.airbench import (
    CHANNELS,
    NEIGHBOURS,
    Airbench,
    AirbenchSpec,
    IdentityConvolution,
    Stage,
    cosines,
    whitening_filters,
)
from explorer.models.table import MODELS
from explorer.schema import given
from explorer.testing import MethodContract


def built(*, shape: tuple[int, ...] = (3, 32, 32), classes: int = 10, **parameters: Any) -> Airbench:
    model = AirbenchSpec(**parameters).build(example_shape=shape, classes=classes)
    assert isinstance(model, Airbench)
    initialise(model, seed=0)
    return model


def test_it_is_in_the_table_with_the_parameters_that_it_says() -> None:
    assert MODELS["airbench"] is AirbenchSpec
    count = sum(parameter.numel() for parameter in built().parameters())
    convolutions = 9 * (24 * 64 + 64 * 64 + 64 * 256 + 3 * 256 * 256)
    assert count == 24 + convolutions + 4 * (64 + 256 + 256) + 256 * 10
    assert f"{count:,} parameters" in str(AirbenchSpec.__doc__)


@pytest.mark.parametrize("shape", [(1, 10, 10), (3, 16, 16), (3, 32, 32), (2, 11, 28)])
def test_any_image_size_and_number_of_channels(shape: tuple[int, ...]) -> None:
    model = built(shape=shape, classes=7, width=0.25).train()
    assert model(torch.randn(2, *shape)).shape == (2, 7)
    assert [norm.num_features for norm in model.modules() if isinstance(norm, nn.BatchNorm2d)] == [
        16,
        16,
        64,
        64,
        64,
        64,
    ]


def test_images_too_small_are_refused_with_what_fits() -> None:
    with pytest.raises(RecipeError, match=r"airbench: found images of 9 x 32 pixels: expected 10 or more a side"):
        AirbenchSpec().build(example_shape=(3, 9, 32), classes=10)


def test_layers_come_in_the_order_of_execution_and_the_filters_never_train() -> None:
    model = built(shape=(3, 16, 16), width=0.25)
    found = leaves(model, torch.zeros(2, 3, 16, 16))
    assert (found[0].name, found[-1].name) == ("whitening", "head")
    assert {name for leaf in found for name in leaf.parameters} == {name for name, _ in model.named_parameters()}
    assert "whitening.filters" in dict(model.named_buffers())


class _Trained(MethodContract):
    """Runs of it with an ordinary method."""

    method: ClassVar[Method] = LabelSmoothing()
    task: ClassVar[Any] = {"dataset": {"digits": {"size": 16}}, "model": {"airbench": {"width": 0.125}}}


@pytest.mark.slow
def test_it_trains_and_resumes_bit_for_bit() -> None:
    _Trained().test_trains()
    _Trained().test_resumes_bit_for_bit_after_every_step()


def test_under_a_policy_no_layer_depends_on_a_class_that_it_is_denied() -> None:
    _Trained().test_is_routed_or_refused()


# --- whitening -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_cosine_basis_is_orthonormal_and_begins_with_the_mean(size: int) -> None:
    basis = cosines(size)
    torch.testing.assert_close(basis @ basis.T, torch.eye(size, dtype=torch.float64))
    torch.testing.assert_close(basis[0], torch.full((size,), size**-0.5, dtype=torch.float64))


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_patches_of_the_assumed_covariance_become_white(channels: int) -> None:
    colour = torch.full((channels, channels), CHANNELS, dtype=torch.float64).fill_diagonal_(1)
    side = torch.tensor([[1, NEIGHBOURS], [NEIGHBOURS, 1]], dtype=torch.float64)
    covariance = torch.kron(colour, torch.kron(side, side))
    rows = whitening_filters(channels).flatten(1).double()
    assert rows.shape == (4 * channels, 4 * channels)
    torch.testing.assert_close(rows @ covariance @ rows.T, torch.eye(len(rows), dtype=torch.float64), rtol=0, atol=1e-5)
    assert (rows @ rows.T - torch.eye(len(rows))).abs().max() > 1, "white noise does not stay white"


def test_the_first_layer_has_the_filters_and_their_negatives() -> None:
    model, images = built(shape=(3, 12, 12), width=0.25), torch.randn(2, 3, 12, 12)
    white = F.conv2d(images, whitening_filters(3))
    torch.testing.assert_close(model.whitening(images), torch.cat((white, -white), 1))


# --- the start -------------------------------------------------------------------------------------------------------


def test_a_convolution_begins_by_passing_its_channels_on() -> None:
    convolution, x = IdentityConvolution(4, 6), torch.randn(2, 4, 5, 5)
    torch.testing.assert_close(convolution(x)[:, :4], x)
    assert (convolution(x)[:, 4:] - x[:, :2]).abs().max() > 0.1
    narrower = IdentityConvolution(6, 4)
    torch.testing.assert_close(narrower(torch.randn(1, 6, 3, 3)).shape, torch.Size((1, 4, 3, 3)))


# --- what it may do without ------------------------------------------------------------------------------------------


def test_with_relu_its_activations_are_never_negative() -> None:
    images, lowest = torch.randn(2, 3, 12, 12), {}
    for activation in ("gelu", "relu"):
        model = Airbench(width=0.25, channels=3, classes=10, activation=activation).eval()
        lowest[activation] = model.stages[0](model.activation(model.whitening(images))).detach().min().item()
    assert lowest["relu"] == 0 > lowest["gelu"]


def test_without_biases_the_backward_pass_ends_at_the_first_convolution() -> None:
    for biases in (True, False):
        model = Airbench(width=0.25, channels=3, classes=10, biases=biases)
        model(torch.randn(2, 3, 12, 12)).sum().backward()
        assert (model.whitening.bias.grad is not None) == biases
        first = model.stages[0]
        assert isinstance(first, Stage) and first.conv1.weight.grad is not None


def test_older_recipes_keep_their_form() -> None:
    assert given(AirbenchSpec(width=0.25)) == {"width": 0.25}
    assert given(AirbenchSpec(activation="relu"))["activation"] == "relu"

"""Weight standardisation against its formula in float64, alone and on top of other convolution surgery."""

import numpy as np
import pytest
import torch
from torch import nn

from explorer.errors import RecipeError
from explorer.methods.blurpool import apply_blurpool, blur, blur_filter
from explorer.methods.weight_standardization import (
    Standardised,
    WeightStandardization,
    apply_weight_standardization,
    standardise,
)
from explorer.models.table import MODELS
from tests.loop_for_tests import noise_loop, small_net


def by_formula(filters: np.ndarray) -> np.ndarray:
    flat = filters.astype(np.float64).reshape(len(filters), -1)
    result = [(one - one.mean()) / np.sqrt(((one - one.mean()) ** 2).mean() + 1e-10) for one in flat]
    return np.stack(result).reshape(filters.shape)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(4, 3, 3, 3), (1, 1, 1, 2), (5, 2, 3), (2, 2, 3, 1, 2)])
def test_against_the_formula(shape: tuple[int, ...]) -> None:
    filters = 3 * normal(*shape) + 1
    np.testing.assert_allclose(standardise(filters), by_formula(filters.numpy()), rtol=1e-12, atol=1e-12)


def test_equal_elements_are_zero_and_not_infinite() -> None:
    assert torch.equal(standardise(torch.full((2, 3, 3, 3), 0.5)), torch.zeros(2, 3, 3, 3))


@pytest.mark.parametrize(
    "kind, shape", [(nn.Conv1d, (2, 4, 9)), (nn.Conv2d, (2, 4, 6, 5)), (nn.Conv3d, (2, 4, 4, 5, 3))]
)
def test_the_convolution_uses_standardised_filters_and_keeps_raw_ones(kind: type, shape: tuple[int, ...]) -> None:
    conv = kind(4, 6, 3, groups=2, padding=1, padding_mode="circular").double()
    x, raw, saved = normal(*shape), conv.weight.detach().clone(), list(conv.state_dict())
    reference = kind(4, 6, 3, groups=2, padding=1, padding_mode="circular").double()
    with torch.no_grad():
        reference.weight.copy_(torch.from_numpy(by_formula(raw.numpy())))
        reference.bias.copy_(conv.bias)
    assert apply_weight_standardization(conv) == [""]
    torch.testing.assert_close(conv(x), reference(x), rtol=1e-10, atol=1e-10)
    assert torch.equal(conv.weight, raw) and list(conv.state_dict()) == saved


def test_gradients_pass_through_the_standardisation() -> None:
    conv = nn.Conv2d(1, 2, 2, bias=False).double()
    apply_weight_standardization(conv)
    conv(normal(1, 1, 2, 2)).sum().backward()
    gradient = conv.weight.grad
    assert gradient is not None
    # A shift of a filter, and a stretch of what remains, change nothing: the gradient is orthogonal to both.
    centred = conv.weight - conv.weight.mean((1, 2, 3), keepdim=True)
    torch.testing.assert_close(gradient.sum((1, 2, 3)), torch.zeros(2, dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(
        (gradient * centred).sum((1, 2, 3)), torch.zeros(2, dtype=torch.float64), atol=1e-8, rtol=0
    )
    assert gradient.abs().max() > 1e-3


def test_what_is_left_alone() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.Conv2d(4, 4, 3, groups=4),  # depthwise
        nn.Conv2d(4, 8, 3, groups=4),  # depthwise with two filters a channel
        nn.Conv2d(4, 4, 1, groups=4),  # one element
        nn.Conv2d(1, 4, 1),  # one element
        nn.Conv2d(4, 4, 1),
        nn.ConvTranspose2d(4, 4, 3),
        nn.Linear(4, 4),
    )
    assert apply_weight_standardization(model) == ["0", "5"]
    assert [isinstance(module, Standardised) for module in model] == [True, *[False] * 4, True, False, False]
    with pytest.raises(
        RecipeError, match="weight_standardization: found nothing to change in Sequential: expected conv"
    ):
        apply_weight_standardization(model)


@pytest.mark.parametrize("blur_first", [True, False])
@pytest.mark.parametrize("size, padding", [(3, 1), (1, 0)])
def test_a_blurred_convolution_is_both(size: int, padding: int, blur_first: bool) -> None:
    conv = nn.Conv2d(16, 4, size, stride=2, padding=padding).double()
    x = normal(2, 16, 7, 6)
    weight = torch.from_numpy(by_formula(conv.weight.detach().numpy()))
    expected = nn.functional.conv2d(blur(x, blur_filter()), weight, conv.bias, stride=2, padding=padding)
    steps = [apply_blurpool, apply_weight_standardization]
    for step in steps if blur_first else reversed(steps):
        assert step(conv) == [""]
    torch.testing.assert_close(conv(x), expected, rtol=1e-10, atol=1e-10)


def test_a_run_has_the_plain_run_s_parameters_by_name_and_value() -> None:
    ours, plain = noise_loop([WeightStandardization()], model=small_net("group")), noise_loop(model=small_net("group"))
    assert all(torch.equal(ours.tensors()[name], tensor) for name, tensor in plain.tensors().items())
    assert float(ours.step()) != float(plain.step())


def test_every_convolution_of_a_resnet() -> None:
    model = MODELS["resnet8"]().build(example_shape=(3, 8, 8), classes=2)
    names = apply_weight_standardization(model)
    assert set(names) == {name for name, module in model.named_modules() if isinstance(module, nn.Conv2d)}

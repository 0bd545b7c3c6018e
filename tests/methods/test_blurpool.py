"""BlurPool against the filter written out, and surgery that keeps everything else."""

from collections.abc import Iterable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from explorer.errors import RecipeError
from explorer.methods.blurpool import BlurPool, Blurred, BlurredMaximum, apply_blurpool, blur, blur_filter
from explorer.models.table import MODELS
from tests.loop_for_tests import noise_loop


def blurred(images: np.ndarray) -> np.ndarray:
    """Each pixel the weighted mean of its 3x3 neighbours, the border repeated: loops over pixels."""
    weights = np.array([1, 2, 1]) / 4
    _, _, height, width = images.shape
    result = np.zeros_like(images)
    for y in range(height):
        for x in range(width):
            for dy in (-1, 0, 1):
                for dx in (-1, 0, 1):
                    near = images[:, :, min(max(y + dy, 0), height - 1), min(max(x + dx, 0), width - 1)]
                    result[:, :, y, x] += weights[dy + 1] * weights[dx + 1] * near
    return result


def images(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (2, 3), (8, 8), (7, 10)])
def test_against_loops(size: tuple[int, int]) -> None:
    x = images(2, 3, *size)
    expected = blurred(x.numpy())
    np.testing.assert_allclose(blur(x, blur_filter()), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(blur(x, blur_filter(), stride=2), expected[:, :, ::2, ::2], rtol=1e-12, atol=1e-12)


def test_a_flat_image_stays_flat_up_to_the_border() -> None:
    assert torch.equal(blur(torch.ones(1, 2, 5, 4), blur_filter()), torch.ones(1, 2, 5, 4))


@pytest.mark.parametrize("groups, bias, mode", [(1, True, "zeros"), (4, False, "zeros"), (1, False, "reflect")])
def test_a_convolution_is_that_convolution_of_the_blurred_image(groups: int, bias: bool, mode: str) -> None:
    conv = nn.Conv2d(8, 12, 3, stride=2, padding=1, groups=groups, bias=bias, padding_mode=mode).double()  # pyright: ignore
    x = images(2, 8, 9, 6)
    expected = conv(torch.from_numpy(blurred(x.numpy()))).detach()
    before, saved = dict(conv.named_parameters()), conv.state_dict().keys()
    assert changed(conv, min_channels=8) == [""], "a model that is the layer"
    np.testing.assert_allclose(conv(x).detach(), expected, atol=1e-12)
    assert dict(conv.named_parameters()) == before
    assert conv.state_dict().keys() == saved, "the filter is no part of a saved model"


def test_a_pool_is_a_dense_maximum_then_a_strided_blur() -> None:
    for pool, size in ((nn.MaxPool2d(2), (8, 6)), (nn.MaxPool2d(3, 2, 1), (9, 7)), (nn.MaxPool2d(2), (7, 5))):
        x = images(2, 3, *size)
        assert isinstance(pool, nn.MaxPool2d)
        dense = F.max_pool2d(x, pool.kernel_size, 1, pool.padding).numpy()
        shape = pool(x).shape
        changed(pool)
        found = pool(x)
        np.testing.assert_allclose(found, blurred(dense)[:, :, :: pool.stride, :: pool.stride], atol=1e-12)
        assert found.shape == shape


def small(*modules: nn.Module) -> nn.Sequential:
    return nn.Sequential(*modules)


def changed(model: nn.Module, **options: object) -> Iterable[str]:
    chosen = {"convolutions": True, "pools": True, "min_channels": 16, **options}
    return apply_blurpool(model, **chosen)  # pyright: ignore[reportArgumentType]


def test_what_is_replaced() -> None:
    model = small(
        nn.Conv2d(3, 16, 3, stride=2),  # too few channels
        nn.Conv2d(16, 16, 3),  # no stride
        nn.Conv2d(16, 16, 3, stride=2),
        nn.MaxPool2d(2),
        nn.MaxPool2d(2, return_indices=True),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, stride=1),
        small(nn.Conv2d(16, 16, 1, stride=(1, 2))),
    )
    assert changed(model) == ["2", "3", "7.0"]
    assert [isinstance(module, Blurred | BlurredMaximum) for module in model][:5] == [False, False, True, True, False]
    assert changed(small(nn.Conv2d(3, 16, 3, stride=2), nn.MaxPool2d(2)), pools=False, min_channels=1) == ["0"]
    assert changed(small(nn.Conv2d(16, 16, 3, stride=2), nn.MaxPool2d(2)), convolutions=False) == ["1"]


def test_nothing_to_replace_is_an_error() -> None:
    with pytest.raises(RecipeError, match=r"blurpool: found nothing to change in Sequential: expected strided conv"):
        changed(small(nn.Conv2d(8, 8, 3, stride=2)))
    model = small(nn.Conv2d(16, 16, 3, stride=2))
    changed(model)
    with pytest.raises(RecipeError, match="found nothing"):
        changed(model)


def test_both_off_is_an_error() -> None:
    with pytest.raises(RecipeError, match="found convolutions and pools both off"):
        BlurPool(convolutions=False, pools=False)


def test_parameter_names_and_order_do_not_change() -> None:
    model = MODELS["resnet20"]().build(example_shape=(3, 32, 32), classes=10)
    before = [(name, id(parameter)) for name, parameter in model.named_parameters()]
    assert changed(model) == [
        "stages.1.0.conv1",
        "stages.1.0.shortcut.0",
        "stages.2.0.conv1",
        "stages.2.0.shortcut.0",
    ]
    assert [(name, id(parameter)) for name, parameter in model.named_parameters()] == before
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_initial_weights_are_those_of_the_plain_run() -> None:
    ours = noise_loop([BlurPool(min_channels=8)])
    plain = noise_loop()
    for name, tensor in plain.tensors().items():
        assert torch.equal(ours.tensors()[name], tensor), name
    assert float(ours.step()) != float(plain.step())


def test_half_precision_stays_half() -> None:
    x = images(1, 4, 6, 6).to(torch.bfloat16)
    assert blur(x, blur_filter()).dtype == torch.bfloat16

"""The residual networks: the published sizes, any image, either normalisation."""

import pytest
import torch
from torch import nn

from explorer.models.resnet import FAMILY, ResNetSpec
from explorer.models.table import MODELS


def built(name: str, *, channels: int = 3, classes: int = 10, **parameters: object) -> nn.Module:
    return MODELS[name](**parameters).build(example_shape=(channels, 32, 32), classes=classes)  # pyright: ignore


def weights(depth: int) -> int:
    """Parameters with projection shortcuts, counted layer by layer."""
    blocks = (depth - 2) // 6
    total, before = 3 * 16 * 9 + 2 * 16, 16
    for after in (16, 32, 64):
        for block in range(blocks):
            total += before * after * 9 + after * after * 9 + 4 * after
            if block == 0 and before != after:
                total += before * after + 2 * after
            before = after
    return total + 64 * 10 + 10


@pytest.mark.parametrize("kind", FAMILY, ids=lambda kind: kind.name)
def test_the_depth_in_the_name_is_the_depth(kind: type[ResNetSpec]) -> None:
    assert MODELS[kind.name] is kind
    model = built(kind.name)
    assert sum(parameter.numel() for parameter in model.parameters()) == weights(kind.depth)
    assert f"{weights(kind.depth):,} parameters" in str(kind.__doc__)
    on_the_way = [m for n, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear) and "shortcut" not in n]
    assert len(on_the_way) == kind.depth


def test_resnet20_has_the_published_number_of_parameters() -> None:
    assert sum(parameter.numel() for parameter in built("resnet20").parameters()) == 272_474


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (2, 7, 12), (1, 4, 4)])
def test_any_image_size_and_number_of_channels(norm: str, shape: tuple[int, int, int]) -> None:
    model = built("resnet8", channels=shape[0], classes=7, norm=norm)
    assert model(torch.randn(2, *shape)).shape == (2, 7)
    kinds = {type(module) for module in model.modules() if isinstance(module, nn.BatchNorm2d | nn.GroupNorm)}
    assert kinds == {nn.BatchNorm2d if norm == "batch" else nn.GroupNorm}


@pytest.mark.parametrize("width, expected", [(0.5, (8, 16, 32)), (1.0, (16, 32, 64)), (2.0, (32, 64, 128))])
def test_width_multiplies_channels(width: float, expected: tuple[int, ...]) -> None:
    model = built("resnet8", width=width)
    assert tuple(model.get_submodule(f"stages.{s}.0.conv2").out_channels for s in range(3)) == expected  # pyright: ignore


def test_group_normalisation_treats_examples_one_by_one() -> None:
    images = torch.randn(4, 3, 8, 8)
    for norm, apart in (("group", True), ("batch", False)):
        model = built("resnet8", norm=norm).train()
        together = model(images)
        alone = torch.cat([model(image[None]) for image in images])
        assert torch.allclose(together, alone, atol=1e-4) == apart

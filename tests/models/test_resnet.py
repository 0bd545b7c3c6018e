"""The residual networks: published sizes and operations, any image, either norm, stems, images too small."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.engine.leaves import leaves
from explorer.engine.modules import initialise
from explorer.errors import RecipeError
from explorer.models.residual import Gate
from explorer.models.resnet import DEEP_FAMILY, FAMILY, ResNetSpec
from explorer.models.table import MODELS

# --- for small images ------------------------------------------------------------------------------------------------


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


# --- for photographs -------------------------------------------------------------------------------------------------

PUBLISHED = {  # parameters, and multiply-adds in 10^9 of one image of 224 x 224 pixels with the stride in the 3x3
    "resnet18": (11_689_512, 1.81),
    "resnet34": (21_797_672, 3.66),
    "resnet50": (25_557_032, 4.09),
    "resnet101": (44_549_160, 7.80),
}


def built_deep(
    name: str, *, shape: tuple[int, ...] = (3, 224, 224), classes: int = 1000, **parameters: Any
) -> nn.Module:
    return MODELS[name](**parameters).build(example_shape=shape, classes=classes)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_operations_and_depth_are_the_published_ones(name: str) -> None:
    with torch.device("meta"):
        model, image = built_deep(name), torch.zeros(1, 3, 224, 224)
    parameters, operations = PUBLISHED[name]
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert f"{parameters:,} parameters" in str(MODELS[name].__doc__)
    found = leaves(model, image)
    assert {name for leaf in found for name in leaf.parameters} == {name for name, _ in model.named_parameters()}
    weights = [leaf for leaf in found if isinstance(leaf.module, nn.Conv2d | nn.Linear)]
    assert sum(leaf.cost for leaf in weights) / 1e9 == pytest.approx(operations, abs=0.02)
    assert sum("shortcut" not in leaf.name for leaf in weights) == int(name.removeprefix("resnet"))
    assert (found[0].name, found[-1].name) == ("conv", "head")


def test_they_are_in_the_table() -> None:
    assert [MODELS[kind.name] for kind in DEEP_FAMILY] == list(DEEP_FAMILY)
    assert {kind.name for kind in DEEP_FAMILY} == set(PUBLISHED)


def test_the_stride_is_in_the_3x3_convolution() -> None:
    with torch.device("meta"):
        model = built_deep("resnet50")
    strided = {name: m.kernel_size for name, m in model.named_modules() if getattr(m, "stride", 1) in (2, (2, 2))}
    assert strided == {"conv": (7, 7), "pool": 3} | {
        f"stages.{stage}.0.{part}": size
        for stage in (1, 2, 3)
        for part, size in (("conv2", (3, 3)), ("shortcut.0", (1, 1)))
    }


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
@pytest.mark.parametrize("stem, side, places", [("imagenet", 64, 16), ("cifar", 16, 16)])
def test_a_stem_leaves_the_first_stage_so_many_places(name: str, stem: str, side: int, places: int) -> None:
    model = built_deep(name, shape=(1, side, side + 9), classes=5, stem=stem, width=0.125, norm="group")
    met: list[tuple[int, ...]] = []
    for index in (0, 3):
        model.get_submodule(f"stages.{index}").register_forward_hook(lambda *at: met.append(tuple(at[2].shape[2:])))
    assert model(torch.zeros(2, 1, side, side + 9)).shape == (2, 5)
    assert met[0][0] == places and met[1] == (2, 4 if stem == "cifar" else 3)


@pytest.mark.parametrize(
    "parameters, shape, message",
    [
        (
            {},
            (3, 32, 224),
            r"resnet18: found images of 32 x 224 pixels: expected 64 .* with stem imagenet, or stem cifar",
        ),
        ({}, (1, 15, 64), r"expected 64 or more a side with stem imagenet, or one of resnet8 to resnet110"),
        ({"stem": "cifar"}, (1, 8, 8), r"found images of 8 x 8 pixels: expected 16 or more .* resnet8 to resnet110"),
    ],
)
def test_images_too_small_for_the_stem_are_refused(
    parameters: dict[str, Any], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        built_deep("resnet18", shape=shape, **parameters)


def test_every_block_adds_through_a_gate() -> None:
    with torch.device("meta"):
        models = {name: built_deep(name) for name in PUBLISHED}
    for name, blocks in (("resnet18", 8), ("resnet34", 16), ("resnet50", 16), ("resnet101", 33)):
        gates = [module for module in models[name].modules() if isinstance(module, Gate)]
        assert len(gates) == blocks
        assert gates[-1].width == (2048 if blocks > 8 and name != "resnet34" else 512)


def labelled() -> tuple[Tensor, Tensor]:
    """Images of three classes that differ in where they are bright."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(6) % 3
    images = torch.randn(6, 1, 16, 16, generator=generator) / 2
    for image, label in zip(images, labels, strict=True):
        image[:, 5 * label : 5 * label + 5] += 2
    return images, labels


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_a_small_one_learns(name: str) -> None:
    model = built_deep(name, shape=(1, 16, 16), classes=3, stem="cifar", width=0.125)
    initialise(model, seed=0)
    images, labels = labelled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(8):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2

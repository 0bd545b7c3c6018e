"""U-Nets: a class for every pixel (`unet`) or voxel (`unet3d`).

Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015, arXiv:1505.04597; Çiçek et
al., "3D U-Net: Learning Dense Volumetric Segmentation from Sparse Annotation", 2016, arXiv:1606.06650. Levels of two
convolutions each, with max-pooling on the way down; on the way up, a transposed convolution, to which the result of
that level on the way down is concatenated. In volumes the second convolution of a level widens, as published; in
images the first.

Convolutions keep the size, where those of the papers lose the border, so that there is an output for every place; both
nets have the norms of the second paper. Sides that the levels cannot halve are padded with zeros, which is the mean
after normalisation, and cropped at the end. A U-Net has no residual branches: skip connections are concatenated, not
added, so stochastic depth does not apply.

Every layer has a deterministic backward pass on GPUs, which interpolation lacks.

Shapes: B examples, C channels, S the sides (H W, or D H W), K classes.

Weights are Gaussian with variance 2 / N, for N inputs of a unit, to suit the rectifier that follows (He et al. 2015).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from explorer.errors import RecipeError
from explorer.models.resnet import GROUP_SIZE, Norm
from explorer.models.specification import Modality, ModelSpec, TaskName

# --- layers for images (`FLAT`) and for volumes (`SOLID`) ------------------------------------------------------------


class Convolution2d(nn.Conv2d):
    """A convolution initialised for the rectifier that follows."""

    def reset_parameters(self) -> None:
        _draw(self, 2 / self.weight[0].numel())


class Convolution3d(nn.Conv3d):
    """A convolution of volumes, initialised like `Convolution2d`."""

    def reset_parameters(self) -> None:
        _draw(self, 2 / self.weight[0].numel())


class Expansion2d(nn.ConvTranspose2d):
    """A transposed convolution to twice the size."""

    def reset_parameters(self) -> None:
        # At stride 2 and size 2, each output has one input place, and no rectifier follows: variance 1 / channels.
        _draw(self, 1 / self.in_channels)


class Expansion3d(nn.ConvTranspose3d):
    """A transposed convolution of volumes, initialised like `Expansion2d`."""

    def reset_parameters(self) -> None:
        _draw(self, 1 / self.in_channels)


def _draw(layer: Convolution2d | Convolution3d | Expansion2d | Expansion3d, variance: float) -> None:
    nn.init.normal_(layer.weight, std=math.sqrt(variance))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def largest_of_cubes(volumes: Tensor) -> Tensor:
    """Return the largest number of each cube of side 2: B C D H W in, B C D/2 H/2 W/2 out.

    Like `F.max_pool3d`, for whose backward pass torch has no deterministic kernel on GPUs. Where several numbers are
    the largest, they share the gradient.
    """
    # Not by `amax`: compiled in bf16 it looks for the largest among numbers that are not rounded yet, finds none, and
    # divides the gradient by 0.
    for dimension in (2, 3, 4):
        one, other = volumes.unflatten(dimension, (-1, 2)).unbind(dimension + 1)
        volumes = torch.maximum(one, other)
    return volumes


class Halving3d(nn.MaxPool3d):
    """Maximum pooling of volumes by 2, by deterministic kernels on GPUs too."""

    def forward(self, input: Tensor) -> Tensor:
        return largest_of_cubes(input) if input.is_cuda else F.max_pool3d(input, 2)


class Layers(NamedTuple):
    """The layers that differ between images and volumes."""

    convolution: type[Convolution2d | Convolution3d]
    expansion: type[Expansion2d | Expansion3d]
    pool: type[nn.MaxPool2d | nn.MaxPool3d]
    batch_norm: type[nn.BatchNorm2d | nn.BatchNorm3d]


FLAT = Layers(Convolution2d, Expansion2d, nn.MaxPool2d, nn.BatchNorm2d)
SOLID = Layers(Convolution3d, Expansion3d, Halving3d, nn.BatchNorm3d)


def normalisation(layers: Layers, channels: int, norm: Norm) -> nn.Module:
    """Return the normalisation layer for that many channels."""
    return nn.GroupNorm(channels // GROUP_SIZE, channels) if norm == "group" else layers.batch_norm(channels)


# --- networks --------------------------------------------------------------------------------------------------------


class Convolutions(nn.Module):
    """Two convolutions with filters of side 3, each followed by a norm and a rectifier: B C S in, B C S out."""

    def __init__(self, layers: Layers, channels_in: int, between: int, channels_out: int, *, norm: Norm) -> None:
        super().__init__()
        self.conv1 = layers.convolution(channels_in, between, 3, padding=1, bias=False)
        self.norm1 = normalisation(layers, between, norm)
        self.conv2 = layers.convolution(between, channels_out, 3, padding=1, bias=False)
        self.norm2 = normalisation(layers, channels_out, norm)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))


class Ascent(nn.Module):
    """A level on the way up: the level below at twice the size, concatenated to the same level on the way down."""

    def __init__(self, layers: Layers, below: int, skip: int, *, expanded: int, norm: Norm) -> None:
        super().__init__()
        self.expand = layers.expansion(below, expanded, 2, stride=2, bias=False)
        self.convolutions = Convolutions(layers, expanded + skip, skip, skip, norm=norm)

    def forward(self, x: Tensor, skipped: Tensor) -> Tensor:
        return self.convolutions(torch.cat((skipped, self.expand(x)), dim=1))


class UNet(nn.Module):
    """The network: B C S in, logits B K S out. `pairs` are the channels of the two convolutions of each level.

    A transposed convolution `narrows` to the channels of the next level up, or keeps those of its input.
    """

    def __init__(
        self,
        layers: Layers,
        pairs: Sequence[tuple[int, int]],
        *,
        narrows: bool,
        norm: Norm,
        dropout: float,
        channels: int,
        classes: int,
    ) -> None:
        super().__init__()
        self.unit = 2 ** (len(pairs) - 1)  # places that become one at the lowest level
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for first, second in pairs:
            self.down.append(Convolutions(layers, channels, first, second, norm=norm))
            channels = second
        self.pool = layers.pool(2)
        self.dropout = nn.Dropout(dropout)
        for _, skip in reversed(pairs[:-1]):
            expanded = skip if narrows else channels
            self.up.append(Ascent(layers, channels, skip, expanded=expanded, norm=norm))
            channels = skip
        self.head = layers.convolution(channels, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        # Pad to a multiple of `unit`, at the end of each side; `F.pad` takes the last dimension first.
        sides = images.shape[2:]
        missing = [place for side in reversed(sides) for place in (0, -side % self.unit)]
        x = F.pad(images, missing) if any(missing) else images
        skipped: list[Tensor] = []
        for level in self.down:
            x = level(self.pool(skipped[-1]) if skipped else x)
            skipped.append(x)
        x = self.dropout(skipped.pop())
        for level in self.up:
            x = level(x, skipped.pop())
        return self.head(x)[(..., *(slice(side) for side in sides))]


@dataclass(frozen=True, kw_only=True, slots=True)
class UNetSpec(ModelSpec):
    """A U-Net for images; with its defaults, the published one (Ronneberger et al. 2015): 31,036,738 parameters for 3
    channels and 2 classes.

    Channels double from level to level, from `width`. Dropout acts at the lowest level.
    """

    name: ClassVar[str] = "unet"
    takes: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "segmentation"

    width: Annotated[int, Field(ge=8, le=128, multiple_of=GROUP_SIZE)] = 64
    levels: Annotated[int, Field(ge=2, le=6)] = 5
    norm: Norm = "batch"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *sides = example_shape
        _check_size(self.name, sides, levels=self.levels)
        pairs = [(self.width * 2**level, self.width * 2**level) for level in range(self.levels)]
        return UNet(FLAT, pairs, narrows=True, norm=self.norm, dropout=self.dropout, channels=channels, classes=classes)


@dataclass(frozen=True, kw_only=True, slots=True)
class UNet3dSpec(ModelSpec):
    """A U-Net for volumes; with its defaults, the published one (Çiçek et al. 2016): 19,072,291 parameters for 3
    channels and 3 classes, which are the 19,069,955 of the paper and a gain for each of 2,336 normalised channels.

    Channels double within each level, from `width`. Dropout acts at the lowest level.
    """

    name: ClassVar[str] = "unet3d"
    takes: ClassVar[Modality] = "volume"
    task: ClassVar[TaskName] = "segmentation"

    width: Annotated[int, Field(ge=8, le=64, multiple_of=GROUP_SIZE)] = 32
    levels: Annotated[int, Field(ge=2, le=6)] = 4
    norm: Norm = "batch"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *sides = example_shape
        _check_size(self.name, sides, levels=self.levels)
        pairs = [(self.width * 2**level, self.width * 2 ** (level + 1)) for level in range(self.levels)]
        return UNet(
            SOLID, pairs, narrows=False, norm=self.norm, dropout=self.dropout, channels=channels, classes=classes
        )


def _check_size(name: str, sides: Sequence[int], *, levels: int) -> None:
    """Check that the lowest level has two places: batch statistics of a single place have no variance."""
    least = 2 ** (levels - 1)
    if min(sides) < least or max(sides) == least:
        raise RecipeError(
            f"{name}: found a size of {' x '.join(map(str, sides))}: expected {least} or more a side, and more than"
            f" that along one, for {levels} levels; or fewer levels"
        )


FAMILY = (UNetSpec, UNet3dSpec)

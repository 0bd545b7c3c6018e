"""Residual networks: for small images (ResNet-8, 14, 20, 32, 44, 56, 110) and for photographs (ResNet-18, 34, 50, 101).

He et al., "Deep Residual Learning for Image Recognition", 2016, arXiv:1512.03385, with projection shortcuts (option B)
and global average pooling at the end. For small images, section 4.2: three stages of (depth - 2) / 6 blocks with 16, 32
and 64 channels, so any image size works; ResNet-20 for ten classes of colour images has 272,474 parameters. For
photographs, table 1: four stages with 64, 128, 256 and 512 channels. All gains of norms start at one, as in the paper.

Shapes: B C H W in and out of the parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from explorer.errors import RecipeError
from explorer.models.residual import Gate
from explorer.models.specification import Modality, ModelSpec, TaskName

# --- parts: convolutions, norms, two kinds of blocks, stages ---------------------------------------------------------

Norm = Literal["batch", "group"]
GROUP_SIZE = 8  # channels that GroupNorm normalises together


class Convolution(nn.Conv2d):
    """A convolution without bias, initialised for the rectifier that follows it (He et al. 2015, fan-out)."""

    def __init__(self, channels_in: int, channels_out: int, *, size: int, stride: int = 1) -> None:
        super().__init__(channels_in, channels_out, size, stride=stride, padding=size // 2, bias=False)

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")


def normalisation(channels: int, norm: Norm) -> nn.Module:
    """Return the normalisation layer for that many channels."""
    if norm == "group":
        return nn.GroupNorm(max(1, channels // GROUP_SIZE), channels)
    return nn.BatchNorm2d(channels)


def projection(channels_in: int, channels_out: int, *, stride: int, norm: Norm) -> nn.Module:
    """Return the shortcut of a block: the identity if the shape stays, else a 1x1 convolution and a norm (option B)."""
    if stride == 1 and channels_in == channels_out:
        return nn.Identity()
    return nn.Sequential(
        Convolution(channels_in, channels_out, size=1, stride=stride), normalisation(channels_out, norm)
    )


class Block(nn.Module):
    """Two 3x3 convolutions and their shortcut."""

    expansion: ClassVar[int] = 1  # channels out for each channel within

    def __init__(self, channels_in: int, width: int, *, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = Convolution(channels_in, width, size=3, stride=stride)
        self.norm1 = normalisation(width, norm)
        self.conv2 = Convolution(width, width, size=3)
        self.norm2 = normalisation(width, norm)
        self.shortcut = projection(channels_in, width, stride=stride, norm=norm)
        self.gate = Gate(width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.gate(lambda: self.shortcut(x), lambda: self._branch(x)))

    def _branch(self, x: Tensor) -> Tensor:
        return self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))


class Bottleneck(nn.Module):
    """A 1x1, a 3x3 and a 1x1 convolution and their shortcut. The stride is in the 3x3 convolution (v1.5), as is usual
    today; the paper has it in the first."""

    expansion: ClassVar[int] = 4

    def __init__(self, channels_in: int, width: int, *, stride: int, norm: Norm) -> None:
        super().__init__()
        channels_out = width * self.expansion
        self.conv1 = Convolution(channels_in, width, size=1)
        self.norm1 = normalisation(width, norm)
        self.conv2 = Convolution(width, width, size=3, stride=stride)
        self.norm2 = normalisation(width, norm)
        self.conv3 = Convolution(width, channels_out, size=1)
        self.norm3 = normalisation(channels_out, norm)
        self.shortcut = projection(channels_in, channels_out, stride=stride, norm=norm)
        self.gate = Gate(channels_out)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.gate(lambda: self.shortcut(x), lambda: self._branch(x)))

    def _branch(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return self.norm3(self.conv3(y))


def build_stages(
    block: type[Block | Bottleneck], *, channels: int, widths: Sequence[int], counts: Sequence[int], norm: Norm
) -> nn.Sequential:
    """Return stages with these numbers of blocks and widths. All stages except the first halve the sides.

    Args:
        block: the kind of block.
        channels: the channels of the input.
        widths: the width of each stage.
        counts: the number of blocks of each stage.
        norm: the kind of normalisation.
    """
    stages = nn.Sequential()
    for stage, (width, count) in enumerate(zip(widths, counts, strict=True)):
        stack = nn.Sequential()
        for index in range(count):
            stack.append(block(channels, width, stride=2 if stage and not index else 1, norm=norm))
            channels = width * block.expansion
        stages.append(stack)
    return stages


def scaled(channels: Sequence[int], width: float) -> list[int]:
    """Return channels times `width`, rounded to multiples of eight.

    >>> scaled((64, 128), 0.3)
    [16, 40]
    """
    return [max(GROUP_SIZE, round(channel_count * width / GROUP_SIZE) * GROUP_SIZE) for channel_count in channels]


# --- networks for small images ---------------------------------------------------------------------------------------

STAGES = (16, 32, 64)


class ResNet(nn.Module):
    """The network: images B C H W in, logits B K out."""

    def __init__(self, *, depth: int, width: float, norm: Norm, channels: int, classes: int) -> None:
        super().__init__()
        widths = scaled(STAGES, width)
        self.conv = Convolution(channels, widths[0], size=3)
        self.norm = normalisation(widths[0], norm)
        self.stages = build_stages(Block, channels=widths[0], widths=widths, counts=[(depth - 2) // 6] * 3, norm=norm)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(images)))
        return self.head(self.stages(x).mean((2, 3)))


@dataclass(frozen=True, kw_only=True, slots=True)
class ResNetSpec(ModelSpec):
    """A residual network for small images; the depth is in the name."""

    depth: ClassVar[int]
    takes: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"

    width: Annotated[float, Field(ge=0.5, le=16)] = 1.0  # multiplies 16, 32, 64 channels; rounded to eights
    norm: Norm = "batch"

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        return ResNet(depth=self.depth, width=self.width, norm=self.norm, channels=example_shape[0], classes=classes)


def _family(depth: int, parameters: int) -> type[ResNetSpec]:
    return type(
        f"ResNet{depth}Spec",
        (ResNetSpec,),
        {
            "__doc__": f"{depth} layers: {parameters:,} parameters for ten classes of colour images. He et al. 2016.",
            "__slots__": (),
            "__module__": __name__,
            "name": f"resnet{depth}",
            "depth": depth,
        },
    )


PARAMETERS = {8: 78_042, 14: 175_258, 20: 272_474, 32: 466_906, 44: 661_338, 56: 855_770, 110: 1_730_714}
FAMILY = tuple(_family(depth, parameters) for depth, parameters in PARAMETERS.items())


# --- networks for photographs ----------------------------------------------------------------------------------------

Stem = Literal["imagenet", "cifar"]
DEEP_STAGES = (64, 128, 256, 512)
LEAST = {"imagenet": 64, "cifar": 16}  # pixels a side, which leave the last stage two places a side to normalise over


class Plan(NamedTuple):
    """The blocks of the four stages."""

    block: type[Block | Bottleneck]
    counts: tuple[int, int, int, int]


class DeepResNet(nn.Module):
    """The network: images B C H W in, logits B K out."""

    def __init__(self, plan: Plan, *, stem: Stem, width: float, norm: Norm, channels: int, classes: int) -> None:
        super().__init__()
        widths = scaled(DEEP_STAGES, width)
        large = stem == "imagenet"
        self.conv = Convolution(channels, widths[0], size=7 if large else 3, stride=2 if large else 1)
        self.norm = normalisation(widths[0], norm)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        self.stages = build_stages(plan.block, channels=widths[0], widths=widths, counts=plan.counts, norm=norm)
        self.head = nn.Linear(widths[-1] * plan.block.expansion, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.pool(F.relu(self.norm(self.conv(images))))
        return self.head(self.stages(x).mean((2, 3)))


@dataclass(frozen=True, kw_only=True, slots=True)
class DeepResNetSpec(ModelSpec):
    """A residual network for photographs; the depth is in the name.

    The stem `imagenet` is the paper's for 224 pixels: a 7x7 convolution of stride 2 and max-pooling of stride 2, for
    images of 64 pixels a side or more. The stem `cifar` is a 3x3 convolution that keeps the size, for 16 or more.
    """

    plan: ClassVar[Plan]
    takes: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"

    stem: Stem = "imagenet"
    width: Annotated[float, Field(ge=0.125, le=4)] = 1.0  # multiplies 64, 128, 256, 512 channels; rounded to eights
    norm: Norm = "batch"

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, height, width = example_shape
        smallest = min(height, width)
        if smallest < LEAST[self.stem]:
            other = "stem cifar" if smallest >= LEAST["cifar"] else "one of resnet8 to resnet110"
            raise RecipeError(
                f"{self.name}: found images of {height} x {width} pixels: expected {LEAST[self.stem]} or more a side"
                f" with stem {self.stem}, or {other}"
            )
        return DeepResNet(
            self.plan, stem=self.stem, width=self.width, norm=self.norm, channels=channels, classes=classes
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ResNet18Spec(DeepResNetSpec):
    """18 layers: 11,689,512 parameters for a thousand classes of colour images. He et al. 2016."""

    name: ClassVar[str] = "resnet18"
    plan: ClassVar[Plan] = Plan(Block, (2, 2, 2, 2))


@dataclass(frozen=True, kw_only=True, slots=True)
class ResNet34Spec(DeepResNetSpec):
    """34 layers: 21,797,672 parameters for a thousand classes of colour images. He et al. 2016."""

    name: ClassVar[str] = "resnet34"
    plan: ClassVar[Plan] = Plan(Block, (3, 4, 6, 3))


@dataclass(frozen=True, kw_only=True, slots=True)
class ResNet50Spec(DeepResNetSpec):
    """50 layers: 25,557,032 parameters for a thousand classes of colour images. He et al. 2016."""

    name: ClassVar[str] = "resnet50"
    plan: ClassVar[Plan] = Plan(Bottleneck, (3, 4, 6, 3))


@dataclass(frozen=True, kw_only=True, slots=True)
class ResNet101Spec(DeepResNetSpec):
    """101 layers: 44,549,160 parameters for a thousand classes of colour images. He et al. 2016."""

    name: ClassVar[str] = "resnet101"
    plan: ClassVar[Plan] = Plan(Bottleneck, (3, 4, 23, 3))


DEEP_FAMILY = (ResNet18Spec, ResNet34Spec, ResNet50Spec, ResNet101Spec)

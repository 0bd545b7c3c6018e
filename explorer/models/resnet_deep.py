"""Residual networks for photographs: ResNet-18, 34, 50 and 101.

He et al., "Deep Residual Learning for Image Recognition", 2016, arXiv:1512.03385, table 1, with projection shortcuts
(option B): four stages with 64, 128, 256 and 512 channels, then global average pooling. All gains of norms start at
one, as in the paper.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from explorer.errors import RecipeError
from explorer.models.resnet_blocks import (
    Block,
    Bottleneck,
    Convolution,
    Norm,
    build_stages,
    normalisation,
    scaled,
)
from explorer.models.specification import Modality, ModelSpec, TaskName

Stem = Literal["imagenet", "cifar"]
STAGES = (64, 128, 256, 512)
LEAST = {"imagenet": 64, "cifar": 16}  # pixels a side; they leave two places a side to the last stage


class Plan(NamedTuple):
    """What the stages are made of."""

    block: type[Block | Bottleneck]
    counts: tuple[int, int, int, int]


class DeepResNet(nn.Module):
    """The network: images B C H W in, logits B K out."""

    def __init__(self, plan: Plan, *, stem: Stem, width: float, norm: Norm, channels: int, classes: int) -> None:
        super().__init__()
        widths = scaled(STAGES, width)
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


FAMILY = (ResNet18Spec, ResNet34Spec, ResNet50Spec, ResNet101Spec)

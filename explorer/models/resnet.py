"""Residual networks for small images: ResNet-8, 14, 20, 32, 44, 56 and 110.

He et al., "Deep Residual Learning for Image Recognition", 2016, arXiv:1512.03385, section 4.2, with projection
shortcuts (option B): three stages of (depth - 2) / 6 blocks with 16, 32 and 64 channels, then global average pooling,
so any image size works. ResNet-20 for ten classes of colour images has 272,474 parameters.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from explorer.models.residual import Gate
from explorer.models.specification import Modality, ModelSpec, TaskName

Norm = Literal["batch", "group"]
STAGES = (16, 32, 64)
GROUP_SIZE = 8  # channels that GroupNorm normalises together


class Convolution(nn.Conv2d):
    """A convolution without bias, initialised for the rectifier that follows it (He et al. 2015, fan-out)."""

    def __init__(self, channels_in: int, channels_out: int, *, size: int, stride: int = 1) -> None:
        super().__init__(channels_in, channels_out, size, stride=stride, padding=size // 2, bias=False)

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")


def normalisation(channels: int, norm: Norm) -> nn.Module:
    """The normalisation layer for that many channels."""
    if norm == "group":
        return nn.GroupNorm(max(1, channels // GROUP_SIZE), channels)
    return nn.BatchNorm2d(channels)


class Block(nn.Module):
    """Two 3x3 convolutions and the path around them."""

    def __init__(self, channels_in: int, channels_out: int, *, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = Convolution(channels_in, channels_out, size=3, stride=stride)
        self.norm1 = normalisation(channels_out, norm)
        self.conv2 = Convolution(channels_out, channels_out, size=3)
        self.norm2 = normalisation(channels_out, norm)
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                Convolution(channels_in, channels_out, size=1, stride=stride), normalisation(channels_out, norm)
            )

        self.gate = Gate(channels_out)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.gate(lambda: self.shortcut(x), lambda: self._branch(x)))

    def _branch(self, x: Tensor) -> Tensor:
        return self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))


class ResNet(nn.Module):
    """The network: images B C H W in, logits B K out."""

    def __init__(self, *, depth: int, width: float, norm: Norm, channels: int, classes: int) -> None:
        super().__init__()
        widths = [max(GROUP_SIZE, round(stage * width / GROUP_SIZE) * GROUP_SIZE) for stage in STAGES]
        blocks = (depth - 2) // 6
        self.conv = Convolution(channels, widths[0], size=3)
        self.norm = normalisation(widths[0], norm)
        self.stages = nn.Sequential()
        before = widths[0]
        for stage, after in enumerate(widths):
            strides = [1 if stage == 0 else 2] + [1] * (blocks - 1)
            ins = [before] + [after] * (blocks - 1)
            stack = (Block(i, after, stride=s, norm=norm) for i, s in zip(ins, strides, strict=True))
            self.stages.append(nn.Sequential(*stack))
            before = after
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


def _family(depth: int) -> type[ResNetSpec]:
    return type(
        f"ResNet{depth}Spec",
        (ResNetSpec,),
        {"__slots__": (), "__module__": __name__, "name": f"resnet{depth}", "depth": depth},
    )


FAMILY = tuple(_family(depth) for depth in (8, 14, 20, 32, 44, 56, 110))

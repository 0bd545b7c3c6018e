"""What residual networks are made of: convolutions, norms, two kinds of blocks, and stages of blocks.

He et al., "Deep Residual Learning for Image Recognition", 2016, arXiv:1512.03385. Shapes: B C H W in and out.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from explorer.models.residual import Gate

Norm = Literal["batch", "group"]
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


def projection(channels_in: int, channels_out: int, *, stride: int, norm: Norm) -> nn.Module:
    """The path around a block: nothing where the shape stays, else a 1x1 convolution and a norm."""
    if stride == 1 and channels_in == channels_out:
        return nn.Identity()
    return nn.Sequential(
        Convolution(channels_in, channels_out, size=1, stride=stride), normalisation(channels_out, norm)
    )


class Block(nn.Module):
    """Two 3x3 convolutions and the path around them."""

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
    """A 1x1, a 3x3 and a 1x1 convolution, and the path around them; the 3x3 one has the stride (the paper's first one
    has it; what has been usual since is called v1.5)."""

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
    """Stages of so many blocks of such widths, for that many channels; all stages but the first halve the sides."""
    stages = nn.Sequential()
    for stage, (width, count) in enumerate(zip(widths, counts, strict=True)):
        stack = nn.Sequential()
        for index in range(count):
            stack.append(block(channels, width, stride=2 if stage and not index else 1, norm=norm))
            channels = width * block.expansion
        stages.append(stack)
    return stages


def scaled(channels: Sequence[int], width: float) -> list[int]:
    """Channels times `width`, to the nearest eight.

    >>> scaled((64, 128), 0.3)
    [16, 40]
    """
    return [max(GROUP_SIZE, round(each * width / GROUP_SIZE) * GROUP_SIZE) for each in channels]

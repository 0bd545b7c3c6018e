"""The layers of U-Nets, for images (`FLAT`) and for volumes (`SOLID`), and how their weights start.

Ronneberger et al. 2015, arXiv:1505.04597, section 3: Gaussian, of variance 2 / N where N numbers make one, for the
rectifier that follows (He et al. 2015).
"""

import math
from typing import NamedTuple

from torch import nn

from explorer.models.resnet_blocks import GROUP_SIZE, Norm


class Convolution2d(nn.Conv2d):
    """Drawn for the rectifier that follows."""

    def reset_parameters(self) -> None:
        _draw(self, 2 / self.weight[0].numel())


class Convolution3d(nn.Conv3d):
    """Drawn likewise."""

    def reset_parameters(self) -> None:
        _draw(self, 2 / self.weight[0].numel())


class Expansion2d(nn.ConvTranspose2d):
    """Twice the size. A place is made of one place, and no rectifier follows: variance 1 / channels."""

    def reset_parameters(self) -> None:
        _draw(self, 1 / self.in_channels)


class Expansion3d(nn.ConvTranspose3d):
    """Drawn likewise."""

    def reset_parameters(self) -> None:
        _draw(self, 1 / self.in_channels)


def _draw(layer: Convolution2d | Convolution3d | Expansion2d | Expansion3d, variance: float) -> None:
    nn.init.normal_(layer.weight, std=math.sqrt(variance))
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


class Layers(NamedTuple):
    """What differs between images and volumes."""

    convolution: type[Convolution2d | Convolution3d]
    expansion: type[Expansion2d | Expansion3d]
    pool: type[nn.MaxPool2d | nn.MaxPool3d]
    batch_norm: type[nn.BatchNorm2d | nn.BatchNorm3d]


FLAT = Layers(Convolution2d, Expansion2d, nn.MaxPool2d, nn.BatchNorm2d)
SOLID = Layers(Convolution3d, Expansion3d, nn.MaxPool3d, nn.BatchNorm3d)


def normalisation(layers: Layers, channels: int, norm: Norm) -> nn.Module:
    """The normalisation layer for that many channels."""
    return nn.GroupNorm(channels // GROUP_SIZE, channels) if norm == "group" else layers.batch_norm(channels)

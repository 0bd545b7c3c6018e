"""The network of the CIFAR-10 speed records: fixed whitening of patches, convolutions that begin as identities, no
shortcuts.

Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", 2024, arXiv:2404.00498 (airbench94), after Page, "How to
Train Your ResNet", 2019. A layer that whitens patches of 2x2 pixels, three stages of two 3x3 convolutions with 64, 256
and 256 channels, each of which halves the sides by max-pooling, then the maximum over all places and a linear layer.
Batch normalisation is the ordinary one: the records fix its gains and train its shifts 64 times as fast, which did not
help on small images.

The records whiten by the covariance of patches of their training images. Here it is that of natural images by formula:
neighbouring pixels correlate by `NEIGHBOURS`, the channels of a pixel by `CHANNELS`. So the filters are computed from
no example: nothing of the training data gets into the model that a policy or a deletion would not reach. Sides are
rounded up when they are halved, which keeps the border of small images.

Shapes: B C H W in and out of the parts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from explorer.errors import RecipeError
from explorer.models.resnet import scaled
from explorer.models.specification import Modality, ModelSpec, TaskName
from explorer.schema import LATER

STAGES = (64, 256, 256)
LEAST = 10  # pixels a side, which leave the last stage two places a side to normalise over
PATCH = 2  # pixels a side
NEIGHBOURS, CHANNELS = 0.9, 0.9  # correlations in natural images, in round numbers; those of CIFAR-10 are 0.80 to 0.93
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}
MOMENTUM = 0.4  # of a batch in the running statistics: runs are short
SCALE = 1 / 9  # of the logits

# --- parts -----------------------------------------------------------------------------------------------------------


def cosines(size: int) -> Tensor:
    """Return the orthonormal cosine basis (DCT-II), a vector in each row: the mean first, then ever faster changes."""
    at = torch.arange(size, dtype=torch.float64)
    basis = torch.cos(math.pi / size * at[:, None] * (at + 0.5)) * math.sqrt(2 / size)
    basis[0] /= math.sqrt(2)
    return basis


def whitening_filters(channels: int) -> Tensor:
    """Return the filters that make patches of natural images uncorrelated, each with variance one: 4 C x C x 2 x 2.

    The cosine basis diagonalises a covariance that is equal between all channels, and between the two pixels of a side.
    Each filter is a product of three vectors of it, divided by the square root of the product of their variances. The
    filters of three channels are brightness, red against blue, and green against both, and their changes along each
    side.
    """
    colour, side = cosines(channels), cosines(PATCH)
    spread = [1 + (channels - 1) * CHANNELS] + [1 - CHANNELS] * (channels - 1)
    along = [1 + NEIGHBOURS, 1 - NEIGHBOURS]
    filters = [
        torch.einsum("c,h,w->chw", colour[c], side[row], side[column])
        / math.sqrt(spread[c] * along[row] * along[column])
        for c, row, column in product(range(channels), range(PATCH), range(PATCH))
    ]
    return torch.stack(filters).to(torch.float32)


class Whitening(nn.Module):
    """Patches by fixed filters and their negatives, with biases that train."""

    filters: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        filters = whitening_filters(channels)
        self.register_buffer("filters", torch.cat((filters, -filters)))
        self.bias = nn.Parameter(torch.zeros(2 * len(filters)))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)

    def forward(self, images: Tensor) -> Tensor:
        return F.conv2d(images, self.filters, self.bias)


class IdentityConvolution(nn.Conv2d):
    """A 3x3 convolution without bias, whose first filters pass their channel on at the start (a Dirac kernel)."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__(channels_in, channels_out, 3, padding=1, bias=False)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        with torch.no_grad():
            nn.init.dirac_(self.weight[: self.in_channels])


class Stage(nn.Module):
    """Two convolutions, with max-pooling after the first."""

    def __init__(self, channels_in: int, channels: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.conv1 = IdentityConvolution(channels_in, channels)
        self.pool = nn.MaxPool2d(2, ceil_mode=True)
        self.norm1 = nn.BatchNorm2d(channels, momentum=MOMENTUM)
        self.conv2 = IdentityConvolution(channels, channels)
        self.norm2 = nn.BatchNorm2d(channels, momentum=MOMENTUM)

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation(self.norm1(self.pool(self.conv1(x))))
        return self.activation(self.norm2(self.conv2(x)))


# --- the network -----------------------------------------------------------------------------------------------------


class Airbench(nn.Module):
    """The network: images B C H W in, logits B K out."""

    def __init__(
        self, *, width: float, channels: int, classes: int, activation: str = "gelu", biases: bool = True
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.whitening = Whitening(channels)
        self.whitening.bias.requires_grad_(biases)
        self.stages = nn.Sequential()
        before = len(self.whitening.bias)
        for after in scaled(STAGES, width):
            self.stages.append(Stage(before, after, self.activation))
            before = after
        self.head = nn.Linear(before, classes, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stages(self.activation(self.whitening(images)))
        return self.head(x.flatten(2).max(2).values) * SCALE  # compiled in bf16, `amax` divides gradients by 0


@dataclass(frozen=True, kw_only=True, slots=True)
class AirbenchSpec(ModelSpec):
    """The network of the CIFAR-10 speed records, for images of 10 pixels a side or more. Jordan 2024.

    With its defaults, 1,972,504 parameters for ten classes of colour images. `whitening_biases: false` keeps the
    biases of the first layer at zero, so that the backward pass ends at the first convolution.
    """

    name: ClassVar[str] = "airbench"
    takes: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"

    width: Annotated[float, Field(ge=0.125, le=8)] = 1.0  # multiplies 64, 256, 256 channels; rounded to eights
    activation: Annotated[Literal["gelu", "relu"], Field(description="relu takes less time on a CPU")] = field(
        default="gelu", metadata=LATER
    )
    whitening_biases: Annotated[bool, Field(description="train the biases of the whitening layer")] = field(
        default=True, metadata=LATER
    )

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, *sides = example_shape
        if min(sides) < LEAST:
            raise RecipeError(
                f"{self.name}: found images of {' x '.join(map(str, sides))} pixels: expected {LEAST} or more a side,"
                " or one of resnet8 to resnet110"
            )
        return Airbench(
            width=self.width,
            channels=channels,
            classes=classes,
            activation=self.activation,
            biases=self.whitening_biases,
        )


FAMILY = (AirbenchSpec,)

"""Residual networks for small images: ResNet-8, 14, 20, 32, 44, 56 and 110.

He et al., "Deep Residual Learning for Image Recognition", 2016, arXiv:1512.03385, section 4.2, with projection
shortcuts (option B): three stages of (depth - 2) / 6 blocks with 16, 32 and 64 channels, then global average pooling,
so any image size works. ResNet-20 for ten classes of colour images has 272,474 parameters.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from explorer.models.resnet_blocks import Block, Convolution, Norm, build_stages, normalisation, scaled
from explorer.models.specification import Modality, ModelSpec, TaskName

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

"""BlurPool: blur before every stride, so that down-sampling does not alias.

Zhang, "Making Convolutional Networks Shift-Invariant Again", 2019, arXiv:1904.11486. The filter is [1 2 1] x [1 2 1]
/ 16, applied to each channel with the border repeated (zeros would darken it). Strided convolutions are blurred first;
strided max-pooling becomes a dense maximum, then a strided blur.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.method import Kind, Method
from explorer.engine.state import State
from explorer.engine.surgery import replace_modules
from explorer.errors import RecipeError


def blur_filter() -> Tensor:
    """The 3x3 binomial filter, which sums to one."""
    side = torch.tensor([1.0, 2.0, 1.0])
    return side.outer(side) / 16


def blur(images_BCHW: Tensor, kernel_33: Tensor, *, stride: int | tuple[int, int] = 1) -> Tensor:
    """Each channel blurred by the 3x3 kernel, border repeated; sides are divided by the stride, rounded up."""
    channels = images_BCHW.size(1)
    filters = kernel_33.to(images_BCHW.dtype).expand(channels, 1, 3, 3)
    return F.conv2d(_with_border(images_BCHW), filters, stride=stride, groups=channels)


def _with_border(images_BCHW: Tensor) -> Tensor:
    """One pixel more on each side, repeated. Concatenated: padding has no deterministic backward on GPUs."""
    tall = torch.cat((images_BCHW[:, :, :1], images_BCHW, images_BCHW[:, :, -1:]), dim=2)
    return torch.cat((tall[:, :, :, :1], tall, tall[:, :, :, -1:]), dim=3)


class BlurConv2d(nn.Conv2d):
    """A strided convolution of a blurred input. Parameters keep their names."""

    blur_filter: Tensor

    @classmethod
    def of(cls, conv: nn.Conv2d) -> "BlurConv2d":
        """The blurred form of a convolution, with the very same parameters."""
        new = cls(
            conv.in_channels,
            conv.out_channels,
            conv.kernel_size,  # pyright: ignore[reportArgumentType]
            stride=conv.stride,  # pyright: ignore[reportArgumentType]
            padding=conv.padding,  # pyright: ignore[reportArgumentType]
            dilation=conv.dilation,  # pyright: ignore[reportArgumentType]
            groups=conv.groups,
            bias=conv.bias is not None,
            padding_mode=conv.padding_mode,
            device="meta",  # its own parameters are never allocated
        )
        new.weight, new.bias = conv.weight, conv.bias
        new.register_buffer("blur_filter", blur_filter().to(conv.weight.device), persistent=False)
        return new

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(blur(input, self.blur_filter))


class BlurMaxPool2d(nn.Module):
    """Max-pooling at stride one, then a blur at the pool's stride."""

    blur_filter: Tensor

    def __init__(self, pool: nn.MaxPool2d) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(pool.kernel_size, stride=1, padding=pool.padding, dilation=pool.dilation)
        self.stride = pool.stride
        self.register_buffer("blur_filter", blur_filter(), persistent=False)

    def forward(self, input: Tensor) -> Tensor:
        return blur(self.pool(input), self.blur_filter, stride=self.stride)


def apply_blurpool(model: nn.Module, *, convolutions: bool, pools: bool, min_channels: int) -> list[str]:
    """Blur before every stride, in place; return the names of what was replaced. Raises `RecipeError` if nothing."""

    def replace(module: nn.Module, _: str) -> nn.Module | None:
        if convolutions and isinstance(module, nn.Conv2d) and not isinstance(module, BlurConv2d):
            return BlurConv2d.of(module) if _strided(module.stride) and module.in_channels >= min_channels else None
        if pools and isinstance(module, nn.MaxPool2d) and _strided(module.stride):
            exact = not (module.return_indices or module.ceil_mode)  # a blur has no indices, and rounds down
            return BlurMaxPool2d(module) if exact else None
        return None

    target = f"strided convolutions of {min_channels} or more input channels, or strided max-pooling"
    return replace_modules(model, replace, method="blurpool", target=target)


def _strided(stride: int | tuple[int, ...]) -> bool:
    return stride > 1 if isinstance(stride, int) else max(stride) > 1


@dataclass(frozen=True, kw_only=True, slots=True)
class BlurPool(Method):
    """Blur before every stride. Changes the model for good, inference included."""

    name: ClassVar[str] = "blurpool"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Blurs before every stride, so that down-sampling does not alias."
    source: ClassVar[str] = "Zhang 2019, arXiv:1904.11486"
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image"})

    convolutions: Annotated[bool, Field(description="blur before strided convolutions")] = True
    pools: Annotated[bool, Field(description="blur after max-pooling at stride one")] = True
    min_channels: Annotated[int, Field(ge=1, description="input channels below which a convolution is left alone")] = 16

    def __post_init__(self) -> None:
        if not (self.convolutions or self.pools):
            raise RecipeError("found convolutions and pools both off: expected at least one of them")

    def change_model(self, state: State) -> None:
        apply_blurpool(state.model, convolutions=self.convolutions, pools=self.pools, min_channels=self.min_channels)

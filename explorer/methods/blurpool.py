"""BlurPool: blur before every stride, so that down-sampling does not alias.

Zhang, "Making Convolutional Networks Shift-Invariant Again", 2019, arXiv:1904.11486. The filter is [1 2 1] x [1 2 1]
/ 16 on each channel, with the border repeated (zeros would darken it). The input of strided convolutions is blurred;
strided max-pooling becomes a dense maximum followed by a strided blur (section 3.2).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.forms import checked
from explorer.engine.method import Kind, Method, Unit
from explorer.engine.modules import change_modules, check_reaches, mix_in
from explorer.engine.state import State
from explorer.errors import RecipeError


def blur_filter() -> Tensor:
    """Return the 3x3 binomial filter, which sums to one."""
    side = torch.tensor([1.0, 2.0, 1.0])
    return side.outer(side) / 16


def blur(images_BCHW: Tensor, kernel_33: Tensor, *, stride: int | tuple[int, int] = 1) -> Tensor:
    """Return each channel blurred by the 3x3 kernel, border repeated; sides are divided by the stride, rounded up."""
    channels = images_BCHW.size(1)
    filters = kernel_33.to(images_BCHW.dtype).expand(channels, 1, 3, 3)
    return F.conv2d(_with_border(images_BCHW), filters, stride=stride, groups=channels)


def _with_border(images_BCHW: Tensor) -> Tensor:
    """Return the images with their border repeated by one pixel on each side."""
    # By concatenation: the backward pass of replication padding is not deterministic on GPUs.
    tall = torch.cat((images_BCHW[:, :, :1], images_BCHW, images_BCHW[:, :, -1:]), dim=2)
    return torch.cat((tall[:, :, :, :1], tall, tall[:, :, :, -1:]), dim=3)


class Blurred(nn.Conv2d if TYPE_CHECKING else object):
    """A strided convolution of a blurred input."""

    blur_filter: Tensor
    blur_strides: bool  # the blur takes the stride: a filter of one pixel would skip most of the blurred pixels

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.blur_strides:
            small = blur(input, self.blur_filter, stride=self.stride)  # pyright: ignore[reportArgumentType]
            return F.conv2d(small, weight, bias, groups=self.groups)
        return super()._conv_forward(blur(input, self.blur_filter), weight, bias)


class BlurredMaximum(nn.MaxPool2d if TYPE_CHECKING else object):
    """Max-pooling at stride one, then a blur at the pool's stride."""

    blur_filter: Tensor

    def forward(self, input: Tensor) -> Tensor:
        dense = F.max_pool2d(input, self.kernel_size, stride=1, padding=self.padding, dilation=self.dilation)
        return blur(dense, self.blur_filter, stride=self.stride)


def apply_blurpool(
    model: nn.Module, *, convolutions: bool = True, pools: bool = True, min_channels: int = 16
) -> list[str]:
    """Blur before every stride, in place; return the names of the changed modules. Raises `RecipeError` if none match.

    Convolutions with fewer than `min_channels` input channels stay as they are. So do pools that return indices or
    round up, because a blur has no indices and rounds down.

    In a loop:

        functional.blurpool(model, min_channels=8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    checked(BlurPool, convolutions=convolutions, pools=pools, min_channels=min_channels)
    device = next((parameter.device for parameter in model.parameters()), None)

    def change(module: nn.Module, name: str) -> bool:
        if isinstance(module, Blurred | BlurredMaximum):
            return False
        if convolutions and isinstance(module, nn.Conv2d) and module.in_channels >= min_channels:
            behaviour = Blurred
        elif pools and isinstance(module, nn.MaxPool2d) and not (module.return_indices or module.ceil_mode):
            behaviour = BlurredMaximum
        else:
            return False
        if not _strided(module.stride):
            return False
        if isinstance(module, nn.Conv2d):
            check_reaches(module, nn.Conv2d, "_conv_forward", method=BlurPool.name, name=name)
            module.blur_strides = _is_one_pixel(module)  # pyright: ignore[reportArgumentType]
        module.register_buffer("blur_filter", blur_filter().to(device), persistent=False)
        mix_in(behaviour, module)
        return True

    target = f"strided convolutions of {min_channels} or more input channels, or strided max-pooling"
    return change_modules(model, change, method=BlurPool.name, target=target)


def _is_one_pixel(conv: nn.Conv2d) -> bool:
    """Return whether a convolution sees one pixel at a time, and no other method has changed its computation."""
    own = type(conv)._conv_forward is nn.Conv2d._conv_forward
    return own and conv.kernel_size == (1, 1) and conv.padding in ((0, 0), "valid")


def _strided(stride: int | tuple[int, ...]) -> bool:
    return stride > 1 if isinstance(stride, int) else max(stride) > 1


@dataclass(frozen=True, kw_only=True, slots=True)
class BlurPool(Method):
    """Changes the model for good, at inference too. The blur has no parameters."""

    name: ClassVar[str] = "blurpool"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Blurs before every stride, so that down-sampling does not alias."
    source: ClassVar[str] = "Zhang 2019, arXiv:1904.11486"
    formula: ClassVar[str] = (
        "x' = x * [1 2 1]^T [1 2 1] / 16 for each channel, the border repeated, before a strided convolution;"
        " max-pooling of stride s becomes max-pooling of stride 1, then the blur at stride s"
    )
    changes: ClassVar[str] = "the model"
    needs: ClassVar[str] = "strided convolutions or strided max-pooling of images"
    # After surgery that adds or replaces convolutions, since those need the blur too.
    routing: ClassVar[str] = "Works: the filter is fixed, and each image is blurred by itself."
    after: ClassVar[tuple[str, ...]] = ("factorize", "squeeze_excite")
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image"})

    convolutions: Annotated[bool, Field(description="blur before strided convolutions")] = True
    pools: Annotated[bool, Field(description="blur after max-pooling at stride one")] = True
    min_channels: Annotated[
        int, Field(ge=1, le=65536, description="least input channels of a blurred convolution"), Unit("channels")
    ] = 16

    def __post_init__(self) -> None:
        if not (self.convolutions or self.pools):
            raise RecipeError("found convolutions and pools both off: expected at least one of them")

    def any_length(self) -> bool:
        return True

    def change_model(self, state: State) -> None:
        apply_blurpool(state.model, convolutions=self.convolutions, pools=self.pools, min_channels=self.min_channels)

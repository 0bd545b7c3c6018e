"""Factorise: replace a large layer by two small ones.

Jaderberg, Vedaldi, Zisserman, "Speeding up Convolutional Neural Networks with Low Rank Expansions", 2014,
arXiv:1405.3866; Zhang et al., "Accelerating Very Deep Convolutional Networks for Classification and Detection", 2016,
arXiv:1505.06798. The initial weight becomes the best product of two matrices of that rank: its truncated singular value
decomposition, which no other product of the rank beats for white input (Eckart, Young 1936). A convolution becomes one
with fewer filters followed by one of size 1x1. The papers compress trained networks; whether it helps in training from
scratch is for each sweep to measure.

Shapes: M outputs, N inputs of a place, K the rank.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from explorer.engine.architectures import affine_sizes, is_transposed, leave_fast_paths
from explorer.engine.forms import checked
from explorer.engine.method import Kind, Method, Unit
from explorer.engine.modules import replace_modules
from explorer.engine.state import State

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
Factorise = Callable[..., nn.Sequential]


def factors(weight_MN: Tensor, *, rank: int) -> tuple[Tensor, Tensor]:
    """Return M K and K N, whose product is the closest of that rank."""
    # Each side gets the root of the singular values, so that both factors have gradients of similar size.
    exact = weight_MN.detach().to(torch.promote_types(weight_MN.dtype, torch.float32))
    left_MK, values_K, right_KN = torch.linalg.svd(exact, full_matrices=False)
    root_K = values_K[:rank].sqrt()
    left, right = left_MK[:, :rank] * root_K, root_K[:, None] * right_KN[:rank]
    return left.to(weight_MN.dtype), right.to(weight_MN.dtype)


def saves(weight: Tensor, *, rank: int) -> bool:
    """Return whether two factors take fewer multiply-adds than the weight: K (M + N) < M N."""
    outputs, inputs = len(weight), weight[0].numel()
    return rank * (outputs + inputs) < outputs * inputs


def factorised_linear(layer: Any, *, rank: int) -> nn.Sequential:
    """Return a linear layer, or one with a transposed weight, as two: one to `rank` features, and one from these to the
    outputs."""
    place = {"device": layer.weight.device, "dtype": layer.weight.dtype}
    sizes = affine_sizes(layer)
    assert sizes is not None
    down = _empty(nn.Linear, sizes[0], rank, bias=False, **place)
    up = _empty(nn.Linear, rank, sizes[1], bias=layer.bias is not None, **place)
    return _filled(layer, down, up, rank=rank)


def factorised_convolution(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, *, rank: int) -> nn.Sequential:
    """Return a convolution with one group as two: one with `rank` filters, and one of size 1."""
    place = {"device": layer.weight.device, "dtype": layer.weight.dtype}
    kind = next(kind for kind in CONVOLUTIONS if isinstance(layer, kind))
    down = _empty(
        kind,
        layer.in_channels,
        rank,
        layer.kernel_size,
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        padding_mode=layer.padding_mode,
        bias=False,
        **place,
    )
    up = _empty(kind, rank, layer.out_channels, 1, bias=layer.bias is not None, **place)
    return _filled(layer, down, up, rank=rank)


def _empty(kind: type[nn.Module], *sizes: Any, **options: Any) -> nn.Module:
    """Return a layer without values, so that no random numbers are drawn for it."""
    return torch.nn.utils.skip_init(kind, *sizes, **options)


@torch.no_grad()
def _filled(layer: Any, down: Any, up: Any, *, rank: int) -> nn.Sequential:
    """Return the two layers, filled from the weight and the bias of the one they replace."""
    left, right = factors(_matrix(layer), rank=rank)
    down.weight.copy_(right.view_as(down.weight))
    up.weight.copy_(left.view_as(up.weight))
    if layer.bias is not None:
        up.bias.copy_(layer.bias)
    return nn.Sequential(down, up)


def _matrix(layer: Any) -> Tensor:
    """Return the weight of a layer, outputs x inputs of a place."""
    return layer.weight.T if is_transposed(layer) else layer.weight.flatten(1)


def apply_factorize(
    model: nn.Module,
    *,
    convolution_rank: float = 0.25,
    min_channels: int = 256,
    linear_rank: int = 128,
    min_features: int = 256,
) -> list[str]:
    """Factorise the large layers of a model where that saves multiply-adds, in place; return their names.

    Grouped convolutions, weights that several layers share, and layers that other surgery has changed stay as they are.
    Raises `RecipeError` if no layer qualifies.

    Args:
        model: the model to change.
        convolution_rank: rank of a convolution's factors, as a share of the smaller of its numbers of channels.
        min_channels: least channels, in and out, of a convolution that is factorised.
        linear_rank: rank of a linear layer's factors.
        min_features: least features, in and out, of a linear layer that is factorised.

    In a loop:

        functional.factorize(model, min_channels=16, min_features=16, linear_rank=2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    checked(
        Factorize,
        convolution_rank=convolution_rank,
        min_channels=min_channels,
        linear_rank=linear_rank,
        min_features=min_features,
    )
    # A shared weight would become two different ones, one in each of its layers.
    uses = Counter(id(weight) for module in model.modules() for weight in module.parameters(recurse=False))

    def replace(module: nn.Module, name: str) -> nn.Module | None:
        if isinstance(module, CONVOLUTIONS) and module.groups == 1:
            narrow = min(module.in_channels, module.out_channels)
            rank, large = max(1, round(convolution_rank * narrow)), narrow >= min_channels
            make: Factorise = factorised_convolution
        # Attention reads the weight of its output projection directly, so that layer has to keep its class.
        elif (sizes := affine_sizes(module)) is not None and not isinstance(module, NonDynamicallyQuantizableLinear):
            rank, large = linear_rank, min(sizes) >= min_features
            make = factorised_linear
        else:
            return None
        own = _is_plain(module) and uses[id(module.weight)] == 1
        return make(module, rank=rank) if large and own and saves(_matrix(module), rank=rank) else None

    target = (
        f"convolutions of {min_channels} or more channels or linear layers of {min_features} or more features, in and"
        " out, that take fewer multiply-adds as two"
    )
    names = replace_modules(model, replace, method=Factorize.name, target=target)
    leave_fast_paths(model)
    return names


def _is_plain(layer: nn.Module) -> bool:
    """Return whether a layer computes what its base class does."""
    if is_transposed(layer):
        return True
    kind = next(kind for kind in (*CONVOLUTIONS, nn.Linear) if isinstance(layer, kind))
    methods = ("forward", "_conv_forward") if kind in CONVOLUTIONS else ("forward",)
    return all(getattr(type(layer), method) is getattr(kind, method) for method in methods)


@dataclass(frozen=True, kw_only=True, slots=True)
class Factorize(Method):
    """Changes the model for good, at inference too. Starts from the closest product of the rank to the initial
    weights."""

    name: ClassVar[str] = "factorize"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Replaces large layers by two small ones, where that takes fewer multiply-adds."
    source: ClassVar[str] = "Jaderberg et al. 2014, arXiv:1405.3866; Zhang et al. 2016, arXiv:1505.06798"
    formula: ClassVar[str] = (
        "W (M x N) becomes U V, its truncated singular value decomposition of rank K, if K (M + N) < M N;"
        " K = `convolution_rank` x min(channels in, out) for convolutions, `linear_rank` for linear layers"
    )
    changes: ClassVar[str] = "the model"
    needs: ClassVar[str] = "convolutions of `min_channels` or linear layers of `min_features`, in and out"
    routing: ClassVar[str] = "Works: both factors are layers of their own, under the name of the layer they replace."

    convolution_rank: Annotated[
        float, Field(gt=0, le=1, description="rank of a convolution's factors"), Unit("share of channels")
    ] = 0.25
    min_channels: Annotated[
        int, Field(ge=1, le=65536, description="least channels of a convolution, in and out"), Unit("channels")
    ] = 256
    linear_rank: Annotated[int, Field(ge=1, le=65536, description="rank of a linear layer's factors")] = 128
    min_features: Annotated[int, Field(ge=1, le=65536, description="least features of a linear layer, in and out")] = (
        256
    )

    def any_length(self) -> bool:
        return True

    def change_model(self, state: State) -> None:
        apply_factorize(
            state.model,
            convolution_rank=self.convolution_rank,
            min_channels=self.min_channels,
            linear_rank=self.linear_rank,
            min_features=self.min_features,
        )

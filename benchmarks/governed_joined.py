"""An alternative to one pass for each class: one pass for the rows of several, its gradients split by class.

Rows of several classes go through one forward and one backward pass. Convolutions, GroupNorm and linear layers take the
gradient of their input for all rows at once, and that of their parameters class by class. No operation of this network
mixes rows, so the gradients are those of one pass for each class. Nothing here is routed, recorded or safe for other
models: it is the least that such a step can take.

Shapes: N rows, C channels, k classes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from governed_loops import BATCH, Work, by_hand
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

ROWS = 32  # of a pass


class Convolution(Function):
    """A convolution without bias; the weight comes k times, and has k gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, sizes: Sequence[int], *how: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.sizes, ctx.how = sizes, how
        stride, padding, dilation, groups = how
        return torch.convolution(x, weight[0], None, stride, padding, dilation, False, (0, 0), groups)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.how

        def gradients(g: Tensor, rows: Tensor, wanted: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
            how = (None, stride, padding, dilation, False, (0, 0), groups, wanted)
            return torch.ops.aten.convolution_backward(g, rows, weight[0], *how)

        of_x = gradients(grad, x, [True, False, False])[0] if ctx.needs_input_grad[0] else None
        parts = zip(grad.split(ctx.sizes), x.split(ctx.sizes), strict=True)
        of_weight = torch.stack([gradients(g, rows, [False, True, False])[1] for g, rows in parts])
        return of_x, of_weight, None, None, None, None, None


class GroupNorm(Function):
    """GroupNorm of N rows is that of one row with N times the channels and groups: its gradients are by row."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, sizes: Sequence[int], groups: int, eps: float
    ) -> Tensor:
        rows, channels = x.shape[:2]
        places = x.numel() // (rows * channels)
        y, mean, scale = torch.native_group_norm(x, weight[0], bias[0], rows, channels, places, groups, eps)
        ctx.save_for_backward(x, mean, scale, weight)
        ctx.sizes, ctx.shape, ctx.groups = sizes, (rows, channels, places), groups
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, mean, scale, weight = ctx.saved_tensors
        rows, channels, places = ctx.shape
        wide = (1, rows * channels, places)
        of_x, of_weight, of_bias = torch.ops.aten.native_group_norm_backward(
            grad.reshape(wide),
            x.reshape(wide),
            mean.view(1, -1),
            scale.view(1, -1),
            weight[0].repeat(rows),
            *wide,
            rows * ctx.groups,
            [True, True, True],
        )
        by_class = [
            torch.stack([part.sum(0) for part in each.view(rows, channels).split(ctx.sizes)])
            for each in (of_weight, of_bias)
        ]
        return of_x.view_as(x), *by_class, None, None, None


class Linear(Function):
    """A linear layer on N rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, sizes: Sequence[int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.sizes = sizes
        return F.linear(x, weight[0], bias[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        parts = list(zip(grad.split(ctx.sizes), x.split(ctx.sizes), strict=True))
        of_weight = torch.stack([g.T @ rows for g, rows in parts])
        return grad @ weight[0], of_weight, torch.stack([g.sum(0) for g, _ in parts]), None


class ByClass(TorchFunctionMode):
    """Within the block, layers take these parameters, each k times, for their own."""

    def __init__(self, leaves: Mapping[nn.Parameter, Tensor], sizes: Sequence[int]) -> None:
        super().__init__()
        self._leaves, self._sizes = leaves, sizes

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.conv2d:
            x, weight, _, *how = args
            return Convolution.apply(x, self._leaves[weight], self._sizes, *how)
        if func is F.group_norm:
            weight, bias = self._leaves[kwargs["weight"]], self._leaves[kwargs["bias"]]
            return GroupNorm.apply(args[0], weight, bias, self._sizes, args[1], kwargs["eps"])
        if func is F.linear:
            return Linear.apply(args[0], self._leaves[args[1]], self._leaves[args[2]], self._sizes)
        return func(*args, **kwargs)


def joined(work: Work, classes: int) -> Callable[[], None]:
    """A step in passes of `ROWS` rows with the gradients of every class; raises `ValueError` unless they are those of
    one pass for each class."""
    model, optimizer, inputs, losses_of = by_hand(work, classes)
    parameters, size = list(model.parameters()), BATCH // classes
    sizes = [size] * (ROWS // size)
    leaves = {each: each.detach().expand(len(sizes), *each.shape).requires_grad_() for each in parameters}

    def gradients() -> list[tuple[Tensor, ...]]:
        """Return for every pass the gradient of each parameter, of shape (k, *its shape)."""
        found = []
        for start in range(0, BATCH, ROWS):
            with ByClass(leaves, sizes):
                outputs = model(inputs[start : start + ROWS])
            loss = losses_of(outputs, slice(start, start + ROWS)).sum() / BATCH
            found.append(torch.autograd.grad(loss, list(leaves.values())))
        return found

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        for by_parameter in gradients():
            for parameter, by_class in zip(parameters, by_parameter, strict=True):
                for gradient in by_class:
                    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        optimizer.step()

    _check(model, inputs, losses_of, gradients(), size)
    return step


def _check(
    model: nn.Module,
    inputs: Tensor,
    losses_of: Callable[[Tensor, slice], Tensor],
    found: Sequence[tuple[Tensor, ...]],
    size: int,
) -> None:
    """The gradients against those of one pass for each class."""
    for index in range(BATCH // size):
        rows = slice(index * size, (index + 1) * size)
        loss = losses_of(model(inputs[rows]), rows).sum() / BATCH
        expected = torch.autograd.grad(loss, list(model.parameters()))
        number, place = divmod(index, ROWS // size)
        for one, other in zip(expected, found[number], strict=True):
            if (one - other[place]).norm() > 1e-4 * one.norm():
                raise ValueError("gradients split by class are not those of one pass for each class")

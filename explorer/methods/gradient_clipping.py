"""Gradient clipping: shorten gradients that are longer than a threshold, in one of three ways.

norm      one factor for all gradients together, which keeps their direction. Pascanu, Mikolov, Bengio, "On the
          difficulty of training recurrent neural networks", 2013, arXiv:1211.5063.
value     every number separately is clamped to the range from -threshold to threshold.
adaptive  a factor for each output unit, which limits its gradient to a share of the norm of its weights. Brock et al.,
          "High-Performance Large-Scale Image Recognition Without Normalization", 2021, arXiv:2102.06171, section 4.
          The classifier is not clipped, as in the paper.

Under `value` an infinite gradient becomes the threshold. With an infinite norm there is no direction left: under the
other two it becomes NaN, as in torch, and training stops at the next loss. NaN stays NaN under all three.

Under routing, `norm` is taken over parameters that the same classes may change, inside one sealed region: the gradient
of a class never shortens a step in which the class has no part. Without routing it is the norm of all parameters. The
other two look at one tensor at a time, whose numbers the same classes may change.

Shapes: a weight is U x ..., U output units. A tensor of one dimension (biases, gains) is one unit.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.engine.forms import checked
from explorer.engine.leaves import Leaf
from explorer.engine.method import Kind, Method
from explorer.engine.state import State

EPSILON = 1e-6  # as in torch.nn.utils.clip_grad_norm_
SMALLEST_UNIT = 1e-3  # least norm assumed for a unit's weights, so that units that start at zero can leave it
USUAL = {"norm": 1.0, "value": 1.0, "adaptive": 0.01}  # thresholds

Clipping = Literal["norm", "value", "adaptive", "off"]
Group = dict[str, tuple[nn.Parameter, Tensor]]  # parameter and gradient, by name


def clip_factor(gradients: Sequence[Tensor], *, max_norm: float) -> Tensor:
    """Return the factor, at most 1, that brings the joint Euclidean norm of these tensors down to `max_norm`."""
    return torch.clamp(max_norm / (torch.nn.utils.get_total_norm(gradients) + EPSILON), max=1.0)


def value_factor(gradient: Tensor, *, max_value: float) -> Tensor:
    """Return the factor on each number, at most 1, that limits its size to `max_value`. It is 0 for an infinite number,
    which only a clamp can limit."""
    return torch.clamp(max_value / gradient.abs(), max=1.0)  # for 0: infinity, and so 1


@torch.no_grad()
def adaptive_factor(weight: Tensor, gradient: Tensor, *, max_ratio: float) -> Tensor:
    """Return the factor on each unit's gradient, at most 1, that limits its norm to `max_ratio` of its weights' norm.

    Its shape is U x 1 x ..., or that of a scalar for a tensor of one dimension.
    """
    longest = max_ratio * _unit_norm(weight).clamp(min=SMALLEST_UNIT)
    return torch.clamp(longest / _unit_norm(gradient), max=1.0)


def classifier(layers: Sequence[Leaf]) -> frozenset[str]:
    """Return the parameters of the last layer to run, if it has a matrix. A head that is tied to an embedding is part
    of the first layer, so there is none."""
    last = layers[-1:]
    heads = [leaf for leaf in last if any(p.ndim > 1 for p in leaf.module.parameters(recurse=False))]
    return frozenset(name for leaf in heads for name in leaf.parameters)


@torch.no_grad()
def gradient_clipping(
    parameters: Iterable[nn.Parameter], *, clipping: Clipping = "norm", threshold: float | None = None
) -> None:
    """Shorten the gradients of these parameters in place, where they are longer than the threshold.

    Without a threshold it is 1 for "norm" and "value", and 0.01 for "adaptive", which usually leaves out the parameters
    of the classifier.

    In a loop:

        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            functional.gradient_clipping(model.parameters(), threshold=1.0)
            optimizer.step()
    """
    checked(GradientClipping, clipping=clipping, threshold=threshold)
    reached = {str(place): (p, p.grad) for place, p in enumerate(parameters) if p.grad is not None}
    if clipping == "off" or not reached:
        return
    limit = USUAL[clipping] if threshold is None else threshold
    scales = factors(reached, clipping=clipping, threshold=limit)
    shorter = shortened(reached, scales, clipping=clipping, threshold=limit)
    torch._foreach_copy_([gradient for _, gradient in reached.values()], shorter)  # pyright: ignore


def factors(group: Group, *, clipping: Clipping, threshold: float) -> dict[str, Tensor]:
    """Return the factor on each gradient of the group."""
    if clipping == "norm":
        return dict.fromkeys(group, clip_factor([gradient for _, gradient in group.values()], max_norm=threshold))
    if clipping == "value":
        return {name: value_factor(gradient, max_value=threshold) for name, (_, gradient) in group.items()}
    return {name: adaptive_factor(weight, gradient, max_ratio=threshold) for name, (weight, gradient) in group.items()}


def shortened(group: Group, scales: Mapping[str, Tensor], *, clipping: Clipping, threshold: float) -> Sequence[Tensor]:
    """Return the gradients that have a factor, clipped, in the order of their factors and in memory of their own."""
    gradients, by_name = [group[name][1] for name in scales], list(scales.values())
    if clipping == "value":  # by clamping, for the sake of infinite ones
        limited = torch._foreach_clamp_min(gradients, -threshold)  # pyright: ignore[reportPrivateImportUsage]
        torch._foreach_clamp_max_(limited, threshold)  # pyright: ignore[reportPrivateImportUsage]
        return limited
    # One tensor for all under `norm`, which takes fewer kernels on a GPU.
    return torch._foreach_mul(gradients, by_name[0] if clipping == "norm" else by_name)  # pyright: ignore


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientClipping(Method):
    """Acts once a step, after all shares and microbatches are summed and before the optimiser sees the gradients."""

    name: ClassVar[str] = "gradient_clipping"
    kind: ClassVar[Kind] = Kind.GRADIENT
    summary: ClassVar[str] = "Shortens gradients that are longer than a threshold."
    source: ClassVar[str] = "Pascanu et al. 2013, arXiv:1211.5063; Brock et al. 2021, arXiv:2102.06171"
    formula: ClassVar[str] = (
        "norm:     g' = g min(1, threshold / (|g| + 1e-6)), all gradients together\n"
        "value:    g' = min(max(g, -threshold), threshold), for each number\n"
        "adaptive: g' = g min(1, threshold max(|w|, 1e-3) / |g|), for each output unit, except in the classifier"
    )
    changes: ClassVar[str] = "the gradients, once a step, after all shares and microbatches are summed"
    needs: ClassVar[str] = "any model"
    routing: ClassVar[str] = (
        "Works: a norm covers only parameters that the same classes may change, in one sealed region."
    )

    clipping: Annotated[
        Clipping,
        Field(
            description="limit the norm of all gradients, the size of each number, or each unit's ratio to its weights"
        ),
    ] = "norm"
    threshold: Annotated[
        float | None,
        Field(gt=0, description="largest norm, number or ratio; null: the usual 1, 1 or 0.01"),
    ] = None

    def any_length(self) -> bool:
        return True

    def before_update(self, state: State) -> None:
        if self.clipping == "off":
            return
        for group in groups(state):
            scales = self._factors(group, state.layers)
            if not scales:
                continue
            # Not in place: where one class reaches a parameter, `.grad` is that class's own tensor, which the records
            # of contributions read later. They also need the factor, to scale each class's part likewise.
            shorter = shortened(group, scales, clipping=self.clipping, threshold=self._threshold)
            for name, gradient in zip(scales, shorter, strict=True):
                group[name][0].grad = gradient
            state.scales |= scales

    def neutral(self) -> Self:
        return replace(self, clipping="off")

    @property
    def _threshold(self) -> float:
        return USUAL[self.clipping] if self.threshold is None else self.threshold

    def _factors(self, group: Group, layers: Sequence[Leaf]) -> dict[str, Tensor]:
        """Return the factor on each gradient of the group that is clipped."""
        spared = classifier(layers) if self.clipping == "adaptive" else frozenset()
        clipped = {name: pair for name, pair in group.items() if name not in spared}
        return factors(clipped, clipping=self.clipping, threshold=self._threshold)


def groups(state: State) -> Iterator[Group]:
    """Yield all parameters with a gradient, in groups of one region and equal admission."""
    for region in state.regions.values():
        groups_: dict[frozenset[int] | None, Group] = {}
        for name, parameter in region.parameters.items():
            if parameter.grad is not None:
                groups_.setdefault(state.admission.get(name), {})[name] = (parameter, parameter.grad)
        yield from groups_.values()


def _unit_norm(tensor: Tensor) -> Tensor:
    """Return the Euclidean norm of every output unit, U x 1 x ...; for a tensor of one dimension, of all of it."""
    if tensor.ndim <= 1:
        return torch.linalg.vector_norm(tensor)
    return torch.linalg.vector_norm(tensor, dim=tuple(range(1, tensor.ndim)), keepdim=True)

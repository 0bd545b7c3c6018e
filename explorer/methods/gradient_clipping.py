"""Gradient clipping: shorten a gradient that is longer than a threshold, and keep its direction.

Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks", 2013, arXiv:1211.5063. The norm is
taken over parameters that the same classes may change, inside one sealed region: the length of nobody's gradient
shortens a step that he has no part in. Without routing that is the one norm of all parameters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.engine.method import Kind, Method
from explorer.engine.state import State

EPSILON = 1e-6  # as in torch.nn.utils.clip_grad_norm_


def clip_factor(gradients: Sequence[Tensor], *, max_norm: float) -> Tensor:
    """The factor, at most 1, that brings the joint Euclidean norm of these tensors down to `max_norm`."""
    return torch.clamp(max_norm / (torch.nn.utils.get_total_norm(gradients) + EPSILON), max=1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientClipping(Method):
    """Scale each group of gradients down to a norm of at most `max_norm`, before the optimiser sees them."""

    name: ClassVar[str] = "gradient_clipping"
    kind: ClassVar[Kind] = Kind.GRADIENT
    summary: ClassVar[str] = "Shortens gradients that are longer than a threshold."
    source: ClassVar[str] = "Pascanu et al. 2013, arXiv:1211.5063"

    max_norm: Annotated[float | None, Field(gt=0, description="longest gradient; null is off")] = 1.0

    def before_update(self, state: State) -> None:
        if self.max_norm is None:
            return
        for group in groups(state):
            factor = clip_factor([gradient for _, _, gradient in group], max_norm=self.max_norm)
            for name, parameter, gradient in group:
                parameter.grad = gradient * factor  # not in place: it may be one class's own, which is measured later
                state.scales[name] = factor

    def neutral(self) -> Self:
        return replace(self, max_norm=None)


def groups(state: State) -> Iterator[list[tuple[str, nn.Parameter, Tensor]]]:
    """Name, parameter and gradient of all that have one, in groups of one region and equal admission."""
    for region in state.regions.values():
        found: dict[frozenset[int] | None, list[tuple[str, nn.Parameter, Tensor]]] = {}
        for name, parameter in region.parameters.items():
            if parameter.grad is not None:
                found.setdefault(state.admission.get(name), []).append((name, parameter, parameter.grad))
        yield from found.values()

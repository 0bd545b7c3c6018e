"""Sharpness-aware minimisation: take the gradient where the loss nearby is highest.

Foret et al., "Sharpness-Aware Minimization for Efficiently Improving Generalization", 2021, arXiv:2010.01412, equation
2: e = rho * g / |g|, and the step at w uses the gradient at w + e. Gradient, norm and perturbation are those of one
share of the step in one region, so that classes and regions do not affect each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.method import EVERYTHING, Kind, Method, Moment, Unit
from explorer.engine.state import State

EPSILON = 1e-12  # for a gradient of zeros, which perturbs nothing


@torch.no_grad()
def perturb(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor], *, rho: float) -> list[Tensor]:
    """Move parameters by `rho` along their joint gradient, in place; return copies of the old values."""
    norm = torch.nn.utils.get_total_norm(gradients)
    before = [parameter.detach().clone() for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.add_(gradient * (rho / (norm + EPSILON)))
    return before


@torch.no_grad()
def restore(parameters: Sequence[nn.Parameter], before: Sequence[Tensor]) -> None:
    """Copy the old values back, bit for bit: subtracting the perturbation would round."""
    for parameter, old in zip(parameters, before, strict=True):
        parameter.copy_(old)


@dataclass(frozen=True, kw_only=True, slots=True)
class SAM(Method):
    """A perturbed step takes two passes, so it costs about twice the time; `interval` spreads them out."""

    name: ClassVar[str] = "sam"
    kind: ClassVar[Kind] = Kind.RECOMPUTE
    summary: ClassVar[str] = "Takes the gradient at the point nearby where the loss is highest."
    source: ClassVar[str] = "Foret et al. 2021, arXiv:2010.01412"
    formula: ClassVar[str] = (
        "g' = gradient at w + e, e = rho g / |g|; steps 0, interval, 2 interval, ... at w use g', the others g"
    )
    changes: ClassVar[str] = "the gradients; the weights move only for the second pass"
    needs: ClassVar[str] = "any model"
    routing: ClassVar[str] = "Works: each class perturbs by its own gradient, separately in each sealed region."
    modalities: ClassVar[frozenset[Modality]] = EVERYTHING

    rho: Annotated[
        float, Field(ge=0, le=100, description="length of the perturbation; 0 is off"), Unit("norm of weights")
    ] = 0.05
    interval: Annotated[int, Field(ge=1, description="from one perturbed step to the next"), Unit("steps")] = 1

    def phase(self, moment: Moment) -> str:
        if self.interval == 1:
            return ""
        return "two passes" if self._acts(moment.step) else "one pass"

    def change_gradients(self, state: State) -> None:
        if not self._acts(state.step):
            return
        # The second pass has identical rows and draws, so the two gradients differ only by the perturbation. It runs
        # for one share, before that share's gradients are weighted and added.
        moved: list[tuple[list[nn.Parameter], list[Tensor]]] = []
        for region in state.regions.values():
            reached = {name: p for name, p in region.parameters.items() if name in state.gradients}
            if reached:
                parameters, gradients = list(reached.values()), [state.gradients[name] for name in reached]
                moved.append((parameters, perturb(parameters, gradients, rho=self.rho)))
        state.recompute()
        for parameters, before in moved:
            restore(parameters, before)

    def neutral(self) -> Self:
        return replace(self, rho=0.0)

    def _acts(self, step: int) -> bool:
        return step % self.interval == 0

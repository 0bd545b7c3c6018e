"""Sharpness-aware minimisation: take the gradient where the loss nearby is highest.

Foret et al., "Sharpness-Aware Minimization for Efficiently Improving Generalization", 2021, arXiv:2010.01412, equation
2: e = rho * g / |g|, and the step at w uses the gradient at w + e. Gradient, norm and perturbation are those of one
share of the step in one region, so that classes and regions do not affect each other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.engine.forms import checked
from explorer.engine.guard import Guard
from explorer.engine.method import Kind, Method, Moment, Unit
from explorer.engine.state import State
from explorer.errors import TrainingError

EPSILON = 1e-12  # for a gradient of zeros, which perturbs nothing


@torch.no_grad()
def perturb(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor], *, rho: float) -> list[Tensor]:
    """Move parameters by `rho` along their joint gradient, in place; return copies of the old values."""
    factor = rho / (torch.nn.utils.get_total_norm(gradients) + EPSILON)
    before = [parameter.detach().clone() for parameter in parameters]
    torch._foreach_add_(parameters, torch._foreach_mul(gradients, factor))  # pyright: ignore
    return before


@torch.no_grad()
def restore(parameters: Sequence[nn.Parameter], before: Sequence[Tensor]) -> None:
    """Copy the old values back, bit for bit: subtracting the perturbation would round."""
    torch._foreach_copy_(list(parameters), list(before))  # pyright: ignore[reportPrivateImportUsage]


def sam(model: nn.Module, loss: Callable[[], Tensor], *, rho: float = 0.05) -> Tensor:
    """Write the gradients at the point nearby where the loss is highest into the parameters; return the detached loss.

    `loss` computes a loss of the model without side effects of its own. It is called twice, with the same draws of
    torch's generator, and the second call leaves no trace in buffers. Gradients that were there before are dropped.

    In a loop:

        for x, y in batches:
            functional.sam(model, lambda: F.cross_entropy(model(x), y), rho=0.05)
            optimizer.step()
    """
    checked(SAM, rho=rho)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    devices = {parameter.device for parameter in parameters if parameter.device.type == "cuda"}
    with torch.random.fork_rng(devices=[device.index or 0 for device in devices]):
        first = _gradients(loss, parameters)
    reached = [parameter for parameter in parameters if parameter.grad is not None]
    if not reached:
        return first
    before = perturb(reached, [parameter.grad for parameter in reached if parameter.grad is not None], rho=rho)
    try:
        # The generators were put back after the first call, so that both see the same dropout, and advance by one call.
        with Guard(model).keeping_buffers():
            _gradients(loss, parameters)
    finally:
        restore(reached, before)
    return first


def _gradients(loss: Callable[[], Tensor], parameters: Sequence[nn.Parameter]) -> Tensor:
    """Write the gradients of a loss in place of those that were there; return the detached loss."""
    for parameter in parameters:
        parameter.grad = None
    value = loss()
    if value.ndim or not value.requires_grad:
        raise TrainingError(
            f"sam: found a loss of shape {tuple(value.shape)}{'' if value.requires_grad else ' without a gradient'}:"
            " expected a number that depends on the model's parameters"
        )
    value.backward()
    return value.detach()


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

    rho: Annotated[
        float, Field(ge=0, le=100, description="length of the perturbation; 0 is off"), Unit("norm of weights")
    ] = 0.05
    interval: Annotated[int, Field(ge=1, description="from one perturbed step to the next"), Unit("steps")] = 1

    def any_length(self) -> bool:
        return True

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

"""Gradient noise: g <- g + N(0, sigma_t), with sigma_t = scale / (1 + t)^decay.

Neelakantan et al., "Adding Gradient Noise Improves Learning for Very Deep Networks", 2015, arXiv:1511.06807.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from explorer.data.streams import torch_stream
from explorer.engine.method import Kind, Method
from explorer.engine.state import State


def noisy(gradient: Tensor, *, deviation: float) -> Tensor:
    """Return the gradient with Gaussian noise of this standard deviation, from torch's current stream."""
    return gradient + deviation * torch.randn(gradient.shape).to(gradient)


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientNoise(Method):
    """Adds Gaussian noise to every gradient, less from step to step.

    The draws follow from seed, step and provenance class, so a run that is resumed draws the same.
    """

    name: ClassVar[str] = "gradient_noise"
    kind: ClassVar[Kind] = Kind.GRADIENT
    summary: ClassVar[str] = "Adds Gaussian noise to gradients, less from step to step."
    source: ClassVar[str] = "Neelakantan et al. 2015, arXiv:1511.06807"
    formula: ClassVar[str] = "g + N(0, sigma), sigma = scale / (1 + step)^decay"
    changes: ClassVar[str] = "the gradients"
    routing: ClassVar[str] = "Every class has draws of its own, and its noise reaches only what it may change."

    scale: Annotated[float, Field(ge=0, le=10, description="deviation at the first step; 0 is off")] = 0.01
    decay: Annotated[float, Field(ge=0, le=2, description="power of the step number")] = 0.55

    def neutral(self) -> Self:
        return type(self)(scale=0.0)

    def change_gradients(self, state: State) -> None:
        if self.scale == 0:
            return
        assert state.share is not None
        deviation = self.scale / (1 + state.step) ** self.decay
        with torch_stream(torch.device("cpu"), state.seed, self.name, state.step, state.share.code):
            state.gradients = {name: noisy(gradient, deviation=deviation) for name, gradient in state.gradients.items()}

"""A sound method, and controls of the contract: each breaks one promise, and nothing else."""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from explorer.engine.method import Kind, Method, Moment
from explorer.engine.state import State

hidden = {"calls": 0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Damped(Method):
    """Gradients are multiplied by a factor."""

    name: ClassVar[str] = "damped"
    kind: ClassVar[Kind] = Kind.GRADIENT
    summary: ClassVar[str] = "Multiplies gradients by a factor."
    source: ClassVar[str] = "no paper"
    formula: ClassVar[str] = "g <- factor g"
    changes: ClassVar[str] = "the gradients"
    routing: ClassVar[str] = "Every gradient is multiplied by itself."

    factor: float = 0.5

    def any_length(self) -> bool:
        return True

    def neutral(self) -> Self:
        return type(self)(factor=1.0)

    def change_gradients(self, state: State) -> None:
        state.gradients = {name: gradient * self.factor for name, gradient in state.gradients.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Unneutral(Damped):
    """A neutral value that changes the run."""

    name: ClassVar[str] = "unneutral"

    def neutral(self) -> Self:
        return type(self)(factor=0.999)


@dataclass(frozen=True, kw_only=True, slots=True)
class Idle(Damped):
    """A method without effect."""

    name: ClassVar[str] = "idle"

    def change_gradients(self, state: State) -> None:
        return


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgetful(Damped):
    """A memory that no checkpoint has."""

    name: ClassVar[str] = "forgetful"

    def before_fit(self, state: State) -> None:
        hidden["calls"] = 0

    def change_gradients(self, state: State) -> None:
        hidden["calls"] += 1
        factor = self.factor if hidden["calls"] % 2 else 1.0
        state.gradients = {name: gradient * factor for name, gradient in state.gradients.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing(Damped):
    """Draws from torch's global generator."""

    name: ClassVar[str] = "drawing"

    def change_gradients(self, state: State) -> None:
        factor = 1 - 0.1 * float(torch.rand(()))
        state.gradients = {name: gradient * factor for name, gradient in state.gradients.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossing(Damped):
    """Shortens each share's gradient by the length of that before it, and does not say so."""

    name: ClassVar[str] = "crossing"

    def memory(self, state: State) -> dict[str, Tensor]:
        return {"length": torch.zeros(())}

    def change_gradients(self, state: State) -> None:
        length = state.memory[self.name]["length"]
        before = length.clone()
        length.copy_(torch.nn.utils.get_total_norm(list(state.gradients.values())))
        state.gradients = {name: gradient / (1 + before) for name, gradient in state.gradients.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Undeclared(Damped):
    """Neither routed nor refused."""

    name: ClassVar[str] = "undeclared"
    routing: ClassVar[str] = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hasty(Damped):
    """Looks at the length of the run, and declares that it does not."""

    name: ClassVar[str] = "hasty"

    def any_length(self) -> bool:
        return True

    def change_gradients(self, state: State) -> None:
        state.gradients = {name: g * (1 - state.progress / 2) for name, g in state.gradients.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Late(Hasty):
    """Does so late in training, and in the learning rate."""

    name: ClassVar[str] = "late"

    def change_gradients(self, state: State) -> None:
        state.gradients = {name: g * self.factor for name, g in state.gradients.items()}

    def learning_rate(self, factor: float, moment: Moment) -> float:
        return factor / 2 if moment.progress > 0.95 else factor

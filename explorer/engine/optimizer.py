"""Optimisers and learning-rate schedules, as values.

Optimisers are torch's own update rules with decoupled weight decay, in two groups: one that decays and one that does
not. Weight decay follows PyTorch's AdamW for both: w <- w (1 - lr_t * weight_decay), before the update and outside the
momentum (Loshchilov, Hutter 2019, arXiv:1711.05101). A decay d that was tuned for torch's plain SGD, where it passes
through the momentum m, corresponds to about d / (1 - m) here. Biases and the gains of normalisation layers (tensors of
fewer than two dimensions) do not decay. A parameter without a gradient in a step is left exactly as it was.

A schedule is a factor on the learning rate for each step, dilated to the run's budget: a pure function of (step, total
steps). With a scale-schedule ratio r the run has T' = round(r T) steps and `factor(t, T')` keeps its shape: fractions
of training stay fractions. Only the warm-up is counted in steps of the full schedule. It keeps its length
(`scale_warmup=False`), for stability, or scales too, for shape.

Li, Yumer, Ramanan, "Budgeted Training", 2020, arXiv:1905.04753.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from explorer.errors import RecipeError

Momentum = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerSpec(ABC):
    """An optimiser by name and parameters; `lr` is the peak, which the schedule multiplies."""

    name: ClassVar[str]

    lr: Annotated[float, Field(gt=0, le=100)]
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.0

    @abstractmethod
    def build(self, groups: list[dict]) -> Optimizer:
        """Return the optimiser of these parameter groups."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SGDSpec(OptimizerSpec):
    """Stochastic gradient descent with momentum."""

    name: ClassVar[str] = "sgd"

    momentum: Momentum = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        if self.nesterov and self.momentum == 0:
            raise RecipeError("found nesterov with momentum 0: expected a momentum above 0")

    def build(self, groups: list[dict]) -> Optimizer:
        return DecoupledSGD(groups, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov)


@dataclass(frozen=True, kw_only=True, slots=True)
class AdamWSpec(OptimizerSpec):
    """Adam with decoupled weight decay."""

    name: ClassVar[str] = "adamw"

    betas: tuple[Momentum, Momentum] = (0.9, 0.999)
    eps: Annotated[float, Field(gt=0, le=1)] = 1e-8

    def build(self, groups: list[dict]) -> Optimizer:
        for group in groups:
            group["weight_decay"] = group.pop("decoupled")
        return AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps, fused=True)


class DecoupledSGD(SGD):
    """SGD with decoupled weight decay: the key `decoupled` of a group decays its weights, not their gradient."""

    def __init__(self, groups: list[dict], *, lr: float, momentum: float, nesterov: bool) -> None:
        super().__init__(groups, lr=lr, momentum=momentum, nesterov=nesterov, fused=True)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            updated = [p for p in group["params"] if p.grad is not None]
            if group["decoupled"] and updated:
                torch._foreach_mul_(updated, 1 - group["lr"] * group["decoupled"])  # pyright: ignore[reportPrivateImportUsage]
        # torch's fused kernel takes the momenta of a call to be all new or all old. Where some parameters have their
        # first gradient now, it is called twice, each time with the gradients of the other parameters hidden.
        updated = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        old, new = [p for p in updated if self.state.get(p)], [p for p in updated if not self.state.get(p)]
        for apart in (new, old) if old and new else ([],):
            gradients = [p.grad for p in apart]
            for p in apart:
                p.grad = None
            super().step(closure)
            for p, gradient in zip(apart, gradients, strict=True):
                p.grad = gradient


OPTIMIZERS: dict[str, type[OptimizerSpec]] = {kind.name: kind for kind in (AdamWSpec, SGDSpec)}


def build_optimizer(spec: OptimizerSpec, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Return the optimiser over these parameters, in two groups: those that decay and those that do not."""
    return spec.build(decay_groups(parameters, weight_decay=spec.weight_decay))


def decay_groups(parameters: Iterable[nn.Parameter], *, weight_decay: float) -> list[dict]:
    """Return parameter groups with their decay under the key `decoupled`: matrices decay, vectors do not."""
    everything = list(parameters)
    matrices = [p for p in everything if p.ndim >= 2]
    vectors = [p for p in everything if p.ndim < 2]
    groups = [{"params": matrices, "decoupled": weight_decay}, {"params": vectors, "decoupled": 0.0}]
    return [group for group in groups if group["params"]]


# --- learning-rate schedules ---

Fraction = Annotated[float, Field(ge=0, le=1)]
ROUNDED = 1e-9  # less than the share of a step in the longest run, and more than the error of a quotient


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule(ABC):
    """A learning-rate schedule with a linear warm-up of `warmup` of the full schedule's steps."""

    name: ClassVar[str]

    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0  # share of the full schedule's steps
    scale_warmup: bool = False  # a smaller budget shortens the warm-up too

    @abstractmethod
    def decay(self, progress: float) -> float:
        """Return the factor after warm-up. `progress` is the share of the remaining steps that is done, in [0, 1)."""

    def warmup_steps(self, steps: float) -> int:
        """Return the warm-up steps of a schedule of `steps`: rounded half up, and at least 1 if there is a warm-up."""
        return max(1, int(self.warmup * steps + 0.5)) if self.warmup else 0

    def factor(self, step: float, *, total_steps: float, full_steps: int) -> float:
        """Return the factor on the peak learning rate at `step` of `total_steps`; `full_steps` is the full schedule's
        length.

        Steps are those of the nominal batch: a step with a smaller batch counts as a fraction. The first step of a
        warm-up of n steps has factor 1/n, so it is not wasted. A warm-up that fills the whole budget never decays.
        """
        warm = self.warmup_steps(total_steps if self.scale_warmup else full_steps)
        if step < warm:
            return min(1.0, (step + 1) / warm)  # less than a whole step before its end
        if warm >= total_steps:
            return 1.0
        return self.decay((step - warm) / (total_steps - warm))

    def stable(self) -> float:
        """Return the share of the steps after warm-up that come first and have the peak rate; 0: it moves at once."""
        return 0.0

    def branch_step(self, *, total_steps: int, full_steps: int) -> int | None:
        """Return how many of the first steps have the same factors in every longer run; None: they are not the same.

        A longer run can begin with the state that this one has there.
        """
        warm = self.warmup_steps(full_steps)
        if not self.stable() or (self.warmup and self.scale_warmup) or warm >= total_steps:
            return None
        step = warm + math.ceil(self.stable() * (total_steps - warm))
        # The quotients are rounded: only what is exactly the peak is the same in a longer run.
        while step > warm and self.factor(step - 1, total_steps=total_steps, full_steps=full_steps) != 1.0:
            step -= 1
        return step


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant(Schedule):
    """No decay."""

    name: ClassVar[str] = "constant"

    def decay(self, progress: float) -> float:
        return 1.0

    def stable(self) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Linear(Schedule):
    """A straight line from the peak to `final` of it."""

    name: ClassVar[str] = "linear"

    final: Fraction = 0.0

    def decay(self, progress: float) -> float:
        return 1 + (self.final - 1) * progress


@dataclass(frozen=True, kw_only=True, slots=True)
class Cosine(Schedule):
    """Half a cosine from the peak to `final` of it (Loshchilov, Hutter 2017, arXiv:1608.03983)."""

    name: ClassVar[str] = "cosine"

    final: Fraction = 0.0

    def decay(self, progress: float) -> float:
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class MultiStep(Schedule):
    """Multiplied by `factor_each` at each milestone; milestones are shares of the steps after warm-up."""

    name: ClassVar[str] = "multistep"

    milestones: tuple[Fraction, ...] = (0.5, 0.75)
    factor_each: Fraction = 0.1

    def decay(self, progress: float) -> float:
        return self.factor_each ** sum(milestone <= progress for milestone in self.milestones)

    def stable(self) -> float:
        return min(self.milestones, default=1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step(Schedule):
    """Multiplied by `factor_each` at the start of every stage but the first; `stages` equal ones after warm-up."""

    name: ClassVar[str] = "step"

    stages: Annotated[int, Field(ge=1, le=1000)] = 3
    factor_each: Fraction = 0.1

    def decay(self, progress: float) -> float:
        return self.factor_each ** int(progress * self.stages + ROUNDED)

    def stable(self) -> float:
        return 1 / self.stages


@dataclass(frozen=True, kw_only=True, slots=True)
class Exponential(Schedule):
    """A constant share of the rate in every step, from the peak to `final` of it."""

    name: ClassVar[str] = "exponential"

    final: Annotated[float, Field(gt=0, le=1)] = 0.01

    def decay(self, progress: float) -> float:
        return self.final**progress


@dataclass(frozen=True, kw_only=True, slots=True)
class Polynomial(Schedule):
    """A power of the share of steps that is left, from the peak to `final` of it."""

    name: ClassVar[str] = "polynomial"

    power: Annotated[float, Field(gt=0, le=100)] = 2.0
    final: Fraction = 0.0

    def decay(self, progress: float) -> float:
        return self.final + (1 - self.final) * (1 - progress) ** self.power


@dataclass(frozen=True, kw_only=True, slots=True)
class Restarts(Schedule):
    """Half a cosine again and again, each time from the peak to `final` of it (SGDR: Loshchilov, Hutter 2017,
    arXiv:1608.03983). Every cycle is `longer` times as long as the one before; the last one ends with the run."""

    name: ClassVar[str] = "restarts"

    cycles: Annotated[int, Field(ge=1, le=100)] = 3
    longer: Annotated[float, Field(ge=1, le=10)] = 2.0
    final: Fraction = 0.0

    def decay(self, progress: float) -> float:
        lengths = [self.longer**cycle for cycle in range(self.cycles)]
        ends = [sum(lengths[: cycle + 1]) / sum(lengths) for cycle in range(self.cycles)]
        cycle = sum(end <= progress + ROUNDED for end in ends[:-1])
        within = (progress - ends[cycle]) * sum(lengths) / lengths[cycle] + 1
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * max(0.0, within))) / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class WSD(Schedule):
    """Warm-up, stable, decay: the peak, until the last `decay_share` of the steps after warm-up goes from it to `final`
    of it (Haegele et al. 2024, arXiv:2405.18392). Until then no step depends on the length of the run."""

    name: ClassVar[str] = "wsd"

    decay_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    shape: Literal["linear", "cosine", "1-sqrt"] = "1-sqrt"
    final: Fraction = 0.0

    def decay(self, progress: float) -> float:
        done = 1 - (1 - progress) / self.decay_share  # of the decay; a root would enlarge the error of its first step
        return self.final + (1 - self.final) * SHAPES[self.shape](done) if done > ROUNDED else 1.0

    def stable(self) -> float:
        return 1 - self.decay_share


SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
    "1-sqrt": lambda done: 1 - math.sqrt(done),
}

SCHEDULES: dict[str, type[Schedule]] = {
    kind.name: kind for kind in (Constant, Cosine, Exponential, Linear, MultiStep, Polynomial, Restarts, Step, WSD)
}

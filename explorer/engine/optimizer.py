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
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, ClassVar

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant(Schedule):
    """No decay."""

    name: ClassVar[str] = "constant"

    def decay(self, progress: float) -> float:
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


SCHEDULES: dict[str, type[Schedule]] = {kind.name: kind for kind in (Constant, Cosine, Linear, MultiStep)}

"""Optimisers: torch's own update rules with decoupled weight decay, one group that decays and one that does not.

Weight decay follows PyTorch's AdamW for both: w <- w (1 - lr_t * weight_decay), before the update and outside the
momentum (Loshchilov, Hutter 2019, arXiv:1711.05101). A decay d that was tuned for torch's plain SGD, where it passes
through the momentum m, corresponds to about d / (1 - m) here. Biases and the gains of normalisation layers (tensors of
fewer than two dimensions) do not decay. A parameter without a gradient in a step is left exactly as it was.
"""

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
    """An optimiser by name and parameters; `lr` is the peak that the schedule multiplies."""

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
    """SGD whose groups carry `decoupled`: decay applied to the weights, not to the gradient."""

    def __init__(self, groups: list[dict], *, lr: float, momentum: float, nesterov: bool) -> None:
        super().__init__(groups, lr=lr, momentum=momentum, nesterov=nesterov, fused=True)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            updated = [p for p in group["params"] if p.grad is not None]
            if group["decoupled"] and updated:
                torch._foreach_mul_(updated, 1 - group["lr"] * group["decoupled"])  # pyright: ignore[reportPrivateImportUsage]
        updated = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        old, new = [p for p in updated if self.state.get(p)], [p for p in updated if not self.state.get(p)]
        for apart in (new, old) if old and new else ([],):  # torch's kernel takes all momenta as new, or none
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
    """Parameter groups with a key `decoupled`, their decay: matrices that have it, and vectors that have none."""
    everything = list(parameters)
    matrices = [p for p in everything if p.ndim >= 2]
    vectors = [p for p in everything if p.ndim < 2]
    groups = [{"params": matrices, "decoupled": weight_decay}, {"params": vectors, "decoupled": 0.0}]
    return [group for group in groups if group["params"]]

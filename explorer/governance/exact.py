"""The update itself, split by provenance class: theta = D_0 + sum of D_c, kept as an invariant.

With G = sum of w_c G_c and R rows, row 0 for what is no class's doing (the initial value and every decay) and row 1 + c
for class c, each step that updates a tensor does, row by row, what its optimiser does to the sum:

    Adam, AdamW    m_r <- b1 m_r + (1 - b1) g_r       u_r = m_r / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
    SGD            b_r <- mu b_r + (1 - tau) g_r      u_r = b_r, or g_r + mu b_r with Nesterov; first use: b_r = g_r
    both           D_r <- (1 - lr decay) D_r - lr u_r

g_r is w_c G_c, after clipping; L2 decay, being part of the gradient, is row 0's. v is the optimiser's own second moment
of the summed gradient: what normalises the step is shared, and everything else is linear in the rows, so that they add
up. A class that was denied throughout has D_c exactly 0; one that is absent in a step still moves the tensor through
m_c. This is attribution along the path that was taken, not an operator of deletion: the tensor minus D_c is not what
training without the class would have given.

Memory: 2 (K + 1) numbers for each number of the tensor, K classes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from explorer.engine.optimizer import DecoupledSGD
from explorer.errors import RecipeError

Values = Mapping[str, Any]  # of a parameter group, or of an optimiser's state of one parameter


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What one tensor and its momentum are made of. The tensors are changed in place."""

    displacements: Tensor  # R, then the tensor's shape: D_0, D_1, ...; they add up to the tensor
    momenta: Tensor  # of the same shape: m or b
    updates: Tensor  # int64, on the processor: how many steps updated the momentum


def whole(parameter: nn.Parameter, *, classes: int, optimizer: Optimizer) -> Parts:
    """Return a parameter of which no class has done anything yet: all of it, and of its momentum, is row 0's."""
    displacements = parameter.new_zeros(1 + classes, *parameter.shape, requires_grad=False)
    displacements[0] = parameter.detach()
    momenta = torch.zeros_like(displacements)
    state = optimizer.state.get(parameter, {})
    momentum = state.get("exp_avg", state.get("momentum_buffer"))
    if momentum is not None:
        momenta[0] = momentum
    updates = torch.tensor(0 if momentum is None else 1, dtype=torch.int64)
    return Parts(displacements=displacements, momenta=momenta, updates=updates)


@torch.no_grad()
def split_update(
    parts: Parts, gradients: Tensor, *, before: Tensor, parameter: nn.Parameter, optimizer: Optimizer
) -> Tensor:
    """Follow the update that `optimizer` has just made to `parameter`, and return it by row.

    `gradients` are w_c G_c in the rows 1 + c; row 0 is not looked at. `before` is the parameter as it was. Only for
    optimisers that `check_linear` lets pass, and for steps in which the parameter had a gradient.
    """
    group = group_of(parameter, optimizer)
    rows = -gradients if group["maximize"] else gradients.clone()
    rows[0] = 0
    moves = RULES[type(optimizer)](parts, rows, before, group, optimizer.state.get(parameter, {}))
    parts.displacements.add_(moves)
    parts.updates.add_(1)
    return moves


def check_linear(optimizer: Optimizer) -> None:
    """Raise `RecipeError` unless the optimiser is one whose updates can be split."""
    if type(optimizer) not in RULES:
        known = ", ".join(sorted(kind.__name__ for kind in RULES))
        raise RecipeError(
            f"exact contributions: {type(optimizer).__name__} is not supported: not linear in the summed gradient, as "
            f"far as is known here; known to be: {known}"
        )


def group_of(parameter: nn.Parameter, optimizer: Optimizer) -> dict[str, Any]:
    """Return the parameter group that the parameter is in."""
    return next(group for group in optimizer.param_groups if any(p is parameter for p in group["params"]))


def _sgd(parts: Parts, rows: Tensor, before: Tensor, group: Values, state: Values) -> Tensor:
    lr, momentum = float(group["lr"]), group["momentum"]
    if group["weight_decay"]:
        rows[0] += group["weight_decay"] * before
    if momentum:
        dampening = group["dampening"] if parts.updates else 0
        parts.momenta.mul_(momentum).add_(rows, alpha=1 - dampening)
        rows = rows.add_(parts.momenta, alpha=momentum) if group["nesterov"] else parts.momenta
    return -lr * rows


def _decoupled_sgd(parts: Parts, rows: Tensor, before: Tensor, group: Values, state: Values) -> Tensor:
    decay = float(group["lr"]) * group["decoupled"]
    return _sgd(parts, rows, before, group, state).sub_(parts.displacements, alpha=decay)


def _adam(parts: Parts, rows: Tensor, before: Tensor, group: Values, state: Values) -> Tensor:
    lr, (beta1, beta2), steps = float(group["lr"]), map(float, group["betas"]), float(state["step"])
    decay, decoupled = group["weight_decay"], group["decoupled_weight_decay"]
    if decay and not decoupled:
        rows[0] += decay * before
    parts.momenta.lerp_(rows, 1 - beta1)
    second = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"]
    denominator = (second / (1 - beta2**steps)).sqrt_().add_(group["eps"])
    moves = (parts.momenta / denominator).mul_(-lr / (1 - beta1**steps))
    return moves.sub_(parts.displacements, alpha=lr * decay) if decoupled else moves


RULES: dict[type[Optimizer], Callable[[Parts, Tensor, Tensor, Values, Values], Tensor]] = {
    SGD: _sgd,
    DecoupledSGD: _decoupled_sgd,
    Adam: _adam,
    AdamW: _adam,
}

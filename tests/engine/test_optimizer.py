"""Optimisers against their definitions, written out in float64."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from explorer.engine.optimizer import AdamWSpec, OptimizerSpec, SGDSpec, build_optimizer
from explorer.errors import RecipeError

STEPS = 6
Update = Callable[[np.ndarray, np.ndarray, dict, int, float], np.ndarray]


def start() -> list[np.ndarray]:
    """A matrix, which decays, and a bias, which does not."""
    draws = np.random.default_rng(0)
    return [draws.normal(size=(4, 3)), draws.normal(size=5)]


def gradients() -> list[list[np.ndarray]]:
    draws = np.random.default_rng(1)
    return [[draws.normal(size=(4, 3)), draws.normal(size=5)] for _ in range(STEPS)]


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.from_numpy(values).float()) for values in start()]


def rates() -> list[float]:
    return [0.1 * (1 - step / STEPS) for step in range(STEPS)]


def trained(spec: OptimizerSpec) -> list[nn.Parameter]:
    made = parameters()
    optimizer = build_optimizer(spec, made)
    for gradient, lr in zip(gradients(), rates(), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = lr
        for parameter, value in zip(made, gradient, strict=True):
            parameter.grad = torch.from_numpy(value).float()
        optimizer.step()
    return made


def by_hand(update: Update, *, weight_decay: float) -> list[np.ndarray]:
    result = []
    for index, w in enumerate(start()):
        memory: dict = {}
        decay = weight_decay if w.ndim >= 2 else 0.0
        for step, lr in enumerate(rates()):
            w = w * (1 - lr * decay)
            w = update(w, gradients()[step][index], memory, step + 1, lr)
        result.append(w)
    return result


def sgd(momentum: float, nesterov: bool) -> Update:
    def update(w: np.ndarray, g: np.ndarray, memory: dict, step: int, lr: float) -> np.ndarray:
        memory["v"] = momentum * memory["v"] + g if step > 1 else g
        return w - lr * (g + momentum * memory["v"] if nesterov else memory["v"])

    return update


def adamw(beta1: float, beta2: float, eps: float) -> Update:
    def update(w: np.ndarray, g: np.ndarray, memory: dict, step: int, lr: float) -> np.ndarray:
        memory["m"] = beta1 * memory.get("m", 0) + (1 - beta1) * g
        memory["v"] = beta2 * memory.get("v", 0) + (1 - beta2) * g**2
        m, v = memory["m"] / (1 - beta1**step), memory["v"] / (1 - beta2**step)
        return w - lr * m / (np.sqrt(v) + eps)

    return update


CASES: dict[str, tuple[OptimizerSpec, Update]] = {
    "sgd": (SGDSpec(lr=0.1, weight_decay=0.3), sgd(0.9, False)),
    "nesterov": (SGDSpec(lr=0.1, weight_decay=0.3, nesterov=True), sgd(0.9, True)),
    "no momentum": (SGDSpec(lr=0.1, weight_decay=0.3, momentum=0.0), sgd(0.0, False)),
    "no decay": (SGDSpec(lr=0.1), sgd(0.9, False)),
    "adamw": (AdamWSpec(lr=0.1, weight_decay=0.3), adamw(0.9, 0.999, 1e-8)),
    "adamw betas": (AdamWSpec(lr=0.1, betas=(0.8, 0.9), eps=1e-3), adamw(0.8, 0.9, 1e-3)),
}


@pytest.mark.parametrize("name", CASES)
def test_against_float64(name: str) -> None:
    spec, update = CASES[name]
    for found, expected in zip(trained(spec), by_hand(update, weight_decay=spec.weight_decay), strict=True):
        np.testing.assert_allclose(found.detach(), expected, atol=2e-6)


def test_decay_is_not_coupled_to_the_momentum() -> None:
    """The control: torch's plain SGD, whose decay passes through the momentum, ends elsewhere."""
    made = parameters()
    coupled = torch.optim.SGD(made, lr=0.1, momentum=0.9, weight_decay=0.3)
    for gradient, lr in zip(gradients(), rates(), strict=True):
        coupled.param_groups[0]["lr"] = lr
        for parameter, value in zip(made, gradient, strict=True):
            parameter.grad = torch.from_numpy(value).float()
        coupled.step()
    assert np.abs(made[0].detach().numpy() - by_hand(sgd(0.9, False), weight_decay=0.3)[0]).max() > 1e-2


@pytest.mark.parametrize("name", ["sgd", "nesterov", "adamw"])
def test_without_a_gradient_nothing_moves(name: str) -> None:
    """Weights and state, bit for bit; with a gradient of zeros decay and momentum go on."""
    made = parameters()
    optimizer = build_optimizer(CASES[name][0], made)
    for _ in range(3):
        for parameter in made:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()

    def kept(parameter: nn.Parameter) -> list[torch.Tensor]:
        state = [value for value in optimizer.state[parameter].values() if isinstance(value, torch.Tensor)]
        return [tensor.detach().clone() for tensor in (parameter, *state)]

    before = [kept(parameter) for parameter in made]
    made[0].grad, made[1].grad = None, torch.ones(5)
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before[0], kept(made[0]), strict=True))
    assert not torch.equal(before[1][0], made[1])
    made[0].grad = torch.zeros_like(made[0])
    optimizer.step()
    assert not torch.equal(before[0][0], made[0])


@pytest.mark.parametrize("name", CASES)
def test_a_parameter_that_joins_late_has_a_first_step_of_its_own(name: str) -> None:
    """As if training had begun then; those that trained before go on as if nothing had happened."""

    def run(*, joins: int | None, others: bool) -> list[nn.Parameter]:
        made = [nn.Parameter(torch.from_numpy(start()[0]).float()) for _ in range(2)]
        optimizer = build_optimizer(CASES[name][0], made)
        for step, (gradient, _) in enumerate(gradients()):
            made[0].grad = torch.from_numpy(gradient).float() if others else None
            made[1].grad = torch.from_numpy(gradient).float() if joins is not None and step >= joins else None
            given = [parameter.grad for parameter in made]
            optimizer.step()
            assert all(parameter.grad is grad for parameter, grad in zip(made, given, strict=True))
        return made

    both, alone, never = run(joins=2, others=True), run(joins=2, others=False), run(joins=None, others=True)
    assert torch.equal(both[0], never[0]) and torch.equal(both[1], alone[1])
    assert not torch.equal(both[0], both[1])


def test_nesterov_needs_momentum() -> None:
    with pytest.raises(RecipeError, match="found nesterov with momentum 0: expected a momentum above 0"):
        SGDSpec(lr=0.1, momentum=0.0, nesterov=True)

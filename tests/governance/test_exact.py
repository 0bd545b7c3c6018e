"""The parts of a tensor add up to it, whatever the optimiser, and what was denied has none."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, NAdam, Optimizer

from explorer.engine.optimizer import DecoupledSGD
from explorer.errors import RecipeError
from explorer.governance import contributions
from explorer.governance.contributions import Parts, check_linear, split_update, whole

K = 3
STEPS = 500
Build = Callable[[list[nn.Parameter]], Optimizer]


def decoupled(parameters: list[nn.Parameter], **given: Any) -> Optimizer:
    return DecoupledSGD([{"params": parameters, "decoupled": 0.1}], lr=0.05, momentum=0.9, **given)


OPTIMIZERS: dict[str, Build] = {
    "sgd": lambda p: SGD(p, lr=0.05),
    "sgd with momentum and L2": lambda p: SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
    "sgd with dampening": lambda p: SGD(p, lr=0.05, momentum=0.9, dampening=0.3),
    "sgd with nesterov": lambda p: SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1),
    "decoupled sgd": lambda p: decoupled(p, nesterov=False),
    "decoupled sgd with nesterov": lambda p: decoupled(p, nesterov=True),
    "adam": lambda p: Adam(p, lr=0.01),
    "adam with L2": lambda p: Adam(p, lr=0.01, weight_decay=0.1),
    "amsgrad, uphill": lambda p: Adam(p, lr=0.01, amsgrad=True, maximize=True),
    "adamw": lambda p: AdamW(p, lr=0.01, weight_decay=0.1),
    "fused adamw": lambda p: AdamW(p, lr=0.01, weight_decay=0.1, fused=True),
}


def train(
    build: Build, dtype: torch.dtype, *, steps: int = STEPS, earlier: int = 0
) -> tuple[nn.Parameter, Parts, list[Tensor]]:
    """Many steps with three classes: the second comes and goes, the third is denied, some steps have no gradient."""
    generator = torch.Generator().manual_seed(0)
    parameter = nn.Parameter(torch.randn(4, 5, generator=generator, dtype=dtype))
    optimizer = build([parameter])
    for _ in range(earlier):
        parameter.grad = torch.randn(4, 5, generator=generator, dtype=dtype)
        optimizer.step()
    parts = whole(parameter, classes=K, optimizer=optimizer)
    errors = []
    for step in range(steps):
        gradients = torch.randn(1 + K, 4, 5, generator=generator, dtype=dtype)
        gradients[1] += 0.5 * parameter.detach()  # correlated over steps
        gradients[2] *= step % 7 > 2
        gradients[3] = 0
        for group in optimizer.param_groups:
            group["lr"] *= 0.999
        parameter.grad = None if step % 5 == 4 else gradients[1:].sum(0)
        before = parameter.detach().clone()
        optimizer.step()
        if parameter.grad is not None:
            moves = split_update(parts, gradients, before=before, parameter=parameter, optimizer=optimizer)
            errors.append((moves.sum(0) - (parameter.detach() - before)).norm() / before.norm())
    return parameter, parts, errors


def residual(parameter: nn.Parameter, parts: Parts) -> float:
    return float((parts.displacements.sum(0) - parameter.detach()).norm() / parameter.detach().norm())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_that_went_on_before_is_nobodys(name: str) -> None:
    parameter, parts, _ = train(OPTIMIZERS[name], torch.float64, steps=20, earlier=3)
    assert residual(parameter, parts) < 1e-12
    assert not parts.displacements[3].any()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_the_parts_add_up_to_the_tensor(name: str, dtype: torch.dtype, tolerance: float) -> None:
    parameter, parts, errors = train(OPTIMIZERS[name], dtype)
    assert residual(parameter, parts) < tolerance
    assert max(errors) < tolerance
    assert parts.updates == STEPS - STEPS // 5
    assert not parts.displacements[3].any() and not parts.momenta[3].any()  # denied: exactly
    assert (parts.displacements[1:3].flatten(1).norm(dim=1) > 0.1).all()


def test_a_second_moment_of_each_class_does_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: Adam run separately on each class is not a split of Adam."""
    own = torch.zeros(1 + K, 4, 5, dtype=torch.float64)

    def apart(
        parts: Parts, rows: Tensor, before: Tensor, group: contributions.Values, state: contributions.Values
    ) -> Tensor:
        own.mul_(group["betas"][1]).addcmul_(rows, rows, value=1 - group["betas"][1])
        return contributions._adam(parts, rows, before, group, {**state, "exp_avg_sq": own})

    monkeypatch.setitem(contributions.RULES, AdamW, apart)
    assert residual(*train(OPTIMIZERS["adamw"], torch.float64, steps=50)[:2]) > 1e-2


def test_one_step_of_sgd_by_hand() -> None:
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = SGD([parameter], lr=0.5, weight_decay=0.25)
    parts = whole(parameter, classes=2, optimizer=optimizer)
    gradients = torch.tensor([[9.0, 9.0], [1.0, 0.0], [0.0, 4.0]])
    parameter.grad = gradients[1:].sum(0)
    moves = split_update_after_step(parts, gradients, parameter, optimizer)
    assert moves.tolist() == [[-0.125, -0.25], [-0.5, 0.0], [0.0, -2.0]]
    assert parts.displacements.tolist() == [[0.875, 1.75], [-0.5, 0.0], [0.0, -2.0]]
    assert parameter.tolist() == [0.375, -0.25]


def test_a_class_that_is_gone_still_moves_the_tensor_through_momentum() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = SGD([parameter], lr=1.0, momentum=0.5)
    parts = whole(parameter, classes=2, optimizer=optimizer)
    for gradients in (torch.tensor([[0.0], [8.0], [0.0]]), torch.tensor([[0.0], [0.0], [1.0]])):
        parameter.grad = gradients[1:].sum(0)
        moves = split_update_after_step(parts, gradients, parameter, optimizer)
    assert moves.flatten().tolist() == [0.0, -4.0, -1.0]


def split_update_after_step(parts: Parts, gradients: Tensor, parameter: nn.Parameter, optimizer: Optimizer) -> Tensor:
    before = parameter.detach().clone()
    optimizer.step()
    return split_update(parts, gradients, before=before, parameter=parameter, optimizer=optimizer)


@pytest.mark.parametrize("kind", [Adagrad, NAdam, type("Mine", (AdamW,), {})])
def test_optimisers_that_cannot_be_split_are_refused_by_name(kind: type[Any]) -> None:
    with pytest.raises(RecipeError, match=f"{kind.__name__} is not supported: not linear in the summed gradient"):
        check_linear(kind([nn.Parameter(torch.zeros(1))], lr=0.1))


def test_optimisers_that_can_be_split() -> None:
    for build in OPTIMIZERS.values():
        check_linear(build([nn.Parameter(torch.zeros(1))]))

"""The three points against a float64 loop of the paper's formulas, and who stands where when."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from explorer.engine.method import Moment, Planned
from explorer.engine.optimizer import AdamWSpec, Constant, Cosine, Linear, OptimizerSpec, Schedule, SGDSpec
from explorer.errors import RecipeError
from explorer.governance.contributions import check_linear
from explorer.methods.schedule_free import ScheduleFree, ScheduleFreeAdamW, ScheduleFreeSGD
from tests.loop_for_tests import noise_loop, small_net

RATES = [0.02, 0.05, 0.1, 0.1, 0.07, 0.1]
SPECS = [SGDSpec(lr=0.1, weight_decay=0.01), AdamWSpec(lr=0.01, weight_decay=0.1)]


@dataclass
class Points:
    """z, x and y of the paper, in float64, each kept; AdamW with `beta2`, else SGD."""

    start: np.ndarray
    beta: float
    decay: float
    beta2: float | None = None
    eps: float = 1e-8
    total: float = 0.0
    largest: float = 0.0
    steps: int = 0
    second: Any = 0.0
    z: np.ndarray = field(init=False)
    x: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.z, self.x = self.start.copy(), self.start.copy()

    @property
    def y(self) -> np.ndarray:
        return (1 - self.beta) * self.z + self.beta * self.x

    def step(self, gradient: np.ndarray, lr: float) -> None:
        self.steps += 1
        direction = gradient
        if self.beta2 is not None:
            self.second = self.beta2 * self.second + (1 - self.beta2) * gradient**2
            direction = gradient / (np.sqrt(self.second / (1 - self.beta2**self.steps)) + self.eps)
        direction = direction + self.decay * self.y
        self.largest = max(self.largest, lr)
        self.total += self.largest**2
        self.z = self.z - lr * direction
        self.x = self.x + self.largest**2 / self.total * (self.z - self.x)


def gradient_at(point: np.ndarray) -> np.ndarray:
    return np.sin(3 * point) + 0.5 * point


@pytest.mark.parametrize("beta2", [None, 0.95])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_points_are_those_of_the_paper(beta2: float | None, decay: float) -> None:
    start = np.linspace(-2, 2, 12).reshape(3, 4)
    points = Points(start, beta=0.9, decay=decay, beta2=beta2)
    parameter = nn.Parameter(torch.from_numpy(start))
    groups = [{"params": [parameter], "decoupled": decay}]
    optimizer = (
        ScheduleFreeSGD(groups, lr=0.1, beta=0.9)
        if beta2 is None
        else ScheduleFreeAdamW(groups, lr=0.1, beta=0.9, beta2=beta2)
    )
    for lr in RATES:
        optimizer.param_groups[0]["lr"] = lr
        parameter.grad = torch.from_numpy(gradient_at(points.y))
        points.step(gradient_at(points.y), lr)
        optimizer.step()
        np.testing.assert_allclose(parameter.detach(), points.y, atol=1e-12)
        np.testing.assert_allclose(optimizer.state[parameter]["z"], points.z, atol=1e-12)
    optimizer.evaluation_point()
    np.testing.assert_allclose(parameter.detach(), points.x, atol=1e-12)
    assert not np.allclose(points.x, points.y, atol=1e-3), "the points differ"


def test_constant_rates_weigh_all_steps_alike() -> None:
    """c = 1 / t: x is the mean of all z."""
    parameter = nn.Parameter(torch.zeros(5, dtype=torch.float64))
    optimizer = ScheduleFreeSGD([parameter], lr=0.3, beta=0.5)
    seen = []
    for step in range(4):
        parameter.grad = torch.full((5,), float(step + 1), dtype=torch.float64)
        optimizer.step()
        seen.append(optimizer.state[parameter]["z"].clone())
    optimizer.evaluation_point()
    np.testing.assert_allclose(parameter.detach(), torch.stack(seen).mean(0), atol=1e-12)


def test_a_parameter_that_sits_out_a_step_stays_and_counts_its_own_steps() -> None:
    both = [nn.Parameter(torch.ones(3, 2)) for _ in range(2)]
    alone = nn.Parameter(torch.ones(3, 2))
    together, single = ScheduleFreeAdamW(both, lr=0.1), ScheduleFreeAdamW([alone], lr=0.1)
    for step in range(4):
        both[0].grad = torch.full((3, 2), 1.0 + step)
        both[1].grad = torch.full((3, 2), 1.0 + step) if step % 2 else None
        before = both[1].detach().clone()
        together.step()
        if step % 2:
            alone.grad = torch.full((3, 2), 1.0 + step)
            single.step()
        assert torch.equal(both[1], before) == (step % 2 == 0)
    assert torch.equal(both[1], alone)
    assert not torch.equal(both[0], both[1])


def test_a_rate_of_zero_moves_nothing() -> None:
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    optimizer = ScheduleFreeSGD([parameter], lr=0.0)
    optimizer.step()
    optimizer.evaluation_point()
    assert torch.equal(parameter, torch.ones(3))


@pytest.mark.parametrize("spec", SPECS, ids=["sgd", "adamw"])
def test_a_run_uses_the_optimiser_of_the_recipe(spec: OptimizerSpec) -> None:
    loop = noise_loop([ScheduleFree(lr=0.5, warmup=0.4)], optimizer=spec)
    (optimizer,) = loop.state.regions["shared"].optimizers
    assert type(optimizer) is (ScheduleFreeSGD if isinstance(spec, SGDSpec) else ScheduleFreeAdamW)
    matrices, vectors = optimizer.param_groups
    assert matrices["decoupled"] == spec.weight_decay and vectors["decoupled"] == 0
    rates = []
    for _ in range(6):
        loop.step()
        rates.append(matrices["lr"])
    np.testing.assert_allclose(rates, [0.125, 0.25, 0.375, 0.5, 0.5, 0.5])
    with pytest.raises(RecipeError, match="not supported"):
        check_linear(optimizer)


def test_the_rate_is_the_methods_own() -> None:
    peaks = []
    for spec in SPECS:
        (optimizer,) = noise_loop([ScheduleFree()], optimizer=spec).state.regions["shared"].optimizers
        peaks += [group["peak"] for group in optimizer.param_groups]
    assert peaks == [1.0, 1.0, 0.0025, 0.0025]


@pytest.mark.parametrize("spec", SPECS, ids=["sgd", "adamw"])
def test_an_evaluation_is_at_x_and_leaves_no_trace(spec: OptimizerSpec) -> None:
    evaluated, undisturbed = (noise_loop([ScheduleFree()], optimizer=spec) for _ in range(2))
    for _ in range(5):
        evaluated.step()
        undisturbed.step()
    before = {name: tensor.clone() for name, tensor in evaluated.tensors().items()}
    seen: list[dict[str, torch.Tensor]] = []
    evaluated.setting.model.register_forward_pre_hook(
        lambda module, _: (
            seen.append({k: v.detach().clone() for k, v in module.state_dict().items()})
            if not any(each.training for each in module.modules())
            else None
        )
    )
    evaluated.evaluate()
    z = evaluated.tensors()["optimizer/shared/0/0.weight/z"]
    y = before["model/0.weight"]
    np.testing.assert_allclose(seen[0]["0.weight"], (y - 0.1 * z) / 0.9, atol=1e-6)
    assert not torch.equal(seen[0]["1.running_mean"], before["model/1.running_mean"]), "the statistics are x's own"
    assert seen[0]["1.num_batches_tracked"] == 5
    for _ in range(3):
        assert float(evaluated.step()) == float(undisturbed.step())
    for name, tensor in undisturbed.tensors().items():
        assert torch.equal(evaluated.tensors()[name], tensor), name


def test_a_run_ends_at_x_with_statistics_of_x() -> None:
    loop = noise_loop([ScheduleFree()], model=small_net())
    for _ in range(10):
        loop.step()
    y = loop.tensors()["model/3.weight"].clone()
    z = loop.tensors()["optimizer/shared/0/3.weight/z"].clone()
    loop.call("after_fit")
    final = {name: tensor.clone() for name, tensor in loop.tensors().items()}
    np.testing.assert_allclose(final["model/3.weight"], (y - 0.1 * z) / 0.9, atol=1e-6)
    inputs = loop.setting.batches.prepare(loop.setting.batches.dataset.train.inputs)
    np.testing.assert_allclose(
        final["model/1.running_mean"], loop.setting.model.get_submodule("0")(inputs).detach().mean((0, 2, 3)), atol=1e-5
    )
    first = loop.evaluate()
    assert loop.evaluate() == first
    assert all(torch.equal(loop.tensors()[name], tensor) for name, tensor in final.items())


def test_without_warm_up_the_rate_is_that_of_the_recipe() -> None:
    moment = Moment(step=0, total_steps=10, example_shape=(1, 8, 8))
    assert ScheduleFree(warmup=0.0).learning_rate(1.0, moment) == 1.0
    assert ScheduleFree(warmup=0.5).learning_rate(1.0, moment) == pytest.approx(0.2)


def planned(*, schedule: Schedule | None = None, optimizer: OptimizerSpec | None = None) -> Planned:
    return Planned(
        task="classification",
        example_shape=(1, 8, 8),
        classes=10,
        steps=10,
        batch_size=8,
        optimizer=optimizer or SPECS[0],
        schedule=schedule or Constant(),
        precision="fp32",
        microbatch_size=None,
    )


def test_a_constant_schedule_is_served() -> None:
    ScheduleFree().check(planned())
    ScheduleFree().check(planned(optimizer=SPECS[1]))


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (planned(schedule=Cosine()), "found schedule cosine.*expected `schedule: constant`"),
        (planned(schedule=Linear(warmup=0.1)), "found schedule linear with warmup 0.1"),
        (planned(schedule=Constant(warmup=0.1)), "found schedule constant with warmup 0.1.*without warm-up"),
        (planned(optimizer=SGDSpec(lr=0.1, momentum=0.0)), "found sgd with momentum 0: expected sgd with a momentum"),
        (planned(optimizer=SGDSpec(lr=0.1, nesterov=True)), "found sgd with momentum 0.9, nesterov"),
        (planned(optimizer=AdamWSpec(lr=0.1, betas=(0.0, 0.9))), "found adamw with betas 0, 0.9"),
    ],
)
def test_what_decays_or_has_no_momentum_is_refused(run: Planned, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        ScheduleFree().check(run)

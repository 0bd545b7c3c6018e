"""Learning-rate schedules against closed forms and against torch's, at every step of several lengths."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import SGD, Optimizer, lr_scheduler

from explorer.engine.optimizer import (
    SCHEDULES,
    WSD,
    Constant,
    Cosine,
    Exponential,
    Linear,
    MultiStep,
    Polynomial,
    Restarts,
    Schedule,
    Step,
)
from explorer.errors import RecipeError
from explorer.recipes.settings import read_training


def factors(schedule: Schedule, *, total: int, full: int | None = None) -> list[float]:
    return [schedule.factor(step, total_steps=total, full_steps=full or total) for step in range(total)]


CLOSED: dict[str, tuple[Schedule, Callable[[float], float]]] = {
    "constant": (Constant(), lambda u: 1.0),
    "exponential": (Exponential(final=0.05), lambda u: math.exp(math.log(0.05) * u)),
    "polynomial": (Polynomial(power=3, final=0.1), lambda u: 0.1 + 0.9 * (1 - u) ** 3),
    # Cycles of 1, 2 and 4 sevenths.
    "restarts": (
        Restarts(cycles=3, longer=2, final=0.1),
        lambda u: (
            0.1
            + 0.9
            * (1 + math.cos(math.pi * (7 * u if 7 * u < 1 else (7 * u - 1) / 2 if 7 * u < 3 else (7 * u - 3) / 4)))
            / 2
        ),
    ),
    "step": (Step(stages=4, factor_each=0.5), lambda u: 0.5 ** math.floor(4 * u)),
    "wsd": (WSD(decay_share=0.4), lambda u: 1 - math.sqrt(max(0.0, (u - 0.6) / 0.4))),
    "linear": (Linear(final=0.1), lambda u: 1 + (0.1 - 1) * u),
    "cosine": (Cosine(final=0.2), lambda u: 0.2 + 0.8 * (1 + math.cos(math.pi * u)) / 2),
    "multistep": (MultiStep(milestones=(0.3, 0.7), factor_each=0.5), lambda u: 0.5 ** ((u >= 0.3) + (u >= 0.7))),
}


def test_every_schedule_has_a_closed_form_here() -> None:
    assert CLOSED.keys() == SCHEDULES.keys()


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("total", [1, 2, 10, 97])
def test_against_the_closed_form(name: str, total: int) -> None:
    schedule, form = CLOSED[name]
    assert factors(schedule, total=total) == pytest.approx([form(step / total) for step in range(total)], abs=1e-12)


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("ratio", [0.25, 0.5, 1.0, 1.5])
def test_warm_up_under_every_budget(name: str, scaled: bool, ratio: float) -> None:
    """Full schedule of 40 steps, warm-up of a tenth: 4 steps, or 4 r where it scales."""
    plain, form = CLOSED[name]
    schedule = dataclasses.replace(plain, warmup=0.1, scale_warmup=scaled)
    total = int(40 * ratio)
    warm = int(4 * ratio) if scaled else 4
    expected = [(step + 1) / warm if step < warm else form((step - warm) / (total - warm)) for step in range(total)]
    assert factors(schedule, total=total, full=40) == pytest.approx(expected, abs=1e-12)


def test_the_first_step_of_a_warm_up_is_not_wasted() -> None:
    assert factors(Constant(warmup=0.5), total=8)[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_a_warm_up_in_parts_of_steps_never_passes_the_peak() -> None:
    """As batches smaller than the nominal one take them."""
    quarters = [Linear(warmup=0.1).factor(step / 4, total_steps=20, full_steps=20) for step in range(9)]
    assert quarters == pytest.approx([1 / 2, 5 / 8, 3 / 4, 7 / 8, 1, 1, 1, 1, 1], abs=1e-12)


def test_a_warm_up_longer_than_the_budget_never_decays() -> None:
    """It divided by zero in other people's code."""
    assert factors(Cosine(warmup=0.5), total=4, full=8) == [0.25, 0.5, 0.75, 1.0]
    assert factors(Cosine(warmup=0.5), total=3, full=8) == [0.25, 0.5, 0.75]


@pytest.mark.parametrize("warmup, steps, expected", [(0, 100, 0), (0.001, 100, 1), (0.25, 10, 3), (0.05, 10, 1)])
def test_warm_up_is_rounded_half_up_and_never_to_nothing(warmup: float, steps: int, expected: int) -> None:
    assert Constant(warmup=warmup).warmup_steps(steps) == expected


@pytest.mark.parametrize("name", CLOSED)
def test_a_smaller_budget_keeps_the_shape(name: str) -> None:
    schedule, _ = CLOSED[name]
    assert factors(schedule, total=20, full=40) == factors(schedule, total=40)[::2]


# --- against torch ---

STEPS = 70
TORCH: dict[str, tuple[Schedule, Callable[[Optimizer], lr_scheduler.LRScheduler]]] = {
    "cosine": (Cosine(), lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=STEPS)),
    "exponential": (Exponential(final=0.01), lambda o: lr_scheduler.ExponentialLR(o, gamma=0.01 ** (1 / STEPS))),
    "linear": (Linear(), lambda o: lr_scheduler.LinearLR(o, start_factor=1, end_factor=0, total_iters=STEPS)),
    "multistep": (
        MultiStep(milestones=(0.3, 0.8)),
        lambda o: lr_scheduler.MultiStepLR(o, milestones=[21, 56], gamma=0.1),
    ),
    "polynomial": (Polynomial(power=1.5), lambda o: lr_scheduler.PolynomialLR(o, total_iters=STEPS, power=1.5)),
    "restarts": (
        Restarts(cycles=3, longer=2, final=0.2),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=10, T_mult=2, eta_min=0.2),
    ),
    "restarts of equal length": (
        Restarts(cycles=7, longer=1),
        lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=10),
    ),
    "step": (Step(stages=10, factor_each=0.5), lambda o: lr_scheduler.StepLR(o, step_size=7, gamma=0.5)),
    "wsd": (
        WSD(shape="linear", decay_share=0.2),
        lambda o: lr_scheduler.SequentialLR(
            o,
            [
                lr_scheduler.ConstantLR(o, factor=1.0),
                lr_scheduler.LinearLR(o, start_factor=1, end_factor=0, total_iters=14),
            ],
            milestones=[56],
        ),
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_against_torch(name: str) -> None:
    schedule, make = TORCH[name]
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer)
    expected = []
    for _ in range(STEPS):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert factors(schedule, total=STEPS) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("shape, middle", [("linear", 0.5), ("cosine", 0.5), ("1-sqrt", 1 - math.sqrt(0.5))])
def test_the_shapes_of_a_decay(shape: Any, middle: float) -> None:
    decayed = factors(WSD(shape=shape, decay_share=0.2, final=0.1), total=100)
    assert decayed[:81] == [1.0] * 81
    assert decayed[90] == pytest.approx(0.1 + 0.9 * middle, abs=1e-12)
    assert decayed[80:] == sorted(decayed[80:], reverse=True)


@pytest.mark.parametrize(
    "schedule, fault",
    [
        ({"wsd": {"shape": "sqrt"}}, "shape"),
        ({"wsd": {"decay_share": 0}}, "decay_share"),
        ({"step": {"stages": 0}}, "stages"),
        ({"exponential": {"final": 0}}, "final"),
        ({"polynomial": {"power": -1}}, "power"),
        ({"restarts": {"longer": 0.5}}, "longer"),
    ],
)
def test_parameters_out_of_range_are_refused(schedule: Any, fault: str) -> None:
    train = {"epochs": 1, "batch_size": 8, "optimizer": {"sgd": {"lr": 0.1}}, "schedule": schedule}
    with pytest.raises(RecipeError, match=fault):
        read_training(train, (), where="x")


# --- where a longer run can branch off ---

BRANCHING = [
    Constant(),
    MultiStep(milestones=(0.3, 0.7)),
    Step(stages=3),
    *(WSD(decay_share=share) for share in (0.1, 0.2, 0.3, 1 / 3, 0.7)),
]


@pytest.mark.parametrize("schedule", BRANCHING, ids=repr)
@pytest.mark.parametrize("warmup", [0.0, 0.1])
def test_the_first_steps_are_those_of_every_longer_run(schedule: Schedule, warmup: float) -> None:
    """To the last bit, and not one step fewer than there are."""
    schedule = dataclasses.replace(schedule, warmup=warmup)
    for total in (7, 10, 45, 97, 300, 1001):
        step = schedule.branch_step(total_steps=total, full_steps=45)
        assert step is not None
        mine, longer = (factors(schedule, total=length, full=45)[:total] for length in (total, 2 * total + 1))
        longer += [1.0] * (total - len(longer))
        assert mine[:step] == longer[:step]
        warm = schedule.warmup_steps(45)
        assert step >= warm + schedule.stable() * (total - warm) - 1e-6


def test_where_a_decay_begins() -> None:
    assert WSD().branch_step(total_steps=100, full_steps=100) == 80
    assert WSD(warmup=0.1).branch_step(total_steps=110, full_steps=100) == 90
    assert Constant().branch_step(total_steps=100, full_steps=100) == 100


@pytest.mark.parametrize(
    "schedule",
    [
        Cosine(),
        Linear(),
        Exponential(),
        Polynomial(),
        Restarts(),
        WSD(decay_share=1.0),
        WSD(warmup=0.1, scale_warmup=True),  # the warm-up's steps depend on the length too
        WSD(warmup=0.9),  # longer than the run
    ],
    ids=repr,
)
def test_others_depend_on_the_length_from_the_first_step(schedule: Schedule) -> None:
    assert schedule.branch_step(total_steps=80, full_steps=100) is None

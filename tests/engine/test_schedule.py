"""Learning-rate schedules against closed forms, at every step of several lengths."""

import math

import pytest

from explorer.engine.optimizer import SCHEDULES, Constant, Cosine, Linear, MultiStep, Schedule


def factors(schedule: Schedule, *, total: int, full: int | None = None) -> list[float]:
    return [schedule.factor(step, total_steps=total, full_steps=full or total) for step in range(total)]


CLOSED = {
    "constant": (Constant(), lambda u: 1.0),
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
    schedule = type(plain)(
        **{field: getattr(plain, field) for field in ("final", "milestones", "factor_each") if hasattr(plain, field)},
        warmup=0.1,
        scale_warmup=scaled,
    )
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

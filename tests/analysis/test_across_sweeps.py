"""A baseline across sweeps: never paired, refused across machines and imports, and its interval holds the truth."""

import math

import numpy as np
import pytest

from explorer.analysis.across_sweeps import against
from explorer.analysis.equal_quality import Call, Outcome, equal_quality
from explorer.errors import AnalysisError
from tests.analysis.tables import rows, table

WOBBLE = (-0.004, 0.001, 0.003)


def curve(speed: float, turn: int = 0):
    return lambda ssr, seed: 0.8 + 0.05 * math.log(speed * ssr) + WOBBLE[(seed + turn) % 3]


FIRST = rows("baseline", curve(1.0), sweep="first")


def other(speed: float = 1.5, **changes: object) -> list[dict[str, object]]:
    return rows("fast", curve(speed), **{"sweep": "second", "baseline": "own", **changes})


def test_recipes_of_other_sweeps_are_compared_and_never_paired() -> None:
    (result,) = against(table(FIRST, other()), sweep="first")
    assert (result.setting.sweep, result.recipe) == ("second", "fast")
    assert (result.baseline_setting.sweep, result.baseline) == ("first", "baseline")
    assert result.ratio == pytest.approx(1 / 1.5, rel=0.02) and result.outcome is Outcome.REACHED
    # The negative control: in one sweep the noise of equal seeds cancels, and across sweeps it must not.
    (paired,) = equal_quality(table(FIRST, rows("fast", curve(1.5), sweep="first")))
    width = math.log(result.ratio_high or 0) - math.log(result.ratio_low or 1)
    assert paired.ratio_low is None or width > 2 * (math.log(paired.ratio_high or 0) - math.log(paired.ratio_low))


def test_times_of_another_machine_are_refused_and_steps_are_not() -> None:
    frame = table(FIRST, other(hardware="another"))
    (result,) = against(frame, sweep="first")
    assert result.call is Call.UNKNOWN and "times are from another machine: another, 1 thread" in (result.reason or "")
    (counted,) = against(frame, sweep="first", x="steps")
    assert counted.ratio is not None


def test_imported_runs_and_other_datasets_are_not_compared() -> None:
    (imported,) = against(table(FIRST, other(time_source="imported")), sweep="first")
    assert imported.call is Call.UNKNOWN and "imported and unverified" in (imported.reason or "")
    assert against(table(FIRST, other(dataset="cifar10")), sweep="first") == []
    with pytest.raises(AnalysisError, match="did you mean 'first'"):
        against(table(FIRST, other()), sweep="frist")


@pytest.mark.slow
def test_equal_recipes_are_seldom_called_different() -> None:
    random, wrong, sweeps = np.random.default_rng(3), 0, 120
    for _ in range(sweeps):
        noise = {name: random.normal(0, 0.01, (5, 3)) for name in ("first", "second")}

        def quality(name: str, noise: dict[str, np.ndarray] = noise):
            budgets = (0.125, 0.25, 0.5, 1.0, 1.5)
            return lambda ssr, seed: 0.8 + 0.05 * math.log(ssr) + noise[name][budgets.index(ssr), seed]

        frame = table(
            rows("baseline", quality("first"), sweep="first"), rows("same", quality("second"), sweep="second")
        )
        (result,) = against(frame, sweep="first", resamples=800)
        wrong += result.call in (Call.LESS, Call.MORE)
    assert wrong <= 0.08 * sweeps

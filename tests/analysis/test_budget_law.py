"""Forecasts at a larger budget: the law is recovered, what cannot be forecast says why, and no answer reads one."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares

import explorer
from explorer.analysis.ask import Asked, ask
from explorer.analysis.budget_law import EXPONENTS_G, Forecast, extrapolated, fit, forecast, interval
from explorer.analysis.ladders import SEARCHED
from explorer.analysis.limits import Limits
from explorer.analysis.verdict import sweep_verdicts
from explorer.errors import AnalysisError
from tests.analysis.tables import BUDGETS, rows, table
from tests.analysis.test_ask import NO_FORECAST, recipe

FLOOR, GAIN, B = 0.02, 0.03, 0.7
X_B = np.array(BUDGETS)


def law(ssr: float) -> float:
    """The error rate of a recipe at a budget."""
    return FLOOR + GAIN * ssr**-B


def accuracy(noise: float = 0.0005) -> Callable[[float, int], float]:
    """1 - law, with noise that differs from budget to budget."""
    return lambda ssr, seed: 1 - law(ssr) + noise * math.sin(37 * ssr + 5 * seed)


def at(budget: float, *recipes: list[dict[str, object]], unfinished: pd.DataFrame | None = None) -> list[Forecast]:
    return forecast(table(*recipes), budget=budget, unfinished=unfinished)


def test_the_law_is_recovered_and_its_interval_holds_the_truth() -> None:
    (found,) = at(3.0, rows("fast", accuracy()))
    assert found.quality is not None and found.low is not None and found.high is not None and found.law is not None
    assert found.quality == pytest.approx(1 - law(3.0), abs=0.002)
    assert found.low < 1 - law(3.0) < found.high and found.high - found.low < 0.02
    assert found.law.floor == pytest.approx(FLOOR, abs=0.006) and found.law.exponent == pytest.approx(B, abs=0.2)
    assert (found.budgets, found.seeds) == (BUDGETS, (3,) * 5)
    assert found.fitted == pytest.approx([1 - law(ssr) for ssr in BUDGETS], abs=0.001)
    assert found.fitted[-1] == pytest.approx(found.way[0].quality)
    assert [way.budget for way in found.way][::5] == pytest.approx([1.5, 3.0]) and found.way[-1].low == found.low
    assert found == at(3.0, rows("fast", accuracy()))[0], "the same runs have the same forecast"
    (noisy,) = at(3.0, rows("fast", accuracy(0.005)))
    assert noisy.low is not None and noisy.high is not None
    assert noisy.high - noisy.low > 3 * (found.high - found.low)


def test_a_loss_is_forecast_as_it_is_measured_and_an_error_rate_never_below_zero() -> None:
    loss: dict[str, Any] = {"metric": "nll", "unit": "nats", "higher_is_better": False}
    (found,) = at(6.0, rows("fast", lambda ssr, seed: 1 + law(ssr) + 1e-4 * math.sin(37 * ssr + 5 * seed), **loss))
    assert found.quality == pytest.approx(1 + law(6.0), abs=0.003)
    assert found.fitted == pytest.approx([1 + law(ssr) for ssr in BUDGETS], abs=0.002)
    (steep,) = at(6.0, rows("fast", lambda ssr, seed: 1 - 0.01 * ssr**-2 - 1e-3 * (seed % 2) / ssr))
    assert steep.quality is not None and steep.high is not None and 0.999 < steep.quality <= steep.high <= 1.0


def test_the_fit_is_that_of_scipy() -> None:
    """Best of several starts, with the same robust loss: no start finds a better law than the grid of exponents."""
    random = np.random.default_rng(5)
    for _ in range(5):
        error_B = random.uniform(0.5, 2.0, X_B.size) * 1e-3
        loss_B = np.array([law(ssr) for ssr in BUDGETS]) + error_B * random.standard_t(2, X_B.size)

        def residual(p: np.ndarray, loss_B: np.ndarray = loss_B, error_B: np.ndarray = error_B) -> np.ndarray:
            return (p[0] + p[1] * X_B ** -p[2] - loss_B) / error_B

        bounds = [0.0, 0.0, EXPONENTS_G[0]], [1.0, 5.0, EXPONENTS_G[-1]]
        best = min(
            least_squares(residual, [0.01, 0.03, b], bounds=bounds, loss="soft_l1", x_scale=[0.01, 0.01, 1]).cost
            for b in (0.1, 0.5, 2.0)
        )
        mine = np.array([part[0] for part in fit(X_B, loss_B[None], error_B, floor=0.0)])
        assert float((np.sqrt(1 + residual(mine) ** 2) - 1).sum()) <= best + 0.06


def test_intervals_hold_as_often_as_they_say_and_without_their_parts_they_do_not() -> None:
    """A law that is not quite true: its exponent changes at the second budget."""
    random, held = np.random.default_rng(1), {"whole": 0, "bare fit": 0}
    x_B = np.array([0.125, 0.25, 0.5, 1.0])
    for _ in range(40):
        kink = np.where(x_B < 0.25, x_B**-0.5, 0.25**-0.5 * (np.maximum(x_B, 0.25) / 0.25) ** -0.9)
        loss_BS = FLOOR + GAIN * kink[:, None] + 0.001 * random.standard_normal((4, 3))
        truth = FLOOR + GAIN * 0.25**-0.5 * 8**-0.9 + 0.001 * random.standard_normal(3).mean()
        ahead = extrapolated(x_B, loss_BS, np.array([2.0]), floor=0.0, resamples=200)
        for name, draws_RF in (("whole", ahead.draws_RF), ("bare fit", ahead.fits_RF)):
            low, high = interval(draws_RF, ahead.value_F)[:, 0]
            held[name] += low <= truth <= high
    assert held["whole"] >= 36 > held["bare fit"]


def test_what_has_no_forecast_says_why() -> None:
    good, diverged = accuracy(), pd.DataFrame({"recipe": ["fast", "slow"], "state": ["diverged", "planned"]})
    turned = rows("fast", lambda ssr, seed: 0.9 + 0.02 * (ssr == 1.0) + 1e-4 * seed)
    cases: list[tuple[list[dict[str, object]], float, str]] = [
        (rows("fast", good, searched=True), 3.0, SEARCHED),
        (rows("fast", good, budgets=BUDGETS[2:]), 3.0, "3 budgets with 2 seeds or more; a law needs 4"),
        (rows("fast", good, seeds=(0,)), 3.0, "0 budgets with 2 seeds or more"),
        (rows("fast", good, budgets=BUDGETS[:4]), 5.0, "more than 4 times its largest budget, 1"),
        (rows("fast", good, budgets=(*BUDGETS, 3.0)), 3.0, "it was run up to budget 3"),
        (rows("fast", good, time_source="imported"), 3.0, "imported: "),
        ([*rows("fast", good), *rows("fast", good, budgets=(2.0,), seeds=(0,))], 3.0, "budget, 2, has fewer than 2"),
        (turned, 3.0, "its quality turns: it is worse at budget 1.5 than at 1"),
    ]
    for mine, budget, words in cases:
        found = at(budget, mine, rows("slow", good))
        assert words in found[0].reason and found[0].quality is None, words
        assert found[1].recipe == "slow" and found[1].quality is not None, "the control"
    first, second = at(3.0, rows("fast", good), rows("slow", good), unfinished=diverged)
    assert "diverged" in first.reason and first.quality is None
    assert second.quality is not None, "a run that is yet to come is no reason"


@pytest.mark.parametrize("budget", [1.5, 0.1, -1.0, 6.1, math.nan, math.inf])
def test_a_budget_that_was_run_or_is_too_far_is_refused(budget: float) -> None:
    with pytest.raises(AnalysisError, match=r"expected one above 1\.5 and up to 6, 4 times the largest that was run"):
        at(budget, rows("fast", accuracy()))


def test_controls_have_none_and_runs_shown_on_two_machines_have_one() -> None:
    control = rows("random", accuracy(), control="random-subset", control_of="fast")
    elsewhere = rows("fast", accuracy(), hardware="NVIDIA H200", step=0.1, time_source="predicted")
    found = at(3.0, rows("fast", accuracy()), elsewhere, control)
    assert [(one.recipe, one.setting.hardware) for one in found] == [("fast", "AMD EPYC 7B13")]


def test_nothing_is_reached_or_compared_beyond_the_last_budget() -> None:
    """By its forecast the recipe has the quality at 3 times the budget; only runs there make it an answer."""

    def answered(*budgets: float) -> tuple[Asked, float | None]:
        late = recipe("late", accuracy(), budgets=budgets)
        frame = table(recipe("baseline", lambda ssr, seed: accuracy()(ssr, seed) + 0.012, step=3.0), late)
        assert at(4.0, late)[0].quality is not None
        compared = sweep_verdicts(frame)[0].comparison
        return ask(frame, NO_FORECAST, Limits(quality=0.965)), compared.ratio

    (found,) = at(4.0, rows("late", accuracy()))
    assert found.low is not None and found.low > 0.965
    asked, ratio = answered(*BUDGETS)
    late = next(one for one in asked.candidates if one.recipe == "late")
    assert late.seconds is None and late.standing == "fails" and ratio is None
    asked, ratio = answered(*BUDGETS, 3.0)  # the control: run there
    late = next(one for one in asked.candidates if one.recipe == "late")
    assert late.seconds is not None and ratio is not None


def test_only_what_shows_forecasts_reads_them() -> None:
    """No verdict, answer or search imports the module: what it says cannot become a part of theirs."""
    package = Path(explorer.__file__).parent
    readers = {
        path.relative_to(package).parts[0]
        for path in package.rglob("*.py")
        if re.search(r"budget_law import|import .*budget_law", path.read_text(encoding="utf-8"))
    }
    assert readers == {"cli", "views", "api.py"}

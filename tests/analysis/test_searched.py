"""Runs that a search chose have no interval, band or verdict anywhere; the same runs of an ordinary sweep have."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from explorer.analysis.across_sweeps import against
from explorer.analysis.ask import ask
from explorer.analysis.curves import curves
from explorer.analysis.equal_budget import equal_budget
from explorer.analysis.equal_quality import Call, equal_quality
from explorer.analysis.ladders import SEARCHED
from explorer.analysis.limits import Limits, Standing
from explorer.analysis.sentences import summary
from explorer.analysis.side_by_side import duel
from explorer.analysis.smoothing import over_seeds
from explorer.analysis.verdict import sweep_verdicts
from tests.analysis.compositions import Bench
from tests.analysis.tables import rows, table
from tests.analysis.test_ask import NO_FORECAST

WOBBLE = (-0.001, 0.00025, 0.00075)

either = pytest.mark.parametrize("chosen", [True, False], ids=["searched", "ordinary"])


def log_curve(ssr: float, seed: int) -> float:
    return 0.8 + 0.05 * math.log(ssr) + WOBBLE[seed % 3] * (1 + ssr)


def better(ssr: float, seed: int) -> float:
    return 0.8 + 0.05 * math.log(1.5 * ssr) + WOBBLE[(seed + 1) % 3] * (1 + ssr)


def sweep(chosen: bool, name: str = "first", seeds: tuple[int, ...] = (0, 1, 2), *, other: bool = True) -> list[Any]:
    """The runs of a sweep, which a search chose or which were known beforehand."""
    more: dict[str, Any] = {
        **{"sweep": name, "seeds": seeds, "searched": True if chosen else None, "inference_seconds": 0.002},
        **{"usd_per_hour": 1.0, "price_source": "us", "price_as_of": "2026-11-01", "directory": "d"},
        **{"methods": "", "deletion_level": None, "deletion_seconds": math.nan},
    }
    made = rows("baseline", log_curve, **more) + rows("fast", better, **more)
    return made + (rows("other", log_curve, **more) if other else [])


def bounds(result: Any, *names: str) -> list[float | None]:
    return [getattr(result, name) for name in names]


@either
def test_equal_quality_and_equal_budget_have_no_interval_and_no_verdict(chosen: bool) -> None:
    for result in equal_quality(table(sweep(chosen))):
        ends = bounds(result, "ratio", "ratio_low", "ratio_high", "adjusted_low", "adjusted_high", "p_value")
        assert all((end is None) == chosen for end in ends)
        assert (result.call is Call.SEARCHED) == chosen and (result.reason == SEARCHED) == chosen
    for result in equal_budget(table(sweep(chosen))):
        assert all((end is None) == chosen for end in bounds(result, "difference", "low", "high", "p_value"))


@either
def test_curves_have_no_band(chosen: bool) -> None:
    points = [point for curve in curves(table(sweep(chosen))) for point in curve.points]
    assert points and all(point.n == 3 for point in points)
    assert all((point.low is None) == chosen and (point.high is None) == chosen for point in points)


@either
def test_means_of_learning_curves_have_no_band(chosen: bool) -> None:
    parts = [
        pd.DataFrame({"step": [1, 2], "value": [1.0 + seed, 2.0 + seed]}).assign(
            directory=f"run{seed}", recipe="fast", ssr=1.0, searched=True if chosen else None
        )
        for seed in range(3)
    ]
    mean = over_seeds(pd.concat(parts, ignore_index=True), x="step")
    assert mean["n"].tolist() == [3, 3] and np.isnan(mean["low"]).all() == chosen == np.isnan(mean["high"]).all()


@either
def test_a_question_is_answered_without_certainty(chosen: bool) -> None:
    answer = ask(table(sweep(chosen)), NO_FORECAST, Limits(quality=0.78))
    reached = [candidate.reached for candidate in answer.candidates]
    assert all((one.low is None) == chosen for one in reached if one.seconds is not None)
    assert all(
        candidate.verdict is None or (candidate.verdict.call is Call.SEARCHED) == chosen
        for candidate in answer.candidates
    )
    assert answer.difference is not None
    assert (answer.difference.low is None) == chosen and (answer.difference.reason == SEARCHED) == chosen
    assert answer.holds != chosen
    if chosen:
        assert answer.candidates[0].standing is Standing.UNCERTAIN


@either
def test_two_recipes_side_by_side_have_no_interval(chosen: bool) -> None:
    pair = duel(table(sweep(chosen)), "baseline", "fast")
    assert all((at.difference.low is None) == chosen for at in pair.budgets)
    assert (pair.equal_quality.ratio_low is None) == chosen == (pair.equal_x.low is None)


@either
def test_other_sweeps_are_not_compared_with_its_baseline(chosen: bool) -> None:
    second = sweep(False, "second", (10, 11, 12))
    results = against(table(sweep(chosen), second), sweep="first")
    assert results and all((result.reason == SEARCHED) == chosen for result in results)
    back = against(table(sweep(chosen), second), sweep="second")
    assert back and all((result.reason == SEARCHED) == chosen for result in back)


@either
def test_interactions_are_not_computed(chosen: bool) -> None:
    bench, mark = Bench(), {"searched": True if chosen else None}
    for methods in ([], ["a"], ["b"], ["a", "b"]):
        bench.recipe("-".join(methods) or "baseline", methods, **mark)  # pyright: ignore[reportArgumentType]
    answer = bench.found()
    assert bool(answer.pairs or answer.effects) != chosen
    assert (answer.reason or "").startswith(SEARCHED) == chosen


def test_only_fresh_seeds_make_a_claim_of_it() -> None:
    first = sweep(True)
    (fast, other) = sweep_verdicts(table(first))
    assert not fast.claims and not other.claims and not fast.asks
    assert summary([fast, other]).startswith(SEARCHED)
    fresh = table(first, sweep(False, "second", (10, 11, 12), other=False))
    (fast, other) = sweep_verdicts(table(first), fresh)
    assert fast.is_confirmed and fast.claims and fast.call is Call.SEARCHED and not other.claims
    assert "confirmed on 3 fresh seeds: 1.5" in summary([fast, other])
    # Its own seeds are none of the fresh ones.
    (fast, _) = sweep_verdicts(table(first), table(first, sweep(False, "second", (2, 3, 4), other=False)))
    assert not fast.claims


def test_a_table_that_was_exported_to_text_is_searched_as_well() -> None:
    words = table(sweep(True)).assign(searched="True")
    assert all(result.call is Call.SEARCHED for result in equal_quality(words))
    assert all(result.call is not Call.SEARCHED for result in equal_quality(words.assign(searched="")))

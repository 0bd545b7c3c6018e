"""The best recipe under limits: closed forms, every way to fail, and what must never be the answer."""

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from explorer.analysis.ask import Asked, Candidate, ask
from explorer.analysis.limits import Finding, Limit, Limits, Standing
from explorer.errors import AnalysisError
from explorer.provenance.levels import Cost
from tests.analysis.tables import BUDGETS, fixed, rows, table

WOBBLE = {0: -0.001, 1: 0.00025, 2: 0.00075}
NO_FORECAST = pd.DataFrame({"directory": [], "class": [], "level": [], "seconds": [], "seconds_high": []})


def log_curve(ssr: float, seed: int) -> float:
    """Has the quality q at the budget exp((q - 0.8) / 0.05)."""
    return 0.8 + 0.05 * math.log(ssr) + WOBBLE[seed % 3] * (1 + ssr)


def seconds_to(quality: float, step: float) -> float:
    return 100 * step * math.exp((quality - 0.8) / 0.05)


def recipe(name: str, quality: Any = log_curve, **changes: Any) -> list[dict[str, object]]:
    priced = {"usd_per_hour": 3.6, "price_source": "us", "price_as_of": "2026-11-01", "inference_seconds": 0.002}
    made = rows(name, quality, **(priced | changes))
    return [row | {"directory": f"digits/{name}-{row['ssr']}-{row['seed']}-{row['hardware']}"} for row in made]


def asked(*recipes: list[dict[str, object]], forecasts: pd.DataFrame = NO_FORECAST, **limits: Any) -> Asked:
    return ask(table(*recipes), forecasts, Limits(**limits))


def of(found: Asked, name: str) -> Candidate:
    (candidate,) = (each for each in found.candidates if each.recipe == name)
    return candidate


def finding(candidate: Candidate, limit: Limit) -> Finding:
    (found,) = (each for each in candidate.findings if each.limit is limit)
    return found


def test_the_least_time_wins_and_the_next_is_the_runner_up() -> None:
    found = asked(recipe("baseline"), recipe("fast", step=0.6), recipe("slow", step=1.5), quality=0.78)
    assert [each.recipe for each in found.candidates] == ["fast", "baseline", "slow"]
    assert found.holds and found.best is not None and found.runner_up is not None
    assert found.best.seconds == pytest.approx(seconds_to(0.78, 0.6))
    assert found.best.usd == pytest.approx(seconds_to(0.78, 0.6) * 3.6 / 3600)
    assert found.difference is not None
    assert found.difference.ratio == pytest.approx(1 / 0.6)
    assert found.nearest is None
    tested = found.best.reached.tested
    assert tested is not None and (found.best.reached.below, tested.ssr, tested.n) == (0.5, 1.0, 3)


def test_memory_is_a_limit_and_an_unmeasured_run_leaves_it_unknown() -> None:
    small = [row | {"peak_memory": 400.0 + int(str(row["seed"]))} for row in recipe("small", step=1.5)]
    large = [row | {"peak_memory": 900.0} for row in recipe("baseline")]
    mixed = [row | {"peak_memory": 100.0 if row["seed"] else float("nan")} for row in recipe("mixed", step=0.5)]
    answer = asked(large, small, mixed, quality=0.78, max_memory=402.0)
    assert {one.recipe: finding(one, Limit.MEMORY).standing for one in answer.candidates} == {
        "small": Standing.HOLDS,  # its most is 402
        "mixed": Standing.UNKNOWN,
        "baseline": Standing.FAILS,
    }
    assert answer.best is not None and answer.best.recipe == "small"
    assert finding(of(answer, "mixed"), Limit.MEMORY).reason == "it was not measured in all of its runs"
    with pytest.raises(AnalysisError, match="found 0"):
        asked(large, max_memory=0.0)
    without = asked(recipe("baseline"), quality=0.78, max_memory=402.0)
    assert finding(of(without, "baseline"), Limit.MEMORY).standing is Standing.UNKNOWN, "rows of an older export"


def test_the_interval_of_the_time_is_the_one_that_is_documented() -> None:
    """By a plain loop over all 27 resamples of three seeds."""
    quality = 0.8 + 0.05 * np.log(np.array(BUDGETS))[:, None] + np.random.default_rng(3).normal(0, 0.004, (5, 3))
    logs = []
    for seeds in itertools.product(range(3), repeat=3):
        curve = np.maximum.accumulate(quality[:, list(seeds)].mean(axis=1))
        logs.append(np.interp(0.77, curve, np.log(100 * np.array(BUDGETS))))
    half = stats.t.ppf(0.975, 2) * np.std(logs) * math.sqrt(3 / 2)
    best = asked(recipe("baseline", lambda ssr, seed: quality[BUDGETS.index(ssr), seed]), quality=0.77).best
    assert best is not None and best.seconds is not None
    reached = best.reached
    assert reached.low == pytest.approx(best.seconds * math.exp(-half))
    assert reached.high == pytest.approx(best.seconds * math.exp(half))
    assert reached.reach_rate == 1.0


def test_what_lies_beyond_the_last_budget_is_never_the_answer() -> None:
    """The cheapest recipe by far would have the quality at twice its longest budget."""
    late = {"step": 0.01, "quality": lambda ssr, seed: log_curve(ssr / 2, seed) - 0.02}
    found = asked(recipe("baseline"), recipe("late", **late), quality=0.8)
    assert found.best is not None and found.best.recipe == "baseline" and found.runner_up is None
    missed = finding(of(found, "late"), Limit.QUALITY)
    assert missed.standing is Standing.FAILS and of(found, "late").seconds is None
    assert missed.found == pytest.approx(0.8 + 0.05 * math.log(0.75) - 0.02) and missed.allowed == 0.8
    found = asked(recipe("baseline"), recipe("late", budgets=(*BUDGETS, 4.0), **late), quality=0.8)
    assert found.best is not None and found.best.recipe == "late"  # the control: run at that budget, it is


def test_a_quality_that_noise_may_not_reach_is_no_answer() -> None:
    top = {0.5: (0.70, 0.70, 0.71), 1.0: (0.75, 0.80, 0.86)}
    noisy = recipe("noisy", fixed(top), step=0.1, budgets=top)
    found = asked(noisy, quality=0.80)
    assert not found.holds and found.best is not None and found.best.recipe == "noisy"
    assert found.best.reached.reach_rate is not None and 0.3 < found.best.reached.reach_rate < 0.7
    doubt = finding(found.best, Limit.QUALITY)
    assert doubt.standing is Standing.UNCERTAIN and "of the resamples reach" in doubt.reason
    found = asked(recipe("baseline"), noisy, quality=0.80)
    assert found.holds and found.best is not None and found.best.recipe == "baseline"  # dearer, and sure
    assert asked(noisy, quality=0.72).holds


def test_one_seed_has_no_interval_and_is_never_sure() -> None:
    found = asked(recipe("baseline", seeds=(0,)), recipe("fast", step=0.5, seeds=(0,)))
    assert (of(found, "fast").standing, of(found, "fast").reached.low) == (Standing.UNCERTAIN, None)
    assert finding(of(found, "fast"), Limit.QUALITY).reason == "one seed"
    assert found.best is not None and found.best.is_baseline  # is as good as itself
    assert found.difference is not None and found.difference.reason == "one seed"


def test_a_recipe_that_is_better_at_its_lowest_budget_is_taken_there() -> None:
    best = asked(recipe("baseline"), recipe("fast", step=0.1), quality=0.6).best
    assert best is not None and best.recipe == "fast"
    assert best.reached.at_lowest and best.seconds == pytest.approx(100 * 0.1 * BUDGETS[0])
    assert best.standing is Standing.HOLDS and best.reached.below is None


def test_times_that_are_upper_limits_are_not_compared() -> None:
    """Both have 100% at the smallest budget: which takes less is not known, and no recipe is offered for confirmation.
    The control: with a budget below it there is a ratio and a winner."""
    top = {0.5: (1.0, 1.0, 1.0), 1.0: (1.0, 1.0, 1.0)}
    both = [recipe(name, fixed(top), step=step, budgets=top) for name, step in (("baseline", 1.0), ("fast", 0.8))]
    answer = asked(*both)
    assert [one.reached.at_lowest for one in answer.candidates] == [True, True] and answer.holds
    assert answer.difference is not None and answer.difference.ratio is None and answer.winner is None
    low = {0.25: (0.8, 0.81, 0.82), **top}
    answer = asked(
        *(recipe(name, fixed(low), step=step, budgets=low) for name, step in (("baseline", 1), ("fast", 0.8)))
    )
    assert answer.winner is not None and answer.winner.recipe == "fast"
    assert answer.difference is not None and answer.difference.ratio is not None


def test_controls_are_no_candidates() -> None:
    control = recipe("fast-random", step=0.01, control="random-subset", control_of="fast")
    found = asked(recipe("baseline"), recipe("fast", step=0.6), control, quality=0.78)
    assert {each.recipe for each in found.candidates} == {"baseline", "fast"}


def test_a_limit_on_time_counts_the_interval() -> None:
    high = asked(recipe("baseline"), quality=0.78).candidates[0].reached.high
    assert high is not None
    exact = seconds_to(0.78, 1.0)
    for most, standing in ((exact * 0.99, "fails"), ((exact + high) / 2, "uncertain"), (high * 1.01, "holds")):
        found = asked(recipe("baseline"), quality=0.78, max_seconds=most)
        assert finding(found.candidates[0], Limit.TIME).standing == standing
        assert found.holds == (standing == "holds")


def test_cost_is_what_is_least_where_it_is_limited() -> None:
    quick = recipe("fast", step=0.5, hardware="NVIDIA H200", usd_per_hour=36.0)
    base = recipe("baseline", step=0.6, hardware="NVIDIA H200", usd_per_hour=36.0)
    slow = recipe("baseline", usd_per_hour=1.8)
    assert asked(quick, base, slow, quality=0.78).candidates[0].recipe == "fast"
    found = asked(quick, base, slow, quality=0.78, max_usd=0.5)
    best, second = found.best, found.runner_up
    assert best is not None and second is not None and found.least == "cost"
    assert (best.setting.hardware, second.recipe) == ("AMD EPYC 7B13", "fast")
    assert best.usd == pytest.approx(seconds_to(0.78, 1.0) / 2000)
    assert found.difference is not None and found.difference.ratio == pytest.approx(10.0)


def test_no_price_is_never_a_cost() -> None:
    blank = {"usd_per_hour": math.nan, "price_source": None, "price_as_of": None}
    found = asked(recipe("baseline", **blank), recipe("fast", step=0.1, **blank), quality=0.78, max_usd=1e9)
    assert found.best is None and not found.holds
    assert finding(found.candidates[0], Limit.COST).reason == "no price for AMD EPYC 7B13"
    assert asked(recipe("baseline", **blank), quality=0.78).holds  # the control: cost was not asked about


def test_inference_is_limited_in_seconds_or_beside_the_baseline() -> None:
    heavy = recipe("heavy", step=0.5, inference_seconds=0.004, inference_ratio=2.0)
    unmeasured = recipe("unmeasured", step=0.4, inference_seconds=math.nan, inference_ratio=math.nan)
    kinds: tuple[dict[str, Any], ...] = ({"max_inference_seconds": 0.003}, {"max_inference_ratio": 1.5})
    for limits in kinds:
        found = asked(recipe("baseline"), heavy, unmeasured, quality=0.78, **limits)
        standing = {each.recipe: each.standing for each in found.candidates}
        assert standing == {"baseline": Standing.HOLDS, "heavy": Standing.FAILS, "unmeasured": Standing.UNKNOWN}


def forecasts(*recipes: list[dict[str, object]], level: str = "G3", seconds: Any = 60.0, **more: Any) -> pd.DataFrame:
    of = [
        {"directory": row["directory"], "class": "open/mit", "level": level, "steps": row["steps"]}
        for each in recipes
        for row in each
    ]
    if level == "G2":
        of = [{**each, "steps": 0} for each in of]
    return pd.DataFrame(of).assign(seconds=seconds, **({"seconds_high": 90.0} | more))


def test_structure_and_replay_are_equally_exact_and_cost_has_a_limit_of_its_own() -> None:
    fast, sealed = recipe("fast", step=0.5), recipe("sealed", step=0.9)
    known = pd.concat([forecasts(fast), forecasts(sealed, level="G2", seconds=0.1, seconds_high=0.2)])
    cheap: dict[str, Any] = {"deletion_at_most": {"open/mit": Cost(share=0.01)}, "deletable": {"open/mit": "G2"}}
    found = asked(recipe("baseline"), fast, sealed, forecasts=known, quality=0.78, **cheap)
    assert found.holds and found.best is not None and found.best.recipe == "sealed"
    refused = finding(of(found, "fast"), Limit.DELETION)
    assert (refused.standing, refused.level) == (Standing.FAILS, "G3")
    assert "100% of training; at most 1% of training allowed" in refused.reason
    ungoverned = finding(of(found, "baseline"), Limit.DELETION)
    assert ungoverned.standing is Standing.UNKNOWN and "keep no ledger" in ungoverned.reason
    for level in ("G2", "G3"):  # the control: without a limit, replay is enough
        found = asked(fast, sealed, forecasts=known, quality=0.78, deletable={"open/mit": level})
        assert found.best is not None and found.best.recipe == "fast"
    with pytest.raises(AnalysisError, match="needs its level: open/mit=G2"):
        asked(fast, forecasts=known, deletion_at_most={"open/mit": Cost(steps=0)})


def test_the_worst_of_the_budgets_on_either_side_counts() -> None:
    fast = recipe("baseline")
    known = forecasts(fast, level="G2", seconds=1.0, seconds_high=1.0)
    upper = known["directory"].str.contains("-1.0-1-")  # one seed of the budget above
    known.loc[upper, ["level", "steps"]] = ["G3", 10]
    asking: dict[str, Any] = {
        **{"quality": 0.78, "deletable": {"open/mit": "G2"}},
        "deletion_at_most": {"open/mit": Cost(steps=0)},
    }
    assert not asked(fast, forecasts=known, **asking).holds
    beyond = known.assign(steps=[10 if "-1.5-" in name else 0 for name in known["directory"]])
    assert asked(fast, forecasts=beyond, **asking).holds  # the control: that budget is not needed
    absent = finding(asked(fast, forecasts=known[~upper], **asking).candidates[0], Limit.DELETION)
    assert absent.standing is Standing.UNKNOWN


@pytest.mark.parametrize(("most", "standing"), [(50.0, "fails"), (80.0, "uncertain"), (100.0, "holds")])
def test_the_time_of_a_deletion_counts_its_interval(most: float, standing: str) -> None:
    mine = recipe("baseline")
    limits: dict[str, Any] = {"deletable": {"open/mit": "G3"}, "max_deletion_seconds": most}
    assert asked(mine, forecasts=forecasts(mine), **limits).candidates[0].standing == standing
    elsewhere = recipe("baseline", time_source="predicted")
    found = asked(elsewhere, forecasts=forecasts(elsewhere), **limits)
    assert finding(found.candidates[0], Limit.DELETION).standing is Standing.UNKNOWN  # it is of another machine
    unmeasured = forecasts(mine, seconds=math.nan)
    assert asked(mine, forecasts=unmeasured, **limits).candidates[0].standing is Standing.UNKNOWN


def test_noise_between_the_best_two_is_told() -> None:
    near = recipe("near", lambda ssr, seed: log_curve(ssr, seed + 1) + 0.0002, step=0.999)
    found = asked(recipe("baseline"), near, quality=0.78)
    assert found.difference is not None and found.difference.low is not None
    assert not found.difference.beyond_noise and found.difference.low < 1
    far = recipe("far", lambda ssr, seed: log_curve(ssr, seed + 1), step=0.7)
    found = asked(recipe("baseline"), far, quality=0.78)
    assert found.difference is not None and found.difference.beyond_noise
    found = asked(recipe("baseline"), recipe("far", step=0.7, seeds=(3, 4, 5)), quality=0.78)
    assert found.difference is not None and found.difference.low is None
    assert "same seeds" in found.difference.reason


def test_lower_is_better() -> None:
    kind = {"metric": "bits_per_byte", "unit": "bits", "higher_is_better": False}
    loss = {"quality": lambda ssr, seed: 2.0 - log_curve(ssr, seed), **kind}
    found = asked(recipe("baseline", **loss), recipe("fast", step=0.6, **loss), quality=1.22)
    assert found.best is not None and found.best.seconds == pytest.approx(seconds_to(0.78, 0.6))
    found = asked(recipe("baseline", **loss), quality=1.0)
    missed = found.candidates[0].failed[0]
    assert missed.found == pytest.approx(2.0 - 0.8 - 0.05 * math.log(1.5))


def test_the_nearest_miss_is_named() -> None:
    bad = recipe("bad", lambda ssr, seed: log_curve(ssr, seed) - 0.3)
    blind = recipe("blind", inference_seconds=math.nan)
    limits: dict[str, Any] = {"quality": 0.78, "max_seconds": 30.0, "max_inference_seconds": 0.01}
    found = asked(recipe("baseline"), recipe("fast", step=0.6), bad, blind, **limits)
    assert found.best is None and found.nearest is not None and found.nearest.recipe == "fast"


def test_one_that_is_late_is_nearer_than_one_that_never_has_the_quality() -> None:
    """A recipe 1% short of the quality misses by less, as a share, than one that has it twice too late."""
    never = recipe("never", lambda ssr, seed: log_curve(ssr, seed) - 0.02, step=0.1)
    found = asked(recipe("baseline"), never, quality=0.815, max_seconds=70.0)
    assert found.best is None and found.nearest is not None and found.nearest.recipe == "baseline"
    assert [each.limit for each in of(found, "never").failed] == [Limit.QUALITY]
    assert [each.limit for each in of(found, "baseline").failed] == [Limit.TIME]
    two = asked(
        recipe("baseline", inference_seconds=0.5), never, quality=0.815, max_seconds=70.0, max_inference_seconds=0.01
    )
    assert two.nearest is not None and two.nearest.recipe == "baseline"  # though it fails two limits, and the other one
    none = asked(never, recipe("baseline", lambda ssr, seed: log_curve(ssr, seed) - 0.03), quality=0.83)
    assert none.nearest is not None and none.nearest.recipe == "never"  # where none has it, the one that misses least


def test_a_time_that_nobody_knows_is_unknown() -> None:
    found = asked(recipe("baseline"), recipe("fast", train_seconds=math.nan), quality=0.78)
    assert of(found, "fast").standing is Standing.UNKNOWN
    assert "not profiled" in finding(of(found, "fast"), Limit.QUALITY).reason
    found = asked(recipe("fast"))
    assert found.best is None and "the baseline's quality is unknown" in found.candidates[0].findings[0].reason


def test_questions_that_cannot_be_asked() -> None:
    base = recipe("baseline")
    with pytest.raises(AnalysisError, match="fraction from 0 to 1"):
        asked(base, quality=93)
    with pytest.raises(AnalysisError, match="did you mean 'open/mit'"):
        asked(base, forecasts=forecasts(base), deletable={"open/mitt": "G2"})
    with pytest.raises(AnalysisError, match="G1"):
        asked(base, deletable={"open/mit": "G1"})
    with pytest.raises(AnalysisError, match="above 0"):
        asked(base, max_seconds=-1)
    with pytest.raises(AnalysisError, match="needs the class"):
        asked(base, max_deletion_seconds=1)
    with pytest.raises(AnalysisError, match="choose one metric"):
        asked(base, recipe("other", metric="nll"))
    with pytest.raises(AnalysisError, match="no finished run"):
        ask(table(base).iloc[:0], NO_FORECAST, Limits())
    with pytest.raises(AnalysisError, match="did you mean 'baseline'"):
        ask(table(base), NO_FORECAST, Limits(), baseline="baselin")

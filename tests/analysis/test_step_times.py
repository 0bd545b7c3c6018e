"""The noise of step times: what windows, quartiles and passes tell, and that it is in every interval of a ratio."""

# pyright: reportOptionalOperand=false, reportOperatorIssue=false, reportOptionalMemberAccess=false
# pyright: reportArgumentType=false
# What an interval lacks is None: an assertion on it fails here as it should.

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from explorer.analysis.ask import ask
from explorer.analysis.controls import controlled
from explorer.analysis.equal_budget import equal_budget
from explorer.analysis.equal_quality import Call, equal_quality
from explorer.analysis.inference import Effect, size_of
from explorer.analysis.limits import Limits
from explorer.analysis.side_by_side import duel
from explorer.analysis.step_times import BUILD, between, error_of, error_of_ratio, of_quartiles, of_windows
from explorer.analysis.verdict import sweep_verdicts
from tests.analysis.tables import rows, table
from tests.analysis.test_ask import NO_FORECAST, recipe

WOBBLE = (-0.001, 0.00025, 0.00075)
DRIFT = np.array([1.0, 1.2, 0.9, 1.1, 0.8, 1.3, 1.05])
OWN = np.array([1.0, 0.99, 1.01, 1.02, 0.98, 1.0, 1.01])


def curve(ssr, seed):
    return 0.8 + 0.05 * math.log(ssr) + WOBBLE[seed % 3] * (1 + ssr)


def better(ssr, seed):
    return 0.8 + 0.05 * math.log(1.25 * ssr) + WOBBLE[(seed + 1) % 3] * (1 + ssr)


def timed(made, factors, measured_with="pass"):
    """The rows with the windows that a profile measured: their median is the time that is stated."""
    done = []
    for row in made:
        windows = row["train_seconds"] * factors / np.median(factors)
        low, high = np.quantile(windows, [0.25, 0.75])
        kept = {"train_seconds_low": low, "train_seconds_high": high}
        done.append(row | kept | {"train_seconds_windows": list(windows), "profile_pass": measured_with})
    return done


def one(frame: pd.DataFrame):
    (result,) = equal_quality(frame)
    return result


def width(result):
    assert result.ratio_low is not None and result.ratio_high is not None
    return math.log(result.ratio_high / result.ratio_low)


def test_drift_that_two_recipes_share_cancels_where_they_were_measured_in_turn() -> None:
    first = of_windows(DRIFT * OWN, 1.05, measured_with="a")
    second = of_windows(DRIFT * OWN[::-1], 1.05, measured_with="a")
    apart = replace(second, measured_with="b")
    assert size_of(error_of_ratio(first, second)) < 0.5 * size_of(error_of_ratio(first, apart))
    assert size_of(error_of_ratio(first, apart)) == pytest.approx(
        math.hypot(*map(size_of, map(error_of, (first, apart))))
    )
    unnamed = replace(first, measured_with=""), replace(second, measured_with="")
    assert error_of_ratio(*unnamed) == error_of_ratio(first, apart)  # no pass, no pairs
    fewer = of_windows((DRIFT * OWN)[:5], 1.05, measured_with="a")
    assert len(error_of_ratio(first, fewer)) == 4  # nor where the rounds are not the same ones


def test_windows_that_do_not_differ_leave_what_no_window_shows() -> None:
    still = of_windows([2.0] * 7, 2.0, measured_with="a")
    assert size_of(error_of_ratio(still, still)) == pytest.approx(math.sqrt(2) * BUILD)
    assert size_of(error_of(of_windows([2.0], 2.0, measured_with="a"))) == BUILD
    assert size_of(error_of(of_quartiles(2.0, 2.0, 2.0))) == BUILD


def test_a_time_between_two_budgets_has_the_windows_of_both() -> None:
    first, second = (of_windows(each, 1.0, measured_with="a") for each in (DRIFT, OWN))
    middle = between(first, second, share=0.25)
    assert middle.log_W == pytest.approx(0.75 * np.log(DRIFT) + 0.25 * np.log(OWN))
    assert between(first, of_quartiles(0.9, 1.1, 1.0), share=0.1) is first


@pytest.mark.parametrize(("drift", "own"), [(0.0, 0.02), (0.1, 0.02), (0.02, 0.02)])
def test_the_interval_of_a_ratio_of_times_holds_the_truth(drift, own) -> None:
    """And by the textbook's error of a median, from paired differences, it does not where drift is large."""
    random = np.random.default_rng(1)
    held, textbook = 0, 0
    for _ in range(300):
        logs = random.normal(0, drift, (7, 1)) + random.normal(0, own, (7, 2))
        seconds = np.exp(logs)
        stated = np.median(seconds, axis=0)
        first, second = (of_windows(seconds[:, k], stated[k], measured_with="a") for k in (0, 1))
        value = math.log(stated[0] / stated[1])
        found = Effect(value=value, errors=error_of_ratio(first, second)[:1]).interval(0.95)
        held += found.low <= 0 <= found.high
        textbook += abs(value) <= 2.447 * 1.2533 * np.diff(logs, axis=1).std(ddof=1) / math.sqrt(7)
    assert held / 300 >= 0.94
    if drift > 2 * own:
        assert textbook / 300 < 0.9


def test_every_ratio_is_less_exact_for_it() -> None:
    """Equal quality, equal time, controls, two recipes, a question: wide with noisy windows, as before without."""
    plain = [rows("baseline", curve), rows("fast", better)]
    noisy = table(timed(plain[0], DRIFT, "a"), timed(plain[1], DRIFT[::-1], "b"))
    exact, blurred = table(*plain), noisy
    assert width(one(blurred)) > 1.5 * width(one(exact))
    assert one(exact).call is Call.LESS and one(blurred).call is Call.INCONCLUSIVE
    (at_exact,), (at_blurred,) = equal_budget(exact), equal_budget(blurred)
    assert at_blurred.high - at_blurred.low > 1.2 * (at_exact.high - at_exact.low)
    by_steps = [equal_quality(frame, x="steps") for frame in (exact, blurred)]
    assert by_steps[0] == by_steps[1]  # the control: steps are counted
    costs = [equal_quality(frame, x="cost_usd")[0] for frame in (exact, blurred)]
    assert width(costs[1]) > 1.5 * width(costs[0])
    more = [("methods", "ema"), ("inference_seconds", 0.1), ("deletion_level", None), ("deletion_seconds", math.nan)]
    two = [duel(frame.assign(**dict(more)), "fast", "baseline").equal_quality for frame in (exact, blurred)]
    assert width(two[1]) > 1.5 * width(two[0])
    limits = Limits(quality=0.78)
    asked = [
        ask(table(*map(make, (recipe("baseline"), recipe("fast", better)), (DRIFT, DRIFT[::-1]))), NO_FORECAST, limits)
        for make in (lambda made, factors: made, lambda made, factors: timed(made, factors, str(factors[0])))
    ]
    spans = [each.candidates[0].reached for each in asked]
    assert spans[1].high / spans[1].low > 1.2 * spans[0].high / spans[0].low
    assert asked[1].difference.low < asked[0].difference.low


def test_a_control_of_the_same_time_is_less_exact_for_it() -> None:
    base = rows("baseline", curve, budgets=(0.5, 1.0, 1.6))
    base += rows("baseline", curve, budgets=(0.8,), control="rescaled-baseline", control_of="slow")
    slow = rows("slow", better, step=1.6, budgets=(0.5, 1.0))
    exact = controlled(table(base, slow))
    blurred = controlled(table(timed(base, DRIFT, "a"), timed(slow, DRIFT[::-1], "b")))
    pairs = [(a, b) for a, b in zip(exact, blurred, strict=True) if a.against.low is not None]
    assert pairs and all(b.against.high - b.against.low > a.against.high - a.against.low for a, b in pairs)


def test_a_twin_of_the_baseline_is_not_called_faster_for_the_noise_of_its_times() -> None:
    """Bit for bit the baseline, 2% faster by its profile: the seeds cancel, the times do not."""
    twin = timed(rows("twin", curve, step=0.98), DRIFT * OWN)
    (found,) = sweep_verdicts(table(timed(rows("baseline", curve), DRIFT * OWN[::-1]), twin))
    assert found.call in (Call.INCONCLUSIVE, Call.EQUIVALENT) and not found.claims
    assert found.comparison.seed_error == 0 and found.seeds is None
    (halved,) = sweep_verdicts(table(timed(rows("baseline", curve), OWN), timed(rows("half", curve, step=0.5), OWN)))
    assert halved.call is Call.LESS  # the control
    same = timed(rows("twin", curve), OWN)
    (equal,) = sweep_verdicts(table(timed(rows("baseline", curve), OWN), same))
    assert equal.comparison.ratio == 1 and equal.call is Call.EQUIVALENT


def test_a_profile_of_quartiles_alone_counts_too() -> None:
    frame = table(timed(rows("baseline", curve), DRIFT), timed(rows("fast", better), DRIFT))
    old = frame.drop(columns=["train_seconds_windows", "profile_pass"])
    assert width(one(old)) > width(one(frame)) > width(one(table(rows("baseline", curve), rows("fast", better))))
    mixed = frame.assign(train_seconds_windows=[None] * len(frame), profile_pass=None)
    assert width(one(mixed)) == pytest.approx(width(one(old)))


def test_what_a_store_has_for_nothing_is_no_noise() -> None:
    frame = table(rows("baseline", curve), rows("fast", better)).assign(
        train_seconds_low=math.nan, train_seconds_high=math.nan, time_source="measured"
    )
    assert one(frame).errors == one(frame.drop(columns=["train_seconds_low", "train_seconds_high"])).errors

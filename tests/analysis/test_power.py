"""Further seeds: what they take, what is proposed where they would not settle anything, and that looks are told."""

import math
from typing import Any

import pandas as pd
import pytest

from explorer.analysis.advice import Advice, advise, to_confirm
from explorer.analysis.equal_quality import Call, equal_quality
from explorer.analysis.power import effort_of
from explorer.analysis.verdict import Verdict, sweep_verdicts
from explorer.costing import wall_seconds
from tests.analysis.tables import rows, table

SEEDS = (0, 1, 2)
WOBBLE = (-0.02, 0.005, 0.015)


def curve(speed: float, turn: int, noise: float = 1.0) -> Any:
    """Quality along a curve that is `speed` times faster, with the wobble of seeds turned by `turn`."""
    return lambda ssr, seed: 0.8 + 0.05 * math.log(speed * ssr) + noise * WOBBLE[(seed + turn) % 3]


def sweep(*recipes: list[dict[str, object]], name: str = "digits", seeds: tuple[int, ...] = SEEDS) -> pd.DataFrame:
    return table(rows("baseline", curve(1.0, 0), sweep=name, seeds=seeds), *recipes)


def step_of(frame: pd.DataFrame, **options: Any) -> Advice | None:
    return advise(sweep_verdicts(frame, frame), frame, **options)


UNSURE = sweep(rows("fast", curve(1.3, 1)), rows("slow", curve(0.9, 1)))


def test_an_inconclusive_answer_ends_in_runs_with_their_price() -> None:
    verdicts = sweep_verdicts(UNSURE)
    assert verdicts[0].call is Call.INCONCLUSIVE
    step = step_of(UNSURE, workers=2)
    assert step is not None and step.recipe == "fast" and step.seeds is not None and step.effort is not None
    assert step.command() == ("confirm", "--seeds", str(step.seeds), "digits", "fast")
    budgets = (0.125, 0.25, 0.5, 1.0, 1.5)
    seconds = step.seeds * 2 * 100 * sum(budgets)  # of two recipes
    assert step.effort.runs == step.seeds * 2 * len(budgets)
    assert step.effort.train_seconds == pytest.approx(seconds)
    assert step.effort.usd == pytest.approx(seconds / 3600)
    expected = wall_seconds(seconds, runs=step.effort.runs, slowdown=1.2, workers=2)
    assert step.effort.wall_seconds == pytest.approx(expected)
    assert f"about {step.seeds} more seeds of fast and baseline would decide" in step.sentence
    assert "$" in step.price and "runs, about" in step.price


def test_a_time_or_a_price_that_is_not_known_is_not_invented() -> None:
    frame = UNSURE.assign(cost_usd=float("nan"))
    (verdict, _) = sweep_verdicts(frame)
    assert effort_of(frame, verdict.comparison, seeds=2, workers=1).usd is None
    # A recipe with one budget whose time is not known has no time in all.
    frame.loc[(frame["recipe"] == "fast") & (frame["ssr"] == 0.5), "train_seconds"] = float("nan")
    effort = effort_of(frame, verdict.comparison, seeds=2, workers=1)
    assert (effort.train_seconds, effort.wall_seconds, effort.runs) == (None, None, 20)


def test_fresh_seeds_that_do_not_tell_either_ask_for_more_and_tell_the_look() -> None:
    fresh = table(
        rows("baseline", curve(1.0, 0), sweep="again", seeds=(7, 8, 9)),
        rows("fast", curve(1.3, 1), sweep="again", seeds=(7, 8, 9)),
    )
    verdicts = sweep_verdicts(UNSURE, pd.concat([UNSURE, fresh]))
    step = advise(verdicts, UNSURE, recipe="fast")
    assert step is not None and step.after_looking and step.seeds is not None
    assert step.command()[:3] == ("confirm", "--seeds", str(3 + step.seeds))
    more = fresh.assign(sweep="further", seed=fresh["seed"] + 3)
    extended = sweep_verdicts(UNSURE, pd.concat([UNSURE, fresh, more]))[0].confirmation
    assert extended is not None and extended.was_extended and "seeds were added after a look" in extended.sentence
    once = verdicts[0].confirmation
    assert once is not None and not once.was_extended and "after a look" not in once.sentence


def test_noise_of_step_times_is_not_mended_by_seeds() -> None:
    noisy = UNSURE.assign(train_seconds_low=UNSURE["train_seconds"] * 0.4)
    noisy = noisy.assign(train_seconds_high=UNSURE["train_seconds"] * 2.5)
    step = step_of(noisy)
    assert step is not None and step.seeds is None and step.command() == ()
    assert "step times are too noisy, profile again" in step.sentence


def test_a_winner_is_confirmed_and_a_confirmed_one_needs_nothing() -> None:
    frame = sweep(rows("fast", curve(3.0, 0)), rows("quick", curve(2.0, 1, 0.5)))
    frame.loc[frame["recipe"] == "fast", "quality"] += frame["seed"] * 0.0004
    step = step_of(frame)
    assert step is not None and step.recipe == "fast" and (step.seeds or 0) >= 3 and "confirm it, or not" in step.words
    fresh = frame[frame["recipe"].isin(["baseline", "fast"])].assign(sweep="again")
    fresh["seed"] += 10
    assert advise(sweep_verdicts(frame, pd.concat([frame, fresh])), frame) is None


def test_what_seeds_cannot_settle_is_said() -> None:
    single = step_of(sweep(rows("fast", curve(1.3, 0), seeds=(0,)), seeds=(0,)))
    assert (
        single is not None
        and single.command()[:3] == ("confirm", "--seeds", "3")
        and "one seed has no interval" in single.words
    )
    often = step_of(sweep(rows("weak", curve(0.68, 1, 3.0))))
    assert often is not None and "not every seed reaches the target" in often.words
    agreeing = sweep(rows("fast", curve(1.0, 0), step=0.5)).assign(quality=lambda frame: frame["ssr"] / 2)
    assert sweep_verdicts(agreeing)[0].call is Call.NO_INTERVAL and step_of(agreeing) is None
    never = step_of(sweep(rows("weak", curve(0.2, 1))))
    assert never is not None and "add budgets above the largest" in never.words and not never.command()
    early = step_of(sweep(rows("early", curve(40.0, 1))))
    assert early is not None and "add a budget below its lowest" in early.words
    assert step_of(sweep()) is None


def test_where_seeds_agree_exactly_the_times_are_what_is_missing() -> None:
    same = sweep(rows("fast", curve(1.0, 0), step=0.95))
    seconds = same["train_seconds"]
    same = same.assign(train_seconds_low=seconds * 0.7, train_seconds_high=seconds * 1.4)
    (verdict,) = sweep_verdicts(same)
    assert verdict.call is Call.INCONCLUSIVE and verdict.comparison.seed_error == 0 and verdict.seeds is None
    step = step_of(same)
    assert step is not None and not step.command() and "step times are too noisy, profile again" in step.words


def test_any_recipe_can_be_confirmed_and_the_chosen_one_comes_first() -> None:
    def names(verdicts: list[Verdict]) -> list[str]:
        return [verdict.comparison.recipe for verdict in verdicts]

    verdicts = sweep_verdicts(UNSURE)
    assert names(to_confirm(verdicts)) == ["fast", "slow"]
    assert names(to_confirm(verdicts, winner="slow")) == ["slow", "fast"]
    assert equal_quality(UNSURE)  # a recipe that is slower is offered too

"""Enough seeds: the number by Stein's rule, and an interval that is as narrow as was asked and keeps its level."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from explorer.analysis.equal_quality import EqualQuality, equal_quality
from explorer.analysis.inference import Error
from explorer.search.stopping import Needed, needed_for, spread
from tests.analysis.tables import rows, table

TEN = math.log(1.1)
SPEED = {"baseline": 1.0, "fast": 1.5, "a": 1.0, "b": 1.1, "c": 1.2}


def simulated(*, sweeps: int, n: int, noise: float = 0.01, recipes: tuple[str, ...] = ("fast",), seed: int = 0) -> Any:
    """Sweeps of n seeds whose curves are straight in the logarithm of time."""
    random = np.random.default_rng(seed)
    parts = []
    for sweep in range(sweeps):
        for recipe in ("baseline", *recipes):
            own = noise * random.normal(size=(5, n))
            places = {0.125: 0, 0.25: 1, 0.5: 2, 1.0: 3, 1.5: 4}

            def quality(ssr: float, seed: int, own: Any = own, places: Any = places) -> float:
                return 0.8 + 0.05 * math.log(ssr) + float(own[places[ssr], seed])

            parts.append(rows(recipe, quality, step=1 / SPEED[recipe], seeds=range(n), sweep=f"s{sweep}"))
    return table(*parts)


def by_sweep(frame: pd.DataFrame) -> dict[str, EqualQuality]:
    return {result.setting.sweep: result for result in equal_quality(frame) if result.recipe == "fast"}


def half_width(result: EqualQuality) -> float:
    assert result.adjusted_low is not None and result.adjusted_high is not None
    return math.log(result.adjusted_high / result.adjusted_low) / 2


def staged(frame: pd.DataFrame, wanted: dict[str, int], *, first: int) -> pd.DataFrame:
    """The seeds that are wanted of the baseline and of fast, and the first of all others."""
    most = frame["sweep"].map(wanted).where(frame["recipe"].isin(["baseline", "fast"]), first)
    kept = frame[frame["seed"] < most]
    return kept.assign(added=kept["seed"] >= first)


def one(**changes: Any) -> EqualQuality:
    result = by_sweep(simulated(sweeps=1, n=3))["s0"]
    return replace(result, **changes)


def test_the_number_is_steins() -> None:
    """Three seeds with a standard error of 5%: t is 4.303 at two degrees of freedom."""
    result = one(errors=(Error(size=0.05, df=2),), seed_error=0.05, family=1)
    found = needed_for(result, half_width=TEN)
    quantile = t.ppf(0.975, 2)
    assert isinstance(found, Needed) and found.half_width == pytest.approx(quantile * 0.05)
    assert found.seeds == math.ceil(3 * (quantile * 0.05 / TEN) ** 2) == 16
    # Four comparisons: the interval is adjusted, and so is the number.
    among = needed_for(one(errors=(Error(size=0.05, df=2),), seed_error=0.05, family=4), half_width=TEN)
    assert isinstance(among, Needed) and among.seeds == math.ceil(3 * (t.ppf(1 - 0.0125 / 2, 2) * 0.05 / TEN) ** 2)
    # Narrow enough already: no seed more.
    enough = needed_for(one(errors=(Error(size=0.02, df=2),), seed_error=0.02, family=1), half_width=TEN)
    assert isinstance(enough, Needed) and enough.seeds == 3


def test_the_noise_of_times_is_taken_off_the_width_and_may_exceed_it() -> None:
    seeds, times = Error(size=0.02, df=2), Error(size=0.03, df=None)
    found = needed_for(one(errors=(seeds, times), seed_error=0.02, family=1), half_width=TEN)
    left = math.sqrt(TEN**2 - (1.959964 * 0.03) ** 2)
    assert isinstance(found, Needed) and found.seeds == math.ceil(3 * (t.ppf(0.975, 2) * 0.02 / left) ** 2) == 4
    noisy = needed_for(one(errors=(seeds, Error(size=0.05, df=None)), seed_error=0.02, family=1), half_width=TEN)
    assert noisy == "the noise of step times makes the interval +-10%; profile again on an idle machine"
    same = needed_for(one(errors=(times,), seed_error=0.0, family=1), half_width=TEN)
    assert isinstance(same, Needed) and same.seeds == 3


def test_of_part_of_the_first_stage_it_says_what_to_expect() -> None:
    """Two of three seeds: the quantile is that of three."""
    result = one(errors=(Error(size=0.05, df=1),), seed_error=0.05, family=1, n=2)
    found = needed_for(result, half_width=TEN, first=3)
    assert isinstance(found, Needed) and found.seeds == math.ceil(2 * (t.ppf(0.975, 2) * 0.05 / TEN) ** 2)


def test_without_an_interval_there_is_no_number() -> None:
    found = needed_for(one(errors=None, seed_error=None, reason="no value"), half_width=TEN)
    assert found == Needed(recipe="fast", reason="no value")
    assert spread(TEN) == "+-10%"


@pytest.mark.parametrize("recipes", [("fast",), ("fast", "a", "b", "c")], ids=["by itself", "moderated"])
def test_the_interval_has_the_error_of_the_first_seeds_and_is_as_narrow_as_asked(recipes: tuple[str, ...]) -> None:
    frame = simulated(sweeps=6, n=40, recipes=recipes)
    before = by_sweep(frame[frame["seed"] < 3])
    needs = {sweep: needed_for(result, half_width=math.log(1.2)) for sweep, result in before.items()}
    wanted = {sweep: need.seeds for sweep, need in needs.items() if isinstance(need, Needed) and need.seeds}
    assert len(wanted) >= 4 and max(wanted.values()) > 3
    frame = frame[frame["sweep"].isin(wanted)]
    capped = {sweep: min(40, seeds) for sweep, seeds in wanted.items()}
    after = by_sweep(staged(frame, capped, first=3))
    everything = by_sweep(staged(frame, capped, first=3).drop(columns="added"))
    for sweep, result in after.items():
        n, errors, seed_error = capped[sweep], before[sweep].errors, before[sweep].seed_error
        assert errors is not None and seed_error is not None
        assert result.n == n and result.ratio == pytest.approx(everything[sweep].ratio)
        assert result.moderated == before[sweep].moderated == (len(recipes) > 1)
        if n > 3:
            assert result.first == 3
            assert result.seed_error == pytest.approx(seed_error * math.sqrt(3 / n))
            assert result.errors is not None
            assert [error.df for error in result.errors] == [error.df for error in errors]
        if wanted[sweep] <= 40:
            assert half_width(result) <= math.log(1.2) * (1 + 1e-9)


def test_added_seeds_move_the_estimate_and_not_its_error() -> None:
    frame = simulated(sweeps=1, n=8)
    frame = frame.assign(added=frame["seed"] >= 3)
    wild = frame.copy()
    late = wild["added"] & (wild["recipe"] == "fast")
    wild.loc[late, "quality"] += 0.01 * np.random.default_rng(1).normal(size=int(late.sum()))
    calm, shaken = by_sweep(frame)["s0"], by_sweep(wild)["s0"]
    assert calm.seed_error == shaken.seed_error and calm.ratio != shaken.ratio
    plain = by_sweep(wild.drop(columns="added"))["s0"]
    assert plain.seed_error != by_sweep(frame.drop(columns="added"))["s0"].seed_error  # the control


@pytest.mark.slow
def test_the_level_is_kept_and_looking_until_it_excludes_1_does_not_keep_it() -> None:
    """The recipe equals the baseline. One look, decided by the spread; the control looks after every seed."""
    frame = simulated(sweeps=300, n=16, noise=0.006, recipes=("a",)).replace({"recipe": {"a": "fast"}})
    before = by_sweep(frame[frame["seed"] < 3])
    needs = {sweep: needed_for(result, half_width=math.log(1.25)) for sweep, result in before.items()}
    wanted = {s: min(16, need.seeds or 3) if isinstance(need, Needed) else 3 for s, need in needs.items()}
    once = by_sweep(staged(frame, wanted, first=3))
    wrong = np.mean([result.p_value is not None and result.p_value <= 0.05 for result in once.values()])
    ever: set[str] = set()
    for n in range(3, 17):
        looked = by_sweep(frame[frame["seed"] < n])
        ever |= {sweep for sweep, result in looked.items() if result.p_value is not None and result.p_value <= 0.05}
    assert wrong <= 0.08  # 5%, and 2.4 standard errors
    assert len(ever) / 300 > 0.12

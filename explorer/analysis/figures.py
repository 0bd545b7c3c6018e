"""What the results know of one recipe that limits can be held against: time, price, inference, deletion."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from explorer.analysis.equal_quality import EqualQuality
from explorer.analysis.ladders import Ladder
from explorer.analysis.reaching import Reached
from explorer.provenance.levels import Level


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletion:
    """What deleting a class takes: the forecast of the dearest of some runs. Unknown seconds are None."""

    level: Level
    steps: float | None  # to replay, None: unknown; of
    of: float | None  # so many, in the run where the share is largest
    seconds: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What is known of one recipe. None: unknown."""

    reached: Reached
    higher_is_better: bool
    usd_per_hour: float | None
    price_source: str  # empty: there is no price
    price_as_of: str  # empty: the source says no date
    no_price: str  # why there is none
    inference_seconds: float | None
    inference_ratio: float | None  # to the baseline; its own is 1 exactly
    inference_low: float | None  # its interval; None where a profile kept no rounds
    inference_high: float | None
    deletions: Mapping[str, Deletion | str]  # or why it is not known

    def usd(self, seconds: float | None) -> float | None:
        """What so much training time costs."""
        if seconds is None or self.usd_per_hour is None:
            return None
        return seconds / 3600 * self.usd_per_hour


KEY = ("sweep", "device", "hardware", "threads", "world_size", "recipe", "recipe_digest")
USED = ("ssr", "directory", "usd_per_hour", "price_source", "price_as_of", "inference_seconds", "time_source", "steps")


def by_ladder(rows: pd.DataFrame) -> dict[tuple[object, ...], pd.DataFrame]:
    """The rows of each ladder, by `key_of` it, as far as figures are read from them."""
    return {key: mine for key, mine in rows[[*KEY, *USED]].groupby(list(KEY), sort=False)}


def key_of(ladder: Ladder) -> tuple[object, ...]:
    """What tells the rows of a ladder from others."""
    return (*(getattr(ladder.setting, name) for name in KEY[:5]), ladder.recipe, ladder.recipe_digest)


def figures_of(
    mine: pd.DataFrame,
    forecasts: pd.DataFrame,
    ladder: Ladder,
    *,
    beside: EqualQuality | None,
    is_baseline: bool,
    classes: Iterable[str],
    reached: Reached,
) -> Figures:
    """What the rows of a ladder and the deletion forecasts tell of its recipe. `beside`: it beside its baseline."""
    usd_per_hour = _median(mine["usd_per_hour"])
    ratio = low = high = None
    if is_baseline and ladder.inference_ratio is not None:
        ratio = low = high = 1.0
    elif beside is not None:
        ratio, low, high = beside.inference_ratio, beside.inference_low, beside.inference_high
    return Figures(
        reached=reached,
        higher_is_better=ladder.sign > 0,
        usd_per_hour=usd_per_hour,
        price_source="" if usd_per_hour is None else _text(mine["price_source"]),
        price_as_of="" if usd_per_hour is None else _text(mine["price_as_of"]),
        no_price=_text(mine["price_source"]) or f"no price for {ladder.setting.hardware}",
        inference_seconds=_median(mine["inference_seconds"]),
        inference_ratio=ratio,
        inference_low=low,
        inference_high=high,
        deletions={class_: _deletion(mine, forecasts, class_, reached) for class_ in classes},
    )


def _text(column: pd.Series) -> str:
    """The text of the first row; an absent one is empty."""
    first = column.iloc[0]
    return first if isinstance(first, str) else ""


def _deletion(mine: pd.DataFrame, forecasts: pd.DataFrame, class_: str, reached: Reached) -> Deletion | str:
    """What deleting the class takes from the runs at the tested budgets on either side, at most."""
    if reached.tested is None:
        return reached.reason
    budgets = [reached.tested.ssr, reached.tested.ssr if reached.below is None else reached.below]
    runs = mine[mine["ssr"].isin(budgets)]
    known = forecasts[forecasts["directory"].isin(runs["directory"])]
    if known.empty:
        return "it is not governed: its runs keep no ledger"
    of_class = known[known["class"] == class_]
    if of_class["directory"].nunique() < runs["directory"].nunique():
        return f"not all of its runs have a forecast for {class_}"
    level: Level = "G3" if "G3" in set(of_class["level"]) else "G2"  # the dearer way, if one of them takes it
    steps, of = _replayed(of_class, runs)
    elsewhere = bool((runs["time_source"] == "predicted").any())  # a forecast is for the machine that trained
    if elsewhere or of_class["seconds"].isna().any():
        return Deletion(level=level, steps=steps, of=of, seconds=None, high=None)
    high = of_class["seconds_high"]
    return Deletion(
        level=level,
        steps=steps,
        of=of,
        seconds=float(of_class["seconds"].max()),
        high=None if high.isna().any() else float(high.max()),
    )


def _replayed(of_class: pd.DataFrame, runs: pd.DataFrame) -> tuple[float | None, float | None]:
    """The steps to replay and all steps, of the run in which they are the largest share; unknown if any are."""
    whole = of_class["directory"].map(runs.drop_duplicates("directory").set_index("directory")["steps"])
    share = of_class["steps"] / whole
    if share.isna().any():
        return None, None
    at = int(np.argmax(share))
    return float(of_class["steps"].iloc[at]), float(whole.iloc[at])


def _median(column: pd.Series) -> float | None:
    known = np.asarray(column, dtype=float)
    known = known[np.isfinite(known)]
    return float(np.median(known)) if known.size else None

"""Confirmations on fresh seeds, recognised by what was run and never by a name.

The best of many recipes looks better than it is (winner's curse): noise chose it too. A confirmation is a sweep in
which there was nothing to choose: the baseline and one recipe, the same as here to the last setting (equal digests on
the same hardware), with seeds that no run here has. Its result uses those seeds only. Several confirmations of one
recipe count together, so that the one that came out well cannot be picked.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from explorer.analysis.axis_words import gain_name, gain_number, gain_span, gain_words
from explorer.analysis.comparison import RESAMPLES
from explorer.analysis.equal_quality import AT_LOWEST, Call, EqualQuality, Outcome, equal_quality
from explorer.analysis.ladders import Ladder, Setting, ladders
from explorer.errors import AnalysisError

ADDED = "seeds were added after a look at earlier ones, which makes a chance result likelier than the interval says"


class Confirmed(StrEnum):
    """What fresh seeds say."""

    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not confirmed"
    IN_PROGRESS = "in progress"
    ITSELF = "a confirmation itself"  # its seeds are the fresh ones


@dataclass(frozen=True, kw_only=True, slots=True)
class Confirmation:
    """A recipe of a sweep on fresh seeds, beside its baseline on the same."""

    setting: Setting  # of the sweep that is confirmed
    baseline: str
    recipe: str
    recipe_digest: str
    sweeps: tuple[str, ...]  # that confirm it, or that it confirms
    seeds: tuple[int, ...]  # fresh ones
    verdict: Confirmed
    result: EqualQuality | None  # on the fresh seeds only; None while nothing can be compared
    reason: str  # why it is not confirmed, or not yet

    @property
    def sentence(self) -> str:
        """
        "confirmed on 3 fresh seeds: 1.67x faster (1.41x-2.00x)"
        """
        if self.verdict is Confirmed.ITSELF:
            return f"on fresh seeds, as the confirmation of {', '.join(self.sweeps)}"
        seeds = f"{len(self.seeds)} fresh seed{'s' * (len(self.seeds) != 1)}"
        if self.verdict is Confirmed.IN_PROGRESS:
            return f"its confirmation on {seeds} is in progress: {self.reason}"
        # "slower" is both the figure and the reason, and need not be told twice.
        slower = self.result is not None and self.result.call is Call.MORE
        words = ", ".join(filter(None, (self._gain, "" if slower else self.reason)))
        return f"{self.verdict} on {seeds}: {words}{f'; {ADDED}' if self.was_extended else ''}"

    @property
    def was_extended(self) -> bool:
        """Return whether its seeds come from several sweeps, so that later ones may follow from earlier results."""
        return len(self.sweeps) > 1

    @property
    def _gain(self) -> str:
        result = self.result
        if result is None or result.ratio is None or result.outcome is not Outcome.REACHED:
            return ""
        gain = gain_words(result.x, result.ratio)
        if result.adjusted_low is None or result.adjusted_high is None:
            return gain
        number = f"{gain_number(result.x, result.ratio)}, " if result.ratio > 1 else ""
        return f"{gain} ({number}{gain_span(result.adjusted_low, result.adjusted_high)})"


def confirmations(
    rows: pd.DataFrame,
    *,
    sweep: str,
    x: str = "train_seconds",
    target: float | None = None,
    baseline: str | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> list[Confirmation]:
    """Return the confirmations of a sweep's recipes among rows of `results` of all sweeps, all with one metric.

    Args:
        rows: rows of `results`, of this sweep and of others.
        sweep: the sweep whose recipes are confirmed.
        x, target, baseline, confidence, resamples: those of the comparison that is confirmed, see `equal_quality`.
    """
    if rows.empty or sweep not in set(rows["sweep"]):
        raise AnalysisError(f"there is no finished run of the sweep {sweep!r}")
    every = ladders(rows, x=x, empty=True)
    here = [ladder for ladder in every if ladder.setting.sweep == sweep]
    elsewhere = [ladder for ladder in every if ladder.setting.sweep != sweep and ladder.control is None]
    # Seeds count as used if any run here has them, of whatever recipe: the choice was made by looking at all of them.
    taken = {int(seed) for seed in rows.loc[rows["sweep"] == sweep, "seed"]}
    results = []
    for ladder in here:
        name = baseline or ladder.baseline
        base = next((other for other in here if (other.setting, other.recipe) == (ladder.setting, name)), None)
        if base is None or ladder is base or ladder.control is not None:
            continue
        settings = _confirming(elsewhere, base, ladder)
        if not settings:
            results += _itself(here, elsewhere, base, ladder)
            continue
        fresh = _fresh(rows, settings, base, ladder, taken)
        if not fresh.empty:
            results.append(_judged(fresh, base, ladder, x=x, target=target, confidence=confidence, resamples=resamples))
    return results


def _rows_in(rows: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """Return the rows of one sweep on one hardware."""
    chosen = np.ones(len(rows), dtype=bool)
    for column in ("sweep", "device", "hardware", "threads", "world_size"):
        chosen &= np.asarray(rows[column] == getattr(setting, column))
    return rows.loc[chosen]


def _confirming(elsewhere: Iterable[Ladder], base: Ladder, mine: Ladder) -> set[Setting]:
    """Return the settings of other sweeps that equal this one's and hold these two recipes and no other."""
    digests: dict[Setting, set[str]] = {}
    for ladder in elsewhere:
        digests.setdefault(ladder.setting, set()).add(ladder.recipe_digest)
    wanted = {base.recipe_digest, mine.recipe_digest}
    # A third recipe would be a choice, and what was chosen among several looks better than it is.
    return {
        setting
        for setting, recipes in digests.items()
        if replace(setting, sweep=base.setting.sweep) == base.setting and recipes == wanted
    }


def _itself(here: Iterable[Ladder], elsewhere: Iterable[Ladder], base: Ladder, mine: Ladder) -> list[Confirmation]:
    """Return that this sweep is a confirmation: two recipes, which others chose among more with other seeds."""
    if sum(ladder.setting == base.setting and ladder.control is None for ladder in here) != 2:
        return []
    wanted, others = {base.recipe_digest, mine.recipe_digest}, dict[Setting, list[Ladder]]()
    for ladder in elsewhere:
        if replace(ladder.setting, sweep=base.setting.sweep) == base.setting:
            others.setdefault(ladder.setting, []).append(ladder)
    taken = {*base.seeds_S.tolist(), *mine.seeds_S.tolist()}
    confirmed = [
        setting.sweep
        for setting, recipes in others.items()
        if wanted < {ladder.recipe_digest for ladder in recipes}
        and not any(taken & {*ladder.seeds_S.tolist()} for ladder in recipes)
    ]
    # Size shows which of the two is the confirmation: the sweep with more recipes is the one that chose.
    if not confirmed:
        return []
    return [
        Confirmation(
            setting=base.setting,
            baseline=base.recipe,
            recipe=mine.recipe,
            recipe_digest=mine.recipe_digest,
            sweeps=tuple(sorted(confirmed)),
            seeds=tuple(sorted(int(seed) for seed in taken)),
            verdict=Confirmed.ITSELF,
            result=None,
            reason="",
        )
    ]


def _fresh(rows: pd.DataFrame, settings: set[Setting], base: Ladder, mine: Ladder, taken: set[int]) -> pd.DataFrame:
    """Return the rows of those sweeps that share no seed with this one.

    A sweep that shares one seed is left out as a whole: to drop that seed only would be a choice among its results.
    """
    wanted = rows[rows["recipe_digest"].isin([base.recipe_digest, mine.recipe_digest])]
    parts = []
    for setting in sorted(settings, key=lambda setting: setting.sweep):
        part = _rows_in(wanted, setting)
        if taken.isdisjoint(int(seed) for seed in part["seed"]):
            parts.append(part)
    return pd.concat(parts) if parts else wanted.iloc[:0]


def _judged(
    fresh: pd.DataFrame,
    base: Ladder,
    mine: Ladder,
    *,
    x: str,
    target: float | None,
    confidence: float,
    resamples: int,
) -> Confirmation:
    sweeps = tuple(dict.fromkeys(str(name) for name in fresh["sweep"]))
    names = {base.recipe_digest: base.recipe, mine.recipe_digest: mine.recipe}
    once = fresh.drop_duplicates(["recipe_digest", "ssr", "seed"])  # a run that two of the sweeps have counts once
    # All confirming sweeps become one, under the names that the recipes have here, and are compared like any other.
    joint = once.assign(
        sweep=base.setting.sweep,
        recipe=once["recipe_digest"].map(names),
        baseline=base.recipe,
        is_baseline=once["recipe_digest"] == base.recipe_digest,
    )
    comparisons = equal_quality(joint, x=x, target=target, confidence=confidence, resamples=resamples)
    result = comparisons[0] if comparisons else None
    verdict, reason = _verdict(fresh, result)
    return Confirmation(
        setting=base.setting,
        baseline=base.recipe,
        recipe=mine.recipe,
        recipe_digest=mine.recipe_digest,
        sweeps=sweeps,
        seeds=tuple(sorted({int(seed) for seed in fresh["seed"]})),
        verdict=verdict,
        result=result,
        reason=reason,
    )


def _verdict(fresh: pd.DataFrame, result: EqualQuality | None) -> tuple[Confirmed, str]:
    """Return the verdict on fresh seeds and its reason. The comparison is a family of one: nothing was chosen."""
    if missing := _missing(fresh):
        return Confirmed.IN_PROGRESS, missing
    if result is not None and result.reason == AT_LOWEST:
        return Confirmed.NOT_CONFIRMED, AT_LOWEST
    if result is None or result.call is Call.UNKNOWN:
        return Confirmed.IN_PROGRESS, (result.reason if result else None) or "one of the two has not finished"
    if result.call is Call.LESS:
        return Confirmed.CONFIRMED, ""
    if result.call is Call.MORE:
        return Confirmed.NOT_CONFIRMED, f"{gain_name(result.x, more=True)} than the baseline"
    return Confirmed.NOT_CONFIRMED, _WHY_NOT.get(result.call) or result.reason or "there is no interval"


_WHY_NOT = {
    Call.EQUIVALENT: "equivalent to the baseline",
    Call.INCONCLUSIVE: "inconclusive",
    Call.BELOW: "past the baseline at its lowest budget, so by how much is not known",
    Call.NOT_REACHED: "the quality is not reached",
}


def _missing(fresh: pd.DataFrame) -> str:
    """Return what has not finished, as far as the finished runs show it.

    Each sweep needs both recipes at every budget with every seed, up to the full budget. The plan is not read: a
    confirmation may come from another project, of which only results are here.
    """
    for _, rows in fresh.groupby("sweep"):
        cells = rows.drop_duplicates(["recipe_digest", "ssr", "seed"]).groupby("recipe_digest").size()
        whole = rows["ssr"].nunique() * rows["seed"].nunique()
        if len(cells) < 2 or cells.min() < whole or not (rows["ssr"] == 1.0).any():
            return "some of its runs have not finished"
    return ""

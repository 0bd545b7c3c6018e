"""Whether fresh seeds bear out what a sweep found: confirmations are told by what was run, never by a name.

The best of many recipes looks better than it is (winner's curse): noise chose it too. A confirmation is a sweep in
which there was nothing to choose, of the baseline and one recipe, the same as here to the last setting (equal digests
on the same hardware), with seeds that no run here has. Its seeds alone are reported. Several confirmations of one
recipe count together, so that nobody can pick the one that came out well.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pandas as pd

from explorer.analysis.comparison import RESAMPLES
from explorer.analysis.equal_quality import Call, EqualQuality, Outcome, equal_quality
from explorer.analysis.ladders import Ladder, Setting, ladders
from explorer.errors import AnalysisError


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
    result: EqualQuality | None  # on the fresh seeds alone; None while nothing can be compared
    reason: str  # why it is not confirmed, or not yet

    @property
    def sentence(self) -> str:
        """
        "confirmed on 3 fresh seeds: 0.60 (0.50 to 0.71)"
        """
        return self.told()

    def told(self, of: str = "") -> str:
        """The sentence, with `of` behind the ratio: what it is a ratio of."""
        if self.verdict is Confirmed.ITSELF:
            return f"on fresh seeds, as the confirmation of {', '.join(self.sweeps)}"
        seeds = f"{len(self.seeds)} fresh seed{'s' * (len(self.seeds) != 1)}"
        if self.verdict is Confirmed.IN_PROGRESS:
            return f"its confirmation on {seeds} is in progress: {self.reason}"
        words = [words for words in (self._figure(of), self.reason) if words]
        return f"{self.verdict} on {seeds}: {', '.join(words)}"

    def _figure(self, of: str) -> str:
        result = self.result
        if result is None or result.ratio is None or result.outcome is not Outcome.REACHED:
            return ""
        if result.adjusted_low is None or result.adjusted_high is None:
            return f"{result.ratio:.2f}{of}"
        return f"{result.ratio:.2f} ({result.adjusted_low:.2f} to {result.adjusted_high:.2f}){of}"


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
    """The confirmations of a sweep's recipes among rows of `results` of all sweeps, all with one metric.

    `x`, `target` and `baseline` are those of the comparison that is confirmed: see `equal_quality`.
    """
    if rows.empty or sweep not in set(rows["sweep"]):
        raise AnalysisError(f"there is no finished run of the sweep {sweep!r}")
    found = ladders(rows, x=x, empty=True)
    here = [ladder for ladder in found if ladder.setting.sweep == sweep]
    elsewhere = [ladder for ladder in found if ladder.setting.sweep != sweep and ladder.control is None]
    taken = {int(seed) for seed in rows.loc[rows["sweep"] == sweep, "seed"]}
    done = []
    for ladder in here:
        name = baseline or ladder.baseline
        base = next((each for each in here if (each.setting, each.recipe) == (ladder.setting, name)), None)
        if base is None or ladder is base or ladder.control is not None:
            continue
        pairs = _confirming(elsewhere, base, ladder)
        if not pairs:
            done += _itself(here, elsewhere, base, ladder)
            continue
        fresh = _fresh(rows, pairs, base, ladder, taken)
        if not fresh.empty:
            done.append(_judged(fresh, base, ladder, x=x, target=target, confidence=confidence, resamples=resamples))
    return done


def _rows_in(rows: pd.DataFrame, setting: Setting) -> pd.DataFrame:
    """The rows of one sweep on one hardware."""
    chosen = np.ones(len(rows), dtype=bool)
    for column in ("sweep", "device", "hardware", "threads", "world_size"):
        chosen &= np.asarray(rows[column] == getattr(setting, column))
    return rows.loc[chosen]


def _confirming(elsewhere: Iterable[Ladder], base: Ladder, mine: Ladder) -> set[Setting]:
    """The settings of other sweeps that are this one's, and hold these two recipes and no other."""
    digests: dict[Setting, set[str]] = {}
    for ladder in elsewhere:
        digests.setdefault(ladder.setting, set()).add(ladder.recipe_digest)
    wanted = {base.recipe_digest, mine.recipe_digest}
    return {
        setting
        for setting, found in digests.items()
        if replace(setting, sweep=base.setting.sweep) == base.setting and found == wanted
    }


def _itself(here: Iterable[Ladder], elsewhere: Iterable[Ladder], base: Ladder, mine: Ladder) -> list[Confirmation]:
    """Whether this sweep confirms others itself: it has nothing to choose from, they have, and they share no seed."""
    if sum(each.setting == base.setting and each.control is None for each in here) != 2:
        return []
    wanted, others = {base.recipe_digest, mine.recipe_digest}, dict[Setting, list[Ladder]]()
    for each in elsewhere:
        if replace(each.setting, sweep=base.setting.sweep) == base.setting:
            others.setdefault(each.setting, []).append(each)
    taken = {*base.seeds_S.tolist(), *mine.seeds_S.tolist()}
    confirmed = [
        setting.sweep
        for setting, found in others.items()
        if wanted < {each.recipe_digest for each in found}
        and not any(taken & {*each.seeds_S.tolist()} for each in found)
    ]
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
    """The rows of those sweeps that share no seed with this one."""
    wanted = rows[rows["recipe_digest"].isin([base.recipe_digest, mine.recipe_digest])]
    parts = []
    for setting in sorted(settings, key=lambda each: each.sweep):
        part = _rows_in(wanted, setting)
        if taken.isdisjoint(int(seed) for seed in part["seed"]):
            parts.append(part)
    if not parts:
        return wanted.iloc[:0]
    return pd.concat(parts)


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
    joint = once.assign(
        sweep=base.setting.sweep,
        recipe=once["recipe_digest"].map(names),
        baseline=base.recipe,
        is_baseline=once["recipe_digest"] == base.recipe_digest,
    )
    found = equal_quality(joint, x=x, target=target, confidence=confidence, resamples=resamples)
    result = found[0] if found else None
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
    """What the comparison calls it, as a family of one: nothing was chosen among fresh runs."""
    if missing := _missing(fresh):
        return Confirmed.IN_PROGRESS, missing
    if result is None or result.call is Call.UNKNOWN:
        return Confirmed.IN_PROGRESS, (result.reason if result else None) or "one of the two has not finished"
    if result.call is Call.LESS:
        return Confirmed.CONFIRMED, ""
    return Confirmed.NOT_CONFIRMED, _WHY_NOT.get(result.call) or result.reason or "there is no interval"


_WHY_NOT = {
    Call.MORE: "more than the baseline",
    Call.EQUIVALENT: "equivalent to the baseline",
    Call.INCONCLUSIVE: "inconclusive",
    Call.BELOW: "past the baseline at its lowest budget, so by how much is not known",
    Call.NOT_REACHED: "the quality is not reached",
}


def _missing(fresh: pd.DataFrame) -> str:
    """What has not finished, as far as the finished runs tell: in each sweep both recipes, at every budget with every
    seed, up to the full budget."""
    for _, rows in fresh.groupby("sweep"):
        cells = rows.drop_duplicates(["recipe_digest", "ssr", "seed"]).groupby("recipe_digest").size()
        whole = rows["ssr"].nunique() * rows["seed"].nunique()
        if len(cells) < 2 or cells.min() < whole or not (rows["ssr"] == 1.0).any():
            return "some of its runs have not finished"
    return ""

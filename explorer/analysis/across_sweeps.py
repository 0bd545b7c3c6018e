"""One baseline for the recipes of several sweeps of one dataset and metric, marked as what it is: not paired.

Within a sweep, recipes share seeds with their baseline, and noise that a seed brings to both cancels. Across sweeps
nothing is shared: equal seeds may mean other data order or other code, so both are resampled separately, and an
interval has the degrees of freedom of the smaller sample, the cautious choice where two variances may differ (Welch
1947). Times of different machines are not compared at all.
"""

from dataclasses import asdict

import pandas as pd

from explorer.analysis.comparison import RESAMPLES, Compared, Match, pairs
from explorer.analysis.equal_quality import EqualQuality, at_equal_quality
from explorer.analysis.ladders import Ladder, ladders
from explorer.errors import AnalysisError, unknown

COUNTED = "steps"  # the same on every machine
NOT_PAIRED = "the baseline of another sweep: its seeds are not paired, so intervals are wider than within a sweep"


def against(
    rows: pd.DataFrame,
    *,
    sweep: str,
    x: str = "train_seconds",
    target: float | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> list[EqualQuality]:
    """Compare the recipes of all other sweeps with the baseline of one, on each machine that it ran on.

    Args:
        rows: rows of `results` of several sweeps.
        sweep: the sweep whose baseline counts.
        x, target, confidence, resamples: those of `equal_quality`.

    A recipe of another dataset or metric is left out; one that cannot be compared has a `reason`.

    Raises `AnalysisError` for a sweep that has no run of its baseline.
    """
    every = ladders(rows, x=x, empty=True)
    bases = [ladder for ladder in every if ladder.setting.sweep == sweep and ladder.is_baseline]
    if not bases:
        raise AnalysisError(
            unknown("sweep with runs of its baseline", sweep, {ladder.setting.sweep for ladder in every})
        )
    results: list[Compared] = []
    for base in bases:
        others = [ladder for ladder in every if _comparable(ladder, base)]
        # A recipe is compared on its own machine; where the baseline never ran there, the first one says why not.
        mine = [
            ladder for ladder in others if _same_machine(ladder, base) or (base is bases[0] and _lone(ladder, bases))
        ]
        matches = [_match(ladder, base, x) for ladder in mine]
        ready = [match for match in matches if match.baseline is not None]
        joint = pairs(base, [match.recipe for match in ready], resamples=resamples, paired=False)
        known = {id(match): pair for match, pair in zip(ready, joint, strict=True)}
        results += [Compared(match=match, pair=known.get(id(match)), x=x) for match in matches]
    return at_equal_quality(results, target=target, confidence=confidence)


def _comparable(ladder: Ladder, base: Ladder) -> bool:
    """Return whether a ladder is a candidate of another sweep with the same dataset and metric."""
    mine, other = ladder.setting, base.setting
    same = (mine.dataset, mine.metric, mine.unit) == (other.dataset, other.metric, other.unit)
    return same and mine.sweep != other.sweep and ladder.control is None


def _same_machine(ladder: Ladder, base: Ladder) -> bool:
    return asdict(ladder.setting.machine) == asdict(base.setting.machine)


def _lone(ladder: Ladder, bases: list[Ladder]) -> bool:
    return not any(_same_machine(ladder, base) for base in bases)


def _match(ladder: Ladder, base: Ladder, x: str) -> Match:
    reason = None
    if x != COUNTED and not _same_machine(ladder, base):
        machines = f"{ladder.setting.machine}, the baseline on {base.setting.machine}"
        reason = f"its times are from another machine: {machines}"
    elif ladder.imported != base.imported:
        reason = "one of the two is imported and unverified: it is never compared with runs of one's own"
    elif not ladder.ssr_B.size or not base.ssr_B.size:
        reason = f"its {x} is unknown" if not ladder.ssr_B.size else f"the baseline's {x} is unknown"
    return Match(
        setting=ladder.setting,
        baseline_setting=base.setting,
        baseline_name=base.recipe,
        baseline=base if reason is None else None,
        here=base if _same_machine(ladder, base) else None,
        recipe=ladder,
        reason=reason,
    )

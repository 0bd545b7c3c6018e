"""One baseline for the recipes of several sweeps of one dataset and metric, marked as what it is: not paired.

Within a sweep, recipes share seeds with their baseline, and noise that a seed brings to both cancels. Across sweeps
nothing is shared: equal seeds may mean other data order or other code, so both are resampled separately, and an
interval has the degrees of freedom of the smaller sample, the cautious choice where two variances may differ (Welch
1947). Times of different machines are not compared at all.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TypeVar

import pandas as pd

from explorer.analysis.axis_words import axis_words
from explorer.analysis.comparison import RESAMPLES, Compared, Match, pairs
from explorer.analysis.equal_budget import EqualBudget
from explorer.analysis.equal_quality import EqualQuality, at_equal_quality
from explorer.analysis.ladders import SEARCHED, Ladder, ladders
from explorer.errors import AnalysisError, unknown

COUNTED = ("steps", "examples")  # the same on every machine
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
    return at_equal_quality(
        compared_across(rows, sweep=sweep, x=x, resamples=resamples), target=target, confidence=confidence
    )


def compared_across(
    rows: pd.DataFrame, *, sweep: str, x: str, own: bool = False, resamples: int = RESAMPLES
) -> list[Compared]:
    """Return the recipes of all other sweeps, each with the baseline of one, and their curves in every resample.

    With `own` the recipes of that sweep follow, paired by seed as they always are. The other arguments, and what is
    raised, are those of `against`.
    """
    every = ladders(rows, x=x, empty=True)
    bases = [ladder for ladder in every if ladder.setting.sweep == sweep and ladder.is_baseline]
    if not bases:
        raise AnalysisError(
            unknown("sweep with runs of its baseline", sweep, {ladder.setting.sweep for ladder in every})
        )
    matches = [
        _match(ladder, _base_of(ladder, bases), x)
        for ladder in every
        if any(_comparable(ladder, base) for base in bases) or (own and _is_own(ladder, bases))
    ]
    known: dict[int, Compared] = {}
    for base in bases:
        for paired in (False, True):
            ready = [m for m in matches if m.baseline is base and (m.recipe.setting.sweep == sweep) == paired]
            joint = pairs(base, [match.recipe for match in ready], resamples=resamples, paired=paired)
            for match, pair in zip(ready, joint, strict=True):
                known[id(match)] = Compared(match=match, pair=pair, x=x)
    return [known.get(id(match)) or Compared(match=match, pair=None, x=x) for match in matches]


def _comparable(ladder: Ladder, base: Ladder) -> bool:
    """Return whether a ladder is a candidate of another sweep with the same dataset and metric."""
    mine, other = ladder.setting, base.setting
    same = (mine.dataset, mine.metric, mine.unit) == (other.dataset, other.metric, other.unit)
    return same and mine.sweep != other.sweep and ladder.control is None


def _is_own(ladder: Ladder, bases: Sequence[Ladder]) -> bool:
    """Return whether a ladder is a recipe of the sweep of the baselines."""
    is_recipe = ladder.control is None and not ladder.is_baseline
    return is_recipe and any(ladder.setting == base.setting for base in bases)


def _base_of(ladder: Ladder, bases: Sequence[Ladder]) -> Ladder:
    """Return the baseline of a ladder: on its own machine, of its own model, else the first, which says why not."""
    return max(
        (base for base in bases if _comparable(ladder, base) or base.setting.sweep == ladder.setting.sweep),
        key=lambda base: (_same_machine(ladder, base), ladder.setting.model == base.setting.model),
    )


def _same_machine(ladder: Ladder, base: Ladder) -> bool:
    return asdict(ladder.setting.machine) == asdict(base.setting.machine)


def _match(ladder: Ladder, base: Ladder, x: str) -> Match:
    reason = None
    if ladder.searched or base.searched:
        reason = SEARCHED
    elif x not in COUNTED and not _same_machine(ladder, base):
        machines = f"{ladder.setting.machine}, the baseline on {base.setting.machine}"
        reason = f"its times are from another machine: {machines}"
    elif ladder.imported != base.imported:
        reason = "one of the two is imported and unverified: it is never compared with runs of one's own"
    elif not ladder.ssr_B.size or not base.ssr_B.size:
        whose = "its" if not ladder.ssr_B.size else "the baseline's"
        reason = f"{whose} {axis_words(x)} is unknown"
    return Match(
        setting=ladder.setting,
        baseline_setting=base.setting,
        baseline_name=base.recipe,
        baseline=base if reason is None else None,
        here=base if _same_machine(ladder, base) else None,
        recipe=ladder,
        reason=reason,
    )


# --- names that tell the recipes of several sweeps apart ---

AS_RECORDED = {"recipe": "recipe_in_sweep", "baseline": "baseline_in_sweep", "is_baseline": "is_baseline_in_sweep"}
"""The columns that `named_across` changes, with the columns that keep them."""

AnyResult = TypeVar("AnyResult", EqualQuality, EqualBudget)


def baseline_across(sweep: str) -> str:
    """Return the name of the baseline that the recipes of several sweeps are compared with."""
    return f"baseline of sweep {sweep}"


def recipe_across(recipe: str, sweep: str) -> str:
    """Return the name of a recipe among those of several sweeps."""
    return f"{recipe}, {sweep}"


def named_across(rows: pd.DataFrame, sweep: str) -> pd.DataFrame:
    """Return rows of `results` of several sweeps with names that tell their recipes apart, and one baseline."""
    base = (rows["sweep"] == sweep) & rows["is_baseline"].astype(bool)
    names = [
        baseline_across(sweep) if is_base else recipe_across(str(recipe), str(of))
        for recipe, of, is_base in zip(rows["recipe"].tolist(), rows["sweep"].tolist(), base, strict=True)
    ]
    kept = {copy: rows[name] for name, copy in AS_RECORDED.items()}
    return rows.assign(**kept, recipe=names, baseline=baseline_across(sweep), is_baseline=base)


def as_recorded(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the names that their sweeps gave them."""
    kept = {name: rows[copy] for name, copy in AS_RECORDED.items()}
    return rows.assign(**kept).drop(columns=list(AS_RECORDED.values()))


def result_across(result: AnyResult) -> AnyResult:
    """Return a comparison with the names of `named_across`."""
    recipe = recipe_across(result.recipe, result.setting.sweep)
    # A label is the recipe's name, and its digest where several have that name.
    label = recipe + result.label.removeprefix(result.recipe)
    return replace(result, recipe=recipe, label=label, baseline=baseline_across(result.baseline_setting.sweep))

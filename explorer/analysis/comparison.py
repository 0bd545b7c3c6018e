"""What every comparison of a recipe with its baseline has in common: who is compared, and how sure it is."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
import pandas as pd

from explorer.analysis.inference import Effect, Error, Errors, size_of, standard_error
from explorer.analysis.ladders import Ladder, Machine, Setting, axis_words, ladders
from explorer.analysis.pairing import Pair, pairs
from explorer.analysis.step_times import EXACT
from explorer.errors import AnalysisError, unknown

RESAMPLES = 2000
LEAST_REACH_RATE = 0.9  # below it no interval is given: too many resamples have no value at all
ROUNDING = 1e-12  # what differs by less does not differ


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A recipe and its baseline; the baseline is None where they cannot be compared."""

    setting: Setting
    baseline_setting: Setting  # the recipe's own, but for the machine if the baseline is bound to one
    baseline_name: str
    baseline: Ladder | None
    here: Ladder | None  # the baseline on the recipe's own machine; None: it was not run there
    recipe: Ladder
    reason: str | None  # why the two cannot be compared


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """A match along `x` with both curves in every resample of the seeds; None where the two cannot be compared."""

    match: Match
    pair: Pair | None
    x: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """An estimate with its error, or with the reason why there is none."""

    effect: Effect | None
    reach_rate: float | None  # share of resamples that have a value; None for one seed
    reason: str | None
    seed_error: float | None = None  # the part of the error that more seeds would reduce


def compared(
    frame: pd.DataFrame,
    *,
    x: str,
    baseline: str | None = None,
    machine: Machine | None = None,
    resamples: int = RESAMPLES,
) -> list[Compared]:
    """The matches of the table with their curves: what comparisons of any kind along `x` are read from."""
    found = list(matches(frame, x=x, baseline=baseline, machine=machine))
    recipes: defaultdict[int, list[Match]] = defaultdict(list)
    for match in found:
        if match.baseline is not None:
            recipes[id(match.baseline)].append(match)
    known: dict[int, Pair] = {}
    for beside in recipes.values():
        assert beside[0].baseline is not None
        both = pairs(beside[0].baseline, [match.recipe for match in beside], resamples=resamples)
        known |= {id(match): pair for match, pair in zip(beside, both, strict=True)}
    return [Compared(match=match, pair=known.get(id(match)), x=x) for match in found]


def matches(frame: pd.DataFrame, *, x: str, baseline: str | None, machine: Machine | None = None) -> Iterator[Match]:
    """Every recipe of the table beside its baseline: `baseline`, or else the one that its sweep names.

    The baseline is that of the recipe's own setting, or of the same but for the machine if one is given: it is then
    the one baseline of all machines, its own runs on the others among what is compared with it. Recipes that are
    controls of others are no candidates, and are left out.
    Raises `AnalysisError` for a baseline that is no recipe of the table, and for a machine without rows.
    """
    found = ladders(frame, x=x, empty=True)
    names = {str(name) for name in frame["recipe"].unique()}
    if baseline is not None and baseline not in names:
        raise AnalysisError(unknown("baseline", baseline, names))
    machines = {ladder.setting.machine for ladder in found}
    if machine is not None and machine not in machines:
        raise AnalysisError(unknown("machine", str(machine), map(str, machines)))
    by_name: defaultdict[tuple[Setting, str], list[Ladder]] = defaultdict(list)
    for ladder in found:
        by_name[ladder.setting, ladder.recipe].append(ladder)
    for recipe in found:
        name = baseline if baseline is not None else recipe.baseline
        home = recipe.setting.on(machine)
        if recipe.control is None and (recipe.setting, recipe.recipe) != (home, name):
            bases, here = by_name[home, name], by_name[recipe.setting, name]
            reason = _reason(recipe, name, bases, x, where="here" if machine is None else f"on {machine}")
            yield Match(
                setting=recipe.setting,
                baseline_setting=home,
                baseline_name=name,
                baseline=bases[0] if reason is None else None,
                here=here[0] if len(here) == 1 else None,
                recipe=recipe,
                reason=reason,
            )


def judge(
    values_R: np.ndarray,
    *,
    n: int,
    df: int,
    weight_R: np.ndarray | None = None,
    noise: Errors = EXACT,
    same: bool = False,
) -> Judged:
    """The error of an estimate: `values_R` holds the estimate first, then its values in the resamples, NaN for none.

    `weight_R`: how many resamples each value stands for; without it, those after the first for one each. `noise` are
    the errors that the times add to that of the seeds. There is no error for one seed, for a reach rate below
    `LEAST_REACH_RATE`, and where seeds do not differ at all, unless they are known not to: `same` says that both
    recipes have the same quality in every run, seed by seed, so that times alone tell them apart.
    """
    if n < 2:
        return Judged(effect=None, reach_rate=None, reason="one seed")
    weights_R = np.r_[0.0, np.ones(len(values_R) - 1)] if weight_R is None else weight_R
    reached = np.isfinite(values_R)
    rate = float(weights_R[reached].sum() / weights_R.sum())
    if rate < LEAST_REACH_RATE:
        return Judged(effect=None, reach_rate=rate, reason=f"only {rate:.0%} of the resamples reach the target")
    estimate, drawn = float(values_R[0]), reached & (weights_R > 0)
    resampled, weights = values_R[drawn], weights_R[drawn]
    if np.ptp(resampled) >= ROUNDING:
        seeds = Error(size=standard_error(resampled, n=n, weight_R=weights), df=df)
        effect = Effect(value=estimate, errors=(seeds, *noise))
        return Judged(effect=effect, reach_rate=rate, reason=None, seed_error=seeds.size)
    if same and size_of(noise) > 0:
        return Judged(effect=Effect(value=estimate, errors=noise), reach_rate=rate, reason=None, seed_error=0.0)
    if abs(estimate) > ROUNDING:
        return Judged(effect=None, reach_rate=rate, reason="the seeds do not differ, so nothing tells the noise")
    effect = Effect(value=0.0, errors=noise)
    return Judged(effect=effect, reach_rate=rate, reason=None, seed_error=0.0)


class Comparison(Protocol):
    """A frozen result of a comparison, as far as judging many of them together goes."""

    @property
    def baseline_setting(self) -> Setting: ...
    @property
    def baseline(self) -> str: ...
    @property
    def p_value(self) -> float | None: ...
    def among(self, family: int) -> Self:
        """The result with the interval and the p-value that it has as one of that many."""
        ...


AnyComparison = TypeVar("AnyComparison", bound=Comparison)


def adjusted(results: Sequence[AnyComparison]) -> list[AnyComparison]:
    """The results, each as one of its family: all comparisons with one baseline, on whatever machine.

    One without a p-value tests nothing and is not counted. Give it all of them: a view that shows some of the recipes
    leaves the others out afterwards, or what is hidden would no longer be paid for.
    """
    sizes = Counter((each.baseline_setting, each.baseline) for each in results if each.p_value is not None)
    return [
        each if each.p_value is None else each.among(sizes[each.baseline_setting, each.baseline]) for each in results
    ]


def known(value: float) -> float | None:
    """The number, or None for NaN."""
    return float(value) if np.isfinite(value) else None


_WITHOUT = {
    "train_seconds": "its steps were not profiled and its runs shared the machine",
    "cost_usd": "there is no price for its hardware, or its time is unknown",
    "deletion_seconds": "its runs keep no ledger, or its step time is unknown",
    "deletion_usd": "its runs keep no ledger, its step time is unknown, or there is no price for its hardware",
}


def _reason(recipe: Ladder, name: str, bases: list[Ladder], x: str, *, where: str) -> str | None:
    """Why the two cannot be compared; None if they can."""
    if not bases:
        return f"the baseline {name} has no finished run {where}"
    if len(bases) > 1:
        return f"{len(bases)} different recipes are called {name} {where}"
    for ladder in (recipe, bases[0]):
        if not ladder.ssr_B.size:
            return f"{ladder.label} has no {axis_words(x)}: {_WITHOUT.get(x.partition('/')[0], f'{x} is unknown')}"
    return None

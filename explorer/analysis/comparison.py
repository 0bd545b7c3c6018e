"""Comparisons of a recipe with its baseline: which runs can be compared, and how sure an effect is.

The runs of both are resampled together, seed by seed, where they share seeds; every comparison draws its interval from
the two curves in each resample.

Shapes: R different resamples (row 0 is the sample itself), B budgets, S seeds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, Self, TypeVar

import numpy as np
import pandas as pd

from explorer.analysis.axis_words import axis_words
from explorer.analysis.inference import Effect, Error, Errors, Resamples, counted, draws, holm, size_of, standard_error
from explorer.analysis.ladders import Ladder, Machine, Setting, ladders
from explorer.analysis.monotone import monotone
from explorer.analysis.step_times import EXACT
from explorer.errors import AnalysisError, unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class Resampled:
    """One recipe's monotone curve in each resample. Qualities are signed: higher is better."""

    x_RB: np.ndarray  # ascending in each row
    y_RB: np.ndarray
    at_full_budget_R: np.ndarray | None  # the curve's quality at budget 1; None if that was not run with all seeds
    x_at_full_budget_R: np.ndarray | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A baseline and a recipe, resampled jointly where they share seeds."""

    baseline: Resampled
    recipe: Resampled
    weight_R: np.ndarray  # how many resamples each row stands for
    n: int  # seeds
    df: int  # degrees of freedom of Student's t
    left_out: tuple[float, ...]  # budgets of either that lack one of the seeds
    same: bool  # the recipe has the baseline's quality in every run, seed by seed


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cells:
    """The budgets of a ladder that have all of the chosen seeds."""

    ssr_B: np.ndarray
    x_BS: np.ndarray
    y_BS: np.ndarray
    left_out: tuple[float, ...]


def pairs(baseline: Ladder, recipes: Sequence[Ladder], *, resamples: int) -> list[Pair]:
    """Put each of the recipes beside the baseline, whose own curves are found once for all recipes with its seeds.

    Seeds that both have are paired and resampled jointly, with n-1 degrees of freedom. Where they have none in common,
    each is resampled on its own, with 2(n-1). A budget that lacks one of the seeds is left out.
    """
    seeds_b, known = _seeds(baseline), {}
    done = []
    for recipe in recipes:
        seeds_r = _seeds(recipe)
        common = np.intersect1d(seeds_b, seeds_r)
        joint = common.size == min(seeds_b.size, seeds_r.size)
        mine, others = (common, common) if joint else (seeds_b, seeds_r)
        taken = _resamples(mine.size, others.size, joint=joint, resamples=resamples)
        key = (tuple(mine), others.size, joint)
        if key not in known:
            cells_b = _cells(baseline, mine)
            known[key] = cells_b, _resampled(cells_b, taken.counts[0])
        cells_b, curves_b = known[key]
        cells_r = _cells(recipe, others)
        n = min(mine.size, others.size)
        done.append(
            Pair(
                baseline=curves_b,
                recipe=_resampled(cells_r, taken.counts[-1]),
                weight_R=taken.weight_R,
                n=n,
                df=n - 1 if common.size else 2 * (n - 1),
                left_out=tuple(sorted({*cells_b.left_out, *cells_r.left_out})),
                same=joint and _same(cells_b, cells_r),
            )
        )
    return done


def pair(baseline: Ladder, recipe: Ladder, *, resamples: int) -> Pair:
    """One recipe beside the baseline."""
    return pairs(baseline, [recipe], resamples=resamples)[0]


def _seeds(ladder: Ladder) -> np.ndarray:
    """The seeds of the budget that has most of them; of several such budgets, the smallest."""
    present_BS = np.isfinite(ladder.quality_BS)
    return ladder.seeds_S[present_BS[present_BS.sum(axis=1).argmax()]]


def _cells(ladder: Ladder, seeds: np.ndarray) -> _Cells:
    columns = np.isin(ladder.seeds_S, seeds)
    quality_BS, x_BS = ladder.quality_BS[:, columns], ladder.x_BS[:, columns]
    whole_B = np.isfinite(quality_BS).all(axis=1)
    return _Cells(
        ssr_B=ladder.ssr_B[whole_B],
        x_BS=x_BS[whole_B],
        y_BS=ladder.sign * quality_BS[whole_B],
        left_out=tuple(float(ssr) for ssr in ladder.ssr_B[~whole_B]),
    )


def _same(first: _Cells, second: _Cells) -> bool:
    return np.array_equal(first.ssr_B, second.ssr_B) and np.array_equal(first.y_BS, second.y_BS)


@lru_cache(maxsize=32)
def _resamples(n_b: int, n_r: int, *, joint: bool, resamples: int) -> Resamples:
    """Which seeds each resample takes, of either; of both at once if `joint`."""
    if joint:
        return counted(draws(n_b, resamples=resamples, key="seeds"))
    if n_b**n_b * n_r**n_r <= resamples:
        all_b, all_r = draws(n_b, resamples=resamples, key=""), draws(n_r, resamples=resamples, key="")
        return counted(np.repeat(all_b, len(all_r), axis=0), np.tile(all_r, (len(all_b), 1)))
    return counted(_drawn(n_b, resamples, "seeds of the baseline"), _drawn(n_r, resamples, "seeds of the recipe"))


def _drawn(n: int, resamples: int, key: str) -> np.ndarray:
    rows = draws(n, resamples=resamples, key=key)
    return np.resize(rows, (resamples, n)) if len(rows) < resamples else rows


def _resampled(cells: _Cells, counts_RS: np.ndarray) -> Resampled:
    x_RB = _medians(cells.x_BS, counts_RS)
    y_RB = counts_RS @ cells.y_BS.T / counts_RS.shape[1]
    order_RB = np.argsort(x_RB, axis=1, kind="stable")
    x_RB, y_RB = np.take_along_axis(x_RB, order_RB, 1), monotone(np.take_along_axis(y_RB, order_RB, 1))
    full = np.flatnonzero(cells.ssr_B == 1.0)
    if full.size == 0:
        return Resampled(x_RB=x_RB, y_RB=y_RB, at_full_budget_R=None, x_at_full_budget_R=None)
    place_RB = order_RB == full[0]
    return Resampled(x_RB=x_RB, y_RB=y_RB, at_full_budget_R=y_RB[place_RB], x_at_full_budget_R=x_RB[place_RB])


def _medians(x_BS: np.ndarray, counts_RS: np.ndarray) -> np.ndarray:
    """The median x of each resample; only where seeds differ in it is there anything to find."""
    x_RB = np.repeat(x_BS[None, :, 0], len(counts_RS), axis=0)
    differing_B = (x_BS != x_BS[:, :1]).any(axis=1)
    if differing_B.any():
        seeds = np.broadcast_to(np.arange(counts_RS.shape[1]), counts_RS.shape)
        rows_RS = np.repeat(seeds.ravel(), counts_RS.ravel()).reshape(counts_RS.shape)
        x_RB[:, differing_B] = np.median(x_BS[differing_B][:, rows_RS], axis=2).T
    return x_RB


# ---- what every comparison has in common: who is compared, and how sure it is

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


# ---- an effect with its interval, or with the reason why there is none; and many of them at once


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """An effect whose absence is 0. `reason` says why there is no value, or no interval."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    p_holm: float | None = None  # adjusted for all effects of the same kind
    family: int = 0
    n: int = 0  # seeds, or windows of a profile
    reason: str | None = None

    @property
    def differs(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def estimate(found: Judged, value: float, *, n: int, confidence: float) -> Estimate:
    """An effect as it was judged."""
    if found.effect is None:
        return Estimate(value=value, n=n, reason=found.reason)
    interval = found.effect.interval(confidence)
    return Estimate(value=value, low=interval.low, high=interval.high, p_value=interval.p_value, n=n)


def adjusted_by_holm(estimates: Sequence[Estimate]) -> list[Estimate]:
    """The estimates as one family (Holm): those that have a p-value are told from chance together."""
    tested = [index for index, each in enumerate(estimates) if each.p_value is not None]
    done = list(estimates)
    p_values = holm([each.p_value for each in estimates if each.p_value is not None]) if tested else []
    for index, p_value in zip(tested, p_values, strict=True):
        done[index] = replace(done[index], p_holm=p_value, family=len(tested))
    return done

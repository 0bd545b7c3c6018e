"""Comparisons of a recipe with its baseline: which runs can be compared, and how certain an effect is.

The seeds of both are resampled, jointly where they share seeds, and every comparison takes its interval from the two
curves in each resample.

Shapes: R different resamples (row 0 is the sample itself), B budgets, S seeds, F of them of the first stage.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol, Self, TypeVar

import numpy as np
import pandas as pd

from explorer.analysis.axis_words import axis_words
from explorer.analysis.inference import (
    Effect,
    Error,
    Errors,
    Resamples,
    counted,
    draws,
    holm,
    scaled,
    size_of,
    standard_error,
)
from explorer.analysis.ladders import Ladder, Ladders, Machine, Setting, ladders_of
from explorer.analysis.moderation import LEAST_RECIPES, MOST_SEEDS, Moderation, Runs
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
    weight_R: np.ndarray  # number of resamples behind each row
    n: int  # seeds
    df: int  # degrees of freedom of Student's t
    first: "Pair | None"  # the same by the first seeds, whose spread decided on the others; None: none were added
    left_out: tuple[float, ...]  # budgets of either that lack one of the seeds
    moderation: Moderation | None  # by the other recipes; its probes are the last rows, behind no resample
    same: bool  # the recipe has the baseline's quality in every run, seed by seed, and runs differ in quality


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cells:
    """The budgets of a ladder that have all of the chosen seeds."""

    ssr_B: np.ndarray
    x_BS: np.ndarray
    y_BS: np.ndarray
    left_out: tuple[float, ...]

    @property
    def steady(self) -> bool:
        """Return whether x is the same for all seeds, so that only qualities have noise."""
        return bool((self.x_BS == self.x_BS[:, :1]).all())


def pairs(baseline: Ladder, recipes: Sequence[Ladder], *, resamples: int, paired: bool = True) -> list[Pair]:
    """Pair each of the recipes with the baseline.

    Seeds that both have are resampled jointly, with n-1 degrees of freedom. Where they have none in common, each is
    resampled on its own, with 2(n-1). A budget that lacks one of the seeds is left out. Without `paired`, equal numbers
    of seeds mean nothing, as across sweeps: both are resampled separately, with the degrees of freedom of the smaller.

    Seeds that a rule added, because of the spread of the first ones, move the estimate and not its error (Stein 1945):
    that comes from the first ones, with their degrees of freedom. Such seeds count in pairs only.

    Recipes that share all seeds moderate each other's noise, by the first ones too.
    """
    seeds_b, baselines, runs = _seeds(baseline), {}, {}  # each is made once for all recipes with the same seeds
    results, by_first = [], []
    if baseline.added:
        by_first = pairs(_first_stage(baseline), [_first_stage(recipe) for recipe in recipes], resamples=resamples)
    for place, recipe in enumerate(recipes, start=1):
        seeds_r = _seeds(recipe)
        common = np.intersect1d(seeds_b, seeds_r)
        # Pairing removes the noise that a seed brings to both (same data order, same initial weights). It needs the
        # smaller set to lie in the larger one; a partial overlap would throw away seeds.
        joint = paired and common.size == min(seeds_b.size, seeds_r.size)
        mine, others = (common, common) if joint else (_first(baseline, seeds_b), _first(recipe, seeds_r))
        firsts = _first(baseline, mine)
        staged = joint and 1 < firsts.size < mine.size
        first_b, first_r = (firsts, firsts) if staged else (mine, others)
        taken = _resamples(first_b.size, first_r.size, joint=joint, resamples=resamples)
        cells_b, cells_r = _cells(baseline, mine), _cells(recipe, others)
        n = min(first_b.size, first_r.size)
        moderation, probes_b, probes_r = None, None, None
        few = 1 < n <= MOST_SEEDS and len(recipes) + 1 >= LEAST_RECIPES
        if few and joint and cells_b.steady and cells_r.steady:
            if tuple(first_b) not in runs:
                every = [_cells(ladder, first_b) for ladder in (baseline, *recipes)]
                runs[tuple(first_b)] = Runs.of([(cells.ssr_B, cells.y_BS) for cells in every], seeds=n)
            moderation = Moderation(
                runs=runs[tuple(first_b)],
                recipe=place,
                seeds=mine.size,
                baseline_ssr=cells_b.ssr_B,
                recipe_ssr=cells_r.ssr_B,
            )
            probes_b, probes_r = moderation.offsets
        key = (tuple(mine), others.size, joint, None if moderation is None else cells_r.ssr_B.size)
        if key not in baselines:
            baselines[key] = _resampled(cells_b, taken.counts[0], np.isin(mine, first_b), probes_b)
        none_P = np.zeros(0 if probes_r is None else len(probes_r))  # probes are no resamples
        results.append(
            Pair(
                baseline=baselines[key],
                recipe=_resampled(cells_r, taken.counts[-1], np.isin(others, first_r), probes_r),
                weight_R=np.r_[taken.weight_R, none_P],
                n=min(mine.size, others.size),
                df=n - 1 if common.size or not paired else 2 * (n - 1),  # a partial overlap takes the smaller number
                first=by_first[place - 1] if staged else None,
                left_out=tuple(sorted({*cells_b.left_out, *cells_r.left_out})),
                moderation=moderation,
                same=joint and _same(cells_b, cells_r),
            )
        )
    return results


def pair(baseline: Ladder, recipe: Ladder, *, resamples: int) -> Pair:
    """Pair one recipe with the baseline."""
    return pairs(baseline, [recipe], resamples=resamples)[0]


def _seeds(ladder: Ladder) -> np.ndarray:
    """Return the seeds of the budget that has most of them; of several such budgets, the smallest."""
    present_BS = np.isfinite(ladder.quality_BS)
    return ladder.seeds_S[present_BS[present_BS.sum(axis=1).argmax()]]


def _first_stage(ladder: Ladder) -> Ladder:
    """Return the ladder without the seeds that a rule added."""
    kept_S = ~np.isin(ladder.seeds_S, ladder.added)
    return replace(
        ladder,
        seeds_S=ladder.seeds_S[kept_S],
        x_BS=ladder.x_BS[:, kept_S],
        quality_BS=ladder.quality_BS[:, kept_S],
        added=(),
    )


def _first(ladder: Ladder, seeds: np.ndarray) -> np.ndarray:
    """Return those of the seeds that no rule added."""
    return np.setdiff1d(seeds, ladder.added)


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
    # Where all runs have one quality, such as 100%, it is the task that makes them the same, not the training.
    differing = first.y_BS.size > 0 and np.ptp(first.y_BS) > 0
    return bool(differing and np.array_equal(first.ssr_B, second.ssr_B) and np.array_equal(first.y_BS, second.y_BS))


@lru_cache(maxsize=32)
def _resamples(n_b: int, n_r: int, *, joint: bool, resamples: int) -> Resamples:
    """Return the seeds that each resample takes of either; of both at once if `joint`."""
    # Few seeds have few resamples, and all of them are taken: an enumeration has no noise of its own.
    if joint:
        return counted(draws(n_b, resamples=resamples, key="seeds"))
    if n_b**n_b * n_r**n_r <= resamples:
        all_b, all_r = draws(n_b, resamples=resamples, key=""), draws(n_r, resamples=resamples, key="")
        return counted(np.repeat(all_b, len(all_r), axis=0), np.tile(all_r, (len(all_b), 1)))
    return counted(_drawn(n_b, resamples, "seeds of the baseline"), _drawn(n_r, resamples, "seeds of the recipe"))


def _drawn(n: int, resamples: int, key: str) -> np.ndarray:
    # `draws` may enumerate fewer rows than the other sample has draws; they are then repeated to the same number.
    rows = draws(n, resamples=resamples, key=key)
    return np.resize(rows, (resamples, n)) if len(rows) < resamples else rows


def _resampled(cells: _Cells, counts_RF: np.ndarray, first_S: np.ndarray, probes_PB: np.ndarray | None) -> Resampled:
    """Return the curve of all seeds, then what resampling the first ones makes of it, then what the probes do."""
    x_RB = _medians(cells.x_BS[:, first_S], counts_RF)
    y_RB = counts_RF @ cells.y_BS[:, first_S].T / counts_RF.shape[1]
    if not first_S.all():
        n, first = first_S.size, counts_RF.shape[1]
        # A mean of n varies less than one of the first by the root of first / n. The second root takes back what
        # `standard_error` puts on for n seeds and puts on what is due to the first.
        share = math.sqrt(first / n) * math.sqrt(first / (first - 1) * (n - 1) / n)
        all_x_B, all_y_B = np.median(cells.x_BS, axis=1), cells.y_BS.mean(axis=1)
        x_RB, y_RB = all_x_B * (x_RB / x_RB[0]) ** share, all_y_B + share * (y_RB - y_RB[0])
    if probes_PB is not None:
        x_RB = np.vstack([x_RB, np.repeat(x_RB[:1], len(probes_PB), axis=0)])
        y_RB = np.vstack([y_RB, y_RB[0] + probes_PB])
    # Budgets are sorted by x in each resample by itself, since noisy times can change places.
    order_RB = np.argsort(x_RB, axis=1, kind="stable")
    x_RB, y_RB = np.take_along_axis(x_RB, order_RB, 1), monotone(np.take_along_axis(y_RB, order_RB, 1))
    full = np.flatnonzero(cells.ssr_B == 1.0)
    if full.size == 0:
        return Resampled(x_RB=x_RB, y_RB=y_RB, at_full_budget_R=None, x_at_full_budget_R=None)
    place_RB = order_RB == full[0]
    return Resampled(x_RB=x_RB, y_RB=y_RB, at_full_budget_R=y_RB[place_RB], x_at_full_budget_R=x_RB[place_RB])


def _medians(x_BS: np.ndarray, counts_RS: np.ndarray) -> np.ndarray:
    """Return the median x of each resample."""
    # Profiled times and steps are the same for all seeds; a median over R x B x S is needed only where they differ.
    x_RB = np.repeat(x_BS[None, :, 0], len(counts_RS), axis=0)
    differing_B = (x_BS != x_BS[:, :1]).any(axis=1)
    if differing_B.any():
        seeds = np.broadcast_to(np.arange(counts_RS.shape[1]), counts_RS.shape)
        rows_RS = np.repeat(seeds.ravel(), counts_RS.ravel()).reshape(counts_RS.shape)
        x_RB[:, differing_B] = np.median(x_BS[differing_B][:, rows_RS], axis=2).T
    return x_RB


# --- what every comparison has in common: matches, and how certain an estimate is ---

RESAMPLES = 2000  # a standard error from so many is exact to 2%; all resamples of up to four seeds are fewer
# Below this share of resamples with a value no interval is given. Those without one are no random part: they are the
# worst, and an interval over the rest would be too narrow.
LEAST_REACH_RATE = 0.9
ROUNDING = 1e-12  # smaller differences are those of sums in another order


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
    moderated: bool = False  # by the noise of other recipes


def compared(
    frame: pd.DataFrame | Ladders,
    *,
    x: str,
    baseline: str | None = None,
    machine: Machine | None = None,
    resamples: int = RESAMPLES,
) -> list[Compared]:
    """Return the matches of a table with their curves, from which every kind of comparison along `x` is read.

    Args: as those of `equal_quality`.
    """
    every = list(matches(frame, x=x, baseline=baseline, machine=machine))
    recipes: defaultdict[int, list[Match]] = defaultdict(list)
    for match in every:
        if match.baseline is not None:
            recipes[id(match.baseline)].append(match)
    known: dict[int, Pair] = {}
    for together in recipes.values():
        assert together[0].baseline is not None
        joint = pairs(together[0].baseline, [match.recipe for match in together], resamples=resamples)
        known |= {id(match): pair for match, pair in zip(together, joint, strict=True)}
    return [Compared(match=match, pair=known.get(id(match)), x=x) for match in every]


def matches(
    frame: pd.DataFrame | Ladders, *, x: str, baseline: str | None, machine: Machine | None = None
) -> Iterator[Match]:
    """Yield a match of every recipe of the table with its baseline: `baseline`, or else the one that its sweep names.

    The baseline is that of the recipe's own setting. If `machine` is given, the baseline on that machine is the one
    for all machines, and its runs on other machines are compared with it too. Controls of other recipes are left out.
    Raises `AnalysisError` for a baseline that is no recipe of the table, and for a machine without rows.
    """
    every = ladders_of(frame, x=x).lines(empty=True)
    names = {ladder.recipe for ladder in every}
    if baseline is not None and baseline not in names:
        raise AnalysisError(unknown("baseline", baseline, names))
    machines = {ladder.setting.machine for ladder in every}
    if machine is not None and machine not in machines:
        raise AnalysisError(unknown("machine", str(machine), map(str, machines)))
    by_name: defaultdict[tuple[Setting, str], list[Ladder]] = defaultdict(list)
    for ladder in every:
        by_name[ladder.setting, ladder.recipe].append(ladder)
    for recipe in every:
        # The same name may be in the table under several digests: then none of them can be the baseline.
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
    moderation: Moderation | None = None,
    same: bool = False,
) -> Judged:
    """Judge an estimate: return it with its error, or with the reason why there is none.

    Args:
        values_R: the estimate, then its values in the resamples; NaN where there is none.
        n: number of seeds; one seed has no error.
        df: degrees of freedom of Student's t.
        weight_R: the number of resamples behind each value; by default none for the first and one for each other.
        noise: errors that step times add to that of the seeds.
        moderation: of the noise of the seeds, by other recipes; the last values are then those of its probes.
        same: both recipes have the same quality in every run, seed by seed, so that they differ in their times only.
            Otherwise seeds that do not differ at all give no error: two runs of one seed look like that too.
    """
    if n < 2:
        return Judged(effect=None, reach_rate=None, reason="one seed")
    # --- whether enough resamples have a value ---
    weights_R = np.r_[0.0, np.ones(len(values_R) - 1)] if weight_R is None else weight_R
    reached = np.isfinite(values_R)
    rate = float(weights_R[reached].sum() / weights_R.sum())
    if rate < LEAST_REACH_RATE:
        return Judged(effect=None, reach_rate=rate, reason=f"only {rate:.0%} of the resamples reach the target")
    # --- the error of the seeds, where they differ ---
    estimate, drawn = float(values_R[0]), reached & (weights_R > 0)
    resampled, weights = values_R[drawn], weights_R[drawn]
    if np.ptp(resampled) >= ROUNDING:
        by_seeds = Error(size=standard_error(resampled, n=n, weight_R=weights), df=df)
        seeds = (by_seeds,) if moderation is None else moderation.errors(estimate, values_R, by_seeds=by_seeds)
        effect = Effect(value=estimate, errors=(*seeds, *noise))
        return Judged(
            effect=effect, reach_rate=rate, reason=None, seed_error=size_of(seeds), moderated=seeds != (by_seeds,)
        )
    # --- seeds that do not differ: only a known reason for that leaves an error ---
    if same and size_of(noise) > 0:
        return Judged(effect=Effect(value=estimate, errors=noise), reach_rate=rate, reason=None, seed_error=0.0)
    if abs(estimate) > ROUNDING:
        return Judged(effect=None, reach_rate=rate, reason="the seeds do not differ, so the noise is unknown")
    effect = Effect(value=0.0, errors=noise)
    return Judged(effect=effect, reach_rate=rate, reason=None, seed_error=0.0)


def staged(judged: Judged, first: Judged, *, share: float, noise: Errors) -> Judged:
    """Return the judgement on the estimate of all seeds with the error of the first ones.

    Args:
        judged: the estimate of all seeds.
        first: the estimate of the first seeds, judged without the noise of step times.
        share: of the error of the first seeds, which is left with all of them.
        noise: errors that step times add.
    """
    if judged.effect is None or first.effect is None:
        return replace(judged, effect=None, reason=judged.reason or first.reason)
    seeds = scaled(first.effect.errors, share)
    effect = Effect(value=judged.effect.value, errors=(*seeds, *noise))
    return replace(judged, effect=effect, seed_error=size_of(seeds), moderated=first.moderated)


class Comparison(Protocol):
    """A frozen result of a comparison, as far as it takes to judge many of them together."""

    @property
    def baseline_setting(self) -> Setting: ...
    @property
    def baseline(self) -> str: ...
    @property
    def p_value(self) -> float | None: ...
    def among(self, family: int) -> Self:
        """Return the result with its interval and p-value as one of `family` comparisons."""
        ...


AnyComparison = TypeVar("AnyComparison", bound=Comparison)


def adjusted(results: Sequence[AnyComparison]) -> list[AnyComparison]:
    """Return the results, each judged in its family: all comparisons with one baseline, on all machines.

    One without a p-value tests nothing and is not counted. A view that shows some of the recipes passes all of them and
    leaves some out afterwards: hidden comparisons were made too, and have to be paid for.
    """
    sizes = Counter((result.baseline_setting, result.baseline) for result in results if result.p_value is not None)
    return [
        result if result.p_value is None else result.among(sizes[result.baseline_setting, result.baseline])
        for result in results
    ]


def known(value: float) -> float | None:
    """Return the number, or None for NaN."""
    return float(value) if np.isfinite(value) else None


_WITHOUT = {
    "train_seconds": "its steps were not profiled and its runs shared the machine",
    "cost_usd": "there is no price for its hardware, or its time is unknown",
    "energy_kwh": "its machine has no counter that could be read, or its runs shared the machine",
    "deletion_seconds": "its runs keep no ledger, or its step time is unknown",
    "deletion_usd": "its runs keep no ledger, its step time is unknown, or there is no price for its hardware",
}


def _reason(recipe: Ladder, name: str, bases: list[Ladder], x: str, *, where: str) -> str | None:
    """Return why the two cannot be compared; None if they can."""
    if (words := next((ladder.unjudged for ladder in (recipe, *bases) if ladder.unjudged), None)) is not None:
        return words
    if not bases:
        return f"the baseline {name} has no finished run {where}"
    if len(bases) > 1:
        return f"{len(bases)} different recipes are called {name} {where}"
    if recipe.imported != bases[0].imported:
        other = recipe if recipe.imported else bases[0]
        return f"{other.label} is imported and unverified: it is never compared with runs of one's own"
    for ladder in (recipe, bases[0]):
        if not ladder.ssr_B.size:
            return f"{ladder.label} has no {axis_words(x)}: {_WITHOUT.get(x.partition('/')[0], f'{x} is unknown')}"
    return None


# --- effects with their intervals ---


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
        """Return whether the interval excludes 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def estimate(judged: Judged, value: float, *, n: int, confidence: float) -> Estimate:
    """Return an effect as it was judged."""
    if judged.effect is None:
        return Estimate(value=value, n=n, reason=judged.reason)
    interval = judged.effect.interval(confidence)
    return Estimate(value=value, low=interval.low, high=interval.high, p_value=interval.p_value, n=n)


def adjusted_by_holm(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Return the estimates as one family: p-values are adjusted by Holm's method.

    Interactions of methods are screened, and only the p-value decides what is named. Holm rejects more than Bonferroni
    at the same error rate; Bonferroni is used where an interval has to agree with the p-value (`Effect.interval`).
    """
    tested = [index for index, estimate in enumerate(estimates) if estimate.p_value is not None]
    adjusted_ones = list(estimates)
    p_values = holm([estimate.p_value for estimate in estimates if estimate.p_value is not None]) if tested else []
    for index, p_value in zip(tested, p_values, strict=True):
        adjusted_ones[index] = replace(adjusted_ones[index], p_holm=p_value, family=len(tested))
    return adjusted_ones

"""What every comparison of a recipe with its baseline has in common: who is compared, and how sure it is."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd

from explorer.analysis.inference import Interval, holm, t_interval
from explorer.analysis.ladders import Ladder, Setting, axis_words, ladders
from explorer.errors import AnalysisError, unknown

RESAMPLES = 2000
LEAST_REACH_RATE = 0.9  # below it no interval is given: too many resamples have no value at all


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A recipe and the baseline of its setting; the baseline is None where they cannot be compared."""

    setting: Setting
    baseline_name: str
    baseline: Ladder | None
    recipe: Ladder
    reason: str | None  # why the two cannot be compared


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """An estimate with its interval, or with the reason why there is none."""

    interval: Interval | None
    reach_rate: float | None  # share of resamples that have a value; None for one seed
    reason: str | None


def matches(frame: pd.DataFrame, *, x: str, baseline: str | None) -> Iterator[Match]:
    """Every recipe of the table beside the baseline of its setting: `baseline`, or else the one that its sweep names.

    Recipes that are controls of others are no candidates, and are left out.
    Raises `AnalysisError` for a baseline that is no recipe of the table.
    """
    found = ladders(frame, x=x, empty=True)
    names = {str(name) for name in frame["recipe"]}
    if baseline is not None and baseline not in names:
        raise AnalysisError(unknown("baseline", baseline, names))
    by_name: defaultdict[tuple[Setting, str], list[Ladder]] = defaultdict(list)
    for ladder in found:
        by_name[ladder.setting, ladder.recipe].append(ladder)
    for recipe in found:
        name = baseline if baseline is not None else recipe.baseline
        if recipe.recipe != name and recipe.control is None:
            bases = by_name[recipe.setting, name]
            reason = _reason(recipe, name, bases, x)
            yield Match(
                setting=recipe.setting,
                baseline_name=name,
                baseline=bases[0] if reason is None else None,
                recipe=recipe,
                reason=reason,
            )


def judge(values_R: np.ndarray, *, n: int, df: int, confidence: float) -> Judged:
    """The interval of an estimate: `values_R` holds the estimate first, then its values in the resamples, NaN for none.

    There is none for one seed, for a reach rate below `LEAST_REACH_RATE`, and where seeds do not differ at all.
    """
    if n < 2:
        return Judged(interval=None, reach_rate=None, reason="one seed")
    resampled = values_R[1:]
    reached = np.isfinite(resampled)
    rate = float(reached.mean())
    if rate < LEAST_REACH_RATE:
        return Judged(interval=None, reach_rate=rate, reason=f"only {rate:.0%} of the resamples reach the target")
    spread = np.ptp(resampled[reached])
    if spread < 1e-12 and abs(values_R[0]) > 1e-12:
        return Judged(interval=None, reach_rate=rate, reason="the seeds do not differ, so nothing tells the noise")
    interval = t_interval(float(values_R[0]), resampled[reached], n=n, df=df, confidence=confidence)
    return Judged(interval=interval, reach_rate=rate, reason=None)


class Comparison(Protocol):
    """A frozen result of a comparison, as far as correcting for many of them goes."""

    @property
    def setting(self) -> Setting: ...
    @property
    def baseline(self) -> str: ...
    @property
    def p_value(self) -> float | None: ...


AnyComparison = TypeVar("AnyComparison", bound=Comparison)


def adjusted(results: Sequence[AnyComparison]) -> list[AnyComparison]:
    """The results with `p_holm` and `family`: a family is all comparisons with one baseline in one setting."""
    families: dict[tuple[Setting, str], list[int]] = {}
    for index, result in enumerate(results):
        if result.p_value is not None:
            families.setdefault((result.setting, result.baseline), []).append(index)
    done: list[Any] = list(results)
    for members in families.values():
        p_values = holm([done[index].p_value for index in members])
        for index, p_value in zip(members, p_values, strict=True):
            done[index] = replace(done[index], p_holm=p_value, family=len(members))
    return done


def known(value: float) -> float | None:
    """The number, or None for NaN."""
    return float(value) if np.isfinite(value) else None


_WITHOUT = {
    "train_seconds": "its steps were not profiled and its runs shared the machine",
    "cost_usd": "there is no price for its hardware, or its time is unknown",
    "deletion_seconds": "its runs keep no ledger, or its step time is unknown",
    "deletion_usd": "its runs keep no ledger, its step time is unknown, or there is no price for its hardware",
}


def _reason(recipe: Ladder, name: str, bases: list[Ladder], x: str) -> str | None:
    """Why the two cannot be compared; None if they can."""
    if not bases:
        return f"the baseline {name} has no finished run here"
    if len(bases) > 1:
        return f"{len(bases)} different recipes are called {name} here"
    for ladder in (recipe, bases[0]):
        if not ladder.ssr_B.size:
            return f"{ladder.label} has no {axis_words(x)}: {_WITHOUT.get(x.partition('/')[0], f'{x} is unknown')}"
    return None

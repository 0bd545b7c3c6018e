"""From a table of results to ladders: one recipe on one hardware, its quality and its cost at every budget and seed.

Shapes: B budgets, S seeds.
"""

from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from explorer.errors import AnalysisError, unknown
from explorer.records import Control

AXES = {
    "train_seconds": "time",
    "cost_usd": "cost",
    "steps": "steps",
    "wall_seconds": "wall time",
    "deletion_seconds": "time of deletion",
    "deletion_usd": "cost of deletion",
}


def axis_words(x: str) -> str:
    """A column in words; of one class what it is of all.

    >>> axis_words("deletion_seconds/open/mit")
    'time of deletion of open/mit'
    """
    column, _, class_ = x.partition("/")
    return f"{AXES.get(column, column)} of {class_}" if class_ else AXES.get(x, x)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Where recipes are compared: only what agrees in all of this is comparable."""

    sweep: str
    dataset: str
    model: str
    metric: str
    unit: str
    higher_is_better: bool
    device: str
    hardware: str
    threads: int
    world_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ladder:
    """One recipe in one setting. Budgets and seeds ascend; NaN where there is no run."""

    setting: Setting
    recipe: str
    recipe_digest: str
    label: str  # the recipe's name; with its digest where several recipes in the setting have that name
    is_baseline: bool
    control: Control | None  # of a recipe that is there to be compared with others; None for the baseline
    control_of: tuple[str, ...]  # the recipes that it is the control of
    baseline: str
    tuning: str | None
    inference_ratio: float | None
    time_source: str  # "profiled", "measured", "measured+profiled", "" where unknown
    ssr_B: np.ndarray
    seeds_S: np.ndarray
    x_BS: np.ndarray
    quality_BS: np.ndarray

    @property
    def sign(self) -> int:
        """Quality times this is better when it is higher."""
        return 1 if self.setting.higher_is_better else -1


SETTING = tuple(field.name for field in fields(Setting))
COLUMNS = (
    *SETTING,
    *(
        "recipe",
        "recipe_digest",
        "is_baseline",
        "control",
        "control_of",
        "baseline",
        "tuning",
        "inference_ratio",
        "time_source",
    ),
    *("ssr", "seed", "quality"),
)


def ladders(frame: pd.DataFrame, *, x: str, empty: bool = False) -> list[Ladder]:
    """The ladders in a table with the columns of `results`, along the column `x`, in the order of the table.

    Rows whose x is unknown are left out; a recipe that has no others is there, without budgets, only if `empty`.
    Raises `AnalysisError` for a column that is not there, and for an x that is not above zero.
    """
    _check(frame, x)
    groups = frame.groupby([*SETTING, "recipe", "recipe_digest"], sort=False, dropna=False)
    found = [_ladder(rows, x) for _, rows in groups]
    found = [ladder for ladder in found if empty or ladder.ssr_B.size]
    names = Counter((ladder.setting, ladder.recipe) for ladder in found)
    return [
        replace(ladder, label=f"{ladder.recipe} ({ladder.recipe_digest[:6]})")
        if names[ladder.setting, ladder.recipe] > 1
        else ladder
        for ladder in found
    ]


def _check(frame: pd.DataFrame, x: str) -> None:
    for column in (x, *COLUMNS):
        if column not in frame.columns:
            raise AnalysisError(f"the table of results: {unknown('column', column, map(str, frame.columns))}")
    try:
        values = np.stack([np.asarray(frame[column], dtype=float) for column in (x, "quality")])
    except (TypeError, ValueError) as error:
        raise AnalysisError(
            f"the column {x!r} does not hold numbers; expected one such as {', '.join(AXES)}"
        ) from error
    if np.isinf(values).any() or (values[0] <= 0).any():
        raise AnalysisError(f"the columns {x!r} and 'quality': expected finite numbers, and {x!r} above 0")


def _ladder(rows: pd.DataFrame, x: str) -> Ladder:
    first: dict[str, Any] = {str(name): value for name, value in rows.iloc[0].items()}
    controlled = _controlled(rows.loc[rows["control"] == "random-subset", "control_of"])
    rows = rows.loc[np.asarray(rows[x].notna() & rows["quality"].notna())]
    ssr_B, budget = np.unique(np.asarray(rows["ssr"], dtype=float), return_inverse=True)
    seeds_S, seed = np.unique(np.asarray(rows["seed"]), return_inverse=True)
    sources = sorted({source for source in rows["time_source"] if isinstance(source, str)})
    ratios = np.asarray(rows["inference_ratio"], dtype=float)
    known = ratios[np.isfinite(ratios)]
    shape = (ssr_B.size, seeds_S.size)
    return Ladder(
        setting=Setting(**{column: _plain(first[column]) for column in SETTING}),
        recipe=first["recipe"],
        recipe_digest=first["recipe_digest"],
        label=first["recipe"],
        is_baseline=bool(first["is_baseline"]),
        control="random-subset" if controlled else None,
        control_of=controlled,
        baseline=first["baseline"],
        tuning=first["tuning"] if isinstance(first["tuning"], str) else None,
        inference_ratio=float(np.median(known)) if known.size else None,
        time_source="+".join(sources),
        ssr_B=ssr_B,
        seeds_S=seeds_S,
        x_BS=_grid(np.asarray(rows[x], dtype=float), budget, seed, shape),
        quality_BS=_grid(np.asarray(rows["quality"], dtype=float), budget, seed, shape),
    )


def _controlled(column: pd.Series) -> tuple[str, ...]:
    """The recipes that any of the runs was made the control of, in order."""
    return tuple(dict.fromkeys(name for names in column if isinstance(names, str) for name in names.split("+")))


def _grid(values: np.ndarray, budget: np.ndarray, seed: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The values by budget and seed; the mean where a run is there twice, NaN where it is not."""
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, (budget, seed), values)
    np.add.at(count, (budget, seed), 1)
    return np.divide(total, count, out=np.full(shape, np.nan), where=count > 0)


def _plain(value: Any) -> Any:
    """A Python value for a numpy one; an absent text becomes an empty one."""
    if isinstance(value, float) and np.isnan(value):
        return ""
    return value.item() if isinstance(value, np.generic) else value

"""The recipes of a setting at one budget: what each adds to the baseline, its qualities by seed, its schedule."""

from collections import Counter
from dataclasses import dataclass, replace

import pandas as pd

from explorer.analysis.ingredients import Ingredient, Made, added, made
from explorer.analysis.interaction import Qualities
from explorer.analysis.schedules import Schedule, phase
from explorer.errors import AnalysisError


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeRuns:
    """A recipe at the budget. `problem` says why there is no schedule, or why its methods cannot be compared."""

    label: str  # its name; with its digest where several recipes have that name
    methods: tuple[Ingredient, ...]  # beyond the baseline's, in acting order; none where they cannot be compared
    qualities: Qualities
    schedule: Schedule | None
    problem: str = ""


def recipe_runs(rows: pd.DataFrame, schedules: pd.DataFrame, *, base: str) -> dict[str, RecipeRuns]:
    """By digest, in the order of `rows`. `base` is the digest of the baseline.

    `rows` have the columns of `results` and `schedules` those of `frames.schedules`, both of one setting and budget.
    Raises `AnalysisError` if it is not known what the baseline is made of.
    """
    phases = {str(digest): group for digest, group in schedules.groupby("recipe_digest", sort=False)}
    if base not in phases:
        raise AnalysisError("the baseline's phases are not known")
    origin = made(phases[base]["identity"].iloc[0])
    names = rows.drop_duplicates("recipe_digest").set_index("recipe_digest")["recipe"]
    several = Counter(names)
    return {
        str(digest): _recipe(
            f"{name} ({str(digest)[:6]})" if several[name] > 1 else str(name),
            rows[rows["recipe_digest"] == digest],
            phases.get(str(digest)),
            origin,
        )
        for digest, name in names.items()
    }


def _recipe(label: str, rows: pd.DataFrame, phases: pd.DataFrame | None, origin: Made) -> RecipeRuns:
    means = rows.dropna(subset=["quality"]).groupby("seed")["quality"].mean()
    qualities = dict(zip(means.index.tolist(), means.tolist(), strict=True))
    found = RecipeRuns(label=label, methods=(), qualities=qualities, schedule=None)
    if phases is None:
        return replace(found, problem=f"the phases of {label} are not known")
    try:
        found = replace(found, methods=added(made(phases["identity"].iloc[0]), baseline=origin))
        return replace(found, schedule=_schedule(label, phases))
    except AnalysisError as error:
        return replace(found, problem=str(error))


def _schedule(label: str, phases: pd.DataFrame) -> Schedule:
    missing = phases.loc[phases["seconds"].isna(), "phase"]
    if len(missing):
        raise AnalysisError(f"{label} was not profiled in its phase {missing.iloc[0]!r}")
    return Schedule(
        recipe=str(phases["recipe_digest"].iloc[0]),
        phases=tuple(
            phase(
                str(row["phase"]),
                steps=int(row["steps"]),
                seconds=float(row["seconds"]),
                low=float(row["low"]),
                high=float(row["high"]),
                windows=int(row["windows"]),
                split=dict(row["split"]),
            )
            for row in phases.to_dict("records")
        ),
    )

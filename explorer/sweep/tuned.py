"""`tuned.json`: what the tuning of a sweep tried and chose, for every recipe, with the runs that it rests on.

The runs are those of an ordinary sweep, `<sweep>-tune`. The sweep's own plan repeats the record, so that the database
has it, and its text in `tuning` names both.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from explorer import rundir
from explorer.errors import SweepError
from explorer.run_files import TUNES_EVERY, Hardware, Metric
from explorer.schema import from_json, parse_json, record

FILE = "tuned.json"

Value = int | float | str | bool


@record
class PointRecord:
    """A point of the space."""

    values: dict[str, Value]
    quality: float | None  # mean over the tuning seeds; None: a run of it diverged
    seconds: float  # of training, of all its runs
    steps: int  # of all its runs
    runs: tuple[str, ...]  # their ids


@record
class EdgeRecord:
    """A chosen value at an end of its range, where a better one may lie beyond."""

    key: str
    side: Literal["low", "high"]
    wider: tuple[float, float] | None  # a range to try; None for a list of choices

    @property
    def remedy(self) -> str:
        """Return what to write, with a semicolon in front; empty for a list of choices."""
        return (
            "" if self.wider is None else f"; write {self.key}: [{self.wider[0]:g}, {self.wider[1]:g}], and tune again"
        )


@record
class TunedRecipe:
    """The tuning of one recipe."""

    recipe: str
    points: Annotated[tuple[PointRecord, ...], Field(min_length=1)]  # in the order in which they were tried
    chosen: Annotated[int, Field(ge=0)]  # the first of the best
    edges: tuple[EdgeRecord, ...]

    @property
    def values(self) -> dict[str, Value]:
        """Return the chosen values."""
        return self.points[self.chosen].values

    @property
    def words(self) -> str:
        """Return the chosen values in words: "lr 0.1, weight_decay 0.002"."""
        return ", ".join(
            f"{key} {value:g}" if type(value) is float else f"{key} {value}" for key, value in self.values.items()
        )

    @property
    def edge_words(self) -> list[str]:
        """Return a sentence for each chosen value at an end of its range."""
        return [
            f"{edge.key} {self.values.get(edge.key)} is at the {edge.side} end of what was tried:"
            f" a better one may lie beyond{edge.remedy}"
            for edge in self.edges
        ]

    @property
    def quality(self) -> float | None:
        """Return the quality of the chosen point on the tuning seeds. They chose it, so it is too good."""
        return self.points[self.chosen].quality

    @property
    def seconds(self) -> float:
        """Return the training time that its tuning took."""
        return sum(point.seconds for point in self.points)

    @property
    def steps(self) -> int:
        """Return the optimiser steps that its tuning took."""
        return sum(point.steps for point in self.points)


@record
class TunedRecord:
    """The tuning of a sweep."""

    format: Literal["explorer/tuned/v1"] = "explorer/tuned/v1"
    question: str  # digest of what was asked: the key `tune`, and the recipes as they are written
    sweep: str  # of the tuning runs
    sampler: str
    runs: int  # points a recipe
    budget: float
    seeds: tuple[int, ...]
    metric: Metric
    hardware: Hardware
    contended: bool  # runs shared the machine, so their seconds are those of a busy one
    recipes: Annotated[tuple[TunedRecipe, ...], Field(min_length=1)]

    @property
    def words(self) -> str:
        """Return how the recipes were tuned, as the plan and the records of the sweep's runs say it."""
        keys = list(dict.fromkeys(key for own in self.recipes for key in own.values))
        listed = " and ".join(filter(None, (", ".join(keys[:-1]), keys[-1])))
        seeds = f"{len(self.seeds)} seed{'s' * (len(self.seeds) != 1)}"
        return (
            f"{TUNES_EVERY} {listed} by {self.runs} {self.sampler} points at budget {self.budget:g} with {seeds},"
            f" sweep {self.sweep}, digest {self.question[:8]}"
        )


def read_tuned(directory: Path) -> TunedRecord | None:
    """Return the record in a sweep's directory; None if there is none. Raises `SweepError` for a damaged one."""
    path = directory / FILE
    if not path.exists():
        return None
    content = rundir.read_bytes(path, max_bytes=rundir.MAX_JSON_BYTES, error=SweepError)
    value = parse_json(content, where=str(path), error=SweepError, max_bytes=rundir.MAX_JSON_BYTES)
    return tuned_of(value, where=str(path))


def tuned_of(value: Any, *, where: str) -> TunedRecord:
    """Return the record from its JSON value. Raises `SweepError`."""
    tuned = from_json(TunedRecord, value, where=where, error=SweepError)
    for own in tuned.recipes:
        if own.chosen >= len(own.points):
            raise SweepError(f"{where}: recipe {own.recipe!r:.80} has no point {own.chosen}")
    return tuned

"""A sweep under report: values that several sections need, computed once from the published database and the run
directories."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from explorer.analysis.confirmed import Confirmation
from explorer.analysis.controls import Controlled, controlled
from explorer.errors import SweepError
from explorer.planned import read_plan
from explorer.report.section import Subject
from explorer.run_files import Metric, metric_of
from explorer.store import frames
from explorer.views.explorer.answer import Answer, answer
from explorer.views.explorer.choices import hardware_labels
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import Snapshot

NOT_QUALITIES = ("lr", "train_loss")  # metrics of the training itself, by which no recipe is judged


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricResults:
    """The results of a sweep in one metric on one hardware."""

    hardware: str
    kind: Metric
    answer: Answer
    controls: tuple[Controlled, ...]  # recipes compared with their controls; empty where no control was run

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return self.kind.name

    @property
    def where(self) -> str:
        return f"{self.metric} on {self.hardware}"

    @property
    def confirmations(self) -> tuple[Confirmation, ...]:
        """Recipes of this sweep on fresh seeds, in sweeps of their own."""
        return tuple(verdict.confirmation for verdict in self.answer.verdicts if verdict.confirmation is not None)

    @property
    def rate(self) -> float | None:
        """The price of an hour of the hardware in US dollars; None: no price."""
        return next(iter(self.answer.rates.values()), None)

    @property
    def runs(self) -> pd.DataFrame:
        """The runs with their quality as `y`, and their time as `x` where a time is known."""
        scene = self.answer.scene
        return self.answer.rows.rename(columns={"quality": "y"}) if scene is None else scene.runs

    @property
    def labels(self) -> list[str]:
        """The recipes in the order of the legend; without a chart, because no time is known, in that of the results.

        Sentences may begin with these names.
        """
        scene = self.answer.scene
        return list(dict.fromkeys(self.runs["recipe"])) if scene is None else scene.recipes


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportedSweep(Subject):
    """A sweep under report."""

    runs: Path
    name: str
    made: int  # seconds since 1970
    snapshot: Snapshot
    every: pd.DataFrame  # rows of `frames.runs`, superseded ones too
    results: pd.DataFrame

    @property
    def states(self) -> pd.DataFrame:
        """Runs of the current specification, finished or not."""
        return self.every[~self.every["superseded"]]

    @cached_property
    def metrics(self) -> tuple[MetricResults, ...]:
        """Results by hardware and metric, the sweep's own metric first; none: no run has finished."""
        if self.results.empty:
            return ()
        # The sweep's own metric comes first, because the headline is about it.
        facets = self.snapshot.facets
        known = sorted(facets.loc[facets["sweep"] == self.name, "metric"].unique())
        own = self.results["metric"].iloc[0]
        return tuple(
            self._metric(hardware, metric)
            for hardware in dict.fromkeys(hardware_labels(self.results))
            for metric in dict.fromkeys([own, *(name for name in known if name not in NOT_QUALITIES)])
        )

    def _metric(self, hardware: str, metric: str) -> MetricResults:
        answered = answer(self.snapshot, Question(sweep=self.name, hardware=hardware, metric=metric))
        rows, asked = answered.rows, answered.question
        kind = replace(metric_of(rows.iloc[0].to_dict()), name=asked.metric)
        return MetricResults(hardware=asked.hardware, kind=kind, answer=answered, controls=tuple(controlled(rows)))

    @property
    def progress(self) -> str:
        """The number of runs in each state."""
        counts = self.states["state"].value_counts()
        return ", ".join(f"{number} {state}" for state, number in counts.items()) or "none has started"

    @property
    def sentence(self) -> str:
        """The answer of the report."""
        if self.metrics:
            return self.metrics[0].answer.sentence
        return f"no run has finished ({self.progress}), so there is nothing to compare yet"

    @cached_property
    def profiles(self) -> pd.DataFrame:
        """The profiles of recipes that have results."""
        profiles = frames.profiles(self.snapshot.database, sweep=self.name)
        return profiles[profiles["recipe_digest"].isin(set(self.results["recipe_digest"]))]

    @cached_property
    def plan(self) -> Mapping[str, Any] | None:
        """The sweep's plan; None where runs were copied without it, which the report says."""
        try:
            return read_plan(self.runs / self.name)
        except SweepError:
            return None

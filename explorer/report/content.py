"""What the report of a sweep says, gathered once and the same in every format."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from explorer.analysis.composition import Composition
from explorer.analysis.controls import Controlled, controlled
from explorer.analysis.equal_budget import EqualBudget, equal_budget
from explorer.audit.integrity import check_runs
from explorer.errors import StoreError, SweepError
from explorer.store import frames
from explorer.sweep.status import read_plan
from explorer.views import text
from explorer.views.answer import Answer, answer
from explorer.views.composed import composed
from explorer.views.question import Question, hardware_labels
from explorer.views.snapshot import read_snapshot

NOT_QUALITIES = ("lr", "train_loss")  # measured on the way, not what a recipe is judged by


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeLine:
    """A recipe in the table of recipes."""

    label: str
    methods: str
    budgets: tuple[float, ...]
    seeds: int
    full_quality: float | None  # mean over seeds at budget 1
    equal_budget: EqualBudget | None  # None for the baseline, and for controls: they stand in a table of their own


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One metric on one hardware."""

    hardware: str
    metric: str
    unit: str
    higher_is_better: bool
    answer: Answer
    recipes: tuple[RecipeLine, ...]
    controls: tuple[Controlled, ...]  # recipes beside their controls; empty where no control was run


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepContent:
    """The report's content."""

    sweep: str
    sentence: str
    sections: tuple[Section, ...]  # the first one is the sweep's own metric
    compositions: Mapping[str, Composition]  # by hardware, in the sweep's own metric; only where methods were combined
    integrity: str
    sound: bool
    findings: tuple[str, ...]  # what the integrity check found, run by run
    facts: Mapping[str, str]
    step_times: pd.DataFrame  # recipe (and phase, where it has several), part of a step, seconds; may be empty
    specification: Mapping[str, Any] | None  # None: the sweep's directory has none
    database_sha256: str


def gather(runs: Path, sweep: str) -> SweepContent:
    """Gather the content from the published database and the run directories.

    Raises `StoreError` if the sweep is unknown or has no finished run, and what the integrity check raises.
    """
    snapshot = read_snapshot(runs)
    results = frames.results(snapshot.database, sweep=sweep)
    if results.empty:
        raise StoreError(f"sweep {sweep!r} has no finished run yet; `explorer sweep status` says where it stands")
    snapshot = replace(snapshot, results=results, metrics=_metrics(snapshot.database, results, sweep))
    sections = tuple(
        _section(answer(snapshot, Question(sweep=sweep, hardware=hardware, metric=metric)))
        for hardware in dict.fromkeys(hardware_labels(results))
        for metric in snapshot.metrics
    )
    compositions = {
        section.hardware: composed(snapshot, section.answer.question)
        for section in sections
        if section.metric == sections[0].metric
    }
    checked = check_runs(runs, sweep=sweep)
    profiles = frames.profiles(snapshot.database, sweep=sweep)
    return SweepContent(
        sweep=sweep,
        sentence=sections[0].answer.sentence,
        sections=sections,
        compositions={where: found for where, found in compositions.items() if found.recipes or found.measured_pairs},
        integrity=checked.sentence,
        sound=checked.sound,
        findings=tuple(f"{run.directory.name}: {found.message}" for run in checked.runs for found in run.findings),
        facts=_facts(results, profiles, sections[0].answer),
        step_times=_step_times(profiles),
        specification=_specification(runs / sweep),
        database_sha256=snapshot.sha256,
    )


def _metrics(database: Path, results: pd.DataFrame, sweep: str) -> tuple[str, ...]:
    """The metrics to report on, the sweep's own first."""
    found = frames.qualities(database, sweep=sweep)["metric"].unique()
    return tuple(dict.fromkeys([results["metric"].iloc[0], *(m for m in sorted(found) if m not in NOT_QUALITIES)]))


def _section(found: Answer) -> Section:
    rows = found.rows
    budgets = {
        result.label: result
        for result in equal_budget(rows, baseline=found.question.baseline, x=found.question.paid_in.column)
    }
    return Section(
        hardware=found.question.hardware,
        metric=found.question.metric,
        unit=rows["unit"].iloc[0],
        higher_is_better=bool(rows["higher_is_better"].iloc[0]),
        answer=found,
        recipes=tuple(
            _recipe(label, found, budgets.get(label)) for label in (found.scene.recipes if found.scene else ())
        ),
        controls=tuple(controlled(rows)),
    )


def _recipe(label: str, found: Answer, comparison: EqualBudget | None) -> RecipeLine:
    assert found.scene is not None  # its recipes are being listed
    runs = found.scene.runs[found.scene.runs["recipe"] == label]
    full = runs.loc[runs["ssr"] == 1.0, "y"]
    return RecipeLine(
        label=label,
        methods=str(runs["methods"].iloc[0]).replace("+", " + ") or "none",
        budgets=tuple(sorted(runs["ssr"].unique())),
        seeds=runs["seed"].nunique(),
        full_quality=None if full.empty else float(full.mean()),
        equal_budget=comparison,
    )


def _facts(results: pd.DataFrame, profiles: pd.DataFrame, first: Answer) -> dict[str, str]:
    sources = sorted(results["time_source"].dropna().unique())
    return {
        "Task": f"{_each(results['model'])} on {_each(results['dataset'])}",
        "Hardware": "; ".join(dict.fromkeys(hardware_labels(results))),
        "Precision, batch size": f"{_each(results['precision'])}, {_each(results['batch_size'])}",
        "PyTorch": _each(profiles["torch"]) if len(profiles) else "unknown: no profile",
        "Times": f"{' and '.join(sources) or 'unknown'}; {text.count(len(results), 'finished run')}",
        "Price": first.price,
        "Baseline": f"{first.question.baseline}, {_tuning(results)}",
    }


def _step_times(profiles: pd.DataFrame) -> pd.DataFrame:
    """The profiled step of every recipe, apart by what it is spent on: the slowest recipe first, phase by phase."""
    slowest = profiles.groupby("recipe")["seconds"].transform("max")
    ordered = profiles.assign(slowest=slowest).sort_values(
        ["slowest", "recipe", "seconds"], ascending=[False, True, False]
    )
    several = ordered.groupby("recipe")["phase"].transform("nunique") > 1
    names = ordered["recipe"].where(~several, ordered["recipe"] + ", " + ordered["phase"])
    rows = [
        (name, part, seconds)
        for name, split in zip(names, ordered["split"], strict=True)
        for part, seconds in split.items()
    ]
    return pd.DataFrame(rows, columns=["recipe", "part", "seconds"])


def _tuning(results: pd.DataFrame) -> str:
    known = results["tuning"].dropna()
    return "not tuned" if known.empty else f"tuned: {known.iloc[0]}"


def _each(column: pd.Series) -> str:
    return ", ".join(str(value) for value in dict.fromkeys(column))


def _specification(directory: Path) -> Mapping[str, Any] | None:
    try:
        return read_plan(directory)["spec"]
    except SweepError:
        return None  # runs that were copied here without their plan; the report says that it is not there

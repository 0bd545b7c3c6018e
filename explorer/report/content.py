"""What the report of a sweep says, gathered once and the same in every format."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from explorer.analysis.composition import Composition
from explorer.analysis.confirmed import Confirmation, Confirmed
from explorer.analysis.controls import Controlled, controlled
from explorer.analysis.equal_budget import EqualBudget
from explorer.audit.integrity import Integrity, check_runs
from explorer.errors import SweepError
from explorer.page import amounts
from explorer.planned import read_plan
from explorer.records import Metric, metric_of, tuning_words
from explorer.report import negative
from explorer.report.negative import Negative
from explorer.store import frames
from explorer.views.explorer.answer import Answer, answer
from explorer.views.explorer.choices import hardware_labels
from explorer.views.explorer.composition_rows import composed
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import read_snapshot

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
    kind: Metric
    answer: Answer
    recipes: tuple[RecipeLine, ...]
    controls: tuple[Controlled, ...]  # recipes beside their controls; empty where no control was run
    confirmations: tuple[Confirmation, ...]  # recipes of this sweep on fresh seeds, in sweeps of their own

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return self.kind.name

    @property
    def where(self) -> str:
        return f"{self.metric} on {self.hardware}"


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerHead:
    """The ledger of a governed run as it was read. Nobody has verified it here."""

    run: str
    origin: str
    size: int
    root: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepContent:
    """The report's content."""

    sweep: str
    sentence: str
    sections: tuple[Section, ...]  # the first one is the sweep's own metric; none: no run has finished
    compositions: Mapping[str, Composition]  # by hardware, in the sweep's own metric; only where methods were combined
    integrity: str
    sound: bool
    findings: tuple[str, ...]  # what the integrity check found, run by run
    negatives: tuple[Negative, ...]
    ledgers: tuple[LedgerHead, ...]  # of governed runs
    facts: Mapping[str, str]
    step_times: pd.DataFrame  # recipe (and phase, where it has several), part of a step, seconds; may be empty
    specification: Mapping[str, Any] | None  # None: the sweep's directory has none
    database_sha256: str
    made: int  # seconds since 1970


def gather(runs: Path, sweep: str) -> SweepContent:
    """Gather the content from the published database and the run directories.

    A sweep without a finished run has no sections, and says why. Raises `StoreError` if the sweep is unknown, and what
    the integrity check raises.
    """
    snapshot = read_snapshot(runs)
    every = frames.runs(snapshot.database, sweep=sweep)
    states = every[~every["superseded"]]
    results = frames.results(snapshot.database, sweep=sweep)
    plan = _plan(runs / sweep)
    if results.empty:
        return _nothing(runs, sweep, every, plan=plan, database_sha256=snapshot.sha256)
    sections = tuple(
        _section(answer(snapshot, Question(sweep=sweep, hardware=hardware, metric=metric)))
        for hardware in dict.fromkeys(hardware_labels(results))
        for metric in _metrics(snapshot.facets, results, sweep)
    )
    compositions = {
        section.hardware: composed(snapshot, section.answer.question)
        for section in sections
        if section.metric == sections[0].metric
    }
    checked = check_runs(runs, sweep=sweep)
    profiles = frames.profiles(snapshot.database, sweep=sweep)
    profiles = profiles[profiles["recipe_digest"].isin(set(results["recipe_digest"]))]
    return SweepContent(
        sweep=sweep,
        sentence=sections[0].answer.sentence,
        sections=sections,
        negatives=tuple(_negatives(sections, states, sweep=sweep, plan=plan)),
        ledgers=_ledgers(frames.ledger_heads(snapshot.database, sweep=sweep)),
        compositions={where: found for where, found in compositions.items() if found.recipes or found.measured_pairs},
        integrity=checked.sentence,
        sound=checked.sound,
        findings=_findings(checked),
        facts=_facts(results, profiles, sections[0].answer) | _left_out(every),
        step_times=_step_times(profiles),
        specification=plan and plan["spec"],
        database_sha256=snapshot.sha256,
        made=int(time.time()),
    )


def rate_of(section: Section) -> float | None:
    """What an hour of the section's machine costs in US dollars; None: no price."""
    return next(iter(section.answer.rates.values()), None)


def _nothing(
    runs: Path, sweep: str, every: pd.DataFrame, *, plan: Mapping[str, Any] | None, database_sha256: str
) -> SweepContent:
    """The content of a sweep that has no finished run of its present specification."""
    states = every[~every["superseded"]]
    counts = states["state"].value_counts()
    found = ", ".join(f"{number} {state}" for state, number in counts.items()) or "none has started"
    checked = check_runs(runs, sweep=sweep)
    return SweepContent(
        sweep=sweep,
        sentence=f"no run has finished ({found}), so there is nothing to compare yet",
        sections=(),
        compositions={},
        integrity=checked.sentence,
        sound=checked.sound,
        findings=_findings(checked),
        negatives=tuple(_negatives((), states, sweep=sweep, plan=plan)),
        ledgers=(),
        facts={"Runs": found} | _left_out(every),
        step_times=_step_times(pd.DataFrame(columns=["recipe", "phase", "seconds", "split"])),
        specification=plan and plan["spec"],
        database_sha256=database_sha256,
        made=int(time.time()),
    )


def _negatives(
    sections: tuple[Section, ...], states: pd.DataFrame, *, sweep: str, plan: Mapping[str, Any] | None
) -> Iterator[Negative]:
    for section in sections:
        yield from negative.of_verdicts(section.answer.verdicts, where=section.where)
        yield from negative.of_controls(section.controls, where=section.where)
        for each in section.confirmations:
            if each.verdict is Confirmed.NOT_CONFIRMED:
                yield Negative(topic="not confirmed", subject=each.recipe, where=section.where, words=each.sentence)
    yield from negative.of_runs(states, where=sweep)
    if plan is not None:
        yield from negative.not_run([(each["name"], each["reason"]) for each in plan.get("not_run", ())], where=sweep)


def _findings(checked: Integrity) -> tuple[str, ...]:
    return tuple(f"{run.directory.name}: {found.message}" for run in checked.runs for found in run.findings)


def _ledgers(heads: pd.DataFrame) -> tuple[LedgerHead, ...]:
    return tuple(
        LedgerHead(run=str(row.run_id), origin=str(row.origin), size=int(str(row.size)), root=str(row.root))
        for row in heads.drop_duplicates("run_id").itertuples()
    )


def _metrics(facets: pd.DataFrame, results: pd.DataFrame, sweep: str) -> tuple[str, ...]:
    """The metrics to report on, the sweep's own first."""
    found = facets.loc[facets["sweep"] == sweep, "metric"].unique()
    return tuple(dict.fromkeys([results["metric"].iloc[0], *(m for m in sorted(found) if m not in NOT_QUALITIES)]))


def _section(found: Answer) -> Section:
    rows, asked = found.rows, found.question
    return Section(
        hardware=asked.hardware,
        kind=replace(metric_of(rows.iloc[0].to_dict()), name=asked.metric),
        answer=found,
        recipes=_recipes(found),
        controls=tuple(controlled(rows)),
        confirmations=tuple(each.confirmation for each in found.verdicts if each.confirmation is not None),
    )


def _recipes(found: Answer) -> tuple[RecipeLine, ...]:
    """The recipes in the order of the legend; where nothing is drawn, for no time is known, in that of the results."""
    beside = {result.label: result for result in found.budgets}
    runs = found.rows.rename(columns={"quality": "y"}) if found.scene is None else found.scene.runs
    labels = list(dict.fromkeys(runs["recipe"])) if found.scene is None else found.scene.recipes
    return tuple(_recipe(label, runs[runs["recipe"] == label], beside.get(label)) for label in labels)


def _recipe(label: str, runs: pd.DataFrame, comparison: EqualBudget | None) -> RecipeLine:
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
    predicted = int((results["time_source"] == "predicted").sum())
    times = [" and ".join(sources) or "unknown", amounts.count(len(results) - predicted, "finished run")]
    times += [f"{predicted:,} predicted for other hardware"] if predicted else []
    return {
        "Task": f"{_each(results['model'])} on {_each(results['dataset'])}",
        "Hardware": "; ".join(dict.fromkeys(hardware_labels(results))),
        "Precision, batch size": f"{_each(results['precision'])}, {_each(results['batch_size'])}",
        "PyTorch": _each(profiles["torch"]) if len(profiles) else "unknown: no profile",
        "Times": "; ".join(times),
        "Seeds": ", ".join(str(seed) for seed in sorted(results["seed"].unique())),
        "Price": first.price,
        "Baseline": f"{first.question.baseline}, {_tuning(results)}",
    }


def _left_out(every: pd.DataFrame) -> dict[str, str]:
    """What the report says of superseded runs, which are in none of its tables."""
    superseded = int(every["superseded"].sum())
    return {"Left out": f"{amounts.count(superseded, 'run')} of an earlier specification"} if superseded else {}


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
    known = [words for words in map(tuning_words, results["tuning"]) if words is not None]
    return f'tuning, in the author\'s words: "{known[0]}"' if known else "not tuned"


def _each(column: pd.Series) -> str:
    return ", ".join(str(value) for value in dict.fromkeys(column))


def _plan(directory: Path) -> Mapping[str, Any] | None:
    try:
        return read_plan(directory)
    except SweepError:
        return None  # runs that were copied here without their plan; the report says that it is not there

"""The section on how a sweep was measured: its hardware and software, the integrity of its runs, unknowns, and step
times."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from explorer.audit.integrity import check_runs
from explorer.page import amounts
from explorer.page.document import Block, Bullets, Column, Facts, Heading, Paragraph, Row, Span, Table, Text
from explorer.page.pictures import picture
from explorer.report.section import Section
from explorer.report.sweep.reported_sweep import ReportedSweep
from explorer.run_files import FAST, tuning_words
from explorer.schema import record
from explorer.store import frames
from explorer.views.explorer.choices import hardware_labels
from explorer.views.explorer.tabs.composition_charts import step_times
from explorer.views.explorer.tabs.run_cards import CLOCKS, COMMAND

MOST_BARS = 30  # more are too small to be read on a page

MEASURED = (
    "Training time counts only optimiser steps, without evaluation, checkpoints and the first steps. A hollow mark is "
    "a profiled time: the number of steps times the time of a step, measured recipe by recipe while nothing else "
    "trains; if the machine was busy, a warning says so. Nothing is extrapolated: a target that no tested budget "
    "reached counts as not reached."
)
OF_COMMANDS = (
    "A command has no step times of its own, so no run of it is profiled: it has a training time only if nothing else "
    "ran on the machine meanwhile. Nothing is extrapolated: a target that no tested budget reached counts as not "
    "reached."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerHead:
    """The ledger of a governed run as it was read. Nobody has verified it here."""

    run: str
    origin: str
    size: int
    root: str


@record
class Checked:
    """Whether the runs are what their results say."""

    sound: bool
    summary: str
    findings: tuple[str, ...]


@record
class MeasuredRecord:
    """The conditions of measurement."""

    integrity: Checked
    ledgers: tuple[LedgerHead, ...]  # of governed runs
    facts: dict[str, str]


class MeasuredSection(Section[ReportedSweep, MeasuredRecord]):
    """The conditions of measurement."""

    record = MeasuredRecord

    def gather(self, sweep: ReportedSweep) -> MeasuredRecord:
        checked = check_runs(sweep.runs, sweep=sweep.name)
        findings = (f"{run.directory.name}: {finding.message}" for run in checked.runs for finding in run.findings)
        return MeasuredRecord(
            integrity=Checked(sound=checked.sound, summary=checked.sentence, findings=tuple(findings)),
            ledgers=_heads(sweep) if sweep.metrics else (),
            facts=_facts(sweep),
        )

    def blocks(self, record: MeasuredRecord, sweep: ReportedSweep) -> list[Block]:
        checked = record.integrity
        integrity: Text = checked.summary if checked.sound else (Span(checked.summary, "warn"),)
        blocks: list[Block] = [Heading(2, "How it was measured", "measured")]
        blocks.append(Facts([*record.facts.items(), ("Integrity", integrity)]))
        if checked.findings:
            blocks.append(Bullets(checked.findings, "warning"))
        blocks.append(Paragraph(OF_COMMANDS if _clocks(sweep) else MEASURED, "note"))
        if unknown := _unknown(sweep):
            blocks += [Heading(3, "Unknowns"), Bullets(unknown)]
        if record.ledgers:
            blocks += [Heading(3, "Ledgers"), _ledgers(record.ledgers)]
        times = _step_times(sweep.profiles)
        if not times.empty:
            every = times["recipe"].nunique()
            slowest = times[times["recipe"].isin(list(dict.fromkeys(times["recipe"]))[:MOST_BARS])]
            caption = f"The {MOST_BARS} slowest of {every} steps." if every > MOST_BARS else ""
            blocks.append(Heading(3, "Where the time of a step goes"))
            blocks.append(picture("steps", partial(step_times, slowest), caption))
        return blocks


def _heads(sweep: ReportedSweep) -> tuple[LedgerHead, ...]:
    heads = frames.ledger_heads(sweep.snapshot.database, sweep=sweep.name).drop_duplicates("run_id")
    return tuple(
        LedgerHead(run=str(row.run_id), origin=str(row.origin), size=int(str(row.size)), root=str(row.root))
        for row in heads.itertuples()
    )


def _facts(sweep: ReportedSweep) -> dict[str, str]:
    superseded = int(sweep.every["superseded"].sum())
    left_out = {"Left out": f"{amounts.count(superseded, 'run')} of an earlier specification"} if superseded else {}
    if not sweep.metrics:
        return {"Runs": sweep.progress} | left_out
    results, profiles, first = sweep.results, sweep.profiles, sweep.metrics[0].answer
    sources = sorted(results["time_source"].dropna().unique())
    predicted = int((results["time_source"] == "predicted").sum())
    # Predicted times are estimates for another machine, so their runs are counted apart.
    times = [" and ".join(sources) or "unknown", amounts.count(len(results) - predicted, "finished run")]
    times += [f"{predicted:,} predicted for other hardware"] if predicted else []
    clocks, batches = _clocks(sweep), results["batch_size"].dropna()
    times += [f"timed by {CLOCKS.get(clock, clock)}" for clock in clocks]
    known = [words for words in map(tuning_words, results["tuning"]) if words is not None]
    tuning = f'tuned, according to its author: "{known[0]}"' if known else "not tuned"
    if (tuned := sweep.snapshot.tuned(sweep.name)) is not None:
        tuning = f"tuned by the sweep as {tuned.words}"
    return {
        "Task": f"{_values(results['model'])} on {_values(results['dataset'])}",
        **({"Trained by": COMMAND} if clocks else {}),
        "Hardware": "; ".join(dict.fromkeys(hardware_labels(results))),
        "Precision, batch size": f"{_values(results['precision'])}, {_values(batches.astype(int)) or 'unknown'}",
        **({} if clocks else {"PyTorch": _values(profiles["torch"]) if len(profiles) else "unknown: no profile"}),
        "Times": "; ".join(times),
        "Seeds": ", ".join(str(seed) for seed in sorted(results["seed"].unique())),
        **({"Gives up": FAST} if _is_fast(sweep.plan) else {}),
        "Price": first.price,
        "Baseline": f"{first.question.baseline}, {tuning}",
        **left_out,
    }


def _is_fast(plan: Mapping[str, Any] | None) -> bool:
    """Return whether a recipe of the specification has kernels that add in no fixed order."""
    spec: Any = {} if plan is None else plan["spec"]
    recipes = spec.get("recipes")
    parts = [spec, *(recipes.values() if isinstance(recipes, Mapping) else ())]
    trains = [part.get("train") for part in parts if isinstance(part, Mapping)]
    return any(isinstance(train, Mapping) and train.get("deterministic") == "fast" for train in trains)


def _clocks(sweep: ReportedSweep) -> list[str]:
    """Return how runs of a command or notebook were timed, keys of `CLOCKS`; empty for runs of recipes."""
    return sorted(sweep.every["clock"].dropna().unique())


def _values(column: pd.Series) -> str:
    return ", ".join(str(value) for value in dict.fromkeys(column))


def _unknown(sweep: ReportedSweep) -> list[str]:
    """List what a reader would want to know and is not recorded."""
    unknown = []
    # Hardware by hardware, by the first of its metrics: times and prices do not depend on the metric.
    for hardware, results in {results.hardware: results for results in reversed(sweep.metrics)}.items():
        rows, ratios = results.answer.rows, [comparison.inference_ratio for comparison in results.answer.comparisons]
        untimed = int(rows["train_seconds"].isna().sum())
        if untimed:
            runs = f"{amounts.count(untimed, 'run')} of {len(rows)}"
            why = "the machine was not theirs" if _clocks(sweep) else "no profile"
            unknown.append(f"Training time of {runs} on {hardware}: {why}.")
        if rows["usd_per_hour"].isna().all():
            unknown.append(f"Cost of a run on {hardware}: {results.answer.price}.")
        if not any(map(tuning_words, rows["tuning"])):
            unknown.append("Quality of a tuned baseline: no search for its settings is recorded.")
        if any(ratio is None or math.isnan(ratio) for ratio in ratios):
            unknown.append(f"Inference time of some recipes on {hardware}: their profiles do not have it.")
        if rows["seed"].nunique() == 1:
            unknown.append(f"Effect of noise on a quality on {hardware}: there is only one seed.")
    if sweep.plan is None:
        unknown.append("The specification: the sweep's plan is not kept with its runs.")
    return list(dict.fromkeys(unknown))


def _ledgers(heads: tuple[LedgerHead, ...]) -> Table:
    rows = [Row((head.run, head.origin, f"{head.size:,}", (Span(head.root, "code"),))) for head in heads]
    columns = [Column("Run"), Column("Origin"), Column("Entries", number=True), Column("Root")]
    return Table(columns, rows, caption="The ledgers of governed runs, as they were read. They were not verified here.")


def _step_times(profiles: pd.DataFrame) -> pd.DataFrame:
    """Split the profiled step of every recipe by what it is spent on, in seconds, with the slowest recipe first.

    A recipe with several phases has a step for every phase.
    """
    columns = ["recipe", "part", "seconds"]
    if profiles.empty:
        return pd.DataFrame(columns=columns)
    # Recipes with the slowest step first: on a page that shows only some, these matter most.
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
    return pd.DataFrame(rows, columns=columns)

"""The verdicts on the recipes of a sweep, their controls and their composition, for `explorer results SWEEP`."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from explorer.analysis.across_sweeps import NOT_PAIRED, against
from explorer.analysis.advice import AFTER_LOOKING, advise
from explorer.analysis.axis_words import gain_span
from explorer.analysis.controls import controlled
from explorer.analysis.equal_quality import Call, EqualQuality, Outcome
from explorer.analysis.ladders import IMPORTED, Setting
from explorer.analysis.sentences import (
    busy_notes,
    call_words,
    composition_sentences,
    control_sentences,
    control_words,
    fresh_words,
    summary,
    time_notes,
)
from explorer.analysis.verdict import Verdict, sweep_verdicts
from explorer.cli.results import of_home, tell_left_out, tell_upkeep
from explorer.errors import ExplorerError, unknown
from explorer.page import amounts
from explorer.page.document import Block
from explorer.page.terminal import Answer, table
from explorer.planned import data_option_of
from explorer.store import frames
from explorer.store.frames import with_confirming
from explorer.store.published import database
from explorer.store.queries import Table
from explorer.sweep.workers import default_workers
from explorer.views.explorer.choices import hardware_labels
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import read_snapshot
from explorer.views.explorer.tabs.composition_rows import (
    composed,
    composition_json,
    effect_rows,
    pair_rows,
    recipe_rows,
    unidentified,
)

COLUMNS = ("time to target", "speedup", "interval", "reach rate", "verdict")


def verdict_blocks(
    runs: Path,
    sweep: str,
    *,
    metric: str | None = None,
    remarks: Iterable[Block | str] = (),
    data: Path | None = None,
) -> list[Block | str]:
    """Return the verdicts on a sweep's recipes, in training time: for each machine a sentence and a table.

    Quality is the sweep's own metric unless another is named. `remarks` come after the tables, and last what to do
    next, with the directory `data` of its data if it is known. Empty where there is nothing to compare.
    """
    where = database(runs)
    rows = frames.results(where, sweep=sweep, metric=metric)
    verdicts = sweep_verdicts(rows, with_confirming(where, sweep, metric=metric)) if len(rows) else []
    blocks: list[Block | str] = []
    steps: list[str] = []
    for setting in dict.fromkeys(verdict.comparison.setting for verdict in verdicts):
        # Times of different machines are never in one table: their ratio would say nothing of the recipes.
        here = [verdict for verdict in verdicts if verdict.comparison.setting == setting]
        mine = rows[(rows["hardware"] == setting.hardware) & (rows["threads"] == setting.threads)]
        mine = mine[mine["world_size"] == setting.world_size]
        blocks += _blocks(here, mine, setting)
        steps += next_lines(here, mine, runs=runs, data=data)
    return [*blocks, *remarks, *steps] if blocks else []


def next_lines(
    verdicts: Sequence[Verdict],
    rows: pd.DataFrame,
    *,
    runs: Path,
    recipe: str | None = None,
    data: Path | None = None,
) -> Iterator[str]:
    """Yield what to do next with the recipes of one setting, or with one of them, and its command as the last line."""
    first = verdicts[0].comparison.setting
    workers = default_workers(threads=first.threads, device=first.device)
    step = advise(verdicts, rows, workers=workers, recipe=recipe)
    if step is None:
        return
    yield f"\nnext: {step.sentence}"
    if step.after_looking:
        yield f"      {AFTER_LOOKING}"
    if command := step.command(*of_home(runs), *data_option_of(runs, step.sweep, data)):
        yield f"      {shlex.join(('explorer', *command))}"


def _blocks(verdicts: list[Verdict], rows: pd.DataFrame, setting: Setting) -> Iterator[Block | str]:
    # The fastest first, and those without a ratio at the end.
    verdicts.sort(key=lambda verdict: (verdict.comparison.ratio is None, verdict.comparison.ratio or 0.0))
    first = verdicts[0].comparison
    full = rows[rows["ssr"] == 1.0].groupby("recipe")["quality"].mean()
    columns = ("recipe", setting.metric, *COLUMNS)
    known = amounts.quality(full.get(first.baseline), setting.kind)
    one = "" if first.baseline_x is None else "1.00x"
    # The baseline is the first row: it is the target, and its speedup over itself is 1.
    shown = [(first.baseline, known, amounts.seconds(first.baseline_x), one, "", "", "baseline")]
    for verdict in verdicts:
        quality = amounts.quality(full.get(verdict.comparison.recipe), setting.kind)
        shown.append((verdict.comparison.label, quality, *_needed(verdict)))
    yield f"\n{summary(verdicts)}"
    yield table(columns, shown, right=columns[1:4])
    yield _note(
        first, setting, known=known, intervals=any(verdict.comparison.adjusted_low is not None for verdict in verdicts)
    )
    yield from busy_notes(rows)
    if IMPORTED in first.time_source:
        yield from time_notes([IMPORTED])


def _needed(verdict: Verdict) -> tuple[str, str, str, str, str]:
    """Return a recipe's cells: time to target, speedup, interval, share of resamples that reach it, verdict."""
    result = verdict.comparison
    reach = "" if result.reach_rate is None else f"{result.reach_rate:.0%}"
    parts = (f"{call_words(verdict)}{fresh_words(verdict)}", control_words(verdict))
    words = "; ".join(filter(None, parts))
    # Nothing is extrapolated: a recipe that does not reach the target has no time and no speedup.
    if result.outcome is not Outcome.REACHED or result.speedup is None:
        return "-", "", "", reach, words
    interval = "" if result.adjusted_low is None else gain_span(result.adjusted_low, result.adjusted_high)
    return amounts.seconds(result.recipe_x), amounts.ratio(result.speedup), interval, reach, words


def _note(first: EqualQuality, setting: Setting, *, known: str, intervals: bool) -> str:
    """Return the note below the table, which explains its columns. `known` is the baseline's quality in it."""
    # The target lies on a curve that never falls, so it is not the mean where a smaller budget was better.
    target = amounts.quality(first.target, setting.kind)
    fit = "" if target in (known, amounts.MISSING) else f" ({target}, monotone fit)"
    head = (
        f"{setting.machine}; {setting.metric}: mean over seeds at full budget; time to target: training time to reach"
        f" {first.baseline}'s{fit}"
    )
    if not intervals:
        return head
    family = max(first.family, 1)
    adjusted = f", adjusted for {family} comparisons (Bonferroni)" if family > 1 else ""
    moderated = ", noise of seeds moderated over the recipes" if first.moderated else ""
    return f"{head}; {first.confidence:.0%} intervals{adjusted}{moderated}"


def control_blocks(where: Path, results: Table) -> Iterator[str]:
    """Yield a sentence for each recipe that was run with controls: how much of its gain is left against them."""
    control, sweep = results.columns.index("control"), results.columns.index("sweep")
    for name in sorted({row[sweep] for row in results.rows if row[control]}):
        yield f"\ncontrols of {name}:"
        yield from (f"  {words}" for words in control_sentences(controlled(frames.results(where, sweep=name))))


# --- recipes of several sweeps, with one baseline ---


def show_across(runs: Path, against_sweep: str, *, sweep: str | None, metric: str | None) -> Answer:
    """Answer with the recipes of other sweeps, or of one of them, compared with the baseline of a sweep.

    Raises `ExplorerError` for a sweep or a metric that is not there.
    """
    tell_upkeep(runs)
    where = database(runs)
    base = frames.results(where, sweep=against_sweep, metric=metric)
    names = [against_sweep, sweep] if sweep is not None else [None]
    rows = pd.concat([frames.results(where, sweep=name, metric=metric) for name in names], ignore_index=True)
    # Rows of other metrics would only be grouped and then left out.
    rows = rows[rows["metric"].isin(base["metric"].unique()) & rows["dataset"].isin(base["dataset"].unique())]
    results = against(rows, sweep=against_sweep)
    return Answer(
        page=lambda: _across_blocks(results, against_sweep),
        record=lambda: [_across_json(result) for result in results],
    )


def _across_blocks(results: Sequence[EqualQuality], against_sweep: str) -> Iterator[Block | str]:
    if not results:
        yield f"no other sweep has results in the dataset and metric of {against_sweep}"
        return
    # The fastest first, and those without a ratio at the end.
    ordered = sorted(results, key=lambda result: (result.ratio is None, result.ratio or 0.0))
    columns = ("sweep", "recipe", "model", "time to target", "speedup", "interval", "verdict")
    shown = [
        (
            result.setting.sweep,
            result.label,
            result.setting.model,
            amounts.seconds(result.recipe_x),
            amounts.ratio(result.speedup) if result.outcome is Outcome.REACHED else "",
            "" if result.adjusted_low is None else gain_span(result.adjusted_low, result.adjusted_high),
            result.reason if result.call is Call.UNKNOWN else str(result.call),
        )
        for result in ordered
    ]
    first = ordered[0]
    yield table(columns, shown, right=columns[3:5])
    target = "" if first.target is None else f", {amounts.quality(first.target, first.setting.kind)} at full budget"
    yield f"against {first.baseline} of sweep {against_sweep} ({first.baseline_setting.machine}){target}"
    yield f"This is {NOT_PAIRED}."


def _across_json(result: EqualQuality) -> dict[str, Any]:
    return {
        "sweep": result.setting.sweep,
        "recipe": result.label,
        "model": result.setting.model,
        "baseline_sweep": result.baseline_setting.sweep,
        "baseline": result.baseline,
        "paired": False,
        "call": result.call,
        "target": result.target,
        "seconds": result.recipe_x,
        "ratio": result.ratio,
        "ratio_low": result.adjusted_low,
        "ratio_high": result.adjusted_high,
        "family": result.family,
        "n": result.n,
        "reason": result.reason,
    }


# --- how the methods of a sweep compose ---


def show_composition(runs: Path, sweep: str | None, *, metric: str | None, budget: float | None) -> Answer:
    """Answer with predicted and measured times, and the interaction of each pair, on each hardware of a sweep.

    Raises `ExplorerError` for a sweep, a metric or a budget that is not there.
    """
    tell_upkeep(runs)
    snapshot = read_snapshot(runs)
    known = list(dict.fromkeys(snapshot.facets["sweep"]))
    if sweep is None:
        raise ExplorerError(
            f"--composition is for one sweep: found none, expected its name; known: {', '.join(known) or 'none'}"
        )
    if sweep not in known:
        raise ExplorerError(unknown("sweep with finished runs", sweep, known))
    tell_left_out(runs, sweep)
    # A sweep can have been run on several machines: each is an answer of its own.
    rows = snapshot.facets[snapshot.facets["sweep"] == sweep]
    metrics = sorted(rows["metric"].unique())
    if metric is not None and metric not in metrics:
        raise ExplorerError(unknown("metric", metric, metrics))
    settings = dict.fromkeys(zip(rows["dataset"], rows["model"], hardware_labels(rows), strict=True))
    compositions = {
        hardware: composed(
            snapshot,
            Question(sweep=sweep, dataset=dataset, model=model, hardware=hardware, metric=metric or ""),
            ssr=budget,
        )
        for dataset, model, hardware in settings
    }
    return Answer(
        page=lambda: [
            block
            for index, (hardware, composition) in enumerate(compositions.items())
            for block in _composition_blocks(composition, hardware, space=index > 0)
        ],
        record=lambda: [
            {"sweep": sweep, "hardware": hardware, **composition_json(composition)}
            for hardware, composition in compositions.items()
        ],
    )


def _composition_blocks(composition: Any, hardware: str, *, space: bool) -> Iterator[Block | str]:
    at = f"budget {composition.ssr:g}" if composition.ssr is not None else "no budget"
    yield "\n" * space + f"{hardware}; {at}\n"
    by_parts = [
        row
        for row, recipe in zip(recipe_rows(composition), composition.recipes, strict=True)
        if recipe.by_parts is not None
    ]
    if by_parts:
        columns = ("recipe", "speedup", "predicted", "of predicted time", "interval")
        yield table(columns, [(name, *rest) for name, _, *rest in by_parts], right=columns[1:4])
    if composition.effects:
        rows = effect_rows(composition)
        columns = ("method", "effect on quality", "interval", "effect on time", "interval of time", "from", "Holm")
        if rows:
            yield table(columns, rows, right=("effect on quality", "effect on time"))
        yield from unidentified(composition)
    if composition.measured_pairs:
        metric = composition.kind.name if composition.kind else "quality"
        columns = ("pair", metric, "interval", "n", "time", "interval of time")
        rows = [(name, *rest) for name, *rest, _ in pair_rows(composition)]
        yield table(columns, rows, right=(metric, "n", "time"))
    names = tuple(f"{name}: " for name, *_ in by_parts)
    for words in composition_sentences(composition):
        if not words.startswith(names):  # those are rows of the table
            yield f"{words[:1].upper()}{words[1:]}."
    if composition.reason is None and not composition.recipes and not composition.measured_pairs:
        yield "No recipe combines methods that it adds to the baseline; `compose: {each_of: ..., pairs_of: ...}` would."

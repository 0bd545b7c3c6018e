"""The charts of a sweep that a reader changes: metric, x axis, recipes, scales; and the page that consists of them."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd

import explorer
from explorer.page.amounts import dollars
from explorer.page.document import Block, Facts, Heading, Page, Paragraph, Picture, Span, Text, sentence
from explorer.page.document import Fold as Folded
from explorer.provenance.spellings import format_time
from explorer.report.sweep.reported_sweep import NOT_QUALITIES, MetricResults, ReportedSweep
from explorer.run_files import PLAIN
from explorer.store.learning_curves import learning_curves, recorded_metrics
from explorer.views.explorer.answer import facts, warnings, where_words
from explorer.views.explorer.comparison_tables import comparison_table
from explorer.views.explorer.curves_chart import curves_chart, metric_named
from explorer.views.explorer.tradeoff import describe, tradeoff
from explorer.views.offline import Measured, learning, offline_spec, tradeoffs

MOST_CURVES = 8  # metrics with learning curves in a page
HEIGHT = 400


def live_tradeoffs(results: Sequence[MetricResults]) -> dict[str, Any]:
    """Return the tradeoff chart of results of one machine, by metric."""
    rows = {entry.metric: entry.answer.rows for entry in results}
    targets = {entry.metric: entry.answer.target for entry in results}
    first = results[0].answer
    return offline_spec(
        tradeoffs(rows, targets), look=first.look, baseline=first.question.baseline, log_x=True, points=True
    )


def offline_page(sweep: ReportedSweep) -> Page:
    """Return the page of a sweep that works without a kernel and without a network."""
    return Page(
        title=f"Sweep {sweep.name}",
        subtitle=sentence(sweep.sentence, names=[label for results in sweep.metrics[:1] for label in results.labels]),
        blocks=list(_blocks(sweep)),
        facts=(
            ("Explorer", f"{explorer.__version__}, from finished runs only"),
            ("Made", format_time(sweep.made)),
            ("Database", (Span(f"sha256:{sweep.snapshot.sha256}", "code"),)),
        ),
        made=sweep.made,
    )


def _blocks(sweep: ReportedSweep) -> Iterator[Block]:
    if not sweep.metrics:
        yield Paragraph("No run has finished yet.", "empty")
        return
    machines = dict.fromkeys(results.hardware for results in sweep.metrics)
    for number, machine in enumerate(machines, start=1):
        # Times of different machines are never in one chart: their ratio would say nothing of the recipes.
        here = [results for results in sweep.metrics if results.hardware == machine]
        yield from _machine(here, number, several=len(machines) > 1)
    yield from _curves(sweep)
    yield from _sources(sweep)


def _machine(here: Sequence[MetricResults], number: int, *, several: bool) -> Iterator[Block]:
    first = here[0]
    yield Paragraph(" \N{MIDDLE DOT} ".join(where_words(first.answer)), "note")
    yield from (Paragraph(words, "warning") for words in warnings(first.answer))
    if several:
        yield Heading(2, first.hardware, f"machine-{number}")
    if (scene := first.answer.scene) is not None:
        bars = ", a bar its interval" if scene.lines["low"].notna().any() else ""
        yield Picture(
            name=f"tradeoff-{number}",
            draw=lambda width: tradeoff(scene, width=width, height=HEIGHT),
            description=describe(scene),
            caption=f"A mark is the mean over seeds at a budget{bars}; dominated marks are faint, imported"
            " ones hollow.",
            interactive=True,
            live=partial(live_tradeoffs, here),
        )
    for results in here:
        asked = results.answer.question
        if not results.answer.comparisons:
            continue
        title = f"{results.metric}: {asked.paid_in.label.lower()} at equal quality, and quality in the same time"
        tables = comparison_table(
            results.answer.verdicts,
            results.answer.budgets,
            payment=asked.paid_in,
            look=results.answer.look,
            rates=results.answer.rates,
        )
        notes = [Paragraph(words, "note") for words in facts(results.answer)]
        if results is first:
            yield Heading(2, title, f"comparison-{number}")
            yield from tables
            yield from notes
        else:
            yield Folded(title, [*tables, *notes])


def _curves(sweep: ReportedSweep) -> Iterator[Block]:
    """Yield the learning curves, if runs recorded any."""
    database = sweep.snapshot.database
    known = recorded_metrics(database, sweep.name)
    # What is measured on the way has the longest curves, and comes first.
    names = sorted(known, key=lambda name: (name not in NOT_QUALITIES, metric_named(name).unit == PLAIN))[:MOST_CURVES]
    drawn = {name: learning_curves(database, name, sweep=sweep.name) for name in names}
    frames = {name: (metric_named(name, of=frame), frame) for name, frame in drawn.items()}
    measured = [entry for entry in learning(frames) if len(entry.rows) > 2]
    if not measured:
        return
    answer = sweep.metrics[0].answer
    kind, frame = frames[measured[0].kind.name]
    picture = partial(_curve_picture, frame[frame["ssr"] == 1.0], kind)
    yield Heading(2, "Learning curves", "curves")
    yield Picture(
        name="learning",
        draw=lambda width: picture(width=width),
        description=f"Learning curves of {kind.name}: the mean of each recipe over its seeds, at the full budget.",
        caption="Means over the seeds of each recipe, at the full budget.",
        interactive=True,
        live=lambda: _live_curves(measured, answer),
    )


def _live_curves(measured: Sequence[Measured], answer: Any) -> dict[str, Any]:
    return offline_spec(measured, look=answer.look, baseline=answer.question.baseline, log_x=False, points=False)


def _curve_picture(frame: pd.DataFrame, kind: Any, *, width: int | str) -> Any:
    return curves_chart(frame, metric=kind, width=width, interactive=False)


def _sources(sweep: ReportedSweep) -> Iterator[Block]:
    """Yield where the numbers come from: runs, times, prices, digests."""
    rows = sweep.results
    sources = rows["time_source"].fillna("unknown").value_counts()
    pairs: list[tuple[str, Text]] = [
        ("Runs", sweep.progress),
        ("Training times", ", ".join(f"{count} {source}" for source, count in sources.items())),
        ("Recipes", f"{rows['recipe_digest'].nunique()} different, by digest"),
    ]
    imported = sorted(str(words) for words in sweep.every["imported"].dropna().unique())
    pairs += [("Imported", words) for words in imported]
    for hardware, part in rows.groupby("hardware", sort=True):
        priced = part[part["usd_per_hour"].notna()]
        words = "no price"
        if len(priced):
            one = priced.iloc[0]
            dated = f" as of {one['price_as_of']}" if isinstance(one["price_as_of"], str) and one["price_as_of"] else ""
            words = f"{dollars(float(one['usd_per_hour']))}/h{dated}, {one['price_source']}"
        pairs.append((f"Price of {hardware}", words))
    ledgers = int(rows["ledger_root"].notna().sum())
    pairs.append(("Ledgers", f"{ledgers} of {len(rows)} runs keep one" if ledgers else "no run keeps one"))
    yield Heading(2, "Where the numbers come from", "sources")
    yield Facts(pairs)

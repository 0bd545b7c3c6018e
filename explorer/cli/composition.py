"""`explorer results SWEEP --composition`: how the methods of a sweep compose."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from explorer.analysis.sentences import composition_sentences
from explorer.cli.results import tell_left_out, tell_upkeep
from explorer.errors import ExplorerError, unknown
from explorer.page.document import Block
from explorer.page.terminal import Answer, table
from explorer.views.explorer.choices import hardware_labels
from explorer.views.explorer.composition_rows import composed, composition_json, pair_rows, recipe_rows
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import read_snapshot


def show_composition(runs: Path, sweep: str | None, *, metric: str | None, budget: float | None) -> Answer:
    """Show, for each hardware of a sweep, predicted and measured times, and the interaction of each pair.

    Raises `ExplorerError` for a sweep, a metric or a budget that is not there.
    """
    tell_upkeep(runs)
    snapshot = read_snapshot(runs)
    known = list(dict.fromkeys(snapshot.facets["sweep"]))
    if sweep is None:
        raise ExplorerError(f"--composition is of one sweep: say which; known: {', '.join(known) or 'none'}")
    if sweep not in known:
        raise ExplorerError(unknown("sweep with finished runs", sweep, known))
    tell_left_out(snapshot.database, sweep)
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
            for index, (hardware, each) in enumerate(compositions.items())
            for block in _blocks(each, hardware, space=index > 0)
        ],
        record=lambda: [
            {"sweep": sweep, "hardware": hardware, **composition_json(each)} for hardware, each in compositions.items()
        ],
    )


def _blocks(composition: Any, hardware: str, *, space: bool) -> Iterator[Block | str]:
    at = f"budget {composition.ssr:g}" if composition.ssr is not None else "no budget"
    yield "\n" * space + f"{hardware}; {at}\n"
    told = [
        row
        for row, recipe in zip(recipe_rows(composition), composition.recipes, strict=True)
        if recipe.by_parts is not None
    ]
    if told:
        columns = ("recipe", "speedup", "predicted", "of predicted time", "interval")
        yield table(columns, [(name, *rest) for name, _, *rest in told], right=columns[1:4])
    if composition.measured_pairs:
        metric = composition.kind.name if composition.kind else "quality"
        columns = ("pair", metric, "interval", "n", "time", "interval of time")
        rows = [(name, *rest) for name, *rest, _ in pair_rows(composition)]
        yield table(columns, rows, right=(metric, "n", "time"))
    names = tuple(f"{name}: " for name, *_ in told)
    for words in composition_sentences(composition):
        if not words.startswith(names):  # the table says it
            yield f"{words[:1].upper()}{words[1:]}."
    if composition.reason is None and not composition.recipes and not composition.measured_pairs:
        yield "No recipe combines methods that it adds to the baseline: `compose: {each_of: ..., pairs_of: ...}` does."

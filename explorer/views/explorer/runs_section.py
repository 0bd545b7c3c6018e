"""Section on runs: those chosen by brush, click or from a list, as cards and as a table."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pandas as pd

from explorer.errors import ExplorerError
from explorer.page import amounts, theme
from explorer.page.document import Block, Column, Paragraph, Row, Table, clipped
from explorer.page.html import Markup, element, fragment
from explorer.run_files import metric_of
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.run_cards import CARDS, notebook, reproduce, run_cards, run_directory
from explorer.views.explorer.scene import Scene
from explorer.views.explorer.sections import Section
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.notebook import swatch

MAX_ROWS = 60

COLUMNS = (
    Column(title="Recipe"),
    Column(title="Budget", number=True),
    Column(title="Seed", number=True),
    Column(title="Quality", number=True),
    Column(title="Training time", number=True),
    Column(title="Cost", number=True),
    Column(title="Notebook"),
    Column(title="Train again"),
)


def selected(rows: pd.DataFrame, brush: dict[str, list[float]]) -> pd.DataFrame:
    """Return the rows inside the brushed rectangle, given as the ranges of x and y."""
    inside = pd.Series(True, index=rows.index)
    for field, limits in brush.items():
        inside &= rows[field].between(min(limits), max(limits))
    return rows[inside]


def runs_table(rows: pd.DataFrame, *, look: theme.Look, runs: Path, here: Path) -> Iterator[Block]:
    """Yield the rows as a table, in their order. `runs` is the directory of runs; links are relative to the directory
    `here`.

    Raises `StoreError` if the database places a run outside `runs`.
    """
    shown = rows.head(MAX_ROWS)
    if len(shown):
        yield Table(COLUMNS, [_row(row, look=look, runs=runs, here=here) for _, row in shown.iterrows()])
    if rest := len(rows) - len(shown):
        yield Paragraph(f"and {amounts.count(rest, 'more run')}; the export has all of them", "note")


def _row(run: pd.Series, *, look: theme.Look, runs: Path, here: Path) -> Row:
    directory = run_directory(runs, run["directory"])
    return Row(
        cells=(
            swatch(run["recipe"], look),
            f"{run['ssr']:g}",
            str(run["seed"]),
            amounts.quality(run["y"], metric_of(run.to_dict())),
            amounts.seconds(run["train_seconds"]),
            "no price" if amounts.missing(run["usd_per_hour"]) else amounts.dollars(run["cost_usd"]),
            notebook(directory, here=here),
            reproduce(directory, here=here),
        )
    )


LISTED = 400  # runs in the list; a brush or a filter makes them fewer


class RunsSection(Section):
    """Runs chosen by brush, by click, or from a list that the keyboard reaches."""

    key, title = "runs", "Runs"

    def __init__(self, ask: Callable[..., None]) -> None:
        self.list = widgets.SelectMultiple(description="Runs (Ctrl adds)", rows=6)
        self.list.observe(self._chosen, "value")
        self._cards, self._table = widgets.HTML(), widgets.HTML()
        fields = widgets.Box([self.list.add_class("x-recipes")]).add_class("x-controls")
        super().__init__(ask, [fields, self._cards, self._table])

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Show the chosen runs, or how to choose some."""
        scene = answer.scene
        if scene is None:
            raise ExplorerError("No run is drawn, so there is none to choose.")
        listed = chosen_rows(answer)
        self._offer(listed, scene, answer.question.chosen)
        # Single runs that were clicked come first; with only a brush, the first runs inside it.
        cards = scene.runs[scene.runs["directory"].isin(answer.question.chosen)]
        if cards.empty and answer.question.brush:
            cards = listed.head(CARDS)
        here, look = Path.cwd(), answer.look
        shown: Iterable[Block | Markup] = [Paragraph(hint(scene), "note")]
        if len(cards):
            shown = run_cards(cards, database=snapshot.database, runs=snapshot.runs, here=here, look=look)
        self._cards.value, self._table.value = fragment(*shown), ""
        if answer.question.brush:
            heading = element("p", f"{amounts.count(len(listed), 'run')} selected", class_="x-heading")
            self._table.value = fragment(heading, *runs_table(listed, look=look, runs=snapshot.runs, here=here))

    def _offer(self, rows: pd.DataFrame, scene: Scene, chosen: tuple[str, ...]) -> None:
        with self.quiet:
            # Options are set only when they change: setting them clears the selection and the scroll position.
            listed = rows.loc[:, ["directory", "recipe", "ssr", "seed", "y"]].head(LISTED)
            options = [
                (_words(recipe, ssr, seed, scene, quality), directory)
                for directory, recipe, ssr, seed, quality in listed.itertuples(index=False)
            ]
            if tuple(self.list.options) != tuple(options):
                self.list.options = tuple(options)
            known = {directory for _, directory in options}
            self.list.value = tuple(directory for directory in chosen if directory in known)

    def _chosen(self, _: Any) -> None:
        if not self.quiet:
            self.ask(chosen=tuple(self.list.value)[:CARDS])


def chosen_rows(answer: Answer) -> pd.DataFrame:
    """Return the runs of an answer's scene that are inside the brush; all of them without a brush."""
    scene, brush = answer.scene, answer.question.brush
    assert scene is not None  # the callers check
    if len(brush) != 4:  # no brush, or one from a hand-written token
        return scene.runs
    return selected(scene.runs, {"x": list(brush[:2]), "y": list(brush[2:])})


def hint(scene: Scene) -> str:
    """Return the sentence on how to choose runs."""
    return (
        f"All {amounts.count(len(scene.runs), 'run')} are shown. Drag over the chart to list some of them here, click"
        " one, or choose it from the list: its card shows the settings, the cost and the command to repeat it."
    )


def _words(recipe: str, ssr: float, seed: int, scene: Scene, quality: float) -> str:
    reached = amounts.quality(quality, scene.kind)
    return f"{clipped(recipe, 40)} · budget {ssr:g} · seed {seed} · {reached}"

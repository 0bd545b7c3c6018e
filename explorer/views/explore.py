"""The explorer: choose, look, brush, export. `explore()` is the one call in `notebooks/explore.ipynb`."""

import os
import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pandas as pd
from markupsafe import Markup

from explorer.errors import ExplorerError
from explorer.views import text
from explorer.views.answer import Answer, answer
from explorer.views.composition_panel import CompositionPanel
from explorer.views.control_rows import controls_of
from explorer.views.controls import Controls
from explorer.views.equal_quality import equal_quality_table
from explorer.views.exports import FORMATS, Format, export
from explorer.views.fit import Fit, empty_chart
from explorer.views.notes import notes
from explorer.views.question import Question
from explorer.views.selection import runs_table, selected
from explorer.views.snapshot import Snapshot, read_snapshot
from explorer.views.tables import CSS
from explorer.views.tradeoff import BRUSH, tradeoff

HEIGHT = 360
PAPER = 720  # width of an exported chart


def explore(runs: str | Path | None = None, **preset: Any) -> "Explorer":
    """Open the explorer on a directory of runs: `runs`, or else $EXPLORER_RUNS, or else `runs/` beside `notebooks/`.

    `preset` are fields of `Question`: what is chosen when it opens.
    """
    return Explorer(runs_directory(runs), question=Question(**preset))


def runs_directory(runs: str | Path | None) -> Path:
    """The directory of runs that a notebook means."""
    return Path(runs or os.environ.get("EXPLORER_RUNS") or Path.cwd().parent / "runs")


class Explorer(widgets.VBox):
    """The whole view. `question` is what is asked now and `shown` the rows that are listed and exported."""

    def __init__(self, runs: Path, *, question: Question) -> None:
        self.question = question
        self.shown = pd.DataFrame()
        self._runs = runs
        self._snapshot: Snapshot | None = None
        self._answer: Answer | None = None
        self._brush: dict[str, list[float]] = {}
        self._head = widgets.HTML()
        self._controls = Controls(on_change=self.ask)
        self._chart = empty_chart(debounce_wait=150, max_wait=False)
        self._equal = widgets.HTML()
        self._listed = widgets.HTML()
        self._composition = CompositionPanel()
        self._said = widgets.HTML()
        super().__init__([widgets.HTML(Markup("<style>{}</style>").format(Markup(CSS))), *self._parts()])
        self.add_class("explorer")
        self.refresh()

    def refresh(self) -> None:
        """Read the published database again, and answer the same question from it."""
        try:
            self._snapshot = read_snapshot(self._runs)
        except ExplorerError as error:
            self._snapshot = None
            return self._show_nothing(str(error))
        if self._snapshot.results.empty:
            return self._show_nothing(f"There are no finished runs in {self._runs} yet.")
        return self.ask(self.question)

    def ask(self, question: Question) -> None:
        """Answer a question and show the answer."""
        if self._snapshot is None:
            return
        try:
            found = answer(self._snapshot, question)
        except ExplorerError as error:
            return self._show_nothing(str(error))
        self.question, self._answer, self._brush = found.question, found, {}
        self._controls.show(found.settled, target=found.target, price=_price_option(found))
        self._draw(found)

    def export(self, kind: Format, *, directory: Path | None = None) -> Path:
        """Write what is shown, by default into `exports/` beside the notebook, and return the file's path."""
        if self._answer is None or self._answer.scene is None or self._snapshot is None:
            raise ExplorerError("there is nothing to export: no finished run is shown")
        asked = self._answer.question
        moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        return export(
            kind,
            rows=self.shown,
            chart=tradeoff(self._answer.scene, width=PAPER),
            question=asked,
            target=self._answer.target,
            snapshot=self._snapshot,
            directory=directory or Path.cwd() / "exports",
            name=re.sub(r"[^\w.-]+", "-", f"{asked.sweep}-{asked.metric}-{asked.payment}-{moment}"),
        )

    def _parts(self) -> list[widgets.Widget]:
        refresh = _button("Refresh", tooltip="Read the results again")
        refresh.on_click(lambda _: self.refresh())
        buttons = [_button(kind.upper(), tooltip=f"Export what is shown as {kind.upper()}") for kind in FORMATS]
        for kind, button in zip(FORMATS, buttons, strict=True):
            button.on_click(partial(self._export_and_say, kind))
        head = widgets.HBox([self._head, refresh]).add_class("x-head")
        chart = widgets.VBox([Fit().add_class("x-fit"), self._chart]).add_class("x-chart")
        self._body = widgets.VBox(
            [
                self._controls,
                widgets.Box([chart, self._equal]).add_class("x-main"),
                widgets.HBox([self._said, *buttons]).add_class("x-exports"),
                self._listed,
                self._composition,
            ]
        ).add_class("x-body")
        return [head, self._body]

    def _draw(self, found: Answer) -> None:
        self._body.layout.display = ""
        self._head.value = _headline(found)
        self._said.value = ""
        assert self._snapshot is not None  # the answer was found in it
        self._composition.show(self._snapshot, found.question)
        if found.scene is None:
            self._chart.chart = None
            self._equal.value = Markup('<div class="x-empty">{}</div>').format(_unpaid(found))
            self._listed.value = ""
            return
        self._chart.chart = tradeoff(found.scene, height=HEIGHT, brush=True)
        self._chart.selections.observe(self._brushed, BRUSH)
        self._equal.value = (
            _heading(_equal_title(found))
            + equal_quality_table(
                found.comparisons,
                payment=found.question.paid_in,
                look=found.look,
                usd_per_hour=found.usd_per_hour,
            )
            + notes(found)
            + controls_of(found.rows)
        )
        self._list_runs(found)

    def _brushed(self, change: Any) -> None:
        if self._answer is None or self._answer.scene is None:
            return
        brushed = {name: list(limits) for name, limits in (change["new"].value or {}).items()}
        if "y" in brushed:
            brushed["y"] = [self._answer.scene.heights.drawn(place) for place in brushed["y"]]
        self._brush = brushed
        self._list_runs(self._answer)

    def _list_runs(self, found: Answer) -> None:
        if found.scene is None:
            return
        rows = found.scene.runs
        inside = selected(rows, self._brush) if self._brush else rows
        self.shown = inside.drop(columns=["x", "y", "hardware_label"], errors="ignore")
        if self._brush:
            table = runs_table(inside, look=found.look, runs=self._runs, here=Path.cwd())
            self._listed.value = _heading(f"{text.count(len(inside), 'run')} selected") + table
        else:
            hint = f"All {text.count(len(rows), 'run')} are shown. Drag over the chart to list some of them here."
            self._listed.value = Markup('<p class="x-note">{}</p>').format(hint)

    def _export_and_say(self, kind: Format, _: Any = None) -> None:
        try:
            path = self.export(kind)
        except ExplorerError as error:
            self._said.value = Markup('<span class="x-note x-warn" role="alert">{}</span>').format(str(error))
            return
        words = Markup('<span class="x-note" role="status">Wrote <code>{}</code></span>')
        self._said.value = words.format(os.path.relpath(path))

    def _show_nothing(self, reason: str) -> None:
        self._answer, self.shown = None, pd.DataFrame()
        self._body.layout.display = "none"
        self._head.value = Markup(
            '<div class="x-empty" role="status"><p class="x-answer">Nothing to show yet</p><p>{}</p>'
            "<p>To fill it: <code>explorer quickstart</code>, or <code>explorer sweep run SPEC</code> and then "
            "<code>explorer store ingest</code>. Then press Refresh.</p></div>"
        ).format(reason)


def _headline(found: Answer) -> Markup:
    rows, asked = found.settled.rows, found.question
    facts = [
        f"{asked.model} on {asked.dataset}",
        f"sweep {asked.sweep}",
        asked.hardware,
        text.count(len(rows), "finished run"),
    ]
    sentence = found.sentence[:1].upper() + found.sentence[1:]
    return Markup('<p class="x-answer" role="status">{}.</p><p class="x-note">{}</p>').format(
        sentence, " · ".join(facts)
    )


def _equal_title(found: Answer) -> str:
    label = found.question.paid_in.label
    if found.target is None or found.scene is None:
        return f"{label} at equal quality"
    return f"{label} to reach {found.scene.metric} {text.quality(found.target, found.scene.unit)}"


def _heading(words: str) -> Markup:
    return Markup('<p class="x-heading">{}</p>').format(words)


def _unpaid(found: Answer) -> str:
    label = found.question.paid_in.label.lower()
    return f"The {label} of these runs is not known yet: no profile of their recipes was measured."


def _price_option(found: Answer) -> str:
    rows = found.settled.rows.dropna(subset=["usd_per_hour"])
    if rows.empty:
        return "no price for this hardware"
    return f"{text.dollars(rows['usd_per_hour'].iloc[0])}/h, as of {rows['price_as_of'].iloc[0] or 'unknown date'}"


def _button(label: str, *, tooltip: str) -> widgets.Button:
    return widgets.Button(description=label, tooltip=tooltip, layout=widgets.Layout(width="auto"))

"""The ledger of a governed run, to look into. `ledger()` is the one call in `notebooks/ledger.ipynb`.

Everything is read from the run directory; nothing here can write there, and no torch is loaded.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import numpy as np
from markupsafe import Markup

from explorer.audit.history import directions
from explorer.audit.ledger_sums import is_confidential
from explorer.audit.shares import shares
from explorer.errors import ExplorerError
from explorer.recorded.blobs import Missing
from explorer.views import ledger_depth, ledger_direction, ledger_heat, ledger_timeline, text
from explorer.views.explore import runs_directory
from explorer.views.fit import Fit, empty_chart
from explorer.views.ledger_badge import badge_html, badge_words, simulated_note
from explorer.views.ledger_controls import LedgerControls, measure_buttons
from explorer.views.ledger_deletions import deletions_table
from explorer.views.ledger_entries import entries_table, entry_lines, proofs_html
from explorer.views.ledger_matrix import CELL
from explorer.views.ledger_runs import OpenRun, find_run, governed_runs, open_run
from explorer.views.ledger_steps import Steps
from explorer.views.tables import CSS


def ledger(runs: str | Path | None = None, run: str | None = None, trust: str | Path | None = None) -> "Ledger":
    """Open the ledger of a governed run: `run`, or else the newest one below the directory of runs that
    `explorer.views.explore` would open. `trust` is the trust file of those whom the reader believes."""
    return Ledger(runs_directory(runs), run=run, trust=None if trust is None else Path(trust))


class Ledger(widgets.VBox):
    """The whole view. `opened` is the run that is shown, or None."""

    def __init__(self, runs: Path, *, run: str | None, trust: Path | None) -> None:
        self.opened: OpenRun | None = None
        self._runs, self._known = runs, dict[str, Path]()
        self._head, self._entries, self._table = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self._deletions = widgets.HTML()
        self._controls = LedgerControls(
            trust="" if trust is None else str(trust),
            on_run=self._open,
            on_steps=self._draw_steps,
            on_cell=self._cell_chosen,
        )
        self._heat, self._depth = _Pane(ledger_heat.CAPTION), _Pane(ledger_depth.CAPTION)
        self._direction, self._time = _Pane(ledger_direction.CAPTION), _Pane(ledger_timeline.CAPTION)
        self._measure = measure_buttons()
        self._measure.observe(lambda _: self._draw_depth(), "value")
        super().__init__([widgets.HTML(Markup("<style>{}</style>").format(Markup(CSS))), *self._parts()])
        self.add_class("explorer")
        self._find(run)

    def _parts(self) -> list[widgets.Widget]:
        depth = widgets.VBox([_heading("Depth profile over training"), self._measure, self._depth])
        direction = widgets.VBox([_heading("Directions in the chosen layer"), self._direction])
        self._body = widgets.VBox(
            [
                self._controls,
                widgets.Box(
                    [widgets.VBox([_heading("Which class moved which layer"), self._heat]), self._entries]
                ).add_class("x-main"),
                widgets.Box([depth, direction]).add_class("x-halves").add_class("x-rule"),
                widgets.VBox([_heading("Decisions"), self._time, self._table]).add_class("x-rule"),
                widgets.VBox([_heading("What deleting each class takes"), self._deletions]).add_class("x-rule"),
            ]
        ).add_class("x-body")
        return [self._head.add_class("x-chart"), self._body]

    def _find(self, run: str | None) -> None:
        try:
            self._known = governed_runs(self._runs) if self._runs.is_dir() else {}
            if run is not None:
                path = find_run(self._runs, run)
                name = next((key for key, other in self._known.items() if other == path), str(path))
                self._known.setdefault(name, path)
            elif not self._known:
                return self._show_nothing(f"There is no governed run in {self._runs} yet.", hint=True)
            else:
                name = next(iter(self._known))
        except ExplorerError as error:
            return self._show_nothing(str(error), hint=True)
        self._controls.offer_runs(list(self._known), name)
        return self._open()

    def _open(self) -> None:
        directory = self._known[str(self._controls.run.value)]
        trust = self._controls.trust.value.strip()
        try:
            opened = open_run(directory, trust=Path(trust) if trust else None, now=int(time.time()))
        except ExplorerError as error:
            return self._show_nothing(str(error))
        self.opened = opened
        self._body.layout.display = ""
        self._head.value = _headline(opened)
        self._controls.offer(steps=len(opened.recorded), layers=opened.layers, classes=opened.classes)
        self._draw_steps()
        self._draw_depth()
        self._draw_decisions()
        return self._draw_deletions()

    def _draw_steps(self) -> None:
        """What depends on the stretch of steps: the heat map, the directions, the entries."""
        self._draw_heat()
        self._draw_cell()

    def _draw_heat(self) -> None:
        opened = self.opened
        if opened is None or not len(opened.recorded):
            return self._heat.say("No step is on record yet.")
        steps, (layer, class_) = self._controls.steps, self._controls.cell

        def draw() -> Any:
            found = shares(opened.ledger, steps)
            frame = ledger_heat.cells(found, opened.recorded)
            closed = is_confidential(opened.ledger) and np.isnan(found.share[found.steps > 0]).all()
            left_out = _left_out(len(opened.layers), len(ledger_heat.shown_layers(frame)))
            self._heat.remark(f"The shares are {Missing.SEALED}. {left_out}" if closed else left_out)
            return ledger_heat.heat_map(frame, chosen={"row": layer, "column": class_})

        self._heat.draw(draw)
        if self._heat.drawn:
            self._heat.chart.selections.observe(self._clicked, CELL)
        return None

    def _draw_cell(self) -> None:
        """What depends on the cell: its entries, and the directions in its layer."""
        opened, controls = self.opened, self._controls
        if opened is None or not len(opened.recorded):
            return
        (layer, class_), steps = controls.cell, controls.steps
        try:
            self._entries.value = _drilled(opened, layer, class_, steps)
        except ExplorerError as error:
            self._entries.value = _warning(str(error))
        place = opened.ledger.layer(layer)
        found_steps = ""

        def draw() -> Any:
            nonlocal found_steps
            found = directions(opened.ledger, steps)
            found_steps = f"{layer}, whole segments: steps {found.first:,} to {found.stop - 1:,}."
            return ledger_direction.direction_map(found, place)

        self._direction.draw(draw)
        self._direction.remark(found_steps)

    def _draw_depth(self) -> None:
        opened = self.opened
        if opened is None or not ledger_depth.is_drawn(opened.profiles):
            measured = opened is not None and opened.ledger.outline.profiles
            why = "Their numbers are not beside the ledger, or sealed." if measured else "The recipe measures none."
            return self._depth.say(f"There are no entropy profiles to show. {why}")
        measured = ledger_depth.profile_frame(opened.profiles)["step"].nunique()
        shown = min(measured, ledger_depth.MAX_LINES)
        self._depth.remark("" if shown == measured else f"{shown} of {measured} profiles are drawn.")
        measure = str(self._measure.value)
        return self._depth.draw(lambda: ledger_depth.depth_profile(opened.profiles, measure=measure))

    def _draw_decisions(self) -> None:
        opened = self.opened
        if opened is None:
            return
        found, steps = opened.decisions, len(opened.recorded)
        self._table.value = (
            ledger_timeline.decisions_table(found) if found else _note("The run decided nothing by itself.")
        )
        self._time.draw(lambda: ledger_timeline.timeline(found, phases=opened.recorded.phases, steps=steps))

    def _draw_deletions(self) -> None:
        if self.opened is None:
            return
        try:
            self._deletions.value = deletions_table(self.opened.ledger)
        except ExplorerError as error:
            self._deletions.value = _warning(str(error))

    def _clicked(self, change: Any) -> None:
        picked = change["new"].value or []
        if picked and self._controls.choose(picked[0]["row"], picked[0]["column"]):
            self._draw_cell()

    def _cell_chosen(self) -> None:
        self._draw_heat()
        self._draw_cell()

    def _show_nothing(self, reason: str, *, hint: bool = False) -> None:
        self.opened = None
        self._body.layout.display = "" if self._known else "none"
        for pane in (self._heat, self._depth, self._direction, self._time):
            pane.say("")
        self._entries.value = self._table.value = self._deletions.value = ""
        more = Markup("<p>To make one: <code>explorer quickstart</code>.</p>") if hint else Markup("")
        self._head.value = Markup(
            '<div class="x-empty" role="alert"><p class="x-answer">Nothing to show</p><p>{}</p>{}</div>'
        ).format(reason, more)


class _Pane(widgets.VBox):
    """A chart with its caption, or words in the place of both."""

    def __init__(self, caption: str) -> None:
        self.chart = empty_chart(debounce_wait=50, max_wait=False)
        self.drawn = False
        self._said, self._caption = widgets.HTML(), caption
        super().__init__([Fit().add_class("x-fit"), self.chart, self._said])
        self.add_class("x-chart")
        self.remark("")

    def draw(self, chart: Callable[[], Any]) -> None:
        """Show a chart, or say why it cannot be made."""
        try:
            made = chart()
        except ExplorerError as error:
            self.say(str(error))
            return
        self.chart.chart, self.drawn = made, True

    def remark(self, words: str) -> None:
        """The caption, with a sentence of the moment before it."""
        self._said.value = _note(f"{words} {self._caption}".strip())

    def say(self, words: str) -> None:
        """Words instead of a chart."""
        self.chart.chart, self.drawn = None, False  # pyright: ignore[reportAttributeAccessIssue]
        self._said.value = Markup('<p class="x-empty">{}</p>').format(words) if words else ""


def _headline(opened: OpenRun) -> Markup:
    genesis = opened.ledger.genesis
    facts = [
        text.count(len(opened.recorded), "step"),
        text.count(len(opened.classes), "class", "classes"),
        text.count(len(opened.layers), "layer"),
        f"ledger {opened.badge.origin}",
        f"root {opened.badge.root[:16]}",
        *(f"goes on from {parent.words}" for parent in genesis.parents),
    ]
    return (
        simulated_note(opened.classes)
        + Markup('<p class="x-answer">{}</p><p class="x-note">{}</p>').format(genesis.run, " · ".join(facts))
        + badge_html(badge_words(opened.badge))
    )


def _drilled(opened: OpenRun, layer: str, class_: str, steps: range) -> Markup:
    """The entries behind one cell and the proof of the first."""
    lines, total = entry_lines(opened.ledger, opened.recorded, layer=layer, class_=class_, steps=steps)
    title = Markup('<p class="x-heading">Entries behind {} in {}, steps {:,} to {:,}</p>').format(
        class_, layer, steps.start, steps.stop - 1
    )
    if not lines:
        return title + _note(no_numbers(opened.recorded, opened.ledger.class_(class_), steps))
    return (
        title
        + entries_table(lines, total)
        + proofs_html(opened.ledger, [line.index for line in lines], here=Path.cwd())
    )


def no_numbers(recorded: Steps, class_: int, steps: range) -> str:
    """Why a class has no numbers in these steps."""
    examples = int(recorded.examples[steps.start : steps.stop, class_].sum())
    if not examples:
        return "It had no examples in these steps."
    had = f"It had {text.count(examples, 'example')} in the batches and no numbers"
    if recorded.weights(steps)[class_].any():
        return f"{had}: what it contributed was not measured, or it was left out of training."
    return f"{had}: every layer was denied to it."


def _left_out(layers: int, shown: int) -> str:
    return "" if shown == layers else f"{shown} of {layers} layers are drawn; the menu has all of them."


def _heading(words: str) -> widgets.HTML:
    return widgets.HTML(Markup('<p class="x-heading">{}</p>').format(words))


def _note(words: str) -> Markup:
    return Markup('<p class="x-note">{}</p>').format(words)


def _warning(words: str) -> Markup:
    return Markup('<p class="x-note x-warn" role="alert">{}</p>').format(words)

"""Explorer: choose, look, select, share. `explore()` is the one call in `notebooks/explore.ipynb`."""

import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pandas as pd
from IPython.core.getipython import get_ipython
from IPython.display import clear_output

from explorer.analysis.across_sweeps import as_recorded
from explorer.errors import ExplorerError
from explorer.page import amounts
from explorer.page.document import Block, clipped
from explorer.page.html import Markup, element, fragment, style
from explorer.planned import left_out_words
from explorer.store import published, queries
from explorer.store.upkeep import bring_up
from explorer.views.explorer.answer import Answer, answer, chosen_rows, notes
from explorer.views.explorer.comparison_view import Comparison
from explorer.views.explorer.dock import Dock
from explorer.views.explorer.empty_page import EmptyPage
from explorer.views.explorer.figure import PAPER, Figure, chart_of
from explorer.views.explorer.headline import headline_html
from explorer.views.explorer.pulse import Pulse
from explorer.views.explorer.question import OF_HIGHLIGHTS, OF_SECTIONS, Question, changed, from_token
from explorer.views.explorer.sharing import Format, Sharing, button, export
from explorer.views.explorer.snapshot import Snapshot, read_snapshot
from explorer.views.explorer.survey import frontier_table
from explorer.views.explorer.tabs.ask_section import AskSection
from explorer.views.explorer.tabs.composition_section import CompositionSection
from explorer.views.explorer.tabs.confirm_section import ConfirmSection, advice_on
from explorer.views.explorer.tabs.controls_section import ControlsSection
from explorer.views.explorer.tabs.curves_section import CurvesSection
from explorer.views.explorer.tabs.ledger_section import LedgerSection
from explorer.views.explorer.tabs.run_cards import run_cards
from explorer.views.explorer.tabs.runs_section import RunsSection
from explorer.views.explorer.tabs.search_section import SearchSection
from explorer.views.explorer.tabs.sections import Sections
from explorer.views.explorer.tabs.tuning_section import TuningSection
from explorer.views.explorer.tabs.two_recipes_section import TwoRecipesSection
from explorer.views.explorer.tradeoff import Brush
from explorer.views.explorer.widgets import Controls
from explorer.views.notebook import runs_directory

SECTIONS = (
    CurvesSection,
    RunsSection,
    TwoRecipesSection,
    AskSection,
    ConfirmSection,
    ControlsSection,
    CompositionSection,
    SearchSection,
    TuningSection,
    LedgerSection,
)
"""The parts below the chart, in the order of their buttons."""


def explore(runs: str | Path | None = None, *, view: str | None = None, **preset: Any) -> "Explorer":
    """Open the explorer on a directory of runs: `runs`, or else $EXPLORER_RUNS, or else `runs/` next to `notebooks/`.

    `view` is the token of a view, or else $EXPLORER_VIEW; `preset` are fields of `Question` that are chosen when it
    opens. Raises `AnalysisError` for a token that is damaged, and for a field that there is not.
    """
    token = view or os.environ.get("EXPLORER_VIEW")
    question = changed(from_token(token) if token else Question(), preset)
    _say_reading(runs_directory(runs))
    return Explorer(runs_directory(runs), question=question)


class Explorer(widgets.VBox):
    """Whole view. `question` is the current question, `shown` holds the rows that are listed and exported."""

    def __init__(self, runs: Path, *, question: Question) -> None:
        self.question = question
        self.shown = pd.DataFrame()
        self._runs = runs
        self._snapshot: Snapshot | None = None
        self._answer: Answer | None = None
        self._remarks: tuple[str, ...] = ()  # on runs that the database lacks
        self._head = widgets.HTML()
        self._sharing = Sharing(export=self.export, on_open=self._open)
        self._controls = Controls(on_change=self._controlled, sharing=self._sharing)
        self._figure = Figure(on_brush=self._brushed, on_pick=self._picked, on_hover=self._hovered)
        self._comparison = Comparison(ask=self._change, on_hover=self._hovered, on_pick=self._picked_recipe)
        self._table = widgets.HTML()
        self._sections = Sections(SECTIONS, on_change=self.ask)
        self._dock = Dock(ask=self._change, titles={kind.key: kind.title for kind in SECTIONS})
        self._empty = EmptyPage(runs, on_end=self.refresh)
        self._pulse = Pulse(
            runs, sweep=lambda: self.question.sweep, on_growth=self._show_growth, on_results=self.refresh
        )
        super().__init__([widgets.HTML(style()), *self._parts(), self._empty])
        self.add_class("explorer")
        self.refresh()
        self._pulse.start()

    def refresh(self) -> None:
        """Read the published database again, and answer the same question from it."""
        try:
            self._remarks = bring_up(self._runs)
            self._snapshot = read_snapshot(self._runs)
        except ExplorerError as error:
            self._snapshot = None
            return self._show_nothing(str(error))
        if self._snapshot.facets.empty:
            return self._show_nothing(_without_results(self._snapshot))
        return self._answer_to(self.question)

    def ask(self, question: Question) -> None:
        """Answer a question and show the answer; parts of the page that it does not change stay as they are."""
        if self._snapshot is None:
            return
        # A click or a brush changes only the sections: drawing the chart again would take a second, and the brush.
        if self._answer is not None and _same_picture(question, self._answer.question):
            settled = replace(self._answer.settled, question=question)
            self.question, self._answer = question, replace(self._answer, settled=settled)
            self._show_sections()
        else:
            self._answer_to(question)

    def export(self, kind: Format, *, directory: Path | None = None) -> Path:
        """Write what is shown, by default into `exports/` next to the notebook, and return the file's path."""
        if self._answer is None or self._answer.scene is None or self._snapshot is None:
            raise ExplorerError("there is nothing to export: no finished run is shown")
        asked = self._answer.question
        moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        return export(
            kind,
            rows=self.shown,
            chart=chart_of(self._answer, width=PAPER),
            question=asked,
            target=self._answer.target,
            snapshot=self._snapshot,
            directory=directory or Path.cwd() / "exports",
            name=re.sub(r"[^\w.-]+", "-", f"{asked.sweep}-{asked.metric}-{asked.payment}-{moment}")[:120],
        )

    def _parts(self) -> list[widgets.Widget]:
        refresh = button("Refresh", tooltip="Read the results again")
        refresh.on_click(lambda _: self.refresh())
        head = widgets.HBox([self._head, refresh]).add_class("x-head")
        chart = widgets.VBox([self._figure]).add_class("x-chart-place")
        table = widgets.VBox([self._comparison, self._table]).add_class("x-table-place")
        # The style sheet places these by their class: side by side, or below one another in a narrow notebook.
        front = widgets.Box([self._controls, self._controls.panel, chart, table, self._dock]).add_class("x-main")
        self._body = widgets.VBox([front, self._sections.add_class("x-below")]).add_class("x-body")
        return [head, self._body]

    def _answer_to(self, question: Question) -> None:
        assert self._snapshot is not None  # the callers check
        if self._answer is not None and not _same_runs(question, self._answer.question):
            question = replace(question, brush=(), chosen=())  # they chose among other runs
            if question.across != self._answer.question.across:
                # A view that is widened keeps its baseline, and its recipes have other names now.
                question = replace(question, recipes=(), baseline_sweep=self._answer.question.sweep)
        try:
            shown = answer(self._snapshot, question)
        except ExplorerError as error:
            return self._show_nothing(str(error))
        self.question, self._answer = shown.question, shown
        self._body.layout.display, self._empty.layout.display = "", "none"
        self._head.value = headline_html(shown, [*self._remarks, *_left_out(self._snapshot, shown.question.sweep)])
        self._controls.show(shown.settled, target=shown.target, drawn=_drawn(shown), price=clipped(shown.price, 90))
        self._figure.show(shown)
        self._show_table(shown)
        return self._show_sections()

    def _show_table(self, shown: Answer) -> None:
        """Show the comparison, or in its place the only run, or why there is nothing to compare."""
        compares = shown.scene is not None and not shown.question.is_survey and len(shown.rows) > 1
        self._comparison.layout.display = "" if compares else "none"
        self._table.layout.display = "none" if compares else ""
        self._table.value = "" if compares else self._instead(shown)
        self._comparison.draw(shown if compares else None)

    def _instead(self, shown: Answer) -> Markup:
        """Return what takes the comparison's place: a survey's frontier, the only run, or why there is no chart."""
        snapshot = self._snapshot
        assert snapshot is not None  # `_answer_to` read it
        if shown.scene is not None and shown.question.is_survey:
            return fragment(frontier_table(shown.scene, shown.look), *notes(shown))
        parts: list[Block | Markup] = []
        if shown.scene is None:
            label = shown.question.paid_in.label.lower()
            words = f"The {label} of these runs is not known yet: measure a profile with `explorer sweep profile`."
            parts.append(element("div", words, class_="x-empty"))
        if len(shown.rows) == 1 and not shown.question.is_survey:
            database, runs = snapshot.database, snapshot.runs
            parts += run_cards(shown.rows, database=database, runs=runs, here=Path.cwd(), look=shown.look)
        return fragment(*parts)

    def _show_sections(self) -> None:
        shown, snapshot = self._answer, self._snapshot
        assert shown is not None and snapshot is not None  # `_answer_to` set both
        self.shown = _exported(shown)
        self._sharing.show(_to_share(shown))
        self._figure.pick(shown.question.chosen)
        self._figure.bands("all" if shown.question.bands else "selected")
        self._dock.draw(shown)
        self._offer_seeds(shown)
        self._sections.show(snapshot, shown)

    def _offer_seeds(self, shown: Answer) -> None:
        """Offer the runs that would decide an answer that does not tell, with their price; a press starts them."""
        step = advice_on(shown)
        if step is None:
            return self._dock.offer("", "", lambda: None)
        press = f"Run {amounts.count(step.effort.runs, 'run')}" if step.effort is not None else "Confirm"

        def decide() -> None:
            self._change(section="confirm")
            if step.effort is not None:
                self._sections.by_key["confirm"].start(step.recipe)  # pyright: ignore[reportAttributeAccessIssue]

        return self._dock.offer(f"{step.sentence}:", press, decide)

    def _open(self, question: Question) -> None:
        """Show a view that a colleague sent, with its brush."""
        # Without an answer nothing of the old view is kept, so that the chart is drawn with the brush of the new one.
        self._answer = None
        self._figure.forget()
        self._answer_to(question)

    def _controlled(self, question: Question) -> None:
        # The controls hold no field of the sections, and the question that they were shown may be older.
        self.ask(replace(question, **{name: getattr(self.question, name) for name in OF_SECTIONS}))

    def _brushed(self, brush: Brush) -> None:
        if self._answer is not None and brush != self._answer.question.brush:
            self._change(brush=brush, chosen=())

    def _picked(self, directories: list[str]) -> None:
        self._change(chosen=tuple(directories))

    def _picked_recipe(self, recipe: str) -> None:
        """Pick the runs of a recipe at its largest budget; a second press takes that back."""
        if self._answer is None or self._answer.scene is None:
            return
        runs = self._answer.scene.runs
        mine = runs[runs["recipe"] == recipe]
        largest = mine[mine["ssr"] == (1.0 if (mine["ssr"] == 1.0).any() else mine["ssr"].max())]
        names = tuple(map(str, largest["directory"]))
        self._change(brush=(), chosen=() if names == self._answer.question.chosen else names)

    def _hovered(self, recipe: str | None) -> None:
        self._figure.isolate(recipe)

    def _change(self, **fields: Any) -> None:
        if self._answer is not None:
            self.ask(replace(self._answer.question, **fields))

    def _show_growth(self) -> None:
        """Draw the curves of runs that are training, if their section is open."""
        if self._answer is not None and self._snapshot is not None and self._sections.opened.value == CurvesSection.key:
            self._sections.show(self._snapshot, self._answer)

    def _show_nothing(self, reason: str) -> None:
        self._answer, self.shown = None, pd.DataFrame()
        self._body.layout.display = "none"
        self._head.value = ""
        self._empty.show(reason)
        self._empty.layout.display = ""


def _say_reading(runs: Path) -> None:
    """Say in a notebook what is being read; the first output that follows takes the place of the words."""
    if get_ipython() is None:
        return
    try:
        counted = sum(queries.states(published.database(runs)).values())
    except ExplorerError:  # the page says why, once it is there
        return
    print(f"Reading {amounts.count(counted, 'run')} ...")
    clear_output(wait=True)


def _to_share(answer: Answer) -> Question:
    """Return the question to share, without what leaves no choice: all recipes by name, the only model."""
    choices = answer.settled.choices
    question = answer.question
    if set(question.recipes) == set(choices.recipes):
        question = replace(question, recipes=())
    only = {"dataset": choices.datasets, "model": choices.models, "hardware": choices.hardware}
    return replace(question, **{name: "" for name, offered in only.items() if len(offered) == 1})


def _same_picture(one: Question, other: Question) -> bool:
    return one.without(*OF_HIGHLIGHTS) == other.without(*OF_HIGHLIGHTS)


def _same_runs(one: Question, other: Question) -> bool:
    fields = ("dataset", "model", "sweep", "hardware", "metric", "payment")
    return all(getattr(one, field) in (getattr(other, field), "") for field in fields)


def _without_results(snapshot: Snapshot) -> str:
    """Return a sentence on the runs of a directory without a finished one."""
    counts = queries.states(snapshot.database)
    if not counts:
        return f"There are no runs in {snapshot.runs} yet."
    words = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
    return f"There are no finished runs in {snapshot.runs} yet: {words}. `explorer sweep status` shows why."


def _exported(answer: Answer) -> pd.DataFrame:
    """Return the rows to export: the runs inside the brush, or in a survey the means."""
    if answer.scene is None:
        return pd.DataFrame()
    rows = answer.rows if answer.question.is_survey else chosen_rows(answer)
    if answer.question.across and not answer.question.is_survey:
        rows = as_recorded(rows)
    return rows.drop(columns=["x", "y", "series", "group", "hardware_label"], errors="ignore")


def _left_out(snapshot: Snapshot, sweep: str) -> list[str]:
    """Return the remark on the superseded runs of the sweep, if it has any."""
    counts = snapshot.remember("left out", lambda: queries.left_out(snapshot.database))
    return [left_out_words(count, name) for name, count in counts.items() if sweep == name]


def _drawn(answer: Answer) -> pd.DataFrame | None:
    """Return the marks of the chart, whose qualities bound a target; None without a chart."""
    scene = answer.scene
    return None if scene is None else scene.runs if len(scene.runs) else scene.means

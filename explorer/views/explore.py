"""The explorer: choose, look, select, share. `explore()` is the one call in `notebooks/explore.ipynb`."""

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pandas as pd

from explorer.errors import ExplorerError
from explorer.page import amounts
from explorer.page.document import Paragraph, clipped, one_line
from explorer.page.html import Markup, element, fragment, style
from explorer.planned import left_out_words
from explorer.store import queries
from explorer.store.upkeep import bring_up
from explorer.views.explorer.answer import Answer, answer, headline, notes, where_words
from explorer.views.explorer.ask_section import AskSection
from explorer.views.explorer.comparison_tables import comparison_table
from explorer.views.explorer.composition_section import CompositionSection
from explorer.views.explorer.confirm_section import ConfirmSection
from explorer.views.explorer.controls_section import ControlsSection
from explorer.views.explorer.figure import PAPER, Figure, chart_of
from explorer.views.explorer.question import ALL, Question, from_token
from explorer.views.explorer.runs_section import RunsSection, chosen_rows
from explorer.views.explorer.sections import Sections
from explorer.views.explorer.sharing import Format, Sharing, button, export
from explorer.views.explorer.snapshot import Snapshot, read_snapshot
from explorer.views.explorer.survey import frontier_table
from explorer.views.explorer.tradeoff import Brush
from explorer.views.explorer.two_recipes_section import TwoRecipesSection
from explorer.views.explorer.widgets import Controls
from explorer.views.notebook import runs_directory

SECTIONS = (RunsSection, TwoRecipesSection, AskSection, ConfirmSection, ControlsSection, CompositionSection)
"""What is below the chart, in the order of its buttons."""

OF_THE_SECTIONS = {"brush": (), "chosen": (), "versus": (), "section": ""}
"""Fields of a question that change nothing above the sections, with their defaults."""


def explore(runs: str | Path | None = None, *, view: str | None = None, **preset: Any) -> "Explorer":
    """Open the explorer on a directory of runs: `runs`, or else $EXPLORER_RUNS, or else `runs/` beside `notebooks/`.

    `view` is the token of a view, or else $EXPLORER_VIEW; `preset` are fields of `Question`: what is chosen when it
    opens. Raises `AnalysisError` for a token that is damaged.
    """
    token = view or os.environ.get("EXPLORER_VIEW")
    question = from_token(token) if token else Question()
    return Explorer(runs_directory(runs), question=replace(question, **preset))


class Explorer(widgets.VBox):
    """The whole view. `question` is what is asked now and `shown` the rows that are listed and exported."""

    def __init__(self, runs: Path, *, question: Question) -> None:
        self.question = question
        self.shown = pd.DataFrame()
        self._runs = runs
        self._snapshot: Snapshot | None = None
        self._answer: Answer | None = None
        self._told: tuple[str, ...] = ()  # what the database lacks
        self._head = widgets.HTML()
        self._controls = Controls(on_change=self._controlled)
        self._figure = Figure(on_brush=self._brushed, on_pick=self._picked)
        self._table = widgets.HTML()
        self._sharing = Sharing(export=self.export, on_open=self._open)
        self._sections = Sections(SECTIONS, on_change=self.ask)
        super().__init__([widgets.HTML(style()), *self._parts()])
        self.add_class("explorer")
        self.refresh()

    def refresh(self) -> None:
        """Read the published database again, and answer the same question from it."""
        try:
            self._told = bring_up(self._runs)
            self._snapshot = read_snapshot(self._runs)
        except ExplorerError as error:
            self._snapshot = None
            return self._show_nothing(str(error))
        if self._snapshot.facets.empty:
            return self._show_nothing(_without_results(self._snapshot))
        return self._answer_to(self.question)

    def ask(self, question: Question) -> None:
        """Answer a question and show the answer; what it does not change stays as it is on the page."""
        if self._snapshot is None:
            return
        if self._answer is not None and _same_picture(question, self._answer.question):
            settled = replace(self._answer.settled, question=question)
            self.question, self._answer = question, replace(self._answer, settled=settled)
            self._show_sections()
        else:
            self._answer_to(question)

    def export(self, kind: Format, *, directory: Path | None = None) -> Path:
        """Write what is shown, by default into `exports/` beside the notebook, and return the file's path."""
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
        self._body = widgets.VBox(
            [
                self._controls,
                widgets.Box([self._figure, self._table]).add_class("x-main"),
                self._sharing,
                self._sections,
            ]
        ).add_class("x-body")
        return [head, self._body]

    def _answer_to(self, question: Question) -> None:
        assert self._snapshot is not None  # the caller looked
        if self._answer is not None and not _same_runs(question, self._answer.question):
            question = replace(question, brush=(), chosen=())  # they were about other runs
        try:
            found = answer(self._snapshot, question)
        except ExplorerError as error:
            return self._show_nothing(str(error))
        self.question, self._answer = found.question, found
        self._body.layout.display = ""
        self._head.value = _head(found, [*self._told, *_left_out(self._snapshot, found.question.sweep)])
        self._controls.show(found.settled, target=found.target, price=clipped(found.price, 90))
        self._figure.show(found)
        self._table.value = _table(found)
        return self._show_sections()

    def _show_sections(self) -> None:
        found, snapshot = self._answer, self._snapshot
        assert found is not None and snapshot is not None  # an answer was found
        self.shown = _exported(found)
        self._sharing.show(_to_share(found))
        self._sections.show(snapshot, found)

    def _open(self, question: Question) -> None:
        """Show a view that somebody sent, brush included."""
        self._answer = None
        self._figure.forget()
        self._answer_to(question)

    def _controlled(self, question: Question) -> None:
        """Controls know nothing of the sections."""
        self.ask(replace(question, **{name: getattr(self.question, name) for name in OF_THE_SECTIONS}))

    def _brushed(self, brush: Brush) -> None:
        if self._answer is not None and brush != self._answer.question.brush:
            self.ask(replace(self._answer.question, brush=brush, chosen=(), section=""))

    def _picked(self, directories: list[str]) -> None:
        if self._answer is not None and directories:
            self.ask(replace(self._answer.question, chosen=tuple(directories), section=""))

    def _show_nothing(self, reason: str) -> None:
        self._answer, self.shown = None, pd.DataFrame()
        self._body.layout.display = "none"
        how = ("To fill it: ", "explorer quickstart", ", or ", "explorer sweep run SPEC", " and then ")
        how += ("explorer store ingest", ". Then press Refresh.")
        self._head.value = element(
            "div",
            element("p", "Nothing to show yet", class_="x-answer"),
            element("p", one_line(reason)),
            element("p", *(element("code", words) if at % 2 else words for at, words in enumerate(how))),
            class_="x-empty",
            role="status",
        )


def _to_share(found: Answer) -> Question:
    """The question as a colleague should have it: all recipes here are all recipes there."""
    every = set(found.question.recipes) == set(found.settled.choices.recipes)
    return replace(found.question, recipes=()) if every else found.question


def _same_picture(one: Question, other: Question) -> bool:
    """Whether two questions differ only in what the sections show."""
    return replace(one, **OF_THE_SECTIONS) == replace(other, **OF_THE_SECTIONS)


def _same_runs(one: Question, other: Question) -> bool:
    fields = ("dataset", "model", "sweep", "hardware", "metric", "payment")
    return all(getattr(one, field) in (getattr(other, field), "") for field in fields)


def _without_results(snapshot: Snapshot) -> str:
    """What is there in place of finished runs."""
    counts = queries.states(snapshot.database)
    if not counts:
        return f"There are no runs in {snapshot.runs} yet."
    words = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
    return f"There are no finished runs in {snapshot.runs} yet: {words}. `explorer sweep status` says why."


def _exported(found: Answer) -> pd.DataFrame:
    """The rows that are shown: those inside the brush, or in a survey the means."""
    if found.scene is None:
        return pd.DataFrame()
    rows = found.rows if found.question.is_survey else chosen_rows(found)
    return rows.drop(columns=["x", "y", "series", "group", "hardware_label"], errors="ignore")


def _head(found: Answer, told: Iterable[str]) -> Markup:
    lines = [" · ".join(where_words(found)), *told]
    return fragment(Paragraph(headline(found), "lead"), *(Paragraph(words, "note") for words in lines))


def _left_out(snapshot: Snapshot, sweep: str) -> list[str]:
    """What is said of the superseded runs of the sweep, or sweeps, that are looked at."""
    counts = snapshot.remember("left out", lambda: queries.left_out(snapshot.database))
    return [left_out_words(count, name) for name, count in counts.items() if sweep == name]


def _table(found: Answer) -> Markup:
    """Return the table beside the chart, and what has to be said of both."""
    if found.scene is None:
        label = found.question.paid_in.label.lower()
        words = f"The {label} of these runs is not known yet: no profile of their recipes was measured."
        return element("div", words, class_="x-empty")
    if found.question.sweep == ALL:
        return fragment(frontier_table(found.scene, found.look), *notes(found))
    rows = comparison_table(
        found.verdicts,
        found.budgets,
        payment=found.question.paid_in,
        look=found.look,
        rates=found.rates,
        order=found.question.order,
    )
    return fragment(element("p", _title(found), class_="x-heading"), *rows, *notes(found))


def _title(found: Answer) -> str:
    label = found.question.paid_in.label
    if found.target is None or found.scene is None:
        return f"{label} at equal quality"
    return f"{label} to reach {found.scene.metric} {amounts.quality(found.target, found.scene.kind)}"

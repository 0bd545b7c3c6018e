"""What stands below the chart, one part at a time: only the part that is open is computed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ipywidgets as widgets
from markupsafe import Markup

from explorer.errors import ExplorerError
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.ask_panel import AskPanel
from explorer.views.explorer.composition_panel import CompositionPanel
from explorer.views.explorer.confirm_panel import ConfirmPanel
from explorer.views.explorer.control_rows import controls_of
from explorer.views.explorer.question import Question
from explorer.views.explorer.runs import RunList
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.explorer.two_recipes import Versus

SECTIONS = {
    "": "Runs",
    "versus": "Two recipes",
    "ask": "Ask",
    "confirm": "Confirm",
    "controls": "Controls",
    "composition": "Composition",
}

IN_A_SURVEY = "Choose one sweep to see this: several sweeps have no common baseline."


class Sections(widgets.VBox):
    """`on_change` is called with the question that a choice in one of the parts makes."""

    def __init__(self, *, on_change: Callable[[Question], None]) -> None:
        self._on_change, self._showing = on_change, False
        self._question = Question()
        self.opened = widgets.ToggleButtons(
            options=[(words, key) for key, words in SECTIONS.items()], tooltips=list(SECTIONS.values())
        )
        self.opened.observe(self._opened, "value")
        self.runs = RunList(on_choose=lambda chosen: self._ask(chosen=chosen))
        self.versus = Versus(on_choose=lambda chosen: self._ask(versus=chosen))
        self.composition, self.questions, self.confirm = CompositionPanel(), AskPanel(), ConfirmPanel()
        self._said = widgets.HTML()
        self._place = widgets.VBox()
        super().__init__([self.opened.add_class("x-sections"), self._place])
        self.add_class("x-rule")

    def show(self, snapshot: Snapshot, found: Answer) -> None:
        """Show the part that the question names."""
        self._question = found.question
        self._showing = True
        try:
            self.opened.value = found.question.section if found.question.section in SECTIONS else ""
        finally:
            self._showing = False
        try:
            self._place.children = (self._part(snapshot, found),)
        except ExplorerError as error:
            self._place.children = (self._say(str(error)),)

    def _part(self, snapshot: Snapshot, found: Answer) -> widgets.Widget:
        if found.question.is_survey:
            return self._say(IN_A_SURVEY)
        match found.question.section:
            case "versus":
                self.versus.show(found)
                return self.versus
            case "ask":
                self.questions.show(snapshot, found.question)
                return self.questions
            case "confirm":
                self.confirm.show(found, snapshot.runs)
                return self.confirm
            case "controls":
                shown = controls_of(found.rows)
                return self._say(shown or "No control was run: `controls: all` in a specification adds them.")
            case "composition":
                self.composition.show(snapshot, found.question)
                return self.composition
            case _:
                if found.scene is None:
                    return self._say("Nothing is drawn, so there is nothing to choose from.")
                self.runs.show(snapshot, found)
                return self.runs

    def _say(self, words: str | Markup) -> widgets.Widget:
        self._said.value = words if isinstance(words, Markup) else Markup('<p class="x-note">{}</p>').format(words)
        return self._said

    def _opened(self, _: Any) -> None:
        if not self._showing:
            self._ask(section=str(self.opened.value))

    def _ask(self, **changes: Any) -> None:
        self._on_change(replace(self._question, **changes))

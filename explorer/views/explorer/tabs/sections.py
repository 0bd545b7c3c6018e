"""Sections below the chart: one is open at a time, and only that one is computed.

A section is a class in a file of its own and an entry of the tuple `explore.SECTIONS`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import ipywidgets as widgets

from explorer.errors import ExplorerError
from explorer.page.document import Paragraph
from explorer.page.html import fragment
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.notebook import Quiet

ACROSS = "Choose one sweep to see this: it is about the runs of one sweep."


class Section(widgets.VBox):
    """Part of the explorer. A choice in it calls `ask` with the fields of the question that it changes."""

    key: ClassVar[str]  # the value of `Question.section`, where empty is the first section
    title: ClassVar[str]  # on its button
    across: ClassVar[bool] = False  # it can show runs of several sweeps too

    def __init__(self, ask: Callable[..., None], children: Sequence[widgets.Widget] = ()) -> None:
        self.ask, self.quiet = ask, Quiet()
        super().__init__(list(children))

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Show an answer. Raises `ExplorerError` where it cannot be shown."""
        raise NotImplementedError


class Sections(widgets.VBox):
    """Buttons and the open section. `on_change` is called with the question that a choice in a section makes."""

    def __init__(self, kinds: Sequence[type[Section]], *, on_change: Callable[[Question], None]) -> None:
        self._on_change, self._quiet = on_change, Quiet()
        self._question = Question()
        self.by_key = {kind.key: kind(self._ask) for kind in kinds}
        titles = [kind.title for kind in kinds]
        self.opened = widgets.ToggleButtons(options=list(zip(titles, self.by_key, strict=True)), tooltips=titles)
        self.opened.observe(self._opened, "value")
        self._said, self._place = widgets.HTML(), widgets.VBox()
        super().__init__([self.opened.add_class("x-sections"), self._place])
        self.add_class("x-rule")

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Show the section that the question names, or why it cannot be shown."""
        # A token can name a section of a later version: then the first one opens.
        self._question = answer.question
        key = answer.question.section if answer.question.section in self.by_key else next(iter(self.by_key))
        with self._quiet:
            self.opened.value = key
        try:
            if answer.question.is_survey or (answer.question.across and not self.by_key[key].across):
                raise ExplorerError(ACROSS)
            # The section is shown only once it is filled, so that an error leaves no stale content.
            self.by_key[key].show(snapshot, answer)
            self._place.children = (self.by_key[key],)
        except ExplorerError as error:
            self._said.value = fragment(Paragraph(str(error), "note"))
            self._place.children = (self._said,)

    def _opened(self, _: Any) -> None:
        if not self._quiet:
            self._ask(section=str(self.opened.value))

    def _ask(self, **changes: Any) -> None:
        self._on_change(replace(self._question, **changes))

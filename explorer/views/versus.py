"""Two recipes side by side, as a part of the explorer."""

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets
from markupsafe import Markup

from explorer.analysis.duel import duel
from explorer.errors import ExplorerError
from explorer.views import text
from explorer.views.answer import Answer
from explorer.views.duel import duel_html


class Versus(widgets.VBox):
    """`on_choose` is called with the labels of the two recipes that were chosen."""

    def __init__(self, *, on_choose: Callable[[tuple[str, ...]], None]) -> None:
        self._on_choose, self._showing = on_choose, False
        self.first = widgets.Dropdown(description="First recipe")
        self.second = widgets.Dropdown(description="Second recipe")
        for field in (self.first, self.second):
            field.observe(self._chosen, "value")
        self._shown = widgets.HTML()
        super().__init__([widgets.Box([self.first, self.second]).add_class("x-controls"), self._shown])

    def show(self, found: Answer) -> None:
        """Compare the two that are chosen; without a choice the baseline and the recipe that needs least."""
        recipes = found.settled.choices.recipes
        if len(recipes) < 2:
            self._shown.value = _note("There is one recipe here: nothing to set it beside.")
            return
        chosen = found.question.versus if len(found.question.versus) == 2 else _default(found, recipes)
        self._showing = True
        try:
            for field, name in zip((self.first, self.second), chosen, strict=True):
                field.options = tuple((text.clipped(recipe), recipe) for recipe in recipes)
                field.value = name
        finally:
            self._showing = False
        try:
            result = duel(found.settled.rows, *chosen, x=found.question.paid_in.column)
            self._shown.value = duel_html(result, look=found.look, payment=found.question.paid_in)
        except ExplorerError as error:
            self._shown.value = _note(str(error))

    def _chosen(self, _: Any) -> None:
        if not self._showing and self.first.value != self.second.value:
            self._on_choose((str(self.first.value), str(self.second.value)))


def _default(found: Answer, recipes: tuple[str, ...]) -> tuple[str, str]:
    known = [each for each in found.comparisons if each.ratio is not None]
    best = min(known, key=lambda each: each.ratio or 0.0).recipe if known else ""
    first = found.settled.baseline or recipes[0]
    return first, best if best and best != first else next(name for name in recipes if name != first)


def _note(words: str) -> Markup:
    return Markup('<p class="x-note">{}</p>').format(text.plain(words))

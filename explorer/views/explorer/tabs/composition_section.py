"""Section on how methods compose: pairs, the way from the baseline to a recipe, times by part of a step."""

from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets as widgets
import pandas as pd

from explorer.analysis.composition import Composed, Composition
from explorer.analysis.sentences import composed_words, composition_sentences
from explorer.errors import ExplorerError
from explorer.page.document import Paragraph, one_line, sentence
from explorer.page.html import Markup, element, fragment
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.explorer.tabs.composition_charts import CAPTION, interactions, step_times, waterfall
from explorer.views.explorer.tabs.composition_rows import composed, composition_tables
from explorer.views.explorer.tabs.sections import Section
from explorer.views.live_chart import LiveChart

INTERVALS = (
    "Times are steps times profiled step times. Intervals of times come from the spread of a profile's windows on this"
    " machine, intervals of qualities from paired seeds."
)
WAY = (
    "Each bar is one method by itself. 'same parts' corrects for methods that shorten the same part of a step;"
    " 'not predicted' is the rest, with its interval."
)


class CompositionSection(Section):
    """Composition of the setting that a question is about."""

    key, title = "composition", "Composition"

    def __init__(self, ask: Callable[..., None]) -> None:
        self.shown: Composition | None = None
        self._asked: tuple[Snapshot, Question] | None = None
        self.budget = widgets.Dropdown(description="Budget")
        self.recipe = widgets.Dropdown(description="Recipe of the waterfall")
        self.budget.observe(self._chosen, "value")
        self.recipe.observe(self._chosen, "value")
        self._head, self._tables = widgets.HTML(), widgets.HTML()
        self._pairs, self._way, self._parts = _Figure(), _Figure(), _Figure()
        fields = widgets.Box([self.budget, self.recipe]).add_class("x-controls")
        self._figures = widgets.Box([self._pairs, self._way]).add_class("x-halves")
        self._body = widgets.VBox([fields, self._figures, self._tables, self._parts]).add_class("x-composed")
        super().__init__(ask, [self._head, self._body])
        self.add_class("x-composition").add_class("x-rule")

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Show the setting of an answer, at the chosen budget if it was run."""
        self._asked = snapshot, answer.question
        self._show(self.budget.value)

    def _chosen(self, _: Any) -> None:
        if not self.quiet:
            self._show(self.budget.value)

    def _show(self, ssr: float | None) -> None:
        if self._asked is None:
            return
        try:
            composition = composed(*self._asked)
            if ssr in composition.budgets and ssr != composition.ssr:
                composition = composed(*self._asked, ssr=ssr)
        except ExplorerError as error:
            composition = Composition(baseline=self._asked[1].baseline, reason=str(error))
        self.shown = composition
        together = [recipe for recipe in composition.recipes if recipe.by_parts is not None]
        self._head.value = _heading("How methods compose") + (_hint(composition) or fragment(*_sentences(composition)))
        self._body.layout.display = "none" if composition.reason is not None or len(composition.methods) < 1 else ""
        # One empty figure next to a full one says why it is empty; two empty ones say less than the hint above.
        empty = not composition.recipes and not composition.measured_pairs
        self._figures.layout.display = "none" if empty else ""
        self._offer(composition, together)
        self._pairs.show(
            "Pairs: their effect beyond that of both separately",
            interactions(composition) if composition.measured_pairs else None,
            CAPTION if composition.measured_pairs else "No pair of these methods was run together.",
        )
        recipe = next((recipe for recipe in together if recipe.label == self.recipe.value), None)
        self._way.show(
            f"From {composition.baseline} to {recipe.label}" if recipe else "From the baseline to a recipe",
            waterfall(recipe, baseline=composition.baseline) if recipe else None,
            f"{composed_words(recipe, confidence=composition.confidence)}. {WAY}" if recipe else _without(composition),
        )
        self._parts.show(
            "Where the time of a whole run goes",
            step_times(_by_part(composition), runs=True) if composition.parts else None,
            INTERVALS if composition.parts else "None of these recipes was profiled.",
        )
        self._tables.value = fragment(*composition_tables(composition))

    def _offer(self, composition: Composition, together: list[Composed]) -> None:
        with self.quiet:
            self.budget.options = [(f"{ssr:g} of full", ssr) for ssr in composition.budgets]
            self.budget.value = composition.ssr if composition.budgets else None
            chosen, labels = self.recipe.value, [recipe.label for recipe in together]
            # The recipe with the most methods has the most to explain, so it is the default.
            longest = max(together, key=lambda recipe: len(recipe.methods)).label if together else None
            self.recipe.options = labels
            self.recipe.value = chosen if chosen in labels else longest
            self.recipe.layout.display = "" if together else "none"


class _Figure(widgets.VBox):
    """Chart with a heading above it and a caption below."""

    def __init__(self) -> None:
        self._head, self._chart, self._caption = widgets.HTML(), LiveChart(), widgets.HTML()
        super().__init__([self._head, self._chart, self._caption])
        self.add_class("x-chart")

    def show(self, heading: str, chart: Any, caption: str) -> None:
        """Show a chart with its caption, or without a chart only the caption."""
        self._head.value = _heading(heading)
        self._chart.chart = chart
        self._chart.layout.display = "none" if chart is None else ""
        self._caption.value = fragment(Paragraph(caption, "note"))


def _hint(composition: Composition) -> Markup | None:
    """Return the way to a composition if there is nothing to show."""
    if composition.reason is not None:
        return _empty(f"No composition to show: {composition.reason}.")
    if composition.recipes or composition.measured_pairs:
        return None
    names = ", ".join(composition.methods[:3]) if len(composition.methods) > 1 else "channels_last, ema"
    return _empty(
        "No recipe here adds several methods to the baseline. To see how methods work together, add this to the"
        " specification and run the sweep again; finished runs are kept:",
        f"compose: {{each_of: [{names}], pairs_of: [{names}]}}",
    )


def _sentences(composition: Composition) -> Iterator[Paragraph]:
    for words in composition_sentences(composition)[len(composition.recipes) :]:  # the table shows those of the recipes
        yield Paragraph(sentence(words), "note")


def _without(composition: Composition) -> str:
    reasons = [f"{recipe.label}: {recipe.reason}" for recipe in composition.recipes]
    return f"No prediction. {'; '.join(reasons)}" if reasons else "No recipe here has several methods."


def _by_part(composition: Composition) -> pd.DataFrame:
    rows = [(recipe, part, value) for recipe, parts in composition.parts.items() for part, value in parts.items()]
    return pd.DataFrame(rows, columns=["recipe", "part", "seconds"])


def _heading(words: str) -> Markup:
    return element("p", words, class_="x-heading")


def _empty(words: str, code: str = "") -> Markup:
    lines = [element("p", one_line(words)), *([element("p", element("code", one_line(code)))] if code else [])]
    return element("div", *lines, class_="x-empty", role="status")

"""How methods compose, as a part of the explorer: pairs, the way from the baseline to a recipe, times by part."""

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
from explorer.views.explorer.composition_charts import CAPTION, interactions, step_times, waterfall
from explorer.views.explorer.composition_rows import composed, composition_tables
from explorer.views.explorer.question import Question
from explorer.views.explorer.sections import Section
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.notebook import Fit, empty_chart

INTERVALS = (
    "Times are steps times profiled step times. Intervals of times come from the spread of a profile's windows on this"
    " machine; intervals of qualities from seeds, paired."
)
WAY = (
    "Each method as it is alone; 'same parts': what the parts of a step correct where methods shorten the same one;"
    " 'not predicted': the rest, with its interval."
)


class CompositionSection(Section):
    """Shows the composition of the setting that a question is about. `found` is what is shown."""

    key, title = "composition", "Composition"

    def __init__(self, ask: Callable[..., None]) -> None:
        self.found: Composition | None = None
        self._asked: tuple[Snapshot, Question] | None = None
        self.budget = widgets.Dropdown(description="Budget")
        self.recipe = widgets.Dropdown(description="Recipe of the waterfall")
        self.budget.observe(self._chosen, "value")
        self.recipe.observe(self._chosen, "value")
        self._said, self._tables = widgets.HTML(), widgets.HTML()
        self._pairs, self._way, self._parts = _Figure(), _Figure(), _Figure()
        fields = widgets.Box([self.budget, self.recipe]).add_class("x-controls")
        figures = widgets.Box([self._pairs, self._way]).add_class("x-halves")
        self._body = widgets.VBox([fields, figures, self._tables, self._parts]).add_class("x-composed")
        super().__init__(ask, [self._said, self._body])
        self.add_class("x-composition").add_class("x-rule")

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Show the setting of an answer, at the budget that is chosen if it was run there."""
        self._asked = snapshot, answer.question
        self._show(self.budget.value)

    def _chosen(self, _: Any) -> None:
        if not self.quiet:
            self._show(self.budget.value)

    def _show(self, ssr: float | None) -> None:
        if self._asked is None:
            return
        try:
            found = composed(*self._asked)
            if ssr in found.budgets and ssr != found.ssr:
                found = composed(*self._asked, ssr=ssr)
        except ExplorerError as error:
            found = Composition(baseline=self._asked[1].baseline, reason=str(error))
        self.found = found
        together = [recipe for recipe in found.recipes if recipe.by_parts is not None]
        self._said.value = _heading("How methods compose") + (_hint(found) or fragment(*_sentences(found)))
        self._body.layout.display = "none" if found.reason is not None or len(found.methods) < 1 else ""
        self._offer(found, together)
        self._pairs.show(
            "Pairs: what they do together beyond what both do alone",
            interactions(found) if found.measured_pairs else None,
            CAPTION if found.measured_pairs else "No pair of these methods was run together.",
        )
        recipe = next((each for each in together if each.label == self.recipe.value), None)
        self._way.show(
            f"From {found.baseline} to {recipe.label}" if recipe else "From the baseline to a recipe",
            waterfall(recipe, baseline=found.baseline) if recipe else None,
            f"{composed_words(recipe, confidence=found.confidence)}. {WAY}" if recipe else _without(found),
        )
        self._parts.show(
            "Where the time of a whole run goes",
            step_times(_by_part(found), runs=True) if found.parts else None,
            INTERVALS if found.parts else "None of these recipes was profiled.",
        )
        self._tables.value = fragment(*composition_tables(found))

    def _offer(self, found: Composition, together: list[Composed]) -> None:
        with self.quiet:
            self.budget.options = [(f"{ssr:g} of the full schedule", ssr) for ssr in found.budgets]
            self.budget.value = found.ssr if found.budgets else None
            chosen, labels = self.recipe.value, [recipe.label for recipe in together]
            longest = max(together, key=lambda recipe: len(recipe.methods)).label if together else None
            self.recipe.options = labels
            self.recipe.value = chosen if chosen in labels else longest
            self.recipe.layout.display = "" if together else "none"


class _Figure(widgets.VBox):
    """A chart with a heading above it and a caption below."""

    def __init__(self) -> None:
        self._head, self._chart, self._caption = widgets.HTML(), empty_chart(), widgets.HTML()
        super().__init__([self._head, Fit().add_class("x-fit"), self._chart, self._caption])
        self.add_class("x-chart")

    def show(self, heading: str, chart: Any, caption: str) -> None:
        """Show a chart, or without one only what is said of it."""
        self._head.value = _heading(heading)
        self._chart.chart = chart
        self._chart.layout.display = "none" if chart is None else ""
        self._caption.value = fragment(Paragraph(caption, "note"))


def _hint(found: Composition) -> Markup | None:
    """What to do where there is nothing to show, or nothing of pairs."""
    if found.reason is not None:
        return _empty(f"Nothing can be said of composition: {found.reason}.")
    if found.recipes or found.measured_pairs:
        return None
    names = ", ".join(found.methods[:3]) if len(found.methods) > 1 else "channels_last, ema"
    return _empty(
        "No recipe here combines methods that it adds to the baseline. To see what methods do together, add this to the"
        " specification and run the sweep again; what is done already is not run again:",
        f"compose: {{each_of: [{names}], pairs_of: [{names}]}}",
    )


def _sentences(found: Composition) -> Iterator[Paragraph]:
    for words in composition_sentences(found)[len(found.recipes) :]:  # the table shows those of the recipes
        yield Paragraph(sentence(words), "note")


def _without(found: Composition) -> str:
    reasons = [f"{recipe.label}: {recipe.reason}" for recipe in found.recipes]
    return f"No prediction. {'; '.join(reasons)}" if reasons else "No recipe here has several methods."


def _by_part(found: Composition) -> pd.DataFrame:
    rows = [(recipe, part, value) for recipe, parts in found.parts.items() for part, value in parts.items()]
    return pd.DataFrame(rows, columns=["recipe", "part", "seconds"])


def _heading(words: str) -> Markup:
    return element("p", words, class_="x-heading")


def _empty(words: str, code: str = "") -> Markup:
    lines = [element("p", one_line(words)), *([element("p", element("code", one_line(code)))] if code else [])]
    return element("div", *lines, class_="x-empty", role="status")

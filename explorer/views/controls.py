"""The controls of the explorer: ordinary labelled fields, all of which can be reached by keyboard."""

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

from explorer.views.axes import PAYMENTS
from explorer.views.question import Question, Settled

AUTOMATIC, OWN = "automatic", "own"
DEAREST = "the dearest class"


class Controls(widgets.Box):
    """The fields in which a question is put. `on_change` is called with the new question after a user changed one."""

    def __init__(self, *, on_change: Callable[[Question], None]) -> None:
        self._on_change = on_change
        self._showing = False
        self.dataset = widgets.Dropdown(description="Dataset")
        self.model = widgets.Dropdown(description="Model")
        self.sweep = widgets.Dropdown(description="Sweep")
        self.hardware = widgets.Dropdown(description="Hardware")
        self.metric = widgets.Dropdown(description="Quality")
        self.baseline = widgets.Dropdown(description="Baseline")
        self.target_from = widgets.Dropdown(description="Target quality")
        self.target = _number("Own target", least=0.0)
        self.price_from = widgets.Dropdown(description="Price")
        self.price = _number("Own price ($/hour)", least=0.001)
        self.payment = widgets.ToggleButtons(description="Pay in")
        self.deletion_of = widgets.Dropdown(description="Deletion of")
        self.scale = widgets.ToggleButtons(description="Scale", options=[("Log", True), ("Linear", False)])
        self.recipes = widgets.SelectMultiple(description="Recipes (Ctrl adds)", rows=5)
        for field in self._fields():
            field.observe(self._changed, "value")
        super().__init__(self._fields())
        self.add_class("x-controls")
        self.recipes.add_class("x-recipes")

    def read(self) -> Question:
        """The question that the fields put now."""
        return Question(
            dataset=self.dataset.value or "",
            model=self.model.value or "",
            sweep=self.sweep.value or "",
            hardware=self.hardware.value or "",
            metric=self.metric.value or "",
            recipes=tuple(self.recipes.value),
            baseline=self.baseline.value or "",
            payment=self.payment.value or "time",
            deletion_of=self.deletion_of.value or "",
            log=bool(self.scale.value),
            target=self.target.value if self.target_from.value == OWN else None,
            usd_per_hour=self.price.value if self.price_from.value == OWN else None,
        )

    def show(self, settled: Settled, *, target: float | None, price: str) -> None:
        """Show an answerable question. `target` is the quality that is used, `price` words for the table's price."""
        question, choices = settled.question, settled.choices
        self._showing = True
        try:
            for name, offered in (
                ("dataset", choices.datasets),
                ("model", choices.models),
                ("sweep", choices.sweeps),
                ("hardware", choices.hardware),
                ("metric", choices.metrics),
                ("baseline", choices.recipes),
            ):
                _offer(getattr(self, name), offered, getattr(question, name))
            _offer(self.recipes, choices.recipes, question.recipes)
            _offer(self.payment, [(PAYMENTS[key].label, key) for key in choices.payments], question.payment)
            _offer(self.deletion_of, [(name or DEAREST, name) for name in choices.deletions], question.deletion_of)
            self.deletion_of.layout.display = "" if question.paid_in.forecast else "none"
            self.scale.value = question.log
            _choose_own(self.target_from, self.target, "baseline at full budget", given=question.target, used=target)
            _choose_own(self.price_from, self.price, price, given=question.usd_per_hour, used=None)
        finally:
            self._showing = False

    def _fields(self) -> list[Any]:
        return [
            self.recipes,
            self.dataset,
            self.model,
            self.sweep,
            self.hardware,
            self.metric,
            self.payment,
            self.deletion_of,
            self.scale,
            self.baseline,
            self.target_from,
            self.target,
            self.price_from,
            self.price,
        ]

    def _changed(self, _: Any) -> None:
        if not self._showing:
            self._on_change(self.read())


def _number(label: str, *, least: float) -> widgets.BoundedFloatText:
    return widgets.BoundedFloatText(value=1.0, description=label, min=least, max=1e6, step=0.001)


def _offer(field: Any, options: Sequence[Any], value: Any) -> None:
    """Set options and value together; a field whose options are the same keeps its focus."""
    if tuple(field.options) != tuple(options):
        field.options = tuple(options)
    if field.value != value:
        field.value = value


def _choose_own(
    source: widgets.Dropdown,
    number: widgets.BoundedFloatText,
    automatic: str,
    *,
    given: float | None,
    used: float | None,
) -> None:
    """Show whether the user gave a number; without one the field is hidden and holds what is used instead."""
    _offer(source, [(automatic, AUTOMATIC), ("own value", OWN)], AUTOMATIC if given is None else OWN)
    value = used if given is None else given
    if value is not None:
        number.value = round(value, 6)
    number.layout.display = "none" if given is None else ""

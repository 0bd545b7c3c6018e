"""The controls of the explorer: ordinary labelled fields, all of which can be reached by keyboard."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ipywidgets as widgets

from explorer.page.document import clipped
from explorer.views.explorer.choices import Choices, Settled
from explorer.views.explorer.payments import DEAREST, MEASURES, PAYMENTS
from explorer.views.explorer.question import ALL, COMPARE, ORDERS, SPLITS, Question

AUTOMATIC, OWN = "automatic", "own"
WORDS = {"cloud": "the price table's choice", "size": "all alike", "baseline_hardware": "the recipe's own"}
"""What the empty choice of a field is called."""
MORE = "More filters, prices, colours"


class Controls(widgets.VBox):
    """The fields in which a question is put. `on_change` is called with the new question after a user changed one."""

    def __init__(self, *, on_change: Callable[[Question], None]) -> None:
        self._on_change = on_change
        self._showing = False
        self._shown = Question()
        self.dataset = widgets.Dropdown(description="Dataset")
        self.model = widgets.Dropdown(description="Model")
        self.sweep = widgets.Dropdown(description="Sweep")
        self.hardware = widgets.Dropdown(description="Hardware")
        self.metric = widgets.Dropdown(description="Quality")
        self.baseline = widgets.Dropdown(description="Baseline")
        self.baseline_hardware = widgets.Dropdown(description="Baseline's hardware")
        self.target_from = widgets.Dropdown(description="Target quality")
        self.target = _number("Own target", least=0.0)
        self.cloud = widgets.Dropdown(description="Prices of")
        self.price_from = widgets.Dropdown(description="Price")
        self.price = _number("Own price ($/hour)", least=0.001)
        self.payment = widgets.ToggleButtons(description="Pay in")
        self.deletion_of = widgets.Dropdown(description="Deletion of")
        self.scale = widgets.ToggleButtons(description="Scale", options=[("Log", True), ("Linear", False)])
        self.order = widgets.Dropdown(description="Table order")
        self.compare = widgets.Dropdown(description="Colour by")
        self.size = widgets.Dropdown(description="Size says")
        self.split = widgets.Dropdown(description="Small multiples")
        self.recipes = widgets.SelectMultiple(description="Recipes (Ctrl adds)", rows=5)
        self.methods = widgets.SelectMultiple(description="With a method of", rows=4)
        self.seeds = widgets.SelectMultiple(description="Seeds", rows=4)
        self.sources = widgets.SelectMultiple(description="Times that are", rows=4)
        first = [
            self.recipes,
            *(self.dataset, self.model, self.sweep, self.hardware, self.metric),
            *(self.payment, self.deletion_of, self.scale, self.baseline, self.baseline_hardware),
            *(self.target_from, self.target, self.order),
        ]
        more = [
            *(self.methods, self.seeds, self.sources),
            *(self.cloud, self.price_from, self.price, self.compare, self.size, self.split),
        ]
        for field in (*first, *more):
            field.observe(self._changed, "value")
        grids = [widgets.Box(fields).add_class("x-controls") for fields in (first, more)]
        for field in (self.recipes, self.methods, self.seeds, self.sources):
            field.add_class("x-recipes")
        self.more = widgets.ToggleButton(description=MORE, tooltip=MORE, layout=widgets.Layout(width="auto"))
        self.more.observe(lambda _: self._fold(), "value")
        self._folded = grids[1]
        super().__init__([grids[0], self.more.add_class("x-more"), self._folded])
        self.add_class("x-fields")
        self._fold()

    def read(self) -> Question:
        """The question that the fields put now; what has no field here stays as it was shown. All recipes are put as
        none in particular: another sweep has others."""
        lists = {name: tuple(getattr(self, name).value) for name in _LISTS}
        if len(lists["recipes"]) == len(self.recipes.options):
            lists["recipes"] = ()
        return replace(
            self._shown,
            **{name: getattr(self, name).value or "" for name in _TEXTS},
            **lists,
            log=bool(self.scale.value),
            target=self.target.value if self.target_from.value == OWN else None,
            usd_per_hour=self.price.value if self.price_from.value == OWN else None,
        )

    def show(self, settled: Settled, *, target: float | None, price: str) -> None:
        """Show an answerable question. `target` is the quality that is used, `price` words for the table's price."""
        self._shown, self._showing = settled.question, True
        try:
            for name, offered in _offers(settled.choices, settled.question).items():
                field = getattr(self, name)
                _offer(field, offered, getattr(settled.question, name))
                field.layout.display = "" if _is_needed(name, len(offered), settled.question) else "none"
            wide = self.payment.add_class if len(self.payment.options) > 3 else self.payment.remove_class
            wide("x-wide")
            self.scale.value = settled.question.log
            question = settled.question
            _choose_own(self.target_from, self.target, "baseline at full budget", given=question.target, used=target)
            self.target_from.layout.display = "none" if question.is_survey else ""
            _choose_own(self.price_from, self.price, price, given=question.usd_per_hour, used=None)
        finally:
            self._showing = False

    def _fold(self) -> None:
        self._folded.layout.display = "" if self.more.value else "none"

    def _changed(self, _: Any) -> None:
        if not self._showing:
            self._on_change(self.read())


_TEXTS = (
    *("dataset", "model", "sweep", "hardware", "metric", "cloud", "compare", "split", "size"),
    *("baseline", "baseline_hardware", "payment", "deletion_of", "order"),
)
_LISTS = ("recipes", "methods", "seeds", "sources")
_ALWAYS = ("dataset", "model", "sweep", "hardware", "metric", "payment", "compare", "recipes")


def _is_needed(name: str, offered: int, question: Question) -> bool:
    """Whether a field is shown: not one that has no choice, and in a survey none of what compares."""
    if name == "deletion_of":
        sized = MEASURES.get(question.size)
        return question.paid_in.forecast or (sized is not None and sized.of_deletion)
    if question.is_survey and name in ("baseline", "baseline_hardware", "order"):
        return False
    return name in _ALWAYS or offered > 1


def _offers(choices: Choices, question: Question) -> dict[str, Sequence[Any]]:
    """What each field offers: names, with their words where these differ."""
    paid = question.paid_in.label.lower()
    return {
        "dataset": choices.datasets,
        "model": _with_all(choices.models, "models"),
        "sweep": _with_all(choices.sweeps, "sweeps"),
        "hardware": _with_all(choices.hardware, "hardware"),
        "metric": choices.metrics,
        "baseline": choices.baselines,
        "baseline_hardware": [(name or WORDS["baseline_hardware"], name) for name in choices.baseline_hardware],
        "cloud": [(name or WORDS["cloud"], name) for name in choices.clouds],
        "payment": [(PAYMENTS[key].label, key) for key in choices.payments],
        "deletion_of": [(name or DEAREST, name) for name in choices.deletions],
        "order": [(words.format(payment=paid), key) for key, words in ORDERS.items()],
        "compare": [(COMPARE[key], key) for key in choices.compare],
        "size": [(MEASURES[key].label if key else WORDS["size"], key) for key in choices.sizes],
        "split": [(SPLITS[key], key) for key in choices.splits],
        "recipes": choices.recipes,
        "methods": choices.methods,
        "seeds": choices.seeds,
        "sources": choices.sources,
    }


def _with_all(names: Sequence[str], plural: str) -> list[tuple[str, str]]:
    return [(f"all {plural}" if name == ALL else clipped(name), name) for name in names]


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
        number.value = value  # in full: rounded up, it would be beyond what the baseline has
    number.layout.display = "none" if given is None else ""

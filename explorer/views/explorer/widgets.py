"""Controls of the explorer: ordinary labelled fields, all of which the keyboard reaches."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ipywidgets as widgets

from explorer.page.document import clipped
from explorer.views.explorer.choices import Choices, Settled
from explorer.views.explorer.payments import COSTLIEST, MEASURES, PAYMENTS
from explorer.views.explorer.question import ALL, COMPARE, ORDERS, SPLITS, Question
from explorer.views.notebook import Quiet

AUTOMATIC, OWN = "automatic", "own"
WORDS = {"cloud": "the price table's default", "size": "equal", "baseline_hardware": "same as the recipe"}
"""The label of the empty choice of a field."""
MORE = "More filters, prices, colours"


class Controls(widgets.VBox):
    """Fields of a question. `on_change` is called with the new question after a user changed one."""

    def __init__(self, *, on_change: Callable[[Question], None]) -> None:
        self._on_change = on_change
        self._quiet = Quiet()
        self._shown = Question()
        # --- primary fields ---
        self.dataset = widgets.Dropdown(description="Dataset")
        self.model = widgets.Dropdown(description="Model")
        self.sweep = widgets.Dropdown(description="Sweep")
        self.hardware = widgets.Dropdown(description="Hardware")
        self.metric = widgets.Dropdown(description="Quality")
        self.baseline = widgets.Dropdown(description="Baseline")
        self.baseline_hardware = widgets.Dropdown(description="Baseline's hardware")
        self.target_from = widgets.Dropdown(description="Target quality")
        self.target = _number("Your target", least=0.0)
        self.payment = widgets.ToggleButtons(description="X axis")
        self.deletion_of = widgets.Dropdown(description="Deletion of")
        self.scale = widgets.ToggleButtons(description="Scale", options=[("Log", True), ("Linear", False)])
        self.order = widgets.Dropdown(description="Table order")
        self.recipes = widgets.SelectMultiple(description="Recipes (Ctrl adds)", rows=5)
        # --- folded fields ---
        self.methods = widgets.SelectMultiple(description="Uses method", rows=4)
        self.seeds = widgets.SelectMultiple(description="Seeds", rows=4)
        self.sources = widgets.SelectMultiple(description="Timing source", rows=4)
        self.cloud = widgets.Dropdown(description="Provider's prices")
        self.price_from = widgets.Dropdown(description="Price")
        self.price = _number("Your price ($/hour)", least=0.001)
        self.compare = widgets.Dropdown(description="Colour by")
        self.size = widgets.Dropdown(description="Marker size")
        self.split = widgets.Dropdown(description="Small multiples")
        # The order of these lists is the order on the screen and of the keyboard.
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
        """Return the question in the fields; parts of it without a field here keep the value that was shown."""
        # All recipes are asked for as none in particular, because another sweep has other recipes.
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
        """Show a settled question. `target` is the quality that is used, `price` the words for the table's price."""
        self._shown = settled.question
        with self._quiet:
            for name, offered in _offers(settled.choices, settled.question).items():
                field = getattr(self, name)
                _offer(field, offered, getattr(settled.question, name))
                field.layout.display = "" if _is_needed(name, len(offered), settled.question) else "none"
            # Four buttons or more need two columns of the grid, or their labels are cut.
            wide = self.payment.add_class if len(self.payment.options) > 3 else self.payment.remove_class
            wide("x-wide")
            self.scale.value = settled.question.log
            question = settled.question
            _choose_own(self.target_from, self.target, "baseline at 100% budget", given=question.target, used=target)
            self.target_from.layout.display = "none" if question.is_survey else ""
            _choose_own(self.price_from, self.price, price, given=question.usd_per_hour, used=None)

    def _fold(self) -> None:
        self._folded.layout.display = "" if self.more.value else "none"

    def _changed(self, _: Any) -> None:
        if not self._quiet:
            self._on_change(self.read())


_TEXTS = (
    *("dataset", "model", "sweep", "hardware", "metric", "cloud", "compare", "split", "size"),
    *("baseline", "baseline_hardware", "payment", "deletion_of", "order"),
)
_LISTS = ("recipes", "methods", "seeds", "sources")
_ALWAYS = ("dataset", "model", "sweep", "hardware", "metric", "payment", "compare", "recipes")


def _is_needed(name: str, offered: int, question: Question) -> bool:
    """Return whether a field is shown. A field without a choice is hidden; in a survey, so are those that compare."""
    if name == "deletion_of":
        sized = MEASURES.get(question.size)
        return question.paid_in.forecast or (sized is not None and sized.of_deletion)
    if question.is_survey and name in ("baseline", "baseline_hardware", "order"):
        return False
    return name in _ALWAYS or offered > 1


def _offers(choices: Choices, question: Question) -> dict[str, Sequence[Any]]:
    """Return the options of each field: names, with their labels where these differ."""
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
        "deletion_of": [(name or COSTLIEST, name) for name in choices.deletions],
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
    """Set options and value. Options that are the same are not set again, so that the field keeps its focus."""
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
    """Show a number and its source. Without a number of the user's own, the hidden field holds the one in use."""
    _offer(source, [(automatic, AUTOMATIC), ("your own", OWN)], AUTOMATIC if given is None else OWN)
    value = used if given is None else given
    if value is not None:
        number.value = value  # unrounded: rounded up, the baseline itself would miss it
    number.layout.display = "none" if given is None else ""

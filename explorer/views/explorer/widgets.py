"""Controls of the explorer: ordinary labelled fields, all of which the keyboard reaches.

Metric, x axis and target are always in sight; a field with one option is a word in the subtitle instead; everything
else is in a group behind a button, which counts the filters that leave something out.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import ipywidgets as widgets
import pandas as pd

from explorer.errors import ExplorerError
from explorer.page import amounts
from explorer.page.document import Paragraph, clipped
from explorer.page.html import fragment
from explorer.run_files import Metric, metric_of
from explorer.views.explorer.choices import Choices, Settled
from explorer.views.explorer.payments import COSTLIEST, MEASURES, PAYMENTS
from explorer.views.explorer.question import ALL, COMPARE, SPLITS, Question
from explorer.views.notebook import Quiet

WORDS = {"cloud": "the price table's default", "size": "equal", "baseline_hardware": "same as the recipe"}
"""The label of the empty choice of a field."""
TARGET = "Target"


class Controls(widgets.VBox):
    """Fields of a question: the few that are always in sight, and groups of others, each behind a button.

    `on_change` is called with the new question after a user changed a field. The fields are this widget; the open group
    is the widget `panel`, for a place of its own. `sharing` is the content of the last group.
    """

    def __init__(self, *, on_change: Callable[[Question], None], sharing: widgets.Widget) -> None:
        self._on_change = on_change
        self._quiet = Quiet()
        self._shown = Question()
        self._target: _Target | None = None
        # --- fields that are always in sight ---
        self.dataset = widgets.Dropdown(description="Dataset")
        self.sweep = widgets.Dropdown(description="Sweep")
        self.metric = widgets.Dropdown(description="Metric")
        self.payment = widgets.Dropdown(description="X axis")
        self.deletion_of = widgets.Dropdown(description="Deletion of")
        self.target = widgets.Text(description=TARGET, continuous_update=False)
        self._complaint = widgets.HTML()
        self.baseline = widgets.Dropdown(description="Compare with")
        self.baseline_sweep = widgets.Dropdown(description="Baseline of")
        # --- groups ---
        self.model = widgets.Dropdown(description="Model")
        self.hardware = widgets.Dropdown(description="Hardware")
        self.baseline_hardware = widgets.Dropdown(description="Baseline's hardware")
        self.recipes = widgets.SelectMultiple(description="Recipes (Ctrl adds)", rows=4)
        self.methods = widgets.SelectMultiple(description="Uses method", rows=4)
        self.seeds = widgets.SelectMultiple(description="Seeds", rows=4)
        self.sources = widgets.SelectMultiple(description="Timing source", rows=4)
        self.cloud = widgets.Dropdown(description="Provider's prices")
        self.price = widgets.Text(description="Your price ($ per hour)", continuous_update=False)
        self._price_words = widgets.HTML()
        self.scale = widgets.Dropdown(description="X scale", options=[("log", True), ("linear", False)])
        self.errors = widgets.Dropdown(description="Y scale", options=[("automatic", True), ("linear", False)])
        self.compare = widgets.Dropdown(description="Colour by")
        self.size = widgets.Dropdown(description="Marker size")
        self.split = widgets.Dropdown(description="Small multiples")
        self.bands = widgets.Dropdown(description="Bands", options=[("highlighted", ""), ("all recipes", "all")])
        # The order of these lists is the order on the screen and of the keyboard.
        first = [self.dataset, self.sweep, self.metric, self.payment, self.deletion_of, self.target, self._complaint]
        first += [self.baseline, self.baseline_sweep]
        filters = [self.model, self.hardware, self.baseline_hardware, self.recipes, self.methods, self.seeds]
        filters.append(self.sources)
        drawing = [self.scale, self.errors, self.bands, self.compare, self.size, self.split]
        fields = (*(field for field in first if field is not self._complaint), *filters, *drawing)
        for field in (*fields, self.cloud, self.price):
            field.observe(self._changed, "value")
        for field in (self.recipes, self.methods, self.seeds, self.sources):
            field.add_class("x-recipes")
        groups = {
            FILTERS: widgets.Box(filters).add_class("x-controls"),
            "Prices": widgets.VBox([widgets.Box([self.cloud, self.price]).add_class("x-controls"), self._price_words]),
            "Drawing": widgets.Box(drawing).add_class("x-controls"),
            "Share, export": sharing,
        }
        self._groups = [_Group(name, content) for name, content in groups.items()]
        for group in self._groups:
            group.button.observe(self._folded, "value")
        self.panel = widgets.VBox([group.content for group in self._groups]).add_class("x-panel")
        buttons = widgets.Box([group.button for group in self._groups]).add_class("x-links")
        self._complaint.add_class("x-complaint")
        super().__init__([widgets.Box(first).add_class("x-controls"), buttons])
        self.add_class("x-rail")
        self._fold()

    def read(self) -> Question:
        """Return the question in the fields; parts of it without a field here keep the value that was shown.

        Raises `ExplorerError` for a target or price that is no such amount.
        """
        return self._read(self._read_target(), self._read_price())

    def _read(self, target: float | None, usd_per_hour: float | None) -> Question:
        # A target belongs to its metric: 0.97 of accuracy says nothing about a loss.
        same = (self.metric.value, self.dataset.value) == (self._shown.metric, self._shown.dataset)
        # All recipes are asked for as none in particular, because another sweep has other recipes.
        lists = {name: tuple(getattr(self, name).value) for name in _LISTS}
        if len(lists["recipes"]) == len(self.recipes.options):
            lists["recipes"] = ()
        return replace(
            self._shown,
            **{name: getattr(self, name).value or "" for name in _TEXTS},
            **lists,
            log=bool(self.scale.value),
            errors=bool(self.errors.value),
            target=target if same else None,
            usd_per_hour=usd_per_hour,
        )

    def show(self, settled: Settled, *, target: float | None, drawn: pd.DataFrame | None, price: str) -> None:
        """Show a settled question.

        `target` is the quality that is used, `drawn` has the qualities in the chart as its column `y`, and `price` is
        the words for the table's price.
        """
        question = self._shown = settled.question
        with self._quiet:
            for name, offered in _offers(settled.choices, question).items():
                field = getattr(self, name)
                _offer(field, offered, getattr(question, name))
                field.layout.display = "" if _is_needed(name, len(offered), question) else "none"
            self.scale.value, self.bands.value = question.log, question.bands
            self.errors.value = question.errors
            kind = metric_of(settled.rows.iloc[0].to_dict())
            self._target = None if question.is_survey else _Target.of(kind, drawn)
            self.target.layout.display = "none" if question.is_survey else ""
            own = question.target is None and target is not None
            self.target.placeholder = f"{amounts.quality(target, kind)} (baseline)" if own else "as the baseline"
            self.target.value = "" if question.target is None else _written(question.target, kind)
            self.price.value = "" if question.usd_per_hour is None else f"{question.usd_per_hour:g}"
            self._complain("")
        self._price_words.value = fragment(Paragraph(f"Price table: {price}.", "note"))
        active = _active(question, settled.choices)
        for group in self._groups:
            group.count(active if group.name == FILTERS else 0)

    def unfold(self, name: str) -> None:
        """Open a group by its name."""
        for group in self._groups:
            if group.name == name:
                group.button.value = True

    def _read_target(self) -> float | None:
        written = self.target.value.strip()
        if not written or self._target is None:
            return None if self._target is not None else self._shown.target
        shown = self._shown.target
        # A target of many digits is shown with fewer: as long as it is not edited, it stays what it is.
        if shown is not None and written == _written(shown, self._target.kind):
            return shown
        return self._target.read(written)

    def _read_price(self) -> float | None:
        written = self.price.value.strip().removeprefix("$")
        return amounts.read_usd(self.price.description, written) if written else None

    def _complain(self, words: str) -> None:
        self._complaint.value = fragment(Paragraph(words, "alert")) if words else ""
        self._complaint.layout.display = "" if words else "none"

    def _folded(self, change: Any) -> None:
        if change["new"]:
            for group in self._groups:
                group.button.value = group.button is change["owner"]
        self._fold()

    def _fold(self) -> None:
        for group in self._groups:
            group.content.layout.display = "" if group.button.value else "none"
        self.panel.layout.display = "" if any(group.button.value for group in self._groups) else "none"

    def _changed(self, change: Any) -> None:
        if self._quiet:
            return
        typed = change["owner"] in (self.target, self.price)
        try:
            question = self.read() if typed else self._read(self._shown.target, self._shown.usd_per_hour)
        except ExplorerError as error:  # the field keeps what was typed, and the view stays
            return self._complain(str(error))
        self._complain("")
        return self._on_change(question)


FILTERS = "Filters"


class _Group:
    """A group of fields behind a button."""

    def __init__(self, name: str, content: Any) -> None:
        self.name, self.content = name, content
        self.button = widgets.ToggleButton(layout=widgets.Layout(width="auto"))
        self.count(0)

    def count(self, active: int) -> None:
        """Show how many of the fields are in use."""
        self.button.description = f"{self.name} ({active})" if active else self.name
        self.button.tooltip = self.button.description


@dataclass(frozen=True, kw_only=True, slots=True)
class _Target:
    """The values that a target may have: a value of the metric that lies within what is drawn."""

    kind: Metric
    low: float
    high: float

    @classmethod
    def of(cls, kind: Metric, drawn: pd.DataFrame | None) -> Self:
        if drawn is None or drawn.empty:
            return cls(kind=kind, low=-math.inf, high=math.inf)
        return cls(kind=kind, low=float(drawn["y"].min()), high=float(drawn["y"].max()))

    def read(self, written: str) -> float:
        """Read a target. Raises `ExplorerError` for one that no run here reaches, or that all of them are past."""
        value = amounts.read_target(TARGET, written, self.kind)
        if self.low <= value <= self.high:
            return value
        best, worst = (self.high, self.low) if self.kind.higher_is_better else (self.low, self.high)
        asked, name = amounts.quality(value, self.kind), self.kind.name
        if (value > self.high) == self.kind.higher_is_better:
            raise ExplorerError(f"No run here reaches {name} {asked}; the best has {amounts.quality(best, self.kind)}.")
        raise ExplorerError(
            f"Every run here is past {name} {asked}; the worst has {amounts.quality(worst, self.kind)}."
        )


def _written(target: float, kind: Metric) -> str:
    """Return a target as one would type it."""
    return f"{100 * target:.6g}%" if kind.percent else f"{target:.6g}"


def _active(question: Question, choices: Choices) -> int:
    """Return the number of filters that leave something out."""
    hidden = 0 < len(question.recipes) < len(choices.recipes)
    return sum(map(bool, (hidden, question.methods, question.seeds, question.sources, question.baseline_hardware)))


_TEXTS = (
    *("dataset", "model", "sweep", "hardware", "metric", "cloud", "compare", "split", "size"),
    *("baseline", "baseline_hardware", "baseline_sweep", "payment", "deletion_of", "bands"),
)
_LISTS = ("recipes", "methods", "seeds", "sources")
_ALWAYS = ("metric", "payment", "compare")


def _is_needed(name: str, offered: int, question: Question) -> bool:
    """Return whether a field is shown. A field without a choice is hidden; in a survey, so are those that compare.

    Of several sweeps, the one whose baseline counts is named even if it is the only one to choose.
    """
    if name == "baseline_sweep":
        return question.across and not question.is_survey
    if name == "deletion_of":
        sized = MEASURES.get(question.size)
        return question.paid_in.forecast or (sized is not None and sized.of_deletion)
    if question.is_survey and name in ("baseline", "baseline_hardware"):
        return False
    return name in _ALWAYS or offered > 1


def _offers(choices: Choices, question: Question) -> dict[str, Sequence[Any]]:
    """Return the options of each field: names, with their labels where these differ."""
    return {
        "dataset": choices.datasets,
        "model": _with_all(choices.models, "models"),
        "sweep": _with_all(choices.sweeps, "sweeps"),
        "hardware": _with_all(choices.hardware, "hardware"),
        "metric": choices.metrics,
        "baseline": choices.baselines,
        "baseline_sweep": [(clipped(name), name) for name in choices.baseline_sweeps],
        "baseline_hardware": [(name or WORDS["baseline_hardware"], name) for name in choices.baseline_hardware],
        "cloud": [(name or WORDS["cloud"], name) for name in choices.clouds],
        "payment": [(PAYMENTS[key].title, key) for key in choices.payments],
        "deletion_of": [(name or COSTLIEST, name) for name in choices.deletions],
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


def _offer(field: Any, options: Sequence[Any], value: Any) -> None:
    """Set options and value. Options that are the same are not set again, so that the field keeps its focus."""
    if tuple(field.options) != tuple(options):
        field.options = tuple(options)
    if field.value != value:
        field.value = value

"""The controls of the ledger's views: which run and whom to believe; which steps, which layer and class."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from explorer.views.ledger_depth import MEASURES


class RunControls(widgets.Box):
    """Which run is looked at and whom the reader believes; `on_change` is called when either is another one."""

    def __init__(self, *, trust: str, on_change: Callable[[], None]) -> None:
        self._quiet = False
        self.run = widgets.Dropdown(description="Run")
        self.trust = widgets.Text(
            value=trust,
            description="Trust file",
            placeholder="trust.json of those you believe",
            continuous_update=False,
        )
        super().__init__([self.run, self.trust])
        self.add_class("x-controls")
        for field in (self.run, self.trust):
            field.observe(lambda _: None if self._quiet else on_change(), "value")

    def offer(self, names: Sequence[str], chosen: str) -> None:
        """Show these runs, one of them chosen."""
        with _Quiet(self):
            self.run.options = tuple(names)
            self.run.value = chosen


class CellControls(widgets.Box):
    """Which stretch of steps, and which cell: `on_steps` and `on_cell` are called when another is looked at. A stretch
    is [first, last], both shown."""

    def __init__(self, *, on_steps: Callable[[], None], on_cell: Callable[[], None]) -> None:
        self._quiet = False
        self._offered: object = None
        self.layer = widgets.Dropdown(description="Layer")
        self.class_ = widgets.Dropdown(description="Class")
        self.first = widgets.BoundedIntText(description="From step", min=0, max=0)
        self.last = widgets.BoundedIntText(description="To step", min=0, max=0)
        super().__init__([self.layer, self.class_, self.first, self.last])
        self.add_class("x-controls")
        for field in (self.layer, self.class_):
            field.observe(lambda _: None if self._quiet else on_cell(), "value")
        for field in (self.first, self.last):
            field.observe(lambda _: self._typed(on_steps), "value")

    @property
    def cell(self) -> tuple[str, str]:
        """The layer and the class that are looked at."""
        return str(self.layer.value), str(self.class_.value)

    @property
    def steps(self) -> range:
        """The stretch of steps that is looked at."""
        return range(self.first.value, self.last.value + 1)

    def offer(self, *, steps: range, layers: Sequence[str], classes: Sequence[str]) -> None:
        """Show what a run has: its steps on record, its first cell. Where nothing changes, what was chosen stays."""
        offered = (steps, tuple(layers), tuple(classes))
        if offered == self._offered:
            return
        self._offered = offered
        with _Quiet(self):
            last = max(steps.start, steps.stop - 1)
            for field, value in ((self.first, steps.start), (self.last, last)):
                field.min, field.max = 0, last  # never the least above the most, on the way from another run
                field.min, field.value = steps.start, value
            for field, names in ((self.layer, layers), (self.class_, classes)):
                field.options = tuple(names)
                field.value = names[0]

    def choose(self, layer: str, class_: str) -> bool:
        """Look at another cell; whether it is another one."""
        if (layer, class_) == self.cell:
            return False
        with _Quiet(self):
            self.layer.value, self.class_.value = layer, class_
        return True

    def _typed(self, then: Callable[[], None]) -> None:
        if not self._quiet:
            with _Quiet(self):
                if self.first.value > self.last.value:
                    self.first.value, self.last.value = self.last.value, self.first.value
            then()


class _Quiet:
    """While the program sets the fields, nobody is called."""

    def __init__(self, controls: Any) -> None:
        self._controls = controls

    def __enter__(self) -> None:
        self._controls._quiet = True

    def __exit__(self, *_: object) -> None:
        self._controls._quiet = False


def measure_buttons() -> widgets.ToggleButtons:
    """Which number of the depth profile is drawn."""
    return _buttons({key: measure.label for key, measure in MEASURES.items()}, "Number of the depth profile")


def section_buttons(titles: Mapping[str, str]) -> widgets.ToggleButtons:
    """Which section is shown."""
    return _buttons(titles, "Section").add_class("x-sections")


def _buttons(titles: Mapping[str, str], what: str) -> widgets.ToggleButtons:
    options = [(title, key) for key, title in titles.items()]
    return widgets.ToggleButtons(
        options=options, value=next(iter(titles)), tooltips=[f"{what}: {t}" for t, _ in options]
    )

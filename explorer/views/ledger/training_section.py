"""Section on training: which class moved which layer, in which direction, by which entries; depth and decisions."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import numpy as np

from explorer.audit.history import directions
from explorer.audit.shares import estimates, is_confidential, shares
from explorer.errors import ExplorerError
from explorer.page.html import fragment
from explorer.runlog.run_ledger import Missing
from explorer.views.ledger import depth, matrices, timeline
from explorer.views.ledger.drilldown import drilled
from explorer.views.ledger.matrices import CELL
from explorer.views.ledger.open_run import OpenRun
from explorer.views.ledger.pane import Pane, Section, heading, measure_buttons, note, warning
from explorer.views.notebook import Quiet


class TrainingSection(Section):
    """Heat map and entries, depth profile and directions, and decisions of a run."""

    key, title = "training", "Who moved what"

    def __init__(self, others: Callable[[], dict[str, Path]]) -> None:
        self._opened: OpenRun | None = None
        self.at: tuple[str, str] | None = None  # the layer and class to open at, once
        self.entries, self.decided = widgets.HTML(), widgets.HTML()
        self.controls = CellControls(on_steps=self._draw_steps, on_cell=self._draw_steps)
        self.heat, self.depth = Pane(matrices.SHARES_CAPTION), Pane(depth.CAPTION)
        self.direction, self.time = Pane(matrices.DIRECTIONS_CAPTION), Pane(timeline.CAPTION)
        self._measure = measure_buttons()
        self._measure.observe(lambda _: self._draw_depth(), "value")
        profiles = widgets.VBox([_titled("Depth profile over training"), self._measure, self.depth])
        direction = widgets.VBox([_titled("Directions in the chosen layer"), self.direction])
        heat = widgets.VBox([_titled("Which class moved which layer"), self.heat])
        super().__init__(
            others,
            [
                self.controls,
                widgets.Box([heat, self.entries]).add_class("x-halves"),
                widgets.Box([profiles, direction]).add_class("x-halves").add_class("x-rule"),
                widgets.VBox([_titled("Decisions"), self.time, self.decided]).add_class("x-rule"),
            ],
        )
        self.add_class("x-body")

    def show(self, opened: OpenRun) -> None:
        """Show a run."""
        self._opened = opened
        if self.controls.offer(steps=opened.steps, layers=opened.layers, classes=opened.classes):
            self.controls.choose(*(self.at or largest_cell(opened)))
            self.at = None
        self._draw_steps()
        self._draw_depth()
        self._draw_decisions(opened)

    def clear(self) -> None:
        """Show nothing."""
        self._opened = None
        for pane in (self.heat, self.depth, self.direction, self.time):
            pane.say("")
        self.entries.value = self.decided.value = ""

    def _draw_steps(self) -> None:
        """Draw all that depends on the stretch of steps: the heat map, the directions, the entries."""
        self._draw_heat()
        self._draw_cell()

    def _draw_heat(self) -> None:
        opened = self._opened
        if opened is None or not opened.steps:
            return self.heat.say(no_steps(opened) if opened else "")
        steps, (layer, class_) = self.controls.steps, self.controls.cell

        def draw() -> Any:
            summed = shares(opened.ledger, steps)
            frame = matrices.cells(summed, opened.recorded)
            # A sealed run has no shares to draw; a note says so, because the cells look unmeasured.
            closed = is_confidential(opened.ledger) and np.isnan(summed.share[summed.steps > 0]).all()
            left_out = _left_out(len(opened.layers), len(matrices.shown_layers(frame)))
            left_out = " ".join(filter(None, (left_out, estimates(opened.ledger, steps))))
            self.heat.remark(f"The shares are {Missing.SEALED}. {left_out}" if closed else left_out)
            return matrices.heat_map(frame, chosen={"row": layer, "column": class_})

        # Every drawing makes new selections, so the click is observed again.
        self.heat.draw(draw)
        if self.heat.drawn:
            self.heat.chart.selections.observe(self._clicked, CELL)
        return None

    def _draw_cell(self) -> None:
        """Draw all that depends on the cell: its entries, and the directions in its layer."""
        opened = self._opened
        if opened is None or not opened.steps:
            self.entries.value = ""
            return self.direction.say(no_steps(opened) if opened else "")
        (layer, class_), steps = self.controls.cell, self.controls.steps
        try:
            entries = drilled(opened.ledger, opened.recorded, layer=layer, class_=class_, steps=steps)
            self.entries.value = fragment(*entries)
        except ExplorerError as error:
            self.entries.value = fragment(warning(str(error)))
        # Sketches are summed over whole segments, so the steps drawn can be more than those chosen.
        place, whole = opened.ledger.layer(layer), ""

        def draw() -> Any:
            nonlocal whole
            summed = directions(opened.ledger, steps)
            whole = f"{layer}, whole segments: steps {summed.first:,} to {summed.stop - 1:,}."
            return matrices.direction_map(summed, place)

        self.direction.draw(draw)
        if self.direction.drawn:
            self.direction.remark(whole)
        return None

    def _draw_depth(self) -> None:
        opened = self._opened
        if opened is None:
            return self.depth.say("")
        measure = str(self._measure.value)
        if not depth.is_drawn(opened.profiles, measure):
            return self.depth.say(no_profiles(opened))
        measured = depth.profile_frame(opened.profiles)["step"].nunique()
        shown = min(measured, depth.MAX_LINES)
        self.depth.remark("" if shown == measured else f"{shown} of {measured} profiles are drawn.")
        return self.depth.draw(lambda: depth.depth_profile(opened.profiles, measure=measure))

    def _draw_decisions(self, opened: OpenRun) -> None:
        decisions, steps = opened.decisions, len(opened.recorded)
        self.decided.value = fragment(
            *(timeline.decisions_table(decisions) if decisions else [note("The run made no decisions of its own.")])
        )
        self.time.draw(lambda: timeline.timeline(decisions, phases=opened.recorded.phases, steps=steps))

    def _clicked(self, change: Any) -> None:
        picked = change["new"].value or []
        if picked and self.controls.choose(picked[0]["row"], picked[0]["column"]):
            self._draw_cell()


class CellControls(widgets.Box):
    """Fields for a stretch of steps and a cell; `on_steps` and `on_cell` are called when they change. The stretch
    includes its last step."""

    def __init__(self, *, on_steps: Callable[[], None], on_cell: Callable[[], None]) -> None:
        self._quiet = Quiet()
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
        """The chosen layer and class."""
        return str(self.layer.value), str(self.class_.value)

    @property
    def steps(self) -> range:
        """The chosen stretch of steps."""
        return range(self.first.value, self.last.value + 1)

    def offer(self, *, steps: range, layers: Sequence[str], classes: Sequence[str]) -> bool:
        """Offer the steps, layers and classes of a run, and return whether they are new. A run that offers the same
        keeps what was chosen."""
        offered = (steps, tuple(layers), tuple(classes))
        if offered == self._offered:
            return False
        self._offered = offered
        with self._quiet:
            last = max(steps.start, steps.stop - 1)
            for field, value in ((self.first, steps.start), (self.last, last)):
                field.min, field.max = 0, last  # first a minimum of 0, because a minimum above the maximum raises
                field.min, field.value = steps.start, value
            for field, names in ((self.layer, layers), (self.class_, classes)):
                field.options = tuple(names)
                field.value = names[0]
        return True

    def choose(self, layer: str, class_: str) -> bool:
        """Choose a cell, and return whether it is a different one."""
        if (layer, class_) == self.cell:
            return False
        with self._quiet:
            self.layer.value, self.class_.value = layer, class_
        return True

    def _typed(self, then: Callable[[], None]) -> None:
        # A stretch that was typed backwards is turned around, in silence: both numbers are on the screen.
        if not self._quiet:
            with self._quiet:
                if self.first.value > self.last.value:
                    self.first.value, self.last.value = self.last.value, self.first.value
            then()


def largest_cell(opened: OpenRun) -> tuple[str, str]:
    """Return the layer and class with the largest share of the gradient over the whole run; where no share can be read,
    the first ones."""
    if opened.steps:
        try:
            share = shares(opened.ledger, opened.steps).share[0]
        except ExplorerError:  # a damaged ledger: the section itself says so, where its chart would be
            return opened.layers[0], opened.classes[0]
        if not np.isnan(share).all():
            class_, layer = np.unravel_index(np.nanargmax(share), share.shape)
            return opened.layers[layer], opened.classes[class_]
    return opened.layers[0], opened.classes[0]


def no_steps(opened: OpenRun) -> str:
    """Return the reason why a run has no step to show."""
    if opened.ledger.begins:
        return "No step is on record: a deletion made this run without training. The run before it has the steps."
    return "No step is on record yet."


def no_profiles(opened: OpenRun) -> str:
    """Return the reason why a run has no depth profile to draw."""
    if depth.is_drawn(opened.profiles):
        return "These profiles come from an earlier version without a linear probe. Choose another number."
    measured = bool(opened.ledger.outline.profiles)
    why = "Their numbers are missing or sealed." if measured else "The recipe measures none."
    return f"There are no entropy profiles to show. {why}"


def _left_out(layers: int, shown: int) -> str:
    return "" if shown == layers else f"{shown} of {layers} layers are drawn; the menu has all of them."


def _titled(words: str) -> widgets.HTML:
    return widgets.HTML(fragment(heading(words)))

"""The section that holds a second run against the one that is shown."""

from collections.abc import Callable
from pathlib import Path

import ipywidgets as widgets
import pandas as pd
from markupsafe import Markup

from explorer.audit.ledger_sums import is_confidential
from explorer.errors import ExplorerError
from explorer.runlog.blobs import Missing
from explorer.views import ledger_depth
from explorer.views.ledger_controls import measure_buttons
from explorer.views.ledger_depth import depth_profile, profile_frame
from explorer.views.ledger_differences import difference_map, differences_table, introduced, profiles_table
from explorer.views.ledger_heat import UNMEASURED, shown_layers
from explorer.views.ledger_pair import share_differences, span_of
from explorer.views.ledger_pane import Pane, heading, note, nothing, warning
from explorer.views.ledger_runs import OpenRun, open_run
from explorer.views.ledger_training import no_profiles

NOBODY = "Choose a second run"
ALONE = "There is no other governed run below this directory to hold it against."
SHARES = (
    "Second run less first, in points of a hundred: how much more (blue) or less (orange) of a layer's summed gradient "
    "came from a class. Hatched: denied by both policies. A dot: one of the two has no number here."
)


class Compare(widgets.VBox):
    """The second run's name, and below it both. `others` gives the runs that can be chosen."""

    def __init__(self, others: Callable[[], dict[str, Path]]) -> None:
        self._others, self._quiet = others, False
        self._first: OpenRun | None = None
        self._second: OpenRun | None = None
        self.second = widgets.Dropdown(description="Second run")
        self.second.observe(lambda _: None if self._quiet else self._choose(), "value")
        self._measure = measure_buttons()
        self._measure.observe(lambda _: self._draw_profiles(), "value")
        self.said, self.profiles, self.differences = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.left, self.right, self.heat = Pane(ledger_depth.CAPTION), Pane(""), Pane(SHARES)
        self._both = widgets.VBox(
            [
                widgets.HTML(heading("Depth profiles over training, on the same axes")),
                self._measure,
                widgets.Box([self.left, self.right]).add_class("x-halves"),
                self.profiles,
                widgets.HTML(heading("Which class moved which layer: the difference")),
                widgets.Box([self.heat, self.differences]).add_class("x-main"),
            ]
        ).add_class("x-body")
        chooser = widgets.Box([self.second]).add_class("x-controls")
        super().__init__([chooser, self.said, self._both])
        self.add_class("x-body")

    def show(self, opened: OpenRun) -> None:
        """Show a run as the first; the second stays, if it is another one."""
        self._first, chosen = opened, self.second.value
        names = list(self._others())
        self._quiet = True
        self.second.options = [(NOBODY, ""), *((name, name) for name in names)]
        self.second.value = chosen if chosen in names else ""
        self._quiet = False
        self._choose()

    def clear(self) -> None:
        """Show nothing."""
        self._first = self._second = None
        self._say("")

    def _choose(self) -> None:
        first, name, others = self._first, str(self.second.value or ""), self._others()
        self._second = None
        if first is None or name not in others:
            return self._say(
                note(NOBODY + ": its profiles and shares stand beside these.") if others else nothing(ALONE)
            )
        try:
            self._second = open_run(others[name], trust=first.trust, now=first.now)
            self.said.value = introduced(first, self._second)
            self.differences.value = ""
        except ExplorerError as error:
            return self._say(warning(f"{name}: {error}"))
        self._both.layout.display = ""
        self._draw_profiles()
        return self._draw_shares(first, self._second)

    def _say(self, words: str | Markup) -> None:
        self.said.value = words
        self._both.layout.display = "none"

    def _draw_profiles(self) -> None:
        first, second, measure = self._first, self._second, str(self._measure.value)
        if first is None or second is None:
            return
        span = span_of([profile_frame(each.profiles) for each in (first, second)], measure)
        for pane, opened, which in ((self.left, first, "First"), (self.right, second, "Second")):
            if ledger_depth.is_drawn(opened.profiles, measure):
                pane.draw(lambda one=opened: depth_profile(one.profiles, measure=measure, span=span))
                pane.remark(f"{which}: {opened.ledger.genesis.run}.")
            else:
                pane.say(f"{which}: {no_profiles(opened)}")
        drawn = self.left.drawn and self.right.drawn  # else it is said already which of them was not measured
        self.profiles.value = profiles_table(first, second, measure) if drawn else ""

    def _draw_shares(self, first: OpenRun, second: OpenRun) -> None:
        try:
            frame = share_differences(first, second)
        except ExplorerError as error:
            self.differences.value = ""
            return self.heat.say(str(error))
        if frame.empty:
            self.differences.value = ""
            return self.heat.say("The two runs have no layer, no class or no step in common.")
        self.differences.value = differences_table(frame)
        layers = len(set(frame["layer"]))
        shown = len(shown_layers(frame))
        self.heat.draw(lambda: difference_map(frame))
        begins = max(each.ledger.begins for each in (first, second))
        over = f"From step {begins:,} on, where both have steps on record" if begins else "Over the whole of each run"
        drawn = "" if shown == layers else f" {shown} of {layers} layers are drawn."
        return self.heat.remark(f"{over}.{drawn}{_sealed(first, second, frame)}")


def _sealed(first: OpenRun, second: OpenRun, frame: pd.DataFrame) -> str:
    """Whose shares are missing because they are sealed, and not because nobody measured them."""
    found = [
        f" Shares of the {which} run are {Missing.SEALED}."
        for which, opened in (("first", first), ("second", second))
        if (frame[f"state_{which}"] == UNMEASURED).any() and is_confidential(opened.ledger)
    ]
    return "".join(found)

"""Section on controls: recipes and the runs that show whether a gain comes from elsewhere."""

from collections.abc import Callable

import ipywidgets as widgets

from explorer.errors import ExplorerError
from explorer.page.html import fragment
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.comparison_tables import control_blocks
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.explorer.tabs.sections import Section


class ControlsSection(Section):
    """Recipes of a sweep and their controls."""

    key, title = "controls", "Controls"

    def __init__(self, ask: Callable[..., None]) -> None:
        self._shown = widgets.HTML()
        super().__init__(ask, [self._shown])

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Show the controls among the rows of an answer."""
        self._shown.value = fragment(*control_blocks(answer.rows))
        if not self._shown.value:
            raise ExplorerError("No control was run. Add `controls: all` to the specification and run the sweep again.")

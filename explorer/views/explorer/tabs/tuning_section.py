"""Section on tuning: what it found against what it took, and speedups with the tuning of both recipes included."""

from collections.abc import Callable

import ipywidgets as widgets

from explorer.errors import ExplorerError
from explorer.page.document import Paragraph
from explorer.page.html import fragment
from explorer.search.tuning_worth import worth
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.explorer.tabs.sections import Section
from explorer.views.explorer.tabs.tuning_chart import CAPTION, tuning_blocks, tuning_chart
from explorer.views.live_chart import LiveChart

UNTUNED = (
    "This sweep tuned nothing by itself. With `tune: {space: {lr: [0.03, 0.3]}, runs: 24, budget: 0.25, seeds: [100]}`"
    " in its specification, every recipe is tuned with equal effort before its claim is measured."
)


class TuningSection(Section):
    """The tuning of a sweep's recipes."""

    key, title = "tuning", "Tuning"

    def __init__(self, ask: Callable[..., None]) -> None:
        self._head, self._chart, self._below = widgets.HTML(), LiveChart(), widgets.HTML()
        super().__init__(ask, [self._head, self._chart, self._below])
        self.add_class("x-rule").add_class("x-blocks")

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Show the tuning of the sweep that a question is about."""
        tuned = snapshot.tuned(answer.question.sweep)
        if tuned is None:
            raise ExplorerError(UNTUNED)
        worths = worth(tuned, answer.settled.rows, answer.comparisons)
        self._head.value = fragment(Paragraph(f"Tuned {tuned.words}.", "note"))
        self._chart.draw(tuning_chart(worths, metric=tuned.metric, look=answer.look).to_dict())
        self._below.value = fragment(Paragraph(CAPTION, "note"), *tuning_blocks(tuned, worths))

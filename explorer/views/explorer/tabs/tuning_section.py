"""Section on tuning: what it found against what it took, and speedups with the tuning of both recipes included."""

from collections.abc import Callable

from explorer.errors import ExplorerError
from explorer.search.tuning_worth import worth
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.explorer.tabs.sections import Section
from explorer.views.explorer.tabs.tuning_chart import tuning_blocks
from explorer.views.live_blocks import LiveBlocks

UNTUNED = (
    "This sweep tuned nothing by itself. With `tune: {space: {lr: [0.03, 0.3]}, runs: 24, budget: 0.25, seeds: [100]}`"
    " in its specification, every recipe is tuned with equal effort before its claim is measured."
)


class TuningSection(Section):
    """The tuning of a sweep's recipes."""

    key, title = "tuning", "Tuning"

    def __init__(self, ask: Callable[..., None]) -> None:
        self._place = LiveBlocks()
        super().__init__(ask, [self._place])
        self.add_class("x-rule")

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Show the tuning of the sweep that a question is about."""
        tuned = snapshot.tuned(answer.question.sweep)
        if tuned is None:
            raise ExplorerError(UNTUNED)
        worths = worth(tuned, answer.settled.rows, answer.comparisons)
        self._place.show(tuning_blocks(tuned, worths, answer.look))

"""Section on a search: its answer and how that came about. What it shows was chosen, and is no claim."""

from collections.abc import Callable

from explorer.errors import ExplorerError
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.explorer.tabs.search_chart import search_blocks, searched
from explorer.views.explorer.tabs.sections import Section
from explorer.views.live_blocks import LiveBlocks

UNSEARCHED = (
    "No search chose the runs of this sweep. To try many combinations of methods for little, write"
    " `search: {of: [...], spend: 3h, ladder: [0.125, 0.5, 1.0]}` into a specification, and run"
    " `explorer search SPEC`."
)


class SearchSection(Section):
    """The search that chose the runs of a sweep."""

    key, title = "search", "Search"

    def __init__(self, ask: Callable[..., None]) -> None:
        self.place = LiveBlocks()
        super().__init__(ask, [self.place])
        self.add_class("x-rule")

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Show the search of the sweep that an answer is about."""
        search = searched(snapshot.runs, answer.question.sweep)
        if search is None:
            raise ExplorerError(UNSEARCHED)
        self.place.show(search_blocks(search))

"""The whole grid: every recipe at every budget on every seed, a seed at a time; what all others are cheaper than."""

from collections.abc import Collection, Iterator, Sequence

from explorer.search.searcher import Ranked, Searcher, Seen, Trial
from explorer.search.tally import Tally, first


class WholeGrid(Searcher):
    """The grid in the order of its recipes."""

    name = "grid"

    def next(self, seen: Sequence[Seen], pending: Collection[Trial] = ()) -> Trial | None:
        return first(self._trials(Tally(self.space, seen, pending)))

    def ranking(self, seen: Sequence[Seen]) -> list[Ranked]:
        return Tally(self.space, seen).ranking()

    def _trials(self, tally: Tally) -> Iterator[Trial | None]:
        for repeats in range(1, len(self.space.seeds) + 1):
            for methods in self.space.recipes:
                for budget in self.space.ladder:
                    yield tally.trial(methods, budget, repeats=repeats)

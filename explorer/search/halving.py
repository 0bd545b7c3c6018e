"""Successive halving over the ladder (Jamieson & Talwalkar 2016), asynchronous (ASHA, Li et al. 2020).

Every recipe begins at the shortest budget. Of those that have finished at a budget the best third is raised to the next
one; while none is due, another recipe begins. Budgets are judged by pace: the time that a recipe saves there.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from explorer.search.random_search import shuffled
from explorer.search.searcher import Methods, Ranked, Searcher, Seen, Space, Trial
from explorer.search.tally import BASELINE, REPEATS, Tally, first

RAISED = 3  # one in so many


class Halving(Searcher):
    """Asynchronous successive halving; the best at the top of the ladder are repeated on other seeds."""

    name = "halving"

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        super().__init__(space, seed=seed)
        self._order = shuffled(space, seed)

    def next(self, seen: Sequence[Seen], pending: Collection[Trial] = ()) -> Trial | None:
        return first(self._trials(Tally(self.space, seen, pending)))

    def ranking(self, seen: Sequence[Seen]) -> list[Ranked]:
        return Tally(self.space, seen).ranking()

    def _trials(self, tally: Tally) -> Iterator[Trial | None]:
        ladder, seeds = self.space.ladder, min(REPEATS, len(self.space.seeds))
        # The baseline on several seeds: all are judged by its curve.
        for repeats in range(1, seeds + 1):
            yield from (tally.trial(BASELINE, budget, repeats=repeats) for budget in reversed(ladder))
        for repeats in range(2, seeds + 1):
            due = self._best(tally, ladder[-1])
            yield from (tally.trial(methods, ladder[-1], repeats=repeats) for methods in due)
        for lower, higher in reversed(list(pairwise(ladder))):
            yield from (tally.trial(methods, higher, repeats=1) for methods in self._best(tally, lower))
        yield from (tally.trial(methods, ladder[0], repeats=1) for methods in self._order)
        # All have begun and none is due: the best that were left behind.
        for lower, higher in reversed(list(pairwise(ladder))):
            yield from (tally.trial(methods, higher) for methods in self._best(tally, lower, share=1))
        yield from (tally.trial(methods, budget) for methods in self._order for budget in ladder)

    def _best(self, tally: Tally, budget: float, *, share: int = RAISED) -> list[Methods]:
        """Return the best of those that have finished at a budget, best first."""
        paces = {
            methods: pace
            for methods in tally.qualities
            if methods != BASELINE and (pace := tally.pace(methods, budget)) is not None
        }
        ordered = sorted(paces, key=lambda methods: (paces[methods], sorted(methods)))
        return ordered[: len(ordered) // share]

"""Random search: recipes in random order at the longest budget, repeated; shorter budgets of those that reach."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from explorer.search.searcher import Methods, Ranked, Searcher, Seen, Space, Trial
from explorer.search.tally import BASELINE, REPEATS, Tally, first


def shuffled(space: Space, seed: int) -> list[Methods]:
    """Return the recipes other than the baseline in an order of that seed's own."""
    others = [methods for methods in space.recipes if methods != BASELINE]
    return [others[place] for place in np.random.default_rng([seed, len(others)]).permutation(len(others))]


class RandomSearch(Searcher):
    """Random search with repeats: the baseline first, then a recipe at a time."""

    name = "random"

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        super().__init__(space, seed=seed)
        self._order = shuffled(space, seed)

    def next(self, seen: Sequence[Seen], pending: Collection[Trial] = ()) -> Trial | None:
        tally = Tally(self.space, seen, pending)
        return first(self._trials(tally))

    def ranking(self, seen: Sequence[Seen]) -> list[Ranked]:
        return Tally(self.space, seen).ranking()

    def _trials(self, tally: Tally) -> Iterator[Trial | None]:
        *shorter, top = self.space.ladder
        yield tally.trial(BASELINE, top, repeats=REPEATS)
        target = tally.target
        for methods in self._order:
            yield tally.trial(methods, top, repeats=REPEATS)
            quality = tally.mean(methods, top)
            if quality is not None and target is not None and quality >= target:
                yield from (tally.trial(methods, budget, repeats=REPEATS) for budget in reversed(shorter))
        # Whatever is left, so that the whole spend is used where it is more than all that could reach.
        yield from (tally.trial(methods, budget) for methods in self._order for budget in reversed(shorter))

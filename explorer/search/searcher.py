"""The interface of searchers: what may be tried, what a run showed, and the run to try next.

A searcher is a pure function of what was seen. It keeps nothing between two calls, so a killed search continues from
its finished runs, and a recorded landscape replays the very same decisions.

A recipe is a subset of the space's methods. Its score is the time to the target quality: less is better. Quality is
signed, so that higher is better.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Methods = frozenset[str]


class Trial(NamedTuple):
    """A run to try: a subset of methods, at one budget of the ladder and one seed."""

    methods: Methods
    budget: float
    seed: int


class Seen(NamedTuple):
    """A finished run and its signed quality; None if it failed or diverged, which no other seed will mend."""

    trial: Trial
    quality: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """Recipes and budgets that a search may try."""

    methods: tuple[str, ...]
    recipes: tuple[Methods, ...]  # the subsets that can be built, the empty one (the baseline) first
    ladder: tuple[float, ...]  # budgets, ascending; the schedule of each ends where the budget ends
    seeds: tuple[int, ...]  # in the order in which they are used; a confirmation has others
    seconds: Callable[[Methods, float], float]  # training time at a budget, known from profiles before anything trains
    spend: float  # seconds of training that may be spent
    target: float | None = None  # signed quality to reach; None: the baseline's at its longest budget


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranked:
    """A recipe as the search sees it."""

    methods: Methods
    seconds: float | None  # expected time to the target; None: it is not expected to reach it
    regret: float  # expected share of time lost by choosing it: 0.1 is 10% more than the best


class Searcher(ABC):
    """A rule that chooses runs. Construction takes the space, the seed of its own draws, and nothing else."""

    name: str

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        self.space = space
        self.seed = seed

    @abstractmethod
    def next(self, seen: Sequence[Seen], pending: Collection[Trial] = ()) -> Trial | None:
        """Return the run to try next, while `pending` ones are being trained; None: nothing is worth its time.

        `seen` is in the order in which runs finished. The time that `seen` and `pending` took counts as spent.
        """

    @abstractmethod
    def ranking(self, seen: Sequence[Seen]) -> list[Ranked]:
        """Return the recipes that were tried, best first."""

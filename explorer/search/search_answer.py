"""The answer of a search, as `search.json` has it: what was tried, how it came about, and what to confirm.

It is no claim: its recipes were chosen by their results. Only `explorer confirm` on fresh seeds makes one.
"""

from typing import Literal

from explorer.schema import record

FILE = "search.json"
Ended = Literal["the time is spent", "nothing is worth its time", "stopped"]


@record
class Place:
    """A recipe that was tried, in its place of the ranking."""

    recipe: str
    methods: tuple[str, ...]
    seconds: float | None  # expected time to the target; None: it is not expected to reach it
    regret: float | None  # expected share of time lost by choosing it; None: it does not reach the target
    runs: int
    measured: bool  # its step time was measured; otherwise predicted from those of its methods


@record
class Moment:
    """The recipe in front after so many runs. `seconds` and `regret` are those expected then."""

    runs: int
    spent: float  # seconds of training
    recipe: str
    seconds: float | None
    regret: float | None
    later: float | None  # the time to the target of this recipe, by all runs


@record
class MethodEffect:
    """Effect of one method on quality at the full budget, and on the time of a step, both with intervals."""

    method: str
    quality: float
    low: float
    high: float
    runs: int  # with it
    time: float  # of a whole run over the baseline's, by their profiles: 0.8 is a fifth less


@record
class LeftOut:
    """A combination of methods that was not tried, and why."""

    name: str
    reason: str


@record
class Answer:
    """The answer of a search."""

    format: Literal[1] = 1
    sweep: str
    baseline: str
    spec_digest: str
    searcher: str
    seed: int  # of the searcher's own draws
    metric: str
    target: float | None  # the quality to reach; None: the baseline has none yet
    recipes: int  # that can be built
    spend: float  # seconds of training that may be spent
    spent: float  # seconds of training that the runs take on an idle machine
    runs: int
    failed: int
    ended: Ended
    baseline_seconds: float | None  # its time to the target
    ranking: tuple[Place, ...]  # best first
    left_out: tuple[LeftOut, ...]
    history: tuple[Moment, ...]
    effects: tuple[MethodEffect, ...]

    @property
    def contenders(self) -> tuple[Place, ...]:
        """Return the recipes that reach the target in less time than the baseline, best first."""
        base = self.baseline_seconds
        return tuple(
            place
            for place in self.ranking
            if place.methods and place.seconds is not None and (base is None or place.seconds < base)
        )

"""Spaces with a known truth for tests of searchers."""

from collections.abc import Collection
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from explorer.search.searcher import Methods, Searcher, Seen, Space, Trial

LADDER = (0.125, 0.5, 1.0)


class World(NamedTuple):
    """A space, and what its runs would show."""

    space: Space
    noise: float
    broken: frozenset[Methods]  # these diverge

    def quality(self, methods: Methods, budget: float) -> float:
        """Return the quality without the noise of seeds: methods a, c and e help, b harms, and a with c is less than
        both."""
        effects = {"a": 0.3, "b": -0.4, "c": 0.35, "e": 0.2}
        total = sum(effects.get(name, 0.0) for name in methods) - 0.2 * ({"a", "c"} <= methods)
        return float(np.log(budget) + total)

    def seen(self, trial: Trial) -> Seen:
        """Return the finished run; the same trial gives the same quality."""
        if trial.methods in self.broken:
            return Seen(trial, None)
        key = [trial.seed, round(1000 * trial.budget), *(ord(name[0]) for name in sorted(trial.methods))]
        noise = self.noise * np.random.default_rng(key).standard_normal()
        return Seen(trial, self.quality(trial.methods, trial.budget) + noise)

    def replay(self, searcher: Searcher, *, most: int = 10**6) -> list[Seen]:
        """Return the runs of a search, one at a time."""
        seen: list[Seen] = []
        while len(seen) < most and (trial := searcher.next(seen)) is not None:
            seen.append(self.seen(trial))
        return seen


def world(
    methods: str = "abcde",
    *,
    up_to: int | None = None,
    spend: float = 40.0,
    seeds: tuple[int, ...] = (3, 5),
    noise: float = 0.05,
    broken: Collection[Methods] = (),
) -> World:
    """Return a space of methods with names of one letter; `d` costs half as much again, all others a twentieth."""
    names = tuple(methods)
    sizes = range((len(names) if up_to is None else up_to) + 1)
    recipes = tuple(frozenset(chosen) for size in sizes for chosen in combinations(names, size))
    space = Space(methods=names, recipes=recipes, ladder=LADDER, seeds=seeds, seconds=seconds, spend=spend)
    return World(space, noise, frozenset(broken))


def seconds(methods: Methods, budget: float) -> float:
    """Return the time of a run: a second for the baseline's longest."""
    return budget * (1 + 0.05 * len(methods) + 0.45 * ("d" in methods))


def with_spend(world: World, spend: float) -> World:
    """Return the same world with more or less to spend."""
    return world._replace(space=replace(world.space, spend=spend))

"""How often does the 95% interval of a method's effect hold the truth? Searches over landscapes with known effects.

    OMP_NUM_THREADS=1 python benchmarks/method_effects.py [SIMULATIONS [SECONDS]]    writes benchmarks/method_effects.md

Runs are chosen at random, or by the searcher `effects` from what it saw before, for SECONDS in all. The truth of a
method is its effect in an average recipe at the full budget. As a control, intervals that take pairs and all that runs
share for independent noise.
"""

import math
import platform
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
from options import options, verdict, whole
from pages import write_page

from explorer.search.effects import Effects
from explorer.search.method_effects import SCALES, method_effects
from explorer.search.searcher import Methods, Seen, Space, Trial

SIMULATIONS, SECONDS = 2000, 300
GOAL = "at least 94"
ADDITIVE = tuple(scales for scales in SCALES if not scales.pairs and not scales.shared)  # the control
LADDER, SEEDS = (0.25, 0.5, 1.0), (0, 1)
NOISE = 0.5  # of a run; a main effect has 1


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """Landscapes of one kind. Standard deviations are in units of that of main effects."""

    name: str
    methods: int = 5
    up_to: int = 3
    runs: int = 30
    pairs: float = 0.0
    own: float = 0.0  # what a recipe has beyond pairs
    shared: float = 0.0  # part of the noise's variance that all runs of a budget and seed share
    slope: float = 0.15  # of an effect, a doubling of the budget
    heavy: bool = False  # main effects with three degrees of freedom: one is much larger than the others


ALL = World(name="and noise that runs of a seed share", pairs=0.4, own=0.2, shared=0.25)
WORLDS = (
    World(name="main effects only"),
    World(name="and pairs", pairs=0.4),
    World(name="and what a recipe has of its own", pairs=0.4, own=0.2),
    ALL,
    replace(ALL, name="all of it, main effects heavy-tailed", heavy=True),
    replace(ALL, name="all of it, 20 runs", runs=20),
    replace(ALL, name="all of it, 60 runs", runs=60),
    replace(ALL, name="all of it, 10 methods, 50 runs", methods=10, up_to=4, runs=50),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Landscape:
    """Recipes with their true qualities, and the true effects of methods."""

    space: Space
    quality: Callable[[Trial], float]
    effects: dict[str, float]


def landscape(world: World, rng: np.random.Generator) -> Landscape:
    """Draw a landscape."""
    names = tuple(f"m{at}" for at in range(world.methods))
    recipes = [frozenset(some) for size in range(world.up_to + 1) for some in combinations(names, size)]
    count = len(names)
    main = rng.standard_t(3, count) / np.sqrt(3) if world.heavy else rng.standard_normal(count)
    slope = world.slope * rng.standard_normal(count)
    pairs = np.triu(world.pairs * rng.standard_normal((count, count)), 1)
    pairs = pairs + pairs.T
    own = dict(zip(recipes, world.own * rng.standard_normal(len(recipes)), strict=True))
    level = dict(zip(LADDER, np.log2(LADDER), strict=True))
    shared = {(budget, seed): rng.standard_normal() for budget in LADDER for seed in SEEDS}
    cost = dict(zip(names, rng.uniform(0.9, 1.4, count), strict=True))
    share = np.array([[name in recipe for name in names] for recipe in recipes]).mean(axis=0)

    def quality(trial: Trial) -> float:
        has = np.array([name in trial.methods for name in names], dtype=float)
        mean = has @ (main + slope * level[trial.budget]) + has @ pairs @ has / 2 + own[trial.methods]
        each = np.sqrt(1 - world.shared) * rng.standard_normal()
        noise = NOISE * (each + np.sqrt(world.shared) * shared[trial.budget, trial.seed])
        return float(level[trial.budget] + mean + noise)

    def seconds(methods: Methods, budget: float) -> float:
        return budget * float(np.prod([cost[name] for name in methods]))

    space = Space(methods=names, recipes=tuple(recipes), ladder=LADDER, seeds=SEEDS, seconds=seconds, spend=1e9)
    return Landscape(space=space, quality=quality, effects=dict(zip(names, main + pairs @ share, strict=True)))


def at_random(made: Landscape, runs: int, number: int) -> Iterator[Seen]:
    """Yield runs at random, after the baseline's own."""
    trials = [Trial(*trial) for trial in product(made.space.recipes, LADDER, SEEDS)]
    begin, others = trials[: len(LADDER) * len(SEEDS)], trials[len(LADDER) * len(SEEDS) :]
    order = np.random.default_rng([number, len(others)]).permutation(len(others))
    yield from (Seen(trial, made.quality(trial)) for trial in begin)
    yield from (Seen(others[place], made.quality(others[place])) for place in order[: runs - len(begin)])


def by_effects(made: Landscape, runs: int, number: int) -> Iterator[Seen]:
    """Yield the runs that the searcher chooses from what it saw before, after the baseline's own."""
    seen: list[Seen] = []
    searcher = Effects(made.space, seed=number)
    begin = deque(Trial(frozenset(), budget, seed) for budget in LADDER for seed in SEEDS)
    while len(seen) < runs and (trial := begin.popleft() if begin else searcher.next(seen)) is not None:
        seen.append(Seen(trial, made.quality(trial)))
        yield seen[-1]


CHOSEN = {"random": at_random, "effects": by_effects}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Intervals of one kind of landscape: each value is the mean of one simulation's methods."""

    name: str
    chosen: str
    held: list[float]
    control: list[float]
    width: list[float]

    @property
    def share(self) -> float:
        return float(np.mean(self.held))

    @property
    def error(self) -> float:
        """The standard error of the share; methods of one landscape are not independent, landscapes are."""
        return float(np.std(self.held, ddof=1) / np.sqrt(len(self.held)))


def measure(world: World, chosen: str, *, simulations: int, seconds: float = math.inf) -> Row:
    """Simulate searches until there are enough, or for so long."""
    row = Row(name=world.name, chosen=chosen, held=[], control=[], width=[])
    begun = time.monotonic()
    for number in range(simulations):
        if time.monotonic() - begun > seconds:
            break
        made = landscape(world, np.random.default_rng([number, WORLDS.index(world)]))
        seen = list(CHOSEN[chosen](made, world.runs, number))
        for scales, held in ((SCALES, row.held), (ADDITIVE, row.control)):
            found = method_effects(made.space, seen, scales=scales)
            held.append(float(np.mean([one.low <= made.effects[one.method] <= one.high for one in found])))
            if scales is SCALES:
                row.width.append(float(np.mean([one.high - one.low for one in found])) / 2)
    return row


def page(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Effects of methods\n"
    yield "How often the 95% interval of a method's effect, as the picture of a search draws it, holds the truth: the"
    yield "effect at the full budget in an average recipe. Made by `benchmarks/method_effects.py`, Python"
    yield f"{platform.python_version()}, numpy {np.__version__}.\n"
    yield f"Main effects have a standard deviation of 1, the noise of a run {NOISE:g}; pairs have 0.4, what a recipe"
    yield "has of its own 0.2, and a quarter of the variance of the noise is shared by all runs of a budget and seed."
    yield "Recipes are of up to 3 of 5 methods at 3 budgets with 2 seeds, in 30 runs, where a row does not say"
    yield "otherwise. The *control* takes pairs, recipes and shared noise for independent noise.\n"
    yield "| landscapes | runs chosen by | searches | holds the truth | standard error | control | mean reach |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in rows:
        yield (
            f"| {row.name} | {row.chosen} | {len(row.held):,} | {row.share:.1%} | {row.error:.1%} |"
            f" {np.mean(row.control):.1%} | +-{np.mean(row.width):.2f} |"
        )
    worst = min(rows, key=lambda row: row.share + 2 * row.error)
    least = 100 * (worst.share + 2 * worst.error)
    yield ""
    yield f'- The lowest share, {worst.share:.1%}, is that of "{worst.name}", chosen by {worst.chosen}; with two'
    yield f"  standard errors {least:.1f}% ({verdict(least, GOAL, decimals=1)})."
    lowest = min(float(np.mean(row.control)) for row in rows)
    yield f"- The control falls to {lowest:.1%}: runs that share a pair or a recipe are no independent witnesses."


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("simulations", nargs="?", type=whole(10), default=SIMULATIONS, help="searches a row, at random")
    parser.add_argument("seconds", nargs="?", type=whole(1), default=SECONDS, help="of all searches by `effects`")
    given = parser.parse_args()
    rows = [measure(world, "random", simulations=given.simulations) for world in WORLDS]
    share = given.seconds / len(WORLDS)
    rows += [measure(world, "effects", simulations=given.simulations, seconds=share) for world in WORLDS]
    write_page(Path(__file__).with_suffix(".md"), "\n".join(page(rows)))


if __name__ == "__main__":
    main()

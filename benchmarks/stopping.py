"""Does an interval keep its level where the sweep decides on its number of seeds? A simulation of four rules.

    OMP_NUM_THREADS=1 python benchmarks/stopping.py [SWEEPS]        writes benchmarks/stopping.md

The sweeps are those of `benchmarks/coverage.py`, made with as many seeds as any rule may ask for. A rule sees the first
seeds and says when there are enough. Tables go through the functions behind every answer and through `needed_for`, the
rule of the key `until`.
"""

import itertools
import math
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from coverage import CURVES, Steps, World, saturating, straight
from options import options, verdict, whole
from pages import write_page

from explorer.analysis.comparison import compared
from explorer.analysis.equal_quality import EqualQuality, at_equal_quality
from explorer.search.stopping import Needed, needed_for

SWEEPS = 1000
INTERVAL = 0.2  # the width that is asked for
HALF = math.log1p(INTERVAL)
AT_MOST = 30
EXACT = "straight, 3 seeds, speedup 1, times exact"
OF = "recipe 1"  # the recipe whose interval is asked for


def judged(table: pd.DataFrame) -> dict[int, EqualQuality]:
    """Compare the recipe in every sweep of the table."""
    results = at_equal_quality(compared(table, x="train_seconds"))
    return {int(result.setting.sweep): result for result in results if result.recipe == OF}


def half_width(result: EqualQuality) -> float:
    """Half the width of the interval of the log ratio, as one of its family; infinite where there is none."""
    if result.adjusted_low is None or result.adjusted_high is None:
        return math.inf
    return math.log(result.adjusted_high / result.adjusted_low) / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a sweep ended by a rule. None: without an interval."""

    seeds: int
    held: bool | None  # whether its interval, as one of its family, holds the truth
    half_width: float
    excludes_1: bool


def ended(result: EqualQuality, ratio: float) -> Ended:
    low, high = result.adjusted_low, result.adjusted_high
    if low is None or high is None:
        return Ended(seeds=result.n, held=None, half_width=math.inf, excludes_1=False)
    return Ended(
        seeds=result.n, held=low <= ratio <= high, half_width=half_width(result), excludes_1=not low <= 1 <= high
    )


def two_stages(table: pd.DataFrame, first: int, ratio: float) -> list[Ended]:
    """Stein's rule, as `explorer sweep run` applies it."""
    before = judged(table[table["seed"] < first])
    needs = {sweep: needed_for(result, half_width=HALF) for sweep, result in before.items()}
    number = {
        sweep: min(AT_MOST, need.seeds) if isinstance(need, Needed) and need.seeds is not None else first
        for sweep, need in needs.items()
    }
    # Other recipes keep the seeds of the first stage, as in a sweep.
    most_N = table["sweep"].map(number).where(table["recipe"].isin(["baseline", OF]), first)
    after = table[table["seed"] < most_N]
    return [ended(result, ratio) for result in judged(after.assign(added=after["seed"] >= first)).values()]


def fixed(table: pd.DataFrame, first: int, ratio: float) -> list[Ended]:
    """The seeds of the first stage, and no more."""
    return [ended(result, ratio) for result in judged(table[table["seed"] < first]).values()]


def looks(table: pd.DataFrame, first: int, ratio: float) -> Iterator[dict[int, Ended]]:
    """Every sweep after each further seed, with the interval of a fixed number of seeds."""
    for n in range(first, AT_MOST + 1):
        yield {sweep: ended(result, ratio) for sweep, result in judged(table[table["seed"] < n]).items()}


def repeated(table: pd.DataFrame, first: int, ratio: float) -> tuple[list[Ended], list[Ended]]:
    """Stop once the naive interval is narrow, and: stop once it excludes 1. Both look after every seed."""
    narrow: dict[int, Ended] = {}
    significant: dict[int, Ended] = {}
    last: dict[int, Ended] = {}
    for seen in looks(table, first, ratio):
        for sweep, end in seen.items():
            if end.half_width <= HALF:
                narrow.setdefault(sweep, end)
            if end.excludes_1:
                significant.setdefault(sweep, end)
        last = seen
    return [narrow.get(sweep, end) for sweep, end in last.items()], [
        significant.get(sweep, end) for sweep, end in last.items()
    ]


def covered(ends: list[Ended]) -> float:
    """The share that holds the truth, of those with an interval."""
    return float(np.mean([end.held for end in ends if end.held is not None]))


def narrow_enough(ends: list[Ended]) -> float:
    """The share that is as narrow as asked, of those that were not stopped by the largest number."""
    return float(np.mean([end.half_width <= HALF * (1 + 1e-9) for end in ends if end.seeds < AT_MOST]))


COLUMNS = (
    *(
        "sweeps",
        "rule",
        "holds the truth",
        "excludes 1",
        "median reach",
        "as narrow as asked",
        "median seeds (9 in 10)",
    ),
    *("at the largest number",),
)


def cells(name: str, ends: list[Ended]) -> list[str]:
    seeds = [end.seeds for end in ends]
    width = float(np.median([end.half_width for end in ends if end.held is not None]))
    return [
        name,
        f"{covered(ends):.1%}",
        f"{np.mean([end.excludes_1 for end in ends]):.1%}",
        f"+-{math.expm1(width):.0%}",
        f"{narrow_enough(ends):.0%}",
        f"{np.median(seeds):.0f} ({np.quantile(seeds, 0.9):.0f})",
        f"{np.mean([seed >= AT_MOST for seed in seeds]):.0%}",
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A world and a first stage."""

    words: str
    world: World
    first: int
    looked: bool  # whether the rules that look again and again are simulated too: they take most of the time


def cases() -> Iterator[Case]:
    # Exact times: the rules that look again and again are then judged by what seeds do, and by nothing else.
    exact = World(
        curve=straight,
        n=AT_MOST,
        shared=True,
        speedups=(1.0,),
        steps=Steps(drift=0.0, own=0.0, build=0.0),
        kept="nothing",
    )
    yield Case(words=EXACT, world=exact, first=3, looked=True)
    for curve, first, speedup in itertools.product(CURVES, (3, 5), (1.0, 1.5)):
        world = World(curve=curve, n=AT_MOST, shared=True, speedups=(speedup,))
        yield Case(
            words=f"{curve.__name__}, {first} seeds, speedup {speedup:g}", world=world, first=first, looked=False
        )
    for speedup in (1.0, 1.5):
        world = World(curve=saturating, n=AT_MOST, shared=True, speedups=(speedup, 1.0, 1.0, 1.1, 1.2))
        words = f"saturating, 3 seeds, speedup {speedup:g}, one of five recipes"
        yield Case(words=words, world=world, first=3, looked=False)


def rows(case: Case, sweeps: int) -> Iterator[list[str]]:
    ratio = 1 / case.world.speedups[0]
    tables = list(case.world.tables(sweeps))
    by_rule = {
        "two stages": [end for table in tables for end in two_stages(table, case.first, ratio)],
        "the first seeds only": [end for table in tables for end in fixed(table, case.first, ratio)],
    }
    if case.looked:
        both = [repeated(table, case.first, ratio) for table in tables]
        by_rule["until the plain interval is narrow"] = [end for narrow, _ in both for end in narrow]
        by_rule["until it excludes 1"] = [end for _, significant in both for end in significant]
    for name, ends in by_rule.items():
        yield [case.words, *cells(name, ends)]


def page(sweeps: int) -> Iterator[str]:
    kept, found = [], {}
    lines = []
    for case in cases():
        for row in rows(case, sweeps):
            lines.append(_row(row))
            print(lines[-1], flush=True)
            found[row[0], row[1]] = row
            if row[1] == "two stages":
                kept.append(float(row[2].rstrip("%")))
    exact = 100 * math.sqrt(0.95 * 0.05 / sweeps)
    wrong = float(found[EXACT, "until it excludes 1"][3].rstrip("%"))
    yield from (
        "# Stopping",
        "",
        f"What happens to the level of a 95% interval where the sweep decides on its number of seeds, over {sweeps:,}",
        f"simulated sweeps a row: a share of 95% is known to within {exact:.2f} points (one standard error). Made by",
        f"`benchmarks/stopping.py`, Python {platform.python_version()}, numpy {np.__version__}.",
        "",
        "The sweeps are those of [coverage](coverage.md). Asked for is an interval of the speedup that reaches at",
        f"most {INTERVAL:.0%} to either side, with at most {AT_MOST} seeds. *Two stages* is the rule of `until`:",
        "the first seeds decide, once; the error is that of the first seeds, scaled to all. The last two rules look",
        "after every seed, with the interval that a fixed number of seeds would have. With a speedup of 1 the share",
        "that excludes 1 is that of false claims.",
        "",
        _row(COLUMNS),
        _row(["---"] * len(COLUMNS)),
        *lines,
        "",
        f"- Two stages hold the truth in {min(kept):.1f} to {max(kept):.1f}% of sweeps"
        f" ({verdict(min(kept), 'at least 93', decimals=1)}).",
        "- Adding seeds until 1 is excluded, the negative control, finds a difference between equal recipes in",
        f"  {wrong:.1f}% of sweeps ({verdict(wrong, 'at most 5', decimals=1)}), and in more the longer it may go on.",
        "- Stopping once the plain interval is narrow prefers seeds that agree by luck; it held the truth in",
        f"  {found[EXACT, 'until the plain interval is narrow'][2]}. That is close, and nothing says that it stays so.",
        "- *As narrow as asked* leaves out sweeps that the largest number stopped. Two stages pay for the level with",
        "  seeds where the first ones, few as they are, spread far by chance. With five first seeds, or with several",
        "  recipes whose noise moderates each other's, far fewer are needed.",
        "- A sweep without an interval at the first stage, because a tenth of the resamples does not reach the target,",
        "  gets no seeds; it counts as not excluding 1, and in no other share.",
    )


def _row(parts: Iterable[str]) -> str:
    return f"| {' | '.join(parts)} |"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("sweeps", nargs="?", type=whole(10), default=SWEEPS, help="simulated sweeps a row")
    lines = list(page(parser.parse_args().sweeps))
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))


if __name__ == "__main__":
    main()

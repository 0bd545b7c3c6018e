"""Does the number of further seeds that an inconclusive answer advises decide it? A simulation.

    OMP_NUM_THREADS=1 python benchmarks/power.py [SWEEPS]        writes benchmarks/power.md

Each simulated sweep goes through `compared` and `at_equal_quality`, as in `benchmarks/coverage.py`. Where its answer is
inconclusive, `power_of` advises a number of fresh seeds; sweeps of that many seeds show how often they decide.

The second table is the reason for fresh seeds: recipes that are equal to their baseline, judged again and again as
seeds are added to the same sweep.
"""

import platform
from collections import Counter
from pathlib import Path

import numpy as np
from coverage import World, straight
from options import options, whole
from pages import write_page

from explorer.analysis.comparison import compared
from explorer.analysis.equal_quality import Call, EqualQuality, at_equal_quality
from explorer.analysis.power import MOST_SEEDS, POWER, power_of

SWEEPS = 400
FRESH = 150  # simulated sweeps of fresh seeds for a number of seeds
FIRST = (3, 5)  # seeds of the first sweep
SPEEDUPS = (1.1, 1.2, 1.35)
LOOKS = range(3, 13)


def answers(world: World, sweeps: int) -> list[EqualQuality]:
    """Return the comparison of each simulated sweep."""
    return [result for table in world.tables(sweeps) for result in at_equal_quality(compared(table, x="train_seconds"))]


def is_decided(result: EqualQuality) -> bool:
    return result.call in (Call.LESS, Call.MORE, Call.EQUIVALENT)


def decided_table(sweeps: int) -> list[str]:
    """Return a row for each true speedup and number of first seeds."""
    lines = [
        "| true speedup | first seeds | inconclusive | with a number | median number | quartiles | decided by them |",
        "|---|---|---|---|---|---|---|",
    ]
    share_of: dict[tuple[float, int], float] = {}
    for speedup in SPEEDUPS:
        for first in FIRST:
            undecided = [
                result
                for result in answers(World(curve=straight, n=first, shared=True, speedups=(speedup,)), sweeps)
                if result.call is Call.INCONCLUSIVE
            ]
            advised = [power.seeds for result in undecided if (power := power_of(result)) and power.seeds is not None]
            for seeds in set(advised):
                if (speedup, seeds) not in share_of:
                    world = World(curve=straight, n=seeds, shared=True, speedups=(speedup,))
                    share_of[speedup, seeds] = float(np.mean([is_decided(result) for result in answers(world, FRESH)]))
            counts = Counter(advised)
            decided = sum(count * share_of[speedup, seeds] for seeds, count in counts.items()) / max(1, len(advised))
            low, middle, high = np.quantile(advised, (0.25, 0.5, 0.75))
            with_number = len(advised) / max(1, len(undecided))
            lines.append(
                f"| {speedup:g}x | {first} | {len(undecided) / sweeps:.0%} | {with_number:.0%} |"
                f" {middle:.0f} | {low:.0f} to {high:.0f} | {decided:.0%} |"
            )
            print(lines[-1], flush=True)
    return lines


def looks_table(sweeps: int) -> list[str]:
    """Return how often equal recipes are called different: after every added seed, and once."""
    each_look, last_only = 0, 0
    world = World(curve=straight, n=max(LOOKS), shared=True, speedups=(1.0,))
    for table in world.tables(sweeps):
        wrong, now = set[str](), set[str]()
        for seeds in LOOKS:
            results = at_equal_quality(compared(table[table["seed"] < seeds], x="train_seconds"))
            now = {result.setting.sweep for result in results if result.call in (Call.LESS, Call.MORE)}
            wrong |= now
        each_look += len(wrong)
        last_only += len(now)
    return [
        "| equal recipes, 3 to 12 seeds | called different |",
        "|---|---|",
        f"| judged after every added seed, stopped at the first difference | {each_look / sweeps:.1%} |",
        f"| judged once, at a number that was stated before | {last_only / sweeps:.1%} |",
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("sweeps", nargs="?", type=whole(10), default=SWEEPS, help="simulated sweeps a row")
    sweeps = parser.parse_args().sweeps
    lines = [
        "# Power",
        "",
        "Does the number of fresh seeds that an inconclusive answer advises decide it? Over"
        f" {sweeps:,} simulated sweeps a row; a share is known to within {50 / np.sqrt(sweeps):.0f} points (one"
        f" standard error). Made by `benchmarks/power.py`, Python {platform.python_version()}, numpy {np.__version__}.",
        "",
        *decided_table(sweeps),
        "",
        f"A number is given up to {MOST_SEEDS}, and meant to decide with probability {POWER:.0%} if effect and noise"
        " are what the first seeds show. They are not, so it is called an estimate: where the effect is small, first"
        " seeds that show too large a one advise too few seeds; where it is large, an answer is inconclusive only"
        " because its noise looks too large, and more seeds are advised than needed.",
        "",
        "## Why fresh seeds",
        "",
        *looks_table(sweeps),
        "",
        "Seeds that are added until the interval excludes 1 find a difference where there is none: so further seeds are"
        " a comparison of their own, and seeds that are added to a finished confirmation are marked.",
    ]
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))


if __name__ == "__main__":
    main()

"""Do 95% intervals hold the truth 95 times in a hundred, and does Holm keep its word? A simulation.

    OMP_NUM_THREADS=1 python benchmarks/coverage.py [SWEEPS]        writes benchmarks/coverage.md

Each simulated sweep is a table of results like that of a real one and goes through `compared`, `at_equal_quality` and
`at_equal_budget`, the functions behind every answer of the product: the target and the budget are the baseline's, found
anew in every resample of the seeds. A recipe's curve is the baseline's, moved to shorter times by the true speedup.

Shapes: W sweeps, K recipes (the baseline first), B budgets, S seeds.
"""

import itertools
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from options import options, verdict, whole

from explorer.analysis.comparison import LEAST_REACH_RATE, Compared, compared
from explorer.analysis.equal_budget import at_equal_budget
from explorer.analysis.equal_quality import at_equal_quality
from explorer.analysis.monotone import crossing

SWEEPS = 4000
BATCH = 1000
BUDGETS_B = np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0])
SEEDS = (2, 3, 5, 10)
SPEEDUPS = (1.5, 1.0)
NOISE = 0.15  # of a run's quality, which rises by about 1 when time is multiplied by e at the full budget
PARTS = np.sqrt([1 / 3, 1 / 3, 1 / 3])  # of a seed, of a seed at a budget, of the run alone
EQUAL_RECIPES = 5
LOW, HIGH = 0.93, 0.97


def straight(ssr: np.ndarray) -> np.ndarray:
    """As straight in log time as the curves that are drawn between budgets."""
    return np.log(ssr)


def saturating(ssr: np.ndarray) -> np.ndarray:
    """An approach to a limit: in log time steepest at the full budget, and flatter to both sides."""
    return 2.7 * (1 - np.exp(-ssr))


CURVES = (straight, saturating)


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """What a simulated sweep is drawn from."""

    curve: Callable[[np.ndarray], np.ndarray]
    n: int  # seeds
    shared: bool  # whether the recipes have the seeds of the baseline, and their noise in part
    speedups: tuple[float, ...]

    def tables(self, sweeps: int) -> Iterator[pd.DataFrame]:
        """The results of that many sweeps, some at a time."""
        random = np.random.default_rng(
            [CURVES.index(self.curve), self.n, self.shared, *np.array(self.speedups).view(np.uint32)]
        )
        for begin in range(0, sweeps, BATCH):
            yield self._table(random, min(BATCH, sweeps - begin))

    def _table(self, random: np.random.Generator, sweeps: int) -> pd.DataFrame:
        speed_K = np.array([1.0, *self.speedups])
        shape = sweeps, speed_K.size, BUDGETS_B.size, self.n
        recipes = 1 if self.shared else speed_K.size
        of_seed, at_budget, of_run = NOISE * PARTS
        quality = (
            self.curve(BUDGETS_B)[:, None]
            + random.normal(0, of_seed, (sweeps, recipes, 1, self.n))
            + random.normal(0, at_budget, (sweeps, recipes, BUDGETS_B.size, self.n))
            + random.normal(0, of_run, shape)
        )
        w, k, b, s = (index.ravel() for index in np.indices(shape))
        names = np.array(["baseline", *(f"recipe {number}" for number in range(1, speed_K.size))])
        return pd.DataFrame(
            {
                **{"sweep": w, "recipe": names[k], "recipe_digest": names[k], "is_baseline": k == 0, **_SAME},
                **{"ssr": BUDGETS_B[b], "seed": s if self.shared else s + self.n * k, "quality": quality.ravel()},
                "train_seconds": 100 * BUDGETS_B[b] / speed_K[k],
            }
        )


_SAME = {
    **{"dataset": "simulated", "model": "simulated", "metric": "quality", "unit": "", "higher_is_better": True},
    **{"device": "cpu", "hardware": "none", "threads": 1, "world_size": 1, "baseline": "baseline", "tuning": "none"},
    **{"control": None, "control_of": None, "inference_ratio": 1.0, "time_source": "measured"},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Covered:
    """The shares of the sweeps in which an interval held the truth; of those that had one."""

    quality: float  # the time ratio at equal quality
    budget: float  # the difference in quality at equal time
    plain: float  # the ratio again, by the plain percentile bootstrap: the negative control
    without: float  # the share of sweeps without an interval at equal quality


def coverage(world: World, sweeps: int) -> Covered:
    """For a world with one recipe beside the baseline."""
    (speedup,) = world.speedups
    ratio = 1 / speedup
    gain = float(np.subtract(*world.curve(np.array([speedup, 1.0]))))
    at_quality, at_budget, plain = [], [], []
    for table in world.tables(sweeps):
        found = compared(table, x="train_seconds")
        at_quality += [_holds(each.ratio_low, ratio, each.ratio_high) for each in at_equal_quality(found)]
        at_budget += [_holds(each.low, gain, each.high) for each in at_equal_budget(found)]
        plain += [_holds(low, ratio, high) for low, high in map(percentiles, found)]
    return Covered(
        quality=_share(at_quality),
        budget=_share(at_budget),
        plain=_share(plain),
        without=at_quality.count(None) / sweeps,
    )


def _holds(low: float | None, truth: float, high: float | None) -> bool | None:
    return None if low is None or high is None else low <= truth <= high


def _share(held: Sequence[bool | None]) -> float:
    return float(np.mean([each for each in held if each is not None]))


def percentiles(each: Compared) -> tuple[float, float]:
    """The plain percentile interval of the ratio, from the very resamples that the product takes."""
    both = each.pair
    assert both is not None and both.baseline.at_full_budget_R is not None
    base, mine = (
        crossing(side.x_RB, side.y_RB, both.baseline.at_full_budget_R) for side in (both.baseline, both.recipe)
    )
    ratios = np.repeat(mine.x_R / base.x_R, both.weight_R.astype(int))
    low, high = np.nanpercentile(ratios, [2.5, 97.5])
    return float(low), float(high)


@dataclass(frozen=True, kw_only=True, slots=True)
class Errors:
    """The shares of the sweeps of equal recipes in which at least one is called different from the baseline."""

    holm: float  # as the product says it
    holm_at_budget: float
    alone: float  # by its own interval, as if it were the only one
    plain: float  # by the plain percentile bootstrap


def family_errors(world: World, sweeps: int) -> Errors:
    """For a world of several recipes that are all equal to the baseline."""
    errors: dict[str, set[tuple[int, str]]] = {"holm": set(), "holm_at_budget": set(), "alone": set(), "plain": set()}
    for batch, table in enumerate(world.tables(sweeps)):
        found = compared(table, x="train_seconds")
        for each, at_quality, at_budget in zip(found, at_equal_quality(found), at_equal_budget(found), strict=True):
            low, high = percentiles(each)
            said = {
                "holm": at_quality.significant,
                "holm_at_budget": at_budget.significant,
                "alone": at_quality.differs,
                "plain": not low <= 1 <= high,
            }
            for name in said:
                errors[name] |= {(batch, each.match.setting.sweep)} if said[name] else set()
    return Errors(**{name: len(sweeps_with) / sweeps for name, sweeps_with in errors.items()})


def coverage_table(sweeps: int) -> list[str]:
    """A row for each kind of curve and seeds; what leaves 93 to 97% is in bold."""
    title = (
        *("curve", "seeds", "n", "ratio at equal quality, true speedup 1.5", "the same, 1.0"),
        *("difference at equal time, 1.5", "the same, 1.0", "plain percentile bootstrap of the ratio", "no interval"),
    )
    lines = [_row(title), _row(["---"] * len(title))]
    for curve, shared, n in itertools.product(CURVES, (True, False), SEEDS):
        found = [coverage(World(curve=curve, n=n, shared=shared, speedups=(each,)), sweeps) for each in SPEEDUPS]
        shares = [getattr(each, name) for name in ("quality", "budget") for each in found]
        cells = [f"{share:.1%}" if LOW <= share <= HIGH else f"**{share:.1%}**" for share in shares]
        means = [np.mean([getattr(each, name) for each in found]) for name in ("plain", "without")]
        whose = "the same" if shared else "others"
        lines.append(_row([curve.__name__, whose, str(n), *cells, *(f"{mean:.1%}" for mean in means)]))
        print(lines[-1], flush=True)
    return lines


def family_table(sweeps: int) -> list[str]:
    """A row for each kind of seeds."""
    title = "seeds", "n", "Holm, equal quality", "Holm, equal time", "each interval alone", "plain percentile bootstrap"
    lines = [_row(title), _row(["---"] * len(title))]
    for shared, n in itertools.product((True, False), SEEDS):
        world = World(curve=straight, n=n, shared=shared, speedups=(1.0,) * EQUAL_RECIPES)
        found = family_errors(world, sweeps)
        held = [verdict(100 * share, "at most 5", decimals=1) for share in (found.holm, found.holm_at_budget)]
        shares = [f"{found.holm:.1%} ({held[0]})", f"{found.holm_at_budget:.1%} ({held[1]})"]
        shares += [f"{found.alone:.1%}", f"{found.plain:.1%}"]
        lines.append(_row(["the same" if shared else "others", str(n), *shares]))
        print(lines[-1], flush=True)
    return lines


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("sweeps", nargs="?", type=whole(10), default=SWEEPS, help="simulated sweeps a cell")
    sweeps = parser.parse_args().sweeps
    wide, narrow = (100 * np.sqrt(share * (1 - share) / sweeps) for share in (0.95, 0.05))
    lines = [
        "# Coverage",
        "",
        f"How often 95% intervals hold the truth, over {sweeps:,} simulated sweeps a cell: a share of 95% is known to",
        f"within {wide:.2f} points (one standard error). Made by `benchmarks/coverage.py`, Python",
        f"{platform.python_version()}, numpy {np.__version__}.",
        "",
        f"Six budgets, 0.25 to 2. A run's quality has normal noise of {NOISE}, in the unit in which it rises by about",
        "1 when time is multiplied by e; times are exact. A third of the noise's variance belongs to the seed, a third",
        "to the seed at a budget, a third to the run alone; recipes with the baseline's seeds share the first two.",
        "Target and budget are the baseline's, found anew in every resample.",
        "",
        *coverage_table(sweeps),
        "",
        "The plain percentile bootstrap, from the very same resamples, is the negative control. A share outside",
        f"{LOW:.0%} to {HIGH:.0%} is bold. Shares are of the sweeps that have an interval; the last column is the",
        f"share of those that have none, because fewer than {LEAST_REACH_RATE:.0%} of the resamples reach the target.",
        "",
        "## Many comparisons",
        "",
        f"How often a sweep of {EQUAL_RECIPES} recipes that are all equal to the baseline shows one of them to differ:",
        f"should be at most 5%, which is known to within {narrow:.2f} points. Curves are straight.",
        "",
        *family_table(sweeps),
        "",
        "Ten seeds that are not the baseline's are where equal quality errs a little more often than it says. Its",
        "standard error is right on average, but carries the noise of the curve's slope at the target too, so that it",
        "varies more than the 2(n-1) degrees of freedom of its t quantile allow. Seeds that are shared, as those of",
        "a sweep are, have n-1, and stay below.",
    ]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

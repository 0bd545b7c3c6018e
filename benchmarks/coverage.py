"""Do 95% intervals hold the truth 95 times in a hundred, one by one and as a family? A simulation.

    OMP_NUM_THREADS=1 python benchmarks/coverage.py [SWEEPS]        writes benchmarks/coverage.md

Each simulated sweep is a table of results like that of a real one and goes through `compared`, `at_equal_quality` and
`at_equal_budget`, the functions behind every answer of the product: the target and the budget are the baseline's, found
again in every resample of the seeds. A recipe's curve is the baseline's, moved to shorter times by the true speedup.

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
from pages import write_page

from explorer.analysis.comparison import LEAST_REACH_RATE, Compared, compared
from explorer.analysis.equal_budget import at_equal_budget
from explorer.analysis.equal_quality import Call, at_equal_quality
from explorer.analysis.monotone import crossing
from explorer.analysis.step_times import BUILD

SWEEPS = 4000
ROUNDS = 7  # windows of a profile
BATCH = 1000
BUDGETS_B = np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0])
SEEDS = (2, 3, 5, 10)
SPEEDUPS = (1.5, 1.0)
NOISE = 0.15  # of a run's quality, which rises by about 1 when time is multiplied by e at the full budget
PARTS = np.sqrt([1 / 3, 1 / 3, 1 / 3])  # of a seed, of a seed at a budget, of the run only
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
class Steps:
    """The noise of step times, as standard deviations of their logarithms."""

    drift: float  # from one round to the next, which recipes that are measured in turn share
    own: float  # of a window
    disturbed: float = 0.0  # a seventh of the windows is longer, by an exponential of this mean
    build: float = BUILD  # of a recipe for as long as it is in memory: no window shows it

    def windows(self, random: np.random.Generator, sweeps: int, recipes: int) -> tuple[np.ndarray, np.ndarray]:
        """Factors of the true time: of each window, W x K x rounds, and of the whole profile."""
        shape = sweeps, recipes, ROUNDS
        logs = random.normal(0, self.drift, (sweeps, 1, ROUNDS)) + random.normal(0, self.own, shape)
        logs += random.normal(0, self.build, (sweeps, recipes, 1))
        if self.disturbed:
            logs += (random.random(shape) < 1 / 7) * random.exponential(self.disturbed, shape)
        windows = np.exp(logs)
        return windows, np.median(windows, axis=2)


QUIET = Steps(drift=0.01, own=0.01)
BUSY = Steps(drift=0.08, own=0.03, disturbed=0.2)


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """Distribution that a simulated sweep is drawn from."""

    curve: Callable[[np.ndarray], np.ndarray]
    n: int  # seeds
    shared: bool  # whether the recipes have the seeds of the baseline, and their noise in part
    speedups: tuple[float, ...]
    noise: float = NOISE  # of a run's quality
    steps: Steps = QUIET
    kept: str = "windows"  # what profiles keep: windows in turn, windows of other passes, quartiles, or nothing

    def tables(self, sweeps: int) -> Iterator[pd.DataFrame]:
        """The results of that many sweeps, some at a time."""
        random = np.random.default_rng(
            [CURVES.index(self.curve), self.n, self.shared, *np.array([*self.speedups, self.noise]).view(np.uint32)]
        )
        for begin in range(0, sweeps, BATCH):
            yield self._table(random, min(BATCH, sweeps - begin))

    def _table(self, random: np.random.Generator, sweeps: int) -> pd.DataFrame:
        speed_K = np.array([1.0, *self.speedups])
        shape = sweeps, speed_K.size, BUDGETS_B.size, self.n
        recipes = 1 if self.shared else speed_K.size
        of_seed, at_budget, of_run = self.noise * PARTS
        quality = (
            self.curve(BUDGETS_B)[:, None]
            + random.normal(0, of_seed, (sweeps, recipes, 1, self.n))
            + random.normal(0, at_budget, (sweeps, recipes, BUDGETS_B.size, self.n))
            + random.normal(0, of_run, shape)
        )
        w, k, b, s = (index.ravel() for index in np.indices(shape))
        names = np.array(["baseline", *(f"recipe {number}" for number in range(1, speed_K.size))])
        windows_WKR, stated_WK = self.steps.windows(random, sweeps, speed_K.size)
        seconds = 100 * BUDGETS_B[b] / speed_K[k]
        table = pd.DataFrame(
            {
                **{"sweep": w, "recipe": names[k], "recipe_digest": names[k], "is_baseline": k == 0, **_SAME},
                **{"ssr": BUDGETS_B[b], "seed": s if self.shared else s + self.n * k, "quality": quality.ravel()},
                "train_seconds": seconds * stated_WK[w, k],
            }
        )
        if self.kept == "nothing":
            return table
        low_WK, high_WK = np.quantile(windows_WKR, [0.25, 0.75], axis=2, method="weibull")  # as profiles have them
        table = table.assign(train_seconds_low=seconds * low_WK[w, k], train_seconds_high=seconds * high_WK[w, k])
        if self.kept == "quartiles":
            return table
        passes = w.astype(str) if self.kept == "windows" else np.char.add(w.astype(str), names[k])
        rounds = list(seconds[:, None] * windows_WKR[w, k])
        return table.assign(train_seconds_windows=pd.Series(rounds, dtype=object), profile_pass=passes)


_SAME = {
    **{"dataset": "simulated", "model": "simulated", "metric": "quality", "unit": "", "higher_is_better": True},
    **{"device": "cpu", "hardware": "none", "threads": 1, "world_size": 1, "baseline": "baseline", "tuning": "none"},
    **{"control": None, "control_of": None, "inference_ratio": 1.0, "time_source": "profiled"},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Covered:
    """The shares of the sweeps in which an interval held the truth; of those that had one."""

    quality: float  # the time ratio at equal quality
    budget: float  # the difference in quality at equal time
    plain: float  # the ratio again, by the plain percentile bootstrap: the negative control
    blind: float  # the ratio again, as if times were exact: the other negative control
    without: float  # the share of sweeps without an interval at equal quality


def coverage(world: World, sweeps: int) -> Covered:
    """Return the true speedup of a world with a baseline and one recipe."""
    (speedup,) = world.speedups
    ratio = 1 / speedup
    gain = float(np.subtract(*world.curve(np.array([speedup, 1.0]))))
    at_quality, at_budget, plain, blind = [], [], [], []
    for table in world.tables(sweeps):
        found = compared(table, x="train_seconds")
        at_quality += [_holds(each.ratio_low, ratio, each.ratio_high) for each in at_equal_quality(found)]
        at_budget += [_holds(each.low, gain, each.high) for each in at_equal_budget(found)]
        plain += [_holds(low, ratio, high) for low, high in map(percentiles, found)]
        exact = at_equal_quality(compared(without_times(table), x="train_seconds"))
        blind += [_holds(each.ratio_low, ratio, each.ratio_high) for each in exact]
    return Covered(
        quality=_share(at_quality),
        budget=_share(at_budget),
        plain=_share(plain),
        blind=_share(blind),
        without=at_quality.count(None) / sweeps,
    )


def without_times(table: pd.DataFrame) -> pd.DataFrame:
    """The table as if nothing were known of the noise of step times."""
    return table[[name for name in table.columns if not (name.startswith("train_seconds_") or name == "profile_pass")]]


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

    adjusted: float  # as the product says it
    adjusted_at_budget: float
    single: float  # by its own interval, as if it were the only one
    plain: float  # by the plain percentile bootstrap


def family_errors(world: World, sweeps: int) -> Errors:
    """For a world of several recipes that are all equal to the baseline."""
    errors: dict[str, set[tuple[int, str]]] = {
        name: set() for name in ("adjusted", "adjusted_at_budget", "single", "plain")
    }
    for batch, table in enumerate(world.tables(sweeps)):
        found = compared(table, x="train_seconds")
        for each, at_quality, at_budget in zip(found, at_equal_quality(found), at_equal_budget(found), strict=True):
            low, high = percentiles(each)
            said = {
                "adjusted": at_quality.call in (Call.LESS, Call.MORE),
                "adjusted_at_budget": at_budget.better is not None,
                "single": at_quality.p_value is not None and at_quality.p_value <= 0.05,
                "plain": not low <= 1 <= high,
            }
            for name in said:
                errors[name] |= {(batch, each.match.setting.sweep)} if said[name] else set()
    return Errors(**{name: len(sweeps_with) / sweeps for name, sweeps_with in errors.items()})


def coverage_table(sweeps: int) -> list[str]:
    """A row for each kind of curve and seeds; what leaves 93 to 97% is in bold."""
    title = (
        *("curve", "seeds", "n", "ratio at equal quality, true speedup 1.5", "the same, 1.0"),
        *("difference at equal time, 1.5", "the same, 1.0", "plain percentile bootstrap of the ratio"),
        *("ratio, times taken for exact", "no interval"),
    )
    lines = [_row(title), _row(["---"] * len(title))]
    for curve, shared, n in itertools.product(CURVES, (True, False), SEEDS):
        found = [coverage(World(curve=curve, n=n, shared=shared, speedups=(each,)), sweeps) for each in SPEEDUPS]
        shares = [getattr(each, name) for name in ("quality", "budget") for each in found]
        cells = [f"{share:.1%}" if LOW <= share <= HIGH else f"**{share:.1%}**" for share in shares]
        means = [np.mean([getattr(each, name) for each in found]) for name in ("plain", "blind", "without")]
        whose = "the same" if shared else "others"
        lines.append(_row([curve.__name__, whose, str(n), *cells, *(f"{mean:.1%}" for mean in means)]))
        print(lines[-1], flush=True)
    return lines


def times_table(sweeps: int) -> list[str]:
    """A row for each machine and what its profiles keep, where seeds hardly differ."""
    title = "machine", "profiles keep", "seeds' noise", "ratio at equal quality", "difference at equal time"
    title = *title, "ratio, times taken for exact"
    lines = [_row(title), _row(["---"] * len(title))]
    kept = {"windows": "windows, in turn", "other passes": "windows, of other passes", "quartiles": "quartiles"}
    for (machine, steps), name, noise in itertools.product(
        (("quiet", QUIET), ("busy", BUSY)), kept, (NOISE / 10, NOISE / 100)
    ):
        world = World(curve=straight, n=3, shared=True, speedups=(1.5,), noise=noise, steps=steps, kept=name)
        found = coverage(world, sweeps)
        shares = found.quality, found.budget
        cells = [f"{share:.1%}" if share >= LOW else f"**{share:.1%}**" for share in shares]
        lines.append(_row([machine, kept[name], f"{noise:g}", *cells, f"{found.blind:.1%}"]))
        print(lines[-1], flush=True)
    return lines


def family_table(sweeps: int) -> list[str]:
    """A row for each kind of seeds."""
    title = (
        "seeds",
        "n",
        "adjusted, equal quality",
        "adjusted, equal time",
        "each interval by itself",
        "plain percentile bootstrap",
    )
    lines = [_row(title), _row(["---"] * len(title))]
    for shared, n in itertools.product((True, False), SEEDS):
        world = World(curve=straight, n=n, shared=shared, speedups=(1.0,) * EQUAL_RECIPES)
        found = family_errors(world, sweeps)
        held = [verdict(100 * share, "at most 5", decimals=1) for share in (found.adjusted, found.adjusted_at_budget)]
        shares = [f"{found.adjusted:.1%} ({held[0]})", f"{found.adjusted_at_budget:.1%} ({held[1]})"]
        shares += [f"{found.single:.1%}", f"{found.plain:.1%}"]
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
        "1 when time is multiplied by e. A third of its variance belongs to the seed, a third to the seed at a budget,",
        "a third only to the run; recipes with the baseline's seeds share the first two. Target and budget are the",
        f"baseline's, found again in every resample. A time is the median of {ROUNDS} windows, measured in turn with",
        "those of the other recipes on a quiet machine. The logarithm of a window has a standard deviation of",
        f"{QUIET.own:g} of its own, {QUIET.drift:g} of the round, which all recipes share, and {QUIET.build:g} of the",
        "recipe, which all rounds share.",
        "",
        *coverage_table(sweeps),
        "",
        "The plain percentile bootstrap, from the very same resamples, is the negative control. A share outside",
        f"{LOW:.0%} to {HIGH:.0%} is bold. Shares are of the sweeps that have an interval; the last column is the",
        f"share of those that have none, because fewer than {LEAST_REACH_RATE:.0%} of the resamples reach the target.",
        "",
        "## Where seeds agree and times do not",
        "",
        "Three seeds, straight curves, a true speedup of 1.5. On the busy machine a window has a standard deviation",
        f"of {BUSY.own:g} of its own and {BUSY.drift:g} of its round, and a seventh of the windows is disturbed, by",
        f"{BUSY.disturbed:g} in the mean. The seeds' noise is a tenth or a hundredth of what it is above. A share",
        f"below {LOW:.0%} is bold. These intervals hold the truth more often than they say: from few windows the error",
        "of a median is taken for too large rather than too small.",
        "",
        *times_table(sweeps),
        "",
        "## Many comparisons",
        "",
        f"How often a sweep of {EQUAL_RECIPES} recipes that are all equal to the baseline shows one of them to differ:",
        f"should be at most 5%, which is known to within {narrow:.2f} points. Curves are straight.",
        "",
        *family_table(sweeps),
        "",
        "Where ten seeds are not the baseline's, equal quality may err a little more often than it says. Its",
        "standard error is right on average, but carries the noise of the curve's slope at the target too, so that it",
        "varies more than the 2(n-1) degrees of freedom of its t quantile allow. Seeds that are shared, as those of",
        "a sweep are, have n-1, and stay below.",
    ]
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))


if __name__ == "__main__":
    main()

"""Do intervals whose noise is moderated over the recipes of a sweep hold the truth as often, and are they narrower?

    OMP_NUM_THREADS=1 python benchmarks/moderated.py [SWEEPS] [WHOLE]        writes benchmarks/moderated.md

Each simulated sweep has a baseline and some recipes on the same seeds. An estimate is a sum of weighed qualities, as
the product's are near enough: half of the recipes are compared with the baseline at its own budget, half at 2/3 of it,
which is interpolated between two budgets. Their noise goes through `moderated`, the function behind every answer, for
many sweeps at a time. WHOLE sweeps of some cells go through the product from a table of results on: curves, targets
that are the baseline's own, resamples, and probes. Five minutes, and ten more for 400 whole sweeps.

Shapes: W sweeps, M recipes (the baseline first), K comparisons, B budgets, S seeds.
"""

import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from coverage import BUDGETS_B, CURVES, World
from options import options, verdict, whole
from pages import write_page
from scipy.special import stdtrit

from explorer.analysis.comparison import Compared, compared
from explorer.analysis.equal_budget import at_equal_budget
from explorer.analysis.equal_quality import at_equal_quality
from explorer.analysis.moderation import LEAST_RECIPES, MOST_PRIOR_DF, MOST_SEEDS, UNLIKE, moderated

OUT = Path(__file__).with_suffix(".md")
SWEEPS, WHOLE = 10_000, 400
BATCH = 1000
SEEDS, COMPARISONS = (2, 3, 5, 10), (3, 5, 10, 20)
LEAST = 94.0  # percent that every cell should hold, but for twice its standard error
FULL = int(np.flatnonzero(BUDGETS_B == 1.0)[0])
FASTER = 1.5
Random = np.random.Generator


# --- kinds of noise, W x M x B x S, with a standard deviation of about 1 ---


def plain(random: Random, w: int, m: int, n: int) -> np.ndarray:
    return random.normal(0, 1, (w, m, BUDGETS_B.size, n))


def of_recipes(df: int) -> Callable[[Random, int, int, int], np.ndarray]:
    """Variances of recipes, the baseline's among them, from a scaled inverse chi-square."""

    def noise(random: Random, w: int, m: int, n: int) -> np.ndarray:
        return plain(random, w, m, n) * np.sqrt(df / random.chisquare(df, (w, m, 1, 1)))

    return noise


def heavy(random: Random, w: int, m: int, n: int) -> np.ndarray:
    return random.standard_t(3, (w, m, BUDGETS_B.size, n)) / np.sqrt(3)


def of_budgets(random: Random, w: int, m: int, n: int) -> np.ndarray:
    return plain(random, w, m, n) * np.array([3.0, 2.0, 1.5, 1.0, 0.8, 0.7])[:, None]


def trunks(random: Random, w: int, m: int, n: int) -> np.ndarray:
    """Seven tenths of the variance of a run are those of its recipe and seed, at all budgets."""
    return np.sqrt(0.3) * plain(random, w, m, n) + np.sqrt(0.7) * plain(random, w, m, n)[:, :, :1]


def seeds(random: Random, w: int, m: int, n: int) -> np.ndarray:
    """A third of the variance is the seed's, a third the seed's at a budget, in all recipes; a third the run's."""
    of_seed = random.normal(0, 1, (w, 1, 1, n))
    return (plain(random, w, m, n) + plain(random, w, 1, n) + of_seed) / np.sqrt(3)


def unlike(times: float, place: int) -> Callable[[Random, int, int, int], np.ndarray]:
    """One recipe has `times` the others' standard deviation; at place 0 it is the baseline."""

    def noise(random: Random, w: int, m: int, n: int) -> np.ndarray:
        return plain(random, w, m, n) * np.where(np.arange(m) == place, times, 1.0)[:, None, None]

    return noise


def alike(random: Random, w: int, m: int, n: int) -> np.ndarray:
    """Recipes come in threes that share two thirds of the variance with each other, as variants of one idea do."""
    group_M = np.r_[0, 1 + np.arange(m - 1) // 3]
    return np.sqrt(1 / 3) * plain(random, w, m, n) + np.sqrt(2 / 3) * plain(random, w, m, n)[:, group_M]


Noise = Callable[[Random, int, int, int], np.ndarray]
WORLDS: dict[str, Noise] = {
    "equal variances": plain,
    "moderate spread (prior df 10)": of_recipes(10),
    "wild spread (prior df 4)": of_recipes(4),
    "heavy tails (t, 3 df)": heavy,
    "variances of budgets": of_budgets,
    "budgets of one trunk": trunks,
    "noise of seeds in all recipes": seeds,
    "one recipe 3 times as noisy": unlike(3.0, 1),
}
BROKEN: dict[str, tuple[Noise, int | None]] = {  # with the comparison whose coverage is shown; None for all
    "one recipe 1.5 times as noisy: its own interval": (unlike(1.5, 1), 0),
    "one recipe 3 times as noisy: its own interval": (unlike(3.0, 1), 0),
    "the baseline 1.5 times as noisy": (unlike(1.5, 0), None),
    "the baseline 3 times as noisy": (unlike(3.0, 0), None),
    "recipes in threes that share two thirds of their noise": (alike, None),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """Shares in percent and ratios, over all comparisons of a cell's sweeps."""

    before: float
    after: float
    error: float  # standard error of `after`: comparisons of one sweep belong together
    width: float  # mean width over that before
    together_before: float  # all intervals of a sweep, adjusted, hold at once
    together: float
    together_width: float
    pooled: float  # with one variance for all recipes: the negative control
    pooled_together: float


def weights() -> tuple[np.ndarray, np.ndarray]:
    """The weights of the baseline's budgets, and of a recipe's at equal budget and at 2/3 of it."""
    base_B, half_B = np.zeros((2, BUDGETS_B.size))
    base_B[FULL] = -1.0
    upper = int(np.searchsorted(BUDGETS_B, 1 / FASTER))
    low, high = np.log(BUDGETS_B[upper - 1 : upper + 1])
    half_B[upper] = (np.log(1 / FASTER) - low) / (high - low)
    half_B[upper - 1] = 1 - half_B[upper]
    return base_B, np.array([-base_B, half_B])


def held(noise: Noise, *, n: int, comparisons: int, sweeps: int, of: int | None = None) -> Cell:
    """The coverage of the intervals of sweeps whose estimates are nothing but noise around the truth, 0."""
    random = np.random.default_rng([n, comparisons, *noise.__qualname__.encode()])
    parts = [
        _batch(noise(random, min(BATCH, sweeps - begin), comparisons + 1, n), of) for begin in range(0, sweeps, BATCH)
    ]
    joined = [np.concatenate([part[place] for part in parts]) for place in range(6)]
    before, after, pooled, together_before, together, pooled_together = joined
    widths = np.sum([part[6] for part in parts], axis=0)
    return Cell(
        before=100 * before.mean(),
        after=100 * after.mean(),
        error=100 * after.std() / np.sqrt(sweeps),
        width=widths[1] / widths[0],
        together_before=100 * together_before.mean(),
        together=100 * together.mean(),
        together_width=widths[3] / widths[2],
        pooled=100 * pooled.mean(),
        pooled_together=100 * pooled_together.mean(),
    )


def _batch(noise_WMBS: np.ndarray, of: int | None) -> tuple[np.ndarray, ...]:
    """Shares of held intervals in each sweep, and sums of widths: before, after, and both of them adjusted."""
    base_B, own_2B = weights()
    n, family = noise_WMBS.shape[3], noise_WMBS.shape[1] - 1
    base_WMS = np.einsum("wmbs,b->wms", noise_WMBS, base_B)
    both_2WMS = np.einsum("wmbs,kb->kwms", noise_WMBS, own_2B)
    turn_K = np.arange(family) % 2  # recipes take turns at the two budgets
    rows_WKS = np.where(turn_K[:, None] == 0, both_2WMS[0][:, 1:], both_2WMS[1][:, 1:]) + base_WMS[:, :1]
    distance_WK, before_WK = np.abs(rows_WKS.mean(axis=2)), rows_WKS.std(axis=2, ddof=1) / np.sqrt(n)
    found = [moderated(base_WMS, own_WMS) for own_WMS in both_2WMS]
    own_WK, shared_WK, df_WK, unlike_WK = (
        np.where(turn_K == 0, first, second)
        for first, second in zip(*[_by_comparison(each) for each in found], strict=True)
    )
    means_W1 = [(_residual(base_WMS) + _residual(own)).mean(axis=1, keepdims=True) for own in both_2WMS]
    pooled_WK = np.where(turn_K == 0, *means_W1)
    widths = [_widths(before_WK, own_WK, shared_WK, df_WK, unlike_WK, n=n, alpha=a) for a in (0.05, 0.05 / family)]
    (before, after), (before_adjusted, after_adjusted) = widths
    spread_WK = np.sqrt((pooled_WK + shared_WK) / n)
    naive, naive_adjusted = (spread_WK * -stdtrit(family * (n - 1), a / 2) for a in (0.05, 0.05 / family))
    chosen = slice(None) if of is None else slice(of, of + 1)
    return (
        *((distance_WK <= half)[:, chosen].mean(axis=1) for half in (before, after, naive)),
        *((distance_WK <= half).all(axis=1) for half in (before_adjusted, after_adjusted, naive_adjusted)),
        np.array([half[:, chosen].sum() for half in (before, after, before_adjusted, after_adjusted)]),
    )


def _by_comparison(found) -> tuple[np.ndarray, ...]:
    return found.own_M[:, 1:], found.shared[:, None], found.own_df[:, None], found.unlike_M[:, 1:]


def _residual(row_WMS: np.ndarray) -> np.ndarray:
    m = row_WMS.shape[1]
    return (row_WMS - row_WMS.mean(axis=1, keepdims=True)).var(axis=2, ddof=1) * m / (m - 1)


def _widths(
    spread: np.ndarray, own: np.ndarray, shared: np.ndarray, df: np.ndarray, unlike: np.ndarray, *, n: int, alpha: float
) -> tuple[np.ndarray, np.ndarray]:
    """Half widths before and after, put together as the product does."""
    by_seeds = stdtrit(n - 1, alpha / 2)
    before = spread * -by_seeds
    if n > MOST_SEEDS:
        return before, before
    after = np.sqrt((own * stdtrit(df, alpha / 2) ** 2 + shared * by_seeds**2) / n)
    return before, np.where(unlike, np.maximum(before, after), after)


# --- whole sweeps, through the product ---


def through_the_product(world: World, sweeps: int) -> tuple[float, ...]:
    """Coverage before and after and the ratio of widths, at equal quality and at equal budget."""
    speedup = world.speedups[0]
    gain = float(np.subtract(*world.curve(np.array([speedup, 1.0]))))
    kept: dict[tuple[str, bool], list[tuple[bool, float]]] = {(c, m): [] for c in ("x", "y") for m in (False, True)}
    for table in world.tables(sweeps):
        found = compared(table, x="train_seconds")
        for with_others, each in ((True, found), (False, by_own_seeds(found))):
            kept["x", with_others] += [
                (r.ratio_low <= 1 / speedup <= r.ratio_high, np.log(r.ratio_high / r.ratio_low))
                for r in at_equal_quality(each)
                if r.ratio_low is not None and r.ratio_high is not None
            ]
            kept["y", with_others] += [
                (r.low <= gain <= r.high, r.high - r.low)
                for r in at_equal_budget(each)
                if r.low is not None and r.high is not None
            ]
    means = {key: np.mean(values, axis=0) for key, values in kept.items()}
    return tuple(
        float(value)
        for c in ("x", "y")
        for value in (
            100 * means[c, False][0],
            100 * means[c, True][0],
            means[c, True][1] / means[c, False][1],
        )
    )


def by_own_seeds(found: list[Compared]) -> list[Compared]:
    """The same comparisons, each by its own seeds: as it was before."""
    return [replace(each, pair=each.pair and replace(each.pair, moderation=None)) for each in found]


# --- the page ---


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main_table(sweeps: int) -> tuple[list[str], dict[tuple[str, int, int], Cell]]:
    title = ("noise", "n", "comparisons", "before", "moderated", "width", "all at once, before", "all at once")
    title = (*title, "width of these", "one variance for all", "all at once, one variance")
    lines, cells = [_row(title), _row(["---"] * len(title))], {}
    for name, noise in WORLDS.items():
        for n in SEEDS:
            for comparisons in COMPARISONS:
                cell = cells[name, n, comparisons] = held(noise, n=n, comparisons=comparisons, sweeps=sweeps)
                lines.append(_row([name, n, comparisons, *_shown(cell)]))
                print(lines[-1], flush=True)
    return lines, cells


def _shown(cell: Cell) -> list[str]:
    after = f"{cell.after:.1f}%" if cell.after >= LEAST - 2 * cell.error else f"**{cell.after:.1f}%**"
    return [
        f"{cell.before:.1f}%",
        after,
        f"{cell.width:.2f}",
        f"{cell.together_before:.1f}%",
        f"{cell.together:.1f}%",
        f"{cell.together_width:.2f}",
        f"{cell.pooled:.1f}%",
        f"{cell.pooled_together:.1f}%",
    ]


def broken_table(sweeps: int) -> list[str]:
    title = ("what is not as assumed", "n", *(f"{k} comparisons" for k in COMPARISONS))
    lines = [_row(title), _row(["---"] * len(title))]
    for name, (noise, of) in BROKEN.items():
        for n in SEEDS:
            found = [held(noise, n=n, comparisons=k, sweeps=sweeps, of=of) for k in COMPARISONS]
            lines.append(_row([name, n, *(f"{cell.after:.1f}%" for cell in found)]))
            print(lines[-1], flush=True)
    return lines


def whole_table(sweeps: int) -> Iterator[str]:
    title = ("curve", "true speedup", "n", "comparisons", "ratio, before", "moderated", "width")
    title = (*title, "difference, before", "moderated", "width")
    yield from (_row(title), _row(["---"] * len(title)))
    for curve in CURVES:
        for speedup, n, comparisons in ((1.0, 2, 5), (1.0, 3, 5), (1.5, 3, 5), (1.5, 3, 10), (1.0, 5, 3)):
            world = World(curve=curve, n=n, shared=True, speedups=(speedup,) * comparisons)
            found = through_the_product(world, sweeps)
            shown = [f"{value:.2f}" if place % 3 == 2 else f"{value:.1f}%" for place, value in enumerate(found)]
            line = _row([curve.__name__, f"{speedup:g}", n, comparisons, *shown])
            print(line, flush=True)
            yield line


def page(sweeps: int, whole_sweeps: int) -> str:
    lines, cells = main_table(sweeps)
    worst, least = min(cells.items(), key=lambda item: item[1].after)
    below = sum(cell.after < LEAST - 2 * cell.error for cell in cells.values())
    widths = {n: max(cell.width for (_, seeds_, k), cell in cells.items() if seeds_ == n and k == 20) for n in (2, 3)}
    usual = {n: cells["moderate spread (prior df 10)", n, 20].width for n in (2, 3)}
    at_five = {n: cells["moderate spread (prior df 10)", n, 5].width for n in (2, 3)}
    wild = [cell for (name, _, _), cell in cells.items() if name.startswith("wild")]
    at_once, together = min(cells.items(), key=lambda item: item[1].together)
    return "\n".join(
        [
            "# Moderated intervals",
            "",
            "Each comparison by the noise of its own seeds (before), and with that noise moderated over the recipes of"
            f" the sweep. {sweeps:,} simulated sweeps a cell; 95% intervals. Made by `benchmarks/moderated.py`, Python"
            f" {platform.python_version()}, numpy {np.__version__}.",
            "",
            f"- cells that hold the truth in less than {LEAST:g}% of the sweeps, less two standard errors: **{below} of"
            f" {len(cells)}** ({verdict(below, 'at most 0', decimals=0)}). The least is {least.after:.1f}%:"
            f" {_named(worst)}.",
            f"- width at 20 comparisons, moderate spread: {usual[2]:.2f} of that before at 2 seeds"
            f" ({verdict(usual[2], 'at most 0.35')}), {usual[3]:.2f} at 3 ({verdict(usual[3], 'at most 0.65')});"
            f" in the widest kind of noise {widths[2]:.2f} and {widths[3]:.2f}.",
            f"- width at 5 comparisons, moderate spread: {at_five[2]:.2f} at 2 seeds, {at_five[3]:.2f} at 3.",
            f"- all intervals of a sweep at once, adjusted by Bonferroni's method: at least {together.together:.1f}%"
            f" ({_named(at_once)}).",
            "- the negative control, one variance for all recipes, holds the wild spread in"
            f" {min(cell.pooled for cell in wild):.1f}% at worst, and all intervals of a sweep at once in"
            f" {min(cell.pooled_together for cell in wild):.1f}%, where moderation does in"
            f" {min(cell.after for cell in wild):.1f}% and {min(cell.together for cell in wild):.1f}%.",
            "",
            f"The rule that these figures chose: at least {LEAST_RECIPES - 1} comparisons on the same 2 to"
            f" {MOST_SEEDS} seeds; what the"
            f" other recipes add counts for at most {MOST_PRIOR_DF:g} degrees of freedom; from three seeds on, a recipe"
            f" or a baseline whose spread is less probable than {UNLIKE:.0%} among the others keeps its own interval if"
            " that is the wider one. Without the bound on degrees of freedom a recipe that is unlike the others has a"
            " family of intervals that holds in less than 94%; with a lower one adjusted intervals are wider.",
            "",
            "Half of the recipes are compared at equal budget and half at 2/3 of it. A share below"
            f" {LEAST:g}%, less two standard errors, is bold.",
            "",
            *lines,
            "",
            "Bonferroni's method stays: the quantile of the largest of several t statistics that share a baseline"
            " (Dunnett) is known only where all variances are equal.",
            "",
            "## Where the assumptions do not hold",
            "",
            "Coverage of the moderated intervals. By its own seeds every one of these has 95%.",
            "",
            *broken_table(sweeps),
            "",
            "A baseline that is much noisier than the recipes is the worst, since it is in all comparisons; two or"
            " three seeds cannot show it. Recipes that share noise with each other count as fewer than they are.",
            "",
            "## Through the product",
            "",
            f"{whole_sweeps:,} sweeps a row, as in [coverage](coverage.md), through `compared`, `at_equal_quality` and"
            " `at_equal_budget`: curves are monotone, targets are the baseline's own, weights come from probes. A third"
            " of a run's variance is the seed's, a third the seed's at a budget, a third the run's.",
            "",
            *whole_table(whole_sweeps),
            "",
        ]
    )


def _named(key: tuple[str, int, int]) -> str:
    return f"{key[0]}, {key[1]} seeds, {key[2]} comparisons"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("sweeps", nargs="?", type=whole(10), default=SWEEPS, help="simulated sweeps a cell")
    parser.add_argument("whole", nargs="?", type=whole(1), default=WHOLE, help="sweeps a row, through the product")
    parser.add_argument("--out", type=Path, default=OUT, help="the page")
    chosen = parser.parse_args()
    write_page(chosen.out, page(chosen.sweeps, chosen.whole))


if __name__ == "__main__":
    main()

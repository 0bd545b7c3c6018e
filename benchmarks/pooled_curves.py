"""Would a curve that is pooled over budgets give a narrower speedup that holds the truth as often? A simulation.

    OMP_NUM_THREADS=1 python benchmarks/pooled_curves.py [SWEEPS]        writes benchmarks/pooled_curves.md

A speedup is read where a recipe's curve reaches the baseline's quality at its full budget. The product joins the means
of budgets, pooled only where they fall, so that two budgets decide. A curve with few parameters is decided by all of
them. Each simulated sweep has a baseline and a recipe on the same seeds and budgets, with the noise of
`benchmarks/coverage.py` and exact times. Every curve goes through the resamples and the interval of the product.

Shapes: W sweeps, R resamples, B budgets, S seeds, G places of a grid.
"""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from coverage import BUDGETS_B, NOISE, PARTS, saturating, straight
from options import options, whole
from pages import write_page
from scipy.special import fdtrc

from explorer.analysis.inference import counted, draws, t_quantile
from explorer.analysis.monotone import crossing, monotone

OUT = Path(__file__).with_suffix(".md")
SWEEPS = 4000
RESAMPLES = 200
SEEDS = (3, 5)
SPEEDUP = 1.5
CONFIDENCE = 0.95
LOG_B = np.log(BUDGETS_B)
GRID_G = np.linspace(LOG_B[0], LOG_B[-1], 200)
LEAST = 0.94
UNFIT = 0.2  # a cubic that fits with less probability than this gives way to joined means

Curve = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """The true curves of the baseline and of a recipe that is as good in 1 / SPEEDUP of the time."""

    name: str
    baseline: Curve
    recipe: Curve


def plateau(ssr: np.ndarray) -> np.ndarray:
    """A curve that rises, rests between half and the full budget, and rises again."""
    return np.interp(np.log(ssr), np.log([0.25, 0.5, 1.0, 2.0]), [-1.2, -0.25, 0.0, 0.9])


def _faster(curve: Curve) -> Curve:
    return lambda ssr: curve(SPEEDUP * ssr)


def _flatter(curve: Curve) -> Curve:
    """Of a recipe that gains most where time is short: it reaches the target in the same time, and rises half as
    steeply."""
    full = curve(np.ones(1))
    return lambda ssr: full + (curve(SPEEDUP * ssr) - full) / 2


WORLDS = (
    World(name="straight", baseline=straight, recipe=_faster(straight)),
    World(name="saturating", baseline=saturating, recipe=_faster(saturating)),
    World(name="with a plateau", baseline=plateau, recipe=_faster(plateau)),
    World(name="straight, the recipe half as steep", baseline=straight, recipe=_flatter(straight)),
    World(name="saturating, the recipe half as steep", baseline=saturating, recipe=_flatter(saturating)),
)


# --- estimates of the logarithm of the speedup, from the means of budgets of both; NaN: not reached ---


def joined(base_WB: np.ndarray, mine_WB: np.ndarray) -> np.ndarray:
    """As the product does."""
    base, mine = monotone(base_WB), monotone(mine_WB)
    return _read(LOG_B, base, mine)


def polynomial(degree: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """By least squares in the logarithm of the budget, over all budgets."""
    fit_GB = np.vander(GRID_G, degree + 1) @ np.linalg.pinv(np.vander(LOG_B, degree + 1))

    def estimate(base_WB: np.ndarray, mine_WB: np.ndarray) -> np.ndarray:
        rising = np.maximum.accumulate
        return _read(GRID_G, rising(base_WB @ fit_GB.T, axis=1), rising(mine_WB @ fit_GB.T, axis=1))

    return estimate


def shifted(base_WB: np.ndarray, mine_WB: np.ndarray) -> np.ndarray:
    """By one shift in the logarithm of time, the one that brings a quadratic for both closest to all means of both."""
    shifts = np.linspace(-0.3, 1.2, 151)
    errors = np.empty((len(base_WB), len(shifts)))
    both = np.hstack([base_WB, mine_WB])
    for place, shift in enumerate(shifts):
        design = np.vander(np.r_[LOG_B, LOG_B + shift], 3)
        errors[:, place] = ((both - both @ (design @ np.linalg.pinv(design)).T) ** 2).sum(axis=1)
    return shifts[errors.argmin(axis=1)]


def lacking(y_WBS: np.ndarray, degree: int) -> np.ndarray:
    """Return in which sweeps a polynomial does not fit: the F test of lack of fit, by the noise of seeds."""
    b, n = y_WBS.shape[1:]
    means_WB = y_WBS.mean(axis=2)
    own = y_WBS - means_WB[:, :, None] - y_WBS.mean(axis=1)[:, None, :] + y_WBS.mean(axis=(1, 2))[:, None, None]
    noise_W = (own**2).sum(axis=(1, 2)) / ((b - 1) * (n - 1))
    design = np.vander(LOG_B, degree + 1)
    residual_WB = means_WB - means_WB @ (design @ np.linalg.pinv(design)).T
    lack_W = n * (residual_WB**2).sum(axis=1) / (b - degree - 1)
    return fdtrc(b - degree - 1, (b - 1) * (n - 1), lack_W / noise_W) < UNFIT


def _read(log_G: np.ndarray, base_WG: np.ndarray, mine_WG: np.ndarray) -> np.ndarray:
    x_WG = np.broadcast_to(np.exp(log_G), base_WG.shape)
    target_W = np.array([np.interp(0.0, log_G, row) for row in base_WG])
    with np.errstate(invalid="ignore"):
        base, mine = (crossing(x_WG, y_WG, target_W).x_R for y_WG in (base_WG, mine_WG))
        return np.log(base / mine)


JOINED, TESTED = "joined means (the product)", "cubic where both curves fit it, else joined means"
ESTIMATES = {
    JOINED: joined,
    "straight line": polynomial(1),
    "quadratic": polynomial(2),
    "cubic": polynomial(3),
    "one shift of a common quadratic": shifted,
}
NAMES = (*ESTIMATES, TESTED)


# --- sweeps ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What an estimate is worth in a world."""

    held: float  # share of the intervals that hold the truth
    width: float  # median, of the logarithm
    bias: float  # median, of the speedup as a factor
    reached: float  # share of the sweeps with an interval


def means(world: World, n: int, sweeps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return qualities of the baseline and of the recipe, W x B x S."""
    random = np.random.default_rng([WORLDS.index(world), n])
    of_seed, at_budget, of_run = NOISE * PARTS
    shared = random.normal(0, of_seed, (sweeps, 1, n)) + random.normal(0, at_budget, (sweeps, BUDGETS_B.size, n))
    base, mine = (
        curve(BUDGETS_B)[:, None] + shared + random.normal(0, of_run, shared.shape)
        for curve in (world.baseline, world.recipe)
    )
    return base, mine


def found(world: World, n: int, sweeps: int) -> list[Found]:
    """Return what each estimate is worth."""
    base_WBS, mine_WBS = means(world, n, sweeps)
    taken = counted(draws(n, resamples=RESAMPLES, key="pooled curves"))
    counts_RS, weight_R = taken.counts[0], taken.weight_R / taken.weight_R.sum()
    base, mine = (
        np.einsum("wbs,rs->rwb", each, counts_RS / n).reshape(-1, BUDGETS_B.size) for each in (base_WBS, mine_WBS)
    )
    reach, truth = float(t_quantile(CONFIDENCE, n - 1)), np.log(SPEEDUP)
    rows = []
    values = {name: estimate(base, mine).reshape(len(counts_RS), sweeps) for name, estimate in ESTIMATES.items()}
    unfit_W = lacking(base_WBS, 3) | lacking(mine_WBS, 3)
    values[TESTED] = np.where(unfit_W, values[JOINED], values["cubic"])
    for value_RW in values.values():
        whole_W = np.isfinite(value_RW).all(axis=0)
        value_RW = value_RW[:, whole_W]
        spread_W = np.sqrt(weight_R @ (value_RW - weight_R @ value_RW) ** 2 * n / (n - 1))
        rows.append(
            Found(
                held=float((np.abs(value_RW[0] - truth) <= reach * spread_W).mean()),
                width=float(np.median(2 * reach * spread_W)),
                bias=float(np.exp(np.median(value_RW[0]) - truth)),
                reached=float(whole_W.mean()),
            )
        )
    return rows


def table(sweeps: int) -> tuple[list[str], dict[str, list[tuple[Found, float]]]]:
    """Return a row for each world, number of seeds and curve, and by curve what was found with its relative width."""
    lines = ["| true curves | seeds | curve that is fitted | holds the truth | width | bias | with an interval |"]
    lines.append("|---" * 7 + "|")
    by_curve: dict[str, list[tuple[Found, float]]] = {name: [] for name in NAMES}
    for world in WORLDS:
        for n in SEEDS:
            rows = found(world, n, sweeps)
            for name, row in zip(NAMES, rows, strict=True):
                by_curve[name].append((row, row.width / rows[0].width))
                share = f"{row.held:.1%}" if row.held >= least(sweeps) else f"**{row.held:.1%}**"
                cells = f"{row.width / rows[0].width:.2f} | {row.bias - 1:+.1%} | {row.reached:.0%}"
                lines.append(f"| {world.name} | {n} | {name} | {share} | {cells} |")
            print(*lines[-len(rows) :], sep="\n", flush=True)
    return lines, by_curve


def least(sweeps: int) -> float:
    """Return the share below which a cell fails: two standard errors under what is asked."""
    return LEAST - 2 * float(np.sqrt(LEAST * (1 - LEAST) / sweeps))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("sweeps", nargs="?", type=whole(100), default=SWEEPS, help="simulated sweeps a cell")
    sweeps = parser.parse_args().sweeps
    rows, by_curve = table(sweeps)
    summary = [
        f"| {name} | {sum(row.held < least(sweeps) for row, _ in cells)} of {len(cells)} |"
        f" {min(row.held for row, _ in cells):.1%} | {np.median([width for _, width in cells]):.2f} |"
        for name, cells in by_curve.items()
    ]
    lines = [
        "# Curves pooled over budgets",
        "",
        f"Would a curve with few parameters, which all budgets decide, give a narrower speedup? {sweeps:,} simulated"
        f" sweeps a cell, a true speedup of {SPEEDUP}, 95% intervals by Student's t from the seeds of the comparison."
        " Widths are of the logarithm, over that of the product's curve in the same sweeps. Made by"
        f" `benchmarks/pooled_curves.py`, Python {platform.python_version()}, numpy {np.__version__}.",
        "",
        f"| curve that is fitted | cells below {LEAST:.0%}, less two standard errors | the least | median width |",
        "|---|---|---|---|",
        *summary,
        "",
        "What all budgets decide is narrower, and holds where the true curve has the form that is fitted. A cubic has"
        " that for every smooth curve here, and no other does; it needs five budgets or more. A test whether it fits"
        " tells plateaus, but then decides on the noise of the very means that it reads: with it, smooth curves too"
        " hold the truth less often than asked. So the product joins means.",
        "",
        "All cells:",
        "",
        *rows,
    ]
    write_page(OUT, "\n".join(lines))


if __name__ == "__main__":
    main()

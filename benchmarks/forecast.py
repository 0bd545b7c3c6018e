"""How often does the interval of a forecast hold what is measured at the larger budget?

    OMP_NUM_THREADS=1 python benchmarks/forecast.py [LADDERS]        writes benchmarks/forecast.md

Simulated ladders follow a power law, or laws that break in ways that real curves do. Real ones are those that
forecast_ladders.py recorded: the law is fitted to all but the largest budgets, and asked about these. Every forecast
goes through `extrapolated`, the function behind `explorer ask --forecast`. The controls leave parts of the interval
out. Two minutes.

Shapes: B budgets, S seeds, F budgets that are forecast.
"""

import platform
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from options import options, verdict, whole
from pages import write_page

from explorer.analysis.budget_law import LEAST_BUDGETS, MOST_AHEAD, Extrapolated, extrapolated, interval

OUT = Path(__file__).with_suffix(".md")
REAL = Path(__file__).with_suffix(".parquet")
LADDERS = 100
AHEAD_F = np.array([1.5, 2.0, 4.0])  # times the largest budget
BUDGETS, SEEDS = (3, 4, 5, 6), (2, 3, 4, 5)
LEAST = "at least 93"  # percent of the intervals that hold what is measured, over all ladders of a kind
Random = np.random.Generator
Curve = Callable[[np.ndarray], np.ndarray]  # loss by budget, counted in the largest that was run


# --- curves that are simulated ---


def _drawn(random: Random) -> tuple[float, float, float]:
    """Return E, B and b of a law: often with a floor, from 3% to 20% above it at the largest budget."""
    floor = random.uniform(0.0, 0.05) if random.random() < 0.7 else 0.0
    return floor, float(np.exp(random.uniform(np.log(0.03), np.log(0.2)))), random.uniform(0.3, 1.3)


def power(random: Random, _: int) -> Curve:
    floor, gain, b = _drawn(random)
    return lambda x: floor + gain * x**-b


def kink(random: Random, budgets: int) -> Curve:
    """Another exponent from a budget in the middle on: half, or 1.7 times."""
    floor, gain, b = _drawn(random)
    at, after = 2.0 ** -(budgets // 2), b * random.choice([0.5, 1.7])
    return lambda x: floor + gain * np.where(x < at, x**-b, at**-b * (np.maximum(x, at) / at) ** -after)


def logistic(random: Random, _: int) -> Curve:
    """From guessing to a floor, S-shaped in log budget."""
    floor, gain, b = _drawn(random)
    return lambda x: floor + 1 / (1 + (1 / gain - 1) * x**b)


def plateau(random: Random, _: int) -> Curve:
    """Nothing more is gained from somewhere between half the largest budget and twice it."""
    floor, gain, b = _drawn(random)
    end = 2.0 ** random.uniform(-1, 1)
    return lambda x: floor + gain * np.minimum(x, end) ** -b


def turn(random: Random, _: int) -> Curve:
    """From two thirds of the largest budget on, more training does more and more harm."""
    floor, gain, b = _drawn(random)
    harm = random.uniform(0, 0.25)
    return lambda x: floor + gain * x**-b + gain * harm * np.maximum(0, np.log2(x) + 0.5) ** 2


CURVES = {
    "the power law": power,
    "a kink in the middle": kink,
    "S-shaped": logistic,
    "a plateau near the end": plateau,
    "a turn near the end": turn,
}
FORESEEN = tuple(CURVES)[:3]  # what happens beyond the last budget, no budget before it shows


def simulated(curve: Curve, random: Random, budgets: int, seeds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the budgets, losses B x S, and what as many fresh seeds measure at each of AHEAD_F."""
    x_B = 2.0 ** np.arange(1 - budgets, 1)

    def measured(x: np.ndarray) -> np.ndarray:
        loss = curve(x)
        return loss[:, None] + (0.002 + 0.05 * loss[:, None]) * random.standard_normal((x.size, seeds))

    return x_B, measured(x_B), measured(AHEAD_F).mean(axis=1)


# --- intervals, and what they lack in the controls ---

PARTS: dict[str, Callable[[Extrapolated], np.ndarray]] = {
    "interval": lambda ahead: ahead.draws_RF,
    "not widened": lambda ahead: ahead.fits_RF + ahead.seeds_RF,
    "the bare fit": lambda ahead: ahead.fits_RF,
}


class Tally:
    """Forecasts of one kind: which intervals held, and their widths, as a share of the loss at the largest budget."""

    def __init__(self) -> None:
        self.held: dict[str, list[np.ndarray]] = defaultdict(list)
        self.width: list[np.ndarray] = []
        self.miss: list[np.ndarray] = []

    def add(self, ahead: Extrapolated, truth_F: np.ndarray, last: float) -> None:
        for name, draws in PARTS.items():
            low_F, high_F = np.clip(interval(draws(ahead), ahead.value_F), self.floor(ahead), None)
            self.held[name].append((low_F <= truth_F) & (truth_F <= high_F))
            if name == "interval":
                self.width.append((high_F - low_F) / last)
        self.miss.append(np.abs(ahead.value_F - truth_F) / last)

    @staticmethod
    def floor(ahead: Extrapolated) -> float:
        return 0.0 if ahead.law.floor >= 0 else -np.inf

    def share(self, name: str = "interval") -> np.ndarray:
        return 100 * np.mean(self.held[name], axis=0)

    def __len__(self) -> int:
        return len(self.width)


def of_simulated(kind: str, budgets: int, seeds: int, ladders: int) -> Tally:
    random = np.random.default_rng([budgets, seeds, *kind.encode()])
    tally = Tally()
    for _ in range(ladders):
        x_B, loss_BS, truth_F = simulated(CURVES[kind](random, budgets), random, budgets, seeds)
        tally.add(extrapolated(x_B, loss_BS, AHEAD_F, floor=0.0), truth_F, float(loss_BS[-1].mean()))
    return tally


# --- real ladders ---


def real() -> Iterator[tuple[str, str, np.ndarray, np.ndarray, float | None]]:
    """Yield task, recipe, budgets, losses B x S, and the least that E may be."""
    rows = pq.read_table(REAL).to_pylist()
    cells: dict[tuple[str, str], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cells[row["task"], row["recipe"]][row["budget"]].append(row["quality"])
    for (task, recipe), by_budget in cells.items():
        ssr_B = np.array(sorted(by_budget))
        quality_BS = np.array([by_budget[budget] for budget in ssr_B.tolist()])
        rate = task != "shakespeare"  # an accuracy; there, bits per byte, recorded as less than 0
        yield task, recipe, ssr_B, (1.0 if rate else 0.0) - quality_BS, 0.0 if rate else None


def of_real() -> dict[tuple[str, int, float], Tally]:
    """Return the forecasts by task, number of budgets that were fitted, and how far ahead."""
    tallies: dict[tuple[str, int, float], Tally] = defaultdict(Tally)
    for task, _, ssr_B, loss_BS, floor in real():
        for first in range(ssr_B.size):
            for last in range(first + min(BUDGETS) - 1, ssr_B.size - 1):
                ahead_F = np.flatnonzero(ssr_B > ssr_B[last])
                ahead_F = ahead_F[ssr_B[ahead_F] <= MOST_AHEAD * ssr_B[last]]
                fitted = slice(first, last + 1)
                for at in ahead_F.tolist():
                    found = extrapolated(ssr_B[fitted], loss_BS[fitted], ssr_B[[at]], floor=floor)
                    key = task, last + 1 - first, float(ssr_B[at] / ssr_B[last])
                    tallies[key].add(found, loss_BS[[at]].mean(axis=1), float(loss_BS[last].mean()))
    return tallies


# --- the page ---


def page(ladders: int) -> str:
    cells = {
        (kind, budgets, seeds): of_simulated(kind, budgets, seeds, ladders)
        for kind in CURVES
        for budgets, seeds in sorted({(budgets, 3) for budgets in BUDGETS} | {(4, seeds) for seeds in SEEDS})
    }
    measured = of_real()
    lines = [
        "# Forecasts of quality at a larger budget",
        "",
        f"{ladders} simulated ladders a cell, and real ones; 95% intervals of `explorer ask --forecast`. Made by"
        f" `benchmarks/forecast.py`, Python {platform.python_version()}, numpy {np.__version__}.",
        "",
        *_summary(cells, measured),
        "",
        "## Real ladders",
        "",
        "Six budgets from 0.125 to 4, 3 seeds, schedules that end with their budget (`forecast_ladders.py`). The law is"
        " fitted to some budgets in a row, and asked about one beyond. Forecasts of one ladder share runs.",
        "",
        "| task | budgets fitted | ahead | forecasts | held | not widened | bare fit | median miss | median width |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (task, budgets, ahead), tally in sorted(measured.items()):
        parts = " | ".join(f"{tally.share(name)[0]:.0f}%" for name in PARTS)
        lines.append(
            f"| {task} | {budgets} | {ahead:g}x | {len(tally)} | {parts} | {100 * np.median(tally.miss):.1f}%"
            f" | {100 * np.median(tally.width):.0f}% |"
        )
    lines += [
        "",
        "Misses and widths are shares of the loss (error rate, bits per byte) at the largest budget fitted.",
        "",
        "## Simulated ladders",
        "",
        f"Held at {', '.join(f'{ahead:g}x' for ahead in AHEAD_F)} the largest budget; budgets double, and the noise of"
        " a run is 5% of the loss and 0.2 points.",
        "",
        "| curve | budgets | seeds | held | not widened | bare fit | median width |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (kind, budgets, seeds), tally in cells.items():
        parts = " | ".join(", ".join(f"{share:.0f}%" for share in tally.share(name)) for name in PARTS)
        widths = ", ".join(f"{100 * width:.0f}%" for width in np.median(tally.width, axis=0))
        lines.append(f"| {kind} | {budgets} | {seeds} | {parts} | {widths} |")
    return "\n".join(lines) + "\n"


def _summary(cells: dict[tuple[str, int, int], Tally], measured: dict[tuple[str, int, float], Tally]) -> Iterator[str]:
    def pooled(tallies: list[Tally], name: str = "interval") -> float:
        return 100 * float(np.mean(np.concatenate([np.ravel(tally.held[name]) for tally in tallies])))

    allowed = [tally for (_, budgets, _), tally in measured.items() if budgets >= LEAST_BUDGETS]
    fewer = [tally for (_, budgets, _), tally in measured.items() if budgets < LEAST_BUDGETS]
    share = pooled(allowed)
    yield (
        f"- real ladders, {LEAST_BUDGETS} budgets or more: {share:.1f}% of {sum(map(len, allowed))} intervals hold what"
        f" was measured ({verdict(share, LEAST, decimals=1)}). Controls: {pooled(allowed, 'not widened'):.1f}%"
        f" where the interval is not widened, {pooled(allowed, 'the bare fit'):.1f}% by the bare fit."
    )
    yield f"- with {min(BUDGETS)} budgets, which are refused: {pooled(fewer):.1f}% of {sum(map(len, fewer))}."
    for kind in CURVES:
        mine = [tally for (of, budgets, _), tally in cells.items() if of == kind and budgets >= LEAST_BUDGETS]
        target = f" ({verdict(pooled(mine), LEAST, decimals=1)})" if kind in FORESEEN else ""
        yield (
            f"- {kind}: {pooled(mine):.1f}%{target}; {pooled(mine, 'not widened'):.1f}% not widened,"
            f" {pooled(mine, 'the bare fit'):.1f}% by the bare fit."
        )
    yield (
        "\nA plateau or a turn that begins near the last budget shows in no budget before it. Nothing but a wider"
        " interval everywhere would hold it, so the product says what is assumed in place of that."
    )


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("ladders", nargs="?", type=whole(), default=LADDERS)
    text = page(parser.parse_args().ladders)
    write_page(OUT, text)
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

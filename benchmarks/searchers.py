"""Replay searchers in recorded landscapes: how much is lost by their answers, and for what part of the grid's compute.

    OMP_NUM_THREADS=1 python benchmarks/searchers.py [--repetitions N] [--searchers NAME ...]

Writes benchmarks/searchers.md and searchers.png from the files of benchmarks/landscapes (landscape.py records them). A
search sees three of the five seeds; regret is the time to the baseline's quality that its answer loses, on the seeds
that it never saw. Every searcher has the same ladder, the same times and the same knowledge beforehand, which is none.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pyarrow.parquet as pq
import vl_convert
from options import options, verdict, whole
from pages import write_page

from explorer.analysis.monotone import crossing, monotone
from explorer.page.pictures import VEGA_LITE
from explorer.search.searcher import Methods, Ranked, Seen, Space, Trial
from explorer.search.searchers import SEARCHERS

HERE = Path(__file__).parent
PLACE = HERE / "landscapes"
# Of the grid's compute: steps of 1.3, and those that the table shows.
SHOWN = (0.02, 0.03, 0.05, 0.1, 0.2)
SHARES = tuple(sorted({*SHOWN, *(round(0.005 * 1.3**step, 4) for step in range(15))}))
REPETITIONS = 100
GRID = "grid"
OURS = "effects"
MOST = 0.05  # of the grid's compute, for no more regret than the grid's
CHEAPER = 2.0  # times, than the best of the others
TITLES = {
    "effects": "effects (ours)",
    "tpe": "Optuna: TPE, Hyperband",
    "random": "random search",
    "halving": "successive halving (ASHA)",
    "grid": "grid, as far as it gets",
}


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A recorded landscape. Shapes: R recipes, the baseline first, B budgets, S seeds."""

    name: str
    about: dict[str, Any]
    recipes: tuple[Methods, ...]
    quality_RBS: np.ndarray  # signed; NaN: diverged
    seconds_RB: np.ndarray

    @property
    def ladder(self) -> tuple[float, ...]:
        return tuple(self.about["ladder"])

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(self.about["seeds"])

    @cached_property
    def place(self) -> dict[Methods, int]:
        return {methods: place for place, methods in enumerate(self.recipes)}

    def space(self, seeds: Sequence[int], spend: float) -> Space:
        """Return what a search may try that sees these seeds."""
        return Space(
            methods=tuple(self.about["methods"]),
            recipes=self.recipes,
            ladder=self.ladder,
            seeds=tuple(seeds),
            seconds=lambda methods, budget: float(self.seconds_RB[self.place[methods], self.ladder.index(budget)]),
            spend=spend,
        )

    def seen(self, trial: Trial) -> Seen:
        """Return the recorded run."""
        place = self.place[trial.methods], self.ladder.index(trial.budget), self.seeds.index(trial.seed)
        quality = float(self.quality_RBS[place])
        return Seen(trial, quality if np.isfinite(quality) else None)

    def loss(self, seeds: Sequence[int]) -> np.ndarray:
        """Return the recipes' seconds to the baseline's quality by the mean curves of some seeds, R.

        A recipe that does not reach it is charged its longest budget and the baseline's time.
        """
        mean_RB = self.quality_RBS[:, :, [self.seeds.index(seed) for seed in seeds]].mean(axis=2)
        target = mean_RB[0, -1]
        known_RB = np.where(np.isfinite(mean_RB), mean_RB, np.nanmin(mean_RB))
        met = crossing(self.seconds_RB, monotone(known_RB), np.full(len(mean_RB), target))
        loss_R = np.where(met.below_R, self.seconds_RB[:, 0], met.x_R)
        loss_R[np.isnan(mean_RB).any(axis=1)] = np.nan
        loss_R[0] = self.seconds_RB[0, -1]
        return np.where(np.isfinite(loss_R), loss_R, self.seconds_RB[:, -1] + self.seconds_RB[0, -1])

    def shuffled(self, seed: int) -> "Recorded":
        """Return the control: qualities shuffled among the recipes at each budget and seed, and all equally fast."""
        rng, quality = np.random.default_rng(seed), self.quality_RBS.copy()
        for budget in range(quality.shape[1]):
            for own in range(quality.shape[2]):
                quality[:, budget, own] = rng.permutation(quality[:, budget, own])
        even = np.broadcast_to(self.seconds_RB[0], self.seconds_RB.shape).copy()
        return replace(self, quality_RBS=quality, seconds_RB=even)


def read(path: Path) -> Recorded:
    """Return a landscape from its file. Raises `SystemExit` for one that is not whole."""
    table = pq.read_table(path)
    about, rows = json.loads(table.schema.metadata[b"landscape"]), table.to_pylist()
    methods, ladder, seeds = about["methods"], about["ladder"], about["seeds"]
    count = 2 ** len(methods)
    if len(rows) != count * len(ladder) * len(seeds):
        raise SystemExit(
            f"{path}: found {len(rows)} runs, expected {count * len(ladder) * len(seeds)}: record the rest first"
        )
    masks = sorted(range(count), key=lambda mask: (mask.bit_count(), mask))
    order = {mask: place for place, mask in enumerate(masks)}
    quality = np.full((count, len(ladder), len(seeds)), np.nan)
    steps: dict[tuple[int, int], list[tuple[str, int]]] = {}
    fastest: dict[tuple[int, str], float] = {}
    for row in rows:
        recipe, budget = order[row["methods"]], ladder.index(row["budget"])
        quality[recipe, budget, seeds.index(row["seed"])] = np.nan if row["quality"] is None else row["quality"]
        if row["diverged"]:
            continue
        steps[recipe, budget] = [(name, phase["steps"]) for name, phase in row["phases"]]
        for name, phase in row["phases"]:
            key = (recipe, name)
            fastest[key] = min(fastest.get(key, np.inf), phase["seconds"])
    # A recipe that always diverges at a budget takes the time of the baseline there: no searcher gets past its failure.
    seconds = np.array(
        [
            [
                sum(count * fastest[recipe, name] for name, count in steps.get((recipe, budget), steps[0, budget]))
                if (recipe, budget) in steps
                else sum(count * fastest[0, name] for name, count in steps[0, budget])
                for budget in range(len(ladder))
            ]
            for recipe in range(count)
        ]
    )
    recipes = tuple(frozenset(name for bit, name in enumerate(methods) if mask >> bit & 1) for mask in masks)
    return Recorded(name=path.stem, about=about, recipes=recipes, quality_RBS=quality, seconds_RB=seconds)


def splits(landscape: Recorded) -> list[tuple[list[int], list[int]]]:
    """Return every way to share out the seeds: those that a search sees, more than half, and those that judge it.

    Their order is shuffled, so that the first few are as good as any.
    """
    seeds = landscape.seeds
    ways = [
        (list(seen), [seed for seed in seeds if seed not in seen])
        for seen in combinations(seeds, (len(seeds) + 1) // 2)
    ]
    return [ways[place] for place in np.random.default_rng(0).permutation(len(ways))]


def answer(ranked: Sequence[Ranked], landscape: Recorded, *, baseline: bool = True) -> int:
    """Return the place of the recipe that a search answers with; the baseline if it has none."""
    allowed = [one.methods for one in ranked if baseline or one.methods]
    return landscape.place[allowed[0]] if allowed else 0


def regrets(landscape: Recorded, name: str, count: int, shares: Sequence[float] = SHARES) -> np.ndarray:
    """Return the regret of a searcher's answers by repetition and share of the grid's compute."""
    rows, ways = [], splits(landscape)
    for repetition in range(count):
        seeds, held = ways[repetition % len(ways)]
        truth = landscape.loss(held)
        whole = landscape.seconds_RB.sum() * len(seeds)
        places = replay(landscape, name, seeds, [share * whole for share in shares], seed=repetition)
        rows.append([truth[place] / truth.min() - 1 for place in places])
    return np.array(rows)


def replay(
    landscape: Recorded, name: str, seeds: Sequence[int], spends: Sequence[float], *, seed: int, baseline: bool = True
) -> list[int]:
    """Return the places of a search's answers after so much compute."""
    space = landscape.space(seeds, spends[-1])
    searcher = SEARCHERS[name](space, seed=seed)
    seen: list[Seen] = []
    answers: list[int] = []
    spent = 0.0
    while len(answers) < len(spends):
        trial = searcher.next(seen)
        cost = np.inf if trial is None else space.seconds(trial.methods, trial.budget)
        while len(answers) < len(spends) and spent + cost > spends[len(answers)] * (1 + 1e-9):
            answers.append(answer(searcher.ranking(seen), landscape, baseline=baseline))
        if trial is None:
            break
        seen.append(landscape.seen(trial))
        spent += cost
    return answers


def control(landscape: Recorded, name: str, count: int, share: float) -> np.ndarray:
    """Return the regret of a searcher's answers where there is nothing to find, by repetition.

    The answer is the best ranked but the baseline, which would be the safe one.
    """
    rows, ways = [], splits(landscape)
    for repetition in range(count):
        shuffled = landscape.shuffled(repetition)
        seeds, held = ways[repetition % len(ways)]
        truth = shuffled.loss(held)
        spend = share * shuffled.seconds_RB.sum() * len(seeds)
        (place,) = replay(shuffled, name, seeds, [spend], seed=repetition, baseline=False)
        rows.append(truth[place] / truth.min() - 1)
    return np.array(rows)


def of_grid(landscape: Recorded) -> np.ndarray:
    """Return the regret of the whole grid's answers, by split of the seeds."""
    rows = []
    for seeds, held in splits(landscape):
        truth = landscape.loss(held)
        rows.append(truth[landscape.loss(seeds).argmin()] / truth.min() - 1)
    return np.array(rows)


def reached(by_share: np.ndarray, most: float) -> float | None:
    """Return the share of the grid's compute from which on the mean regret is at most so much; None: it never is."""
    over = np.flatnonzero(by_share.mean(axis=0) > most)
    after = 0 if len(over) == 0 else over[-1] + 1
    return None if after == len(SHARES) else SHARES[after]


# --- the page ---


def described(landscape: Recorded) -> str:
    """Return a row about a landscape."""
    quality, top = landscape.quality_RBS, landscape.quality_RBS[:, -1]
    means = np.nanmean(quality, axis=2)
    noise = np.nanstd(top, axis=1, ddof=1)
    nearness = [np.corrcoef(means[:, stop], means[:, -1])[0, 1] for stop in range(means.shape[1] - 1)]
    reach = np.mean(landscape.loss(landscape.seeds)[1:] <= landscape.seconds_RB[1:, -1])
    cells = (
        landscape.name,
        ", ".join(landscape.about["methods"]),
        f"{quality.size:,}",
        landscape.about["metric"],
        f"{abs(means[0, -1]):.4f}",
        f"{np.nanstd(means[:, -1]):.4f}",
        f"{np.sqrt(np.nanmean(noise**2)):.4f}",
        " and ".join(f"{value:.2f}" for value in nearness),
        f"{reach:.0%}",
        f"{landscape.loss(landscape.seeds).min() / landscape.seconds_RB[0, -1]:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def table(found: dict[str, np.ndarray], grid: np.ndarray) -> list[str]:
    """Return the rows of a landscape: median, mean and 90th percentile of regret by share of the grid's compute."""
    heads = ["searcher", *(f"{share:.0%}" for share in SHOWN), "as good as the grid from"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, by_share in found.items():
        cells = []
        for share in SHOWN:
            here = by_share[:, SHARES.index(share)]
            cells.append(f"{np.median(here):.0%}, {here.mean():.0%}, {np.quantile(here, 0.9):.0%}")
        share = reached(by_share, grid.mean())
        cells.append("never" if share is None else f"{share:.1%}")
        lines.append(f"| {TITLES[name]} | {' | '.join(cells)} |")
    return lines


def judged(found: dict[str, np.ndarray], grid: np.ndarray) -> str:
    """Return in words whether ours meets its goal in a landscape."""
    shares = {name: reached(by_share, grid.mean()) for name, by_share in found.items()}
    ours, others = shares.pop(OURS), [share for share in shares.values() if share is not None]
    at = found[OURS][:, SHARES.index(MOST)].mean()
    words = f"Regret of ours at {MOST:.0%}, in percent: {100 * at:.1f} ("
    words += verdict(100 * at, f"at most {100 * grid.mean():.1f}", decimals=1) + ", the grid's)."
    if ours is None:
        return f"{words} It does not come to the grid's regret within {SHARES[-1]:.0%}."
    if not others:
        return f"{words} No other searcher comes to the grid's regret within {SHARES[-1]:.0%}."
    ratio = min(others) / ours
    words += f" The best of the others takes {ratio:.1f} times the compute of ours to come to the grid's regret"
    return f"{words} ({verdict(ratio, f'at least {CHEAPER:g}', decimals=1)})."


def curves(found: dict[str, dict[str, np.ndarray]], grids: dict[str, np.ndarray], path: Path) -> None:
    """Draw mean regret against compute, a panel for each landscape."""
    charts = []
    for landscape, of_landscape in found.items():
        rows = [
            {"searcher": TITLES[name], "compute": share, "regret": regret}
            for name, by_share in of_landscape.items()
            for share, regret in zip(SHARES, by_share.mean(axis=0).tolist(), strict=True)
        ]
        line = (
            alt.Chart(alt.InlineData(values=rows), title=landscape)
            .mark_line(strokeWidth=2)
            .encode(
                x=alt.X("compute:Q", scale=alt.Scale(type="log"), axis=alt.Axis(format="%", grid=False)).title(
                    "spent, of the whole grid's compute"
                ),
                y=alt.Y("regret:Q", axis=alt.Axis(format="%")).title("mean regret on seeds it never saw"),
                color=alt.Color("searcher:N", sort=list(TITLES.values())).title(None),
            )
        )
        level = [{"regret": float(grids[landscape].mean())}]
        rule = alt.Chart(alt.InlineData(values=level)).mark_rule(strokeDash=[4, 3]).encode(y=alt.Y("regret:Q"))
        charts.append((line + rule).properties(width=300, height=240))
    figure = alt.hconcat(*charts).configure_view(stroke=None)
    path.write_bytes(vl_convert.vegalite_to_png(figure.to_dict(), vl_version=VEGA_LITE, scale=1.5))


def page(
    landscapes: Sequence[Recorded],
    found: dict[str, dict[str, np.ndarray]],
    grids: dict[str, np.ndarray],
    controls: dict[str, np.ndarray],
    *,
    count: int,
) -> str:
    heads = ["landscape", "methods", "runs", "metric", "baseline", "recipes' spread", "noise of a seed"]
    heads += ["correlation of shorter budgets with the longest", "reach the target", "best time"]
    about = landscapes[0].about
    seen, held = splits(landscapes[0])[0]
    lines = [
        "# Searchers on measured landscapes",
        "",
        "Every subset of some methods was trained at every budget of a ladder (0.125, 0.5, 1) on"
        f" {len(about['seeds'])} seeds, once (`benchmarks/landscape.py`, kept in `benchmarks/landscapes`). In these"
        f" landscapes every searcher is replayed: {count} repetitions, each with draws of its own and with {len(seen)}"
        f" of the seeds to see. The mean curves of the other {len(held)}, which it never saw, are the truth. Regret is"
        " the time to the baseline's quality that its answer loses against the best recipe there; an answer that does"
        " not reach it is charged its longest budget and the baseline's time. The grid trains all recipes at all"
        " budgets on the seeds that a search may see. Made by `benchmarks/searchers.py`.",
        "",
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
        *(described(landscape) for landscape in landscapes),
        "",
        "The spread is the standard deviation over recipes at the longest budget, the noise that of a seed within a"
        " recipe. The best time is that of the mean curves, over the baseline's. Times are processor time on one"
        " thread: the recording shared its machine, so they are the least over a recipe's runs of the lower quartile of"
        f" its steps, phase by phase. Recorded {about['made']} on {about['hardware']},"
        f" torch {about['versions']['torch']}.",
        "",
        "![regret against compute](searchers.png)",
        "",
    ]
    for landscape in landscapes:
        grid, of_landscape = grids[landscape.name], found[landscape.name]
        lines += [
            f"## {landscape.name}",
            "",
            "Regret (median, mean, 90th percentile) after so much of the whole grid's compute. The whole grid's own"
            f" regret is {grid.mean():.1%} in the mean, and between {grid.min():.0%} and {grid.max():.0%} by the seeds"
            " that it saw.",
            "",
            *table(of_landscape, grid),
            "",
            judged(of_landscape, grid),
            "",
        ]
    lines += [
        "## Nothing to find",
        "",
        f"The negative control, in the landscape {landscapes[0].name}: qualities shuffled among the recipes at each"
        " budget and seed, all recipes equally fast, the best ranked but the baseline taken. What was measured"
        " tells nothing then, and nothing may beat random search.",
        "",
        "| searcher | mean regret at 5% | less random search's | two standard errors | |",
        "|---|---|---|---|---|",
    ]
    random = controls["random"]
    for name, regret in controls.items():
        less = regret - random[: len(regret)]
        error = 2 * less.std(ddof=1) / np.sqrt(len(less))
        word = "beats random search" if less.mean() < -error and name != "random" else "does not beat it"
        word = "" if name == "random" else word
        lines.append(f"| {TITLES[name]} | {regret.mean():.0%} | {less.mean():+.1%} | {error:.1%} | {word} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repetitions", type=whole(3), default=REPETITIONS)
    parser.add_argument("--jobs", type=whole(), default=1, help="processes")
    parser.add_argument("--searchers", nargs="+", choices=SEARCHERS, default=list(TITLES))
    parser.add_argument("--landscapes", nargs="+", choices=sorted(path.stem for path in PLACE.glob("*.parquet")))
    asked = parser.parse_args()
    names = asked.landscapes or sorted(path.stem for path in PLACE.glob("*.parquet"))
    landscapes = [read(PLACE / f"{name}.parquet") for name in names]
    # The slowest first, so that all processes end at about the same time.
    order = sorted(asked.searchers, key=lambda name: list(TITLES).index(name))
    with ProcessPoolExecutor(max_workers=asked.jobs) as pool:
        waiting = {
            (landscape.name, name): pool.submit(regrets, landscape, name, asked.repetitions)
            for landscape in landscapes
            for name in order
        }
        shuffled = {name: pool.submit(control, landscapes[0], name, asked.repetitions, MOST) for name in order}
        found: dict[str, dict[str, np.ndarray]] = {}
        for (landscape, name), future in waiting.items():
            found.setdefault(landscape, {})[name] = by_share = future.result()
            shown = ", ".join(f"{by_share[:, SHARES.index(share)].mean():.1%}" for share in SHOWN)
            print(f"{landscape}, {name}: {shown}", flush=True)
        controls = {name: future.result() for name, future in shuffled.items()}
    grids = {landscape.name: of_grid(landscape) for landscape in landscapes}
    text = page(landscapes, found, grids, controls, count=asked.repetitions)
    print(text)
    if set(asked.searchers) == set(TITLES) and asked.landscapes is None and asked.repetitions >= REPETITIONS:
        write_page(HERE / "searchers.md", text)
        curves(found, grids, HERE / "searchers.png")


if __name__ == "__main__":
    main()

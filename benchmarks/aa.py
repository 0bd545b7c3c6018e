"""How often does a sweep of equal recipes announce one of them? Simulated A/A sweeps, through what the product says.

    OMP_NUM_THREADS=1 python benchmarks/aa.py [SWEEPS]        writes benchmarks/aa.md

Each simulated sweep has a baseline and five recipes that are the baseline under another name, three seeds, six budgets
and a profile in which all six were measured in turn. It goes through `sweep_verdicts`, which every face of the product
reads. A sweep with a recipe that is called less, or more, than the baseline makes a false claim; 5% of them may.

The negative controls: the same sweeps as if step times were exact, and every interval by itself, as if nothing else had
been compared.
"""

import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from coverage import BUSY, NOISE, QUIET, Steps, World, straight, without_times  # benchmarks/coverage.py
from options import options, verdict, whole
from pages import write_page

from explorer.analysis.equal_quality import Call
from explorer.analysis.verdict import Verdict, sweep_verdicts

SWEEPS = 2000
EQUAL_RECIPES = 5
SEEDS = 3
MOST = 0.05
SEED_NOISE = {"as in coverage.md": NOISE, "a tenth of it": NOISE / 10, "a hundredth of it": NOISE / 100, "none": 0.0}
MACHINES: dict[str, tuple[Steps, str]] = {
    "quiet": (QUIET, "windows"),
    "busy": (BUSY, "windows"),
    "busy, profiles keep quartiles": (BUSY, "quartiles"),
}


def false_claims(found: Sequence[Verdict]) -> tuple[set[str], set[str], set[str]]:
    """The sweeps in which a recipe is claimed to need less, in which one is called different, and in which one would be
    if it were the only one."""
    claimed = {each.comparison.setting.sweep for each in found if each.claims}
    called = {each.comparison.setting.sweep for each in found if each.call in (Call.LESS, Call.MORE)}
    p_values = [(each.comparison.setting.sweep, each.comparison.p_value) for each in found]
    single = {sweep for sweep, p_value in p_values if p_value is not None and p_value <= MOST}
    return claimed, called, single


def shares(noise: float, steps: Steps, kept: str, sweeps: int) -> tuple[float, float, float, float]:
    """The shares of sweeps with a claim, with a difference, with a difference as if times were exact, and with one of
    some interval by itself."""
    world = World(
        curve=straight,
        n=SEEDS,
        shared=True,
        speedups=(1.0,) * EQUAL_RECIPES,
        noise=noise,
        steps=steps,
        kept=kept,
    )
    counts = np.zeros(4)
    for table in world.tables(sweeps):
        table = _twins(table) if noise == 0 else table
        claimed, called, single = false_claims(sweep_verdicts(table))
        _, blind, _ = false_claims(sweep_verdicts(without_times(table)))
        counts += [len(claimed), len(called), len(blind), len(single)]
    claimed, called, blind, single = (counts / sweeps).tolist()
    return claimed, called, blind, single


def _twins(table: pd.DataFrame) -> pd.DataFrame:
    """Draw seeds that differ and recipes that do not: bit for bit the baseline, run by run."""
    seed = np.asarray(table["seed"], dtype=float)
    wobble = np.where(np.asarray(table["ssr"]) > 0.5, 0.02, 0.01) * np.array([-1.0, 0.25, 0.75])[seed.astype(int)]
    return table.assign(quality=np.log(np.asarray(table["ssr"], dtype=float)) + wobble)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def aa_table(sweeps: int) -> list[str]:
    """A row for each machine and noise of seeds, with whether the shares are what may be."""
    title = "machine", "noise of seeds", "one announced as faster", "one called different"
    title = *title, "times taken for exact", "some interval by itself"
    lines = [_row(title), _row(["---"] * len(title))]
    for machine, (steps, kept) in MACHINES.items():
        for words, noise in SEED_NOISE.items():
            found = shares(noise, steps, kept, sweeps)
            cells = [f"{share:.1%} ({verdict(100 * share, 'at most 5', decimals=1)})" for share in found[:2]]
            lines.append(_row([machine, words, *cells, *(f"{share:.1%}" for share in found[2:])]))
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("sweeps", nargs="?", type=whole(10), default=SWEEPS, help="simulated sweeps a row")
    sweeps = parser.parse_args().sweeps
    error = 100 * np.sqrt(MOST * (1 - MOST) / sweeps)
    lines = [
        "# A/A sweeps",
        "",
        f"How often a sweep of {EQUAL_RECIPES} recipes that are all equal to the baseline says that one is not, over",
        f"{sweeps:,} simulated sweeps a row: at most {MOST:.0%} may, which is known to within {error:.2f} points (one",
        f"standard error). {SEEDS} seeds, six budgets. Made by `benchmarks/aa.py`, Python {platform.python_version()},",
        f"numpy {np.__version__}. The noise of step times, quiet and busy, is that of [coverage.md](coverage.md).",
        "",
        *aa_table(sweeps),
        "",
        "The last two columns are negative controls: the same sweeps analysed as if step times were exact, and every",
        "interval as if it were the only one. Without noise of seeds recipes are bit for bit the baseline, and only",
        "step times could tell them apart; taken for exact, these would show no noise, and nothing is claimed.",
    ]
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))


if __name__ == "__main__":
    main()

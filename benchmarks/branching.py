"""Measure what branching spares on a ladder of budgets, and check that it changes no bit.

    python benchmarks/branching.py [SEEDS] [--runs DIR]        writes benchmarks/branching.md

With a directory the runs are kept, and a benchmark that was stopped continues.

The sweep is trained three times: its longer runs begin with the steps of shorter ones; every budget in a sweep of its
own, where nothing can be shared; and with a cosine in place of warm-up, stable, decay, to see what the schedule costs.
The control is a recipe whose steps depend on the length, and which is made to branch all the same.
"""

import dataclasses
import math
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from options import meets, options, verdict, whole
from scipy import stats

from explorer import run_files, rundir
from explorer.methods.ema import EMA
from explorer.run_files import ResultRecord, RunRecord
from explorer.sweep.execute import Settings, run_sweep
from explorer.sweep.plan import make_plan
from explorer.sweep.spec import load_spec

TARGET = "at least 1.6"
SCHEDULE = {"wsd": {"warmup": 0.1}}
SPEC: dict[str, Any] = {
    "name": "branching",
    "task": {"dataset": "digits", "model": {"resnet8": {"width": 0.5}}},
    "train": {
        "epochs": 4,
        "batch_size": 64,
        "optimizer": {"sgd": {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-3}},
        "schedule": SCHEDULE,
        "evaluations": 5,
    },
    "baseline": "baseline",
    "recipes": {"baseline": [], "smooth": ["channels_last", "label_smoothing"]},
    "budgets": [0.25, 0.5, 1.0, 1.5],
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """A finished run, with the bytes of its measurements."""

    record: RunRecord
    result: ResultRecord
    measured: bytes

    @property
    def made(self) -> int:
        """The steps that the run made itself."""
        return self.result.steps - (self.result.trunk.step if self.result.trunk else 0)

    def same(self, other: "Ended") -> bool:
        """Return whether another run has the same state, metrics and measurements, bit for bit."""
        mine, theirs = self.result, other.result
        return (mine.state_digest, mine.metrics, self.measured) == (
            theirs.state_digest,
            theirs.metrics,
            other.measured,
        )


def trained(runs: Path, content: Mapping[str, Any]) -> dict[str, Ended]:
    """Train a sweep and return its runs by id. Raises `RuntimeError` if one fails."""
    summary = run_sweep(make_plan(load_spec(content), runs=runs), Settings(engine="inline", workers=1, profile=False))
    if not summary.complete:
        raise RuntimeError(f"the sweep is not complete: {summary.failures}")
    return {
        path.name: Ended(
            record=run_files.read(RunRecord, path / rundir.RUN),
            result=run_files.read(ResultRecord, path / rundir.RESULT),
            measured=(path / rundir.METRICS).read_bytes(),
        )
        for path in rundir.run_directories(runs / str(content["name"]))
    }


def separately(runs: Path, content: Mapping[str, Any]) -> dict[str, Ended]:
    """Train every budget in a sweep of its own."""
    ended: dict[str, Ended] = {}
    for budget in content["budgets"]:
        ended |= trained(runs / f"{budget:g}", {**content, "budgets": [budget]})
    return ended


def control(runs: Path, seed: int) -> tuple[int, int]:
    """Return how many runs there are that began with another's steps, and how many of them ended with other bits, where
    a method that looks at the length says that it does not."""
    content = {**SPEC, "recipes": {"baseline": ["ema"]}, "budgets": [0.25, 0.5], "seeds": [seed]}
    honest = EMA.any_length
    EMA.any_length = lambda self: True
    try:
        forced = trained(runs / "forced", content)
    finally:
        EMA.any_length = honest
    separate = separately(runs / "separate", content)
    branched = [run for run, ended in forced.items() if ended.result.trunk]
    return len(branched), sum(forced[run].result.state_digest != separate[run].result.state_digest for run in branched)


def quality(ended: Mapping[str, Ended]) -> dict[tuple[str, float], list[float]]:
    """Return the accuracies of the seeds, in order, by recipe and budget."""
    chosen: dict[tuple[str, float], list[float]] = {}
    for run in sorted(ended.values(), key=lambda run: run.record.seed):
        chosen.setdefault((run.record.recipe, run.record.ssr), []).append(run.result.metrics["accuracy"])
    return chosen


def interval(differences: list[float]) -> tuple[float, float, float]:
    """Return the mean of paired differences and their 95% interval by Student's t."""
    mean = float(np.mean(differences))
    n = len(differences)
    half = float(stats.t.ppf(0.975, n - 1) * np.std(differences, ddof=1) / math.sqrt(n)) if n > 1 else math.inf
    return mean, mean - half, mean + half


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("seeds", nargs="?", type=whole(2, 20), default=3)
    parser.add_argument("--runs", type=Path, help="a directory for the runs, which are kept")
    given = parser.parse_args()
    seeds = list(range(given.seeds))
    content = {**SPEC, "seeds": seeds}
    train = {**content["train"], "schedule": {"cosine": {"warmup": 0.1}}}
    with tempfile.TemporaryDirectory() as temporary:
        runs = given.runs or Path(temporary)
        shared, separate = trained(runs / "shared", content), separately(runs / "separate", content)
        forced, other_bits = control(runs / "control", seeds[0])
        cosine = trained(runs / "cosine", {**content, "train": train, "recipes": {"baseline": []}})
    same = sum(ended.same(separate[run]) for run, ended in shared.items())
    made, whole_steps = sum(run.made for run in shared.values()), sum(run.made for run in separate.values())
    spared = whole_steps / made
    lines = [
        "# Longer runs that begin with the steps of shorter ones",
        "",
        f"Digits, resnet8 of half the width, 4 epochs, two recipes, budgets 0.25, 0.5, 1 and 1.5, {len(seeds)} seeds,"
        " `wsd` with a warm-up of 0.1 and a decay over the last 0.2. Made by `benchmarks/branching.py`; steps are"
        " counted and not timed, so that a busy machine changes nothing.",
        "",
        "| | runs | steps trained |",
        "|---|---|---|",
        f"| every budget in a sweep of its own | {len(separate)} | {whole_steps:,} |",
        f"| one sweep | {len(shared)} | {made:,} |",
        "",
        f"Times fewer steps: {spared:.2f} ({verdict(spared, TARGET)}). Of {len(shared)} runs, {same} have the same"
        " parameters, final metrics and measurements of all steps and evaluations as the run that makes all its steps,"
        f" bit for bit. The control: made to branch, `ema`, whose steps depend on the length, ended with other bits in"
        f" {other_bits} of {forced} runs that began with another's steps.",
        "",
        "## What the schedule costs",
        "",
        "Accuracy with `wsd` less that with `cosine` at the same rate and budget, paired by seed, with the 95% interval"
        f" of {len(seeds)} seeds. The rate is tuned for neither.",
        "",
        "| recipe | budget | wsd | cosine | difference (points) |",
        "|---|---|---|---|---|",
    ]
    ours, theirs = quality(shared), quality(cosine)
    for (recipe, budget), values in ours.items():
        if (recipe, budget) not in theirs:
            continue
        pairs = [100 * (a - b) for a, b in zip(values, theirs[recipe, budget], strict=True)]
        mean, low, high = interval(pairs)
        both = f"{np.mean(values):.2%} | {np.mean(theirs[recipe, budget]):.2%}"
        lines.append(f"| {recipe} | {budget:g} | {both} | {mean:+.2f} ({low:+.2f} to {high:+.2f}) |")
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    sys.exit(0 if same == len(shared) == len(separate) and 0 < forced == other_bits and meets(spared, TARGET) else 1)


if __name__ == "__main__":
    main()

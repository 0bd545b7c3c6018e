"""Measure what branching spares on a ladder of budgets, and check that it changes no bit.

    python benchmarks/branching.py [SEEDS] [--runs DIR]        writes benchmarks/branching.md

With a directory the runs are kept, and a benchmark that was stopped continues.

The sweep is trained three times: its longer runs begin with the steps of shorter ones; every budget in a sweep of its
own, where nothing can be shared; and with a cosine in place of warm-up, stable, decay, to see what the schedule costs.
The control is a recipe whose steps depend on the length, and which is made to branch all the same.

Then the same with governed runs, whose policy denies one of four simulated classes half of the layers: every run has a
ledger of all its steps, whether it made them or took them over. Both sweeps are timed in seconds of the processor.
"""

import dataclasses
import math
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from options import meets, options, verdict, whole
from pages import write_page
from scipy import stats

from explorer import run_files, rundir
from explorer.data.digits import Digits
from explorer.entries.kinds import End, decode
from explorer.ledger.storage import LedgerDirectory
from explorer.methods.ema import EMA
from explorer.provenance.policy import Rule, read_policy
from explorer.provenance.taxonomy import read_taxonomy
from explorer.run_files import ResultRecord, RunRecord
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.same_steps import unlike_steps
from explorer.sweep.execute import Settings, run_sweep
from explorer.sweep.plan import make_plan
from explorer.sweep.spec import load_spec
from explorer.training.demonstration import demonstrate
from explorer.yaml_document import read_document

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
POLICIES = Path(__file__).resolve().parents[1] / "notebooks" / "policies"
DATA = Digits(simulated_classes=4)
GOVERNED: list[Any] = [{"routing": {"policy": "constant"}}, "contributions", {"recorder": {"every": 4}}]
GOVERNED_TARGET = "at least 1.6"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """A finished run, with the bytes of its measurements."""

    path: Path
    record: RunRecord
    result: ResultRecord
    measured: bytes

    @property
    def made(self) -> int:
        """The steps that the run made itself."""
        return self.result.steps - (self.result.trunk.step if self.result.trunk else 0)

    def same(self, other: "Ended") -> bool:
        """Return whether another run has the same state, metrics and measurements, bit for bit."""
        return self._repeated == other._repeated

    @property
    def _repeated(self) -> tuple[str, dict[str, float], bytes]:
        metrics = {name: value for name, value in self.result.metrics.items() if name not in run_files.OF_A_RUN}
        return self.result.state_digest, metrics, self.measured


def trained(runs: Path, content: Mapping[str, Any]) -> dict[str, Ended]:
    """Train a sweep and return its runs by id. Raises `RuntimeError` if one fails."""
    summary = run_sweep(make_plan(load_spec(content), runs=runs), Settings(engine="inline", workers=1, profile=False))
    if not summary.complete:
        raise RuntimeError(f"the sweep is not complete: {summary.failures}")
    return {
        path.name: Ended(
            path=path,
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


def control(runs: Path, content: Mapping[str, Any], methods: list[Any]) -> tuple[int, int]:
    """Return how many runs there are that began with another's steps, and how many of them ended with other bits, where
    a method that looks at the length says that it does not."""
    content = {**content, "recipes": {"baseline": [*methods, "ema"]}, "budgets": [0.25, 0.5], "seeds": [0]}
    honest = EMA.any_length
    EMA.any_length = lambda self: True
    try:
        forced = trained(runs / "forced", content)
    finally:
        EMA.any_length = honest
    separate = separately(runs / "separate", content)
    branched = [run for run, ended in forced.items() if ended.result.trunk]
    return len(branched), sum(forced[run].result.state_digest != separate[run].result.state_digest for run in branched)


# --- governed runs ---


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Governed:
    """A ladder of governed runs, trained in one sweep and apart."""

    runs: int
    steps: tuple[int, int]  # made in one sweep, and apart
    seconds: tuple[float, float]  # of the processor
    same: int  # runs with the same parameters, metrics and measurements
    ledgers: int  # that differ in nothing but commitments, sealed blobs and the entry about the trunk
    taken_over: int  # runs
    control: tuple[int, int]  # made to branch, and ended with other bits
    others: int  # ledgers that differ from those of another seed


def governance(runs: Path) -> Path:
    """The documents of a policy with constant weights."""
    template = read_policy(read_document(POLICIES / "simulated.policy.yaml"))
    rules = (
        Rule(classes=("simulated/class-00",), depth=(0.0, 0.5), weight=0.0),
        Rule(classes=("simulated",), weight=1.0),
    )
    policy = dataclasses.replace(template, name="constant", rules=rules, sealed=())
    taxonomy = read_taxonomy(read_document(POLICIES / "simulated.taxonomy.yaml"))
    where = runs / "_governance"
    return demonstrate(where, DATA, data=None, taxonomy=taxonomy, policies=(policy,), now=int(time.time()))


def alike(mine: Path, other: Path) -> bool:
    """Return whether two ledgers say the same of all steps, and of the end."""
    one, two = RunLedger(mine), RunLedger(other)
    ends = [entry for run in (mine, other) for entry in ends_of(run)]
    return not list(unlike_steps(one, two, steps=one.steps)) and one.steps == two.steps and ends[0] == ends[1]


def ends_of(run: Path) -> list[End]:
    entries = map(decode, LedgerDirectory(run / rundir.LEDGER).entries())
    return [entry for entry in entries if isinstance(entry, End)]


def governed(runs: Path) -> Governed:
    """Train the ladder of the governed recipe in one sweep and apart."""
    content = {
        **SPEC,
        "task": {**SPEC["task"], "dataset": {"digits": {"simulated_classes": 4}}},
        "recipes": {"baseline": GOVERNED},
        "governance": str(governance(runs)),
        "seeds": [0, 1],
    }
    begun = time.process_time()
    shared = trained(runs / "shared", content)
    between = time.process_time()
    apart = separately(runs / "separate", content)
    ended = time.process_time()
    pairs = [(run, apart[name]) for name, run in shared.items()]
    seeds = [[run for run in shared.values() if run.record.seed == seed] for seed in (0, 1)]
    return Governed(
        runs=len(shared),
        steps=(sum(run.made for run in shared.values()), sum(run.made for run in apart.values())),
        seconds=(between - begun, ended - between),
        same=sum(run.same(other) for run, other in pairs),
        ledgers=sum(alike(run.path, other.path) for run, other in pairs),
        taken_over=sum(bool(RunLedger(run.path).trunks) for run in shared.values()),
        control=control(runs / "control", content, GOVERNED),
        others=sum(not alike(one.path, two.path) for one, two in zip(*seeds, strict=True)),
    )


def governed_lines(found: Governed) -> list[str]:
    """The section about governed runs."""
    made, apart = found.steps
    spared, faster = apart / made, found.seconds[1] / found.seconds[0]
    forced, other_bits = found.control
    return [
        "## Governed runs",
        "",
        "The baseline with a policy of constant weights over four simulated classes, contributions of all of them and a"
        " segment of the ledger every 4 steps; the same budgets, 2 seeds. Runs leave their states where segments end."
        " Seconds are those of the processor for the whole sweep, with evaluations and ledgers.",
        "",
        "| | runs | steps trained | seconds |",
        "|---|---|---|---|",
        f"| every budget in a sweep of its own | {found.runs} | {apart:,} | {found.seconds[1]:.1f} |",
        f"| one sweep | {found.runs} | {made:,} | {found.seconds[0]:.1f} |",
        "",
        f"Times fewer steps: {spared:.2f} ({verdict(spared, GOVERNED_TARGET)}); times fewer seconds: {faster:.2f}. Of"
        f" {found.runs} runs, {found.same} have the same parameters, final metrics and measurements as the run that"
        f" makes all its steps, bit for bit. {found.ledgers} of {found.runs} ledgers say the same of every step,"
        " segment and of the end, apart from commitments under each run's own secrets and the entry about the run that"
        f" made the first steps, which {found.taken_over} have. The controls: ledgers of different seeds differ in"
        f" {found.others} of {found.runs // 2} pairs; made to branch, `ema` ended with other bits in {other_bits} of"
        f" {forced} runs that began with another's steps.",
        "",
    ]


def holds(found: Governed) -> bool:
    """Return whether the governed runs are those trained alone, and the controls are not."""
    forced, other_bits = found.control
    return (
        found.same == found.ledgers == found.runs
        and found.taken_over > 0
        and found.others == found.runs // 2
        and 0 < forced == other_bits
        and meets(found.steps[1] / found.steps[0], GOVERNED_TARGET)
    )


# --- the page ---


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
        forced, other_bits = control(runs / "control", SPEC, [])
        cosine = trained(runs / "cosine", {**content, "train": train, "recipes": {"baseline": []}})
        records = governed(runs / "governed")
    same = sum(ended.same(separate[run]) for run, ended in shared.items())
    made, whole_steps = sum(run.made for run in shared.values()), sum(run.made for run in separate.values())
    spared = whole_steps / made
    lines = [
        "# Longer runs that begin with the steps of shorter ones",
        "",
        f"Digits, resnet8 of half the width, 4 epochs, two recipes, budgets 0.25, 0.5, 1 and 1.5, {len(seeds)} seeds,"
        " `wsd` with a warm-up of 0.1 and a decay over the last 0.2. Made by `benchmarks/branching.py`; steps are"
        " counted and, where no ledger is kept, not timed, so that a busy machine changes nothing.",
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
        *governed_lines(records),
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
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    print("\n".join(lines))
    plain = same == len(shared) == len(separate) and 0 < forced == other_bits and meets(spared, TARGET)
    sys.exit(0 if plain and holds(records) else 1)


if __name__ == "__main__":
    main()

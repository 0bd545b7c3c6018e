"""What do speed methods for text gain? Bits a byte at equal steps, of each method, with interval and control.

    OMP_NUM_THREADS=1 python benchmarks/text_ablation.py --data DIR [--seeds N] [--steps N]

A GPT of 4 blocks of width 64 learns tinyshakespeare (`DIR/tinyshakespeare/input.txt`) by the project's own loop: 16
rows of 64 bytes a step, by Muon, and AdamW for the rest, at rates that were tuned without further methods. A run
differs from the one that it is compared with in the method only: initial weights and rows are those of the seed. A gain
is the mean over seeds of the difference in bits a byte of the test side, with a 95% interval by Student's t; below 0 is
better. The *control* is the plain recipe from other initial weights: its interval has to hold 0. A step's time is
processor time of the whole training over that of the run compared with, the median over seeds.

Methods that were left out of the package are in `text_tried.py`: their interval holds 0, or their steps take longer by
about as much as they gain (`convolution`). Writes `text_ablation.md`.
"""

import os
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from options import options, whole
from pages import write_page
from scipy import stats
from text_tried import TRIED

from explorer.data.text import LocalText
from explorer.recipes.recipe import build_recipe
from explorer.training.run import build_loop
from explorer.training.run_plan import plan_run

STEPS, SEEDS, BATCH, CONTEXT = 200, 3, 16, 64
CORES = 2  # runs at a time, each on one thread
TEXT: dict[str, Any] = {"path": "tinyshakespeare/input.txt", "context": CONTEXT}
TASK = {"dataset": {"text": TEXT}, "model": {"gpt": {"depth": 4, "width": 64, "heads": 2}}}
SCHEDULE = {"wsd": {"decay_share": 0.6, "shape": "linear", "warmup": 0.05}}


def written(name: str) -> str:
    """How a recipe names a method: one that is not the package's by its module and class."""
    return f"{TRIED[name].__module__}:{TRIED[name].__name__}" if name in TRIED else name


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A recipe, and the one that it is compared with."""

    title: str
    against: str = "rotary"
    methods: tuple[str, ...] = ("rotary",)
    optimizer: str = "muon"  # or a variant of it, or "adamw"
    rate: float = 1.0  # times the tuned rates
    note: str = ""  # what became of it

    @property
    def chosen(self) -> tuple[list[Any], dict[str, Any]]:
        """The methods and the optimiser, as a recipe has them."""
        methods: list[Any] = [{written(name): {}} for name in self.methods]
        if self.optimizer == "adamw":
            return methods, {"adamw": {"lr": 3e-3 * self.rate, "weight_decay": 0.1, "betas": [0.9, 0.95]}}
        muon = {written(self.optimizer): {"lr": 0.04 * self.rate, "weight_decay": 0.1}}
        return [*methods, muon], {"adamw": {"lr": 1e-2 * self.rate, "betas": [0.9, 0.95]}}


KEPT, OUT = "a method of the package", "left out"
CASES = (
    Case(title="plain", against="", methods=()),
    Case(title="control: other initial weights", against="plain", methods=("other_draw",), note="control"),
    Case(title="rotary", against="plain", note=KEPT),
    Case(title="AdamW alone, plain", against="plain", methods=(), optimizer="adamw", note="for comparison"),
    Case(title="AdamW alone, rotary", against="AdamW alone, plain", optimizer="adamw", note=KEPT),
    Case(title="rotary, twice the rates", rate=2.0, note="for comparison"),
    Case(title="rotary, qk_norm", methods=("rotary", "qk_norm"), note=OUT),
    Case(
        title="rotary, qk_norm, twice the rates",
        against="rotary, twice the rates",
        methods=("rotary", "qk_norm"),
        rate=2.0,
        note=OUT,
    ),
    *(
        Case(title=f"rotary, {name}", methods=("rotary", name), note=OUT)
        for name in ("relu_squared", "zero_branches", "value_embeddings", "convolution")
    ),
    Case(title="rotary, muon_rows", optimizer="muon_rows", note=OUT),
)


class Trained(NamedTuple):
    """What a run came to."""

    bits: float  # a byte of the test side
    seconds: float  # of processor time, for training


def train(case: Case, seed: int, steps: int, data: Path) -> Trained:
    methods, optimizer = case.chosen
    epochs = steps * BATCH / len(LocalText(**TEXT).load(data).train)
    settings = {"batch_size": BATCH, "optimizer": optimizer, "schedule": SCHEDULE, "epochs": epochs}
    recipe = build_recipe("text", task=TASK, train=settings, methods=methods, where="text_ablation")
    run = plan_run(recipe, sweep="ablation", baseline="text", tuning=None, ssr=1.0, seed=seed, threads=1, data=data)
    loop = build_loop(run, data=data)
    begun = time.process_time()
    for _ in range(loop.setting.total_steps):
        loop.step()
    seconds = time.process_time() - begun
    return Trained(loop.setting.task.evaluate(loop.state.model, loop.setting.batches)["bits_per_byte"], seconds)


class Gain(NamedTuple):
    """A difference in bits a byte, with a 95% interval, and the ratio of times."""

    mean: float
    low: float
    high: float
    time: float


def gain(runs: list[Trained], others: list[Trained]) -> Gain:
    differences = np.array([run.bits - other.bits for run, other in zip(runs, others, strict=True)])
    reach = stats.t.ppf(0.975, len(differences) - 1) * differences.std(ddof=1) / len(differences) ** 0.5
    mean = float(differences.mean())
    ratio = statistics.median(run.seconds / other.seconds for run, other in zip(runs, others, strict=True))
    return Gain(mean, mean - reach, mean + reach, ratio)


def page(results: dict[str, list[Trained]], *, steps: int) -> Iterator[str]:
    """Yield the lines of the page."""
    seeds = len(results["plain"])
    yield "# Speed methods for text\n"
    yield f"Bits a byte of the test side of tinyshakespeare after {steps} steps of {BATCH} rows of {CONTEXT} bytes, for"
    yield f"a GPT of 4 blocks of width 64 and {seeds} seeds. A run differs in the method only from the one that it is"
    yield "compared with; the difference has a 95% interval by Student's t, and below 0 is better. Made by"
    yield "`benchmarks/text_ablation.py`; what was left out is in `text_tried.py`, with its sources.\n"
    yield "| recipe | bits a byte | compared with | difference | 95% interval | time of a step | |"
    yield "|---|---:|---|---:|---:|---:|---|"
    for case in CASES:
        runs = results[case.title]
        bits = statistics.mean(run.bits for run in runs)
        if not case.against:
            yield f"| {case.title} | {bits:.3f} | | | | | |"
            continue
        found = gain(runs, results[case.against])
        yield (
            f"| {case.title} | {bits:.3f} | {case.against} | {found.mean:+.3f} |"
            f" {found.low:+.3f} to {found.high:+.3f} | {found.time:.2f} | {case.note} |"
        )
    control = gain(results["control: other initial weights"], results["plain"])
    holds = "holds" if control.low <= 0 <= control.high else "misses"
    yield f"\nThe control's interval {holds} 0."


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the data directory")
    parser.add_argument("--seeds", type=whole(2), default=SEEDS)
    parser.add_argument("--steps", type=whole(1), default=STEPS)
    given = parser.parse_args()
    planned = [(case, seed) for seed in range(given.seeds) for case in CASES]
    results: dict[str, list[Trained]] = {case.title: [] for case in CASES}
    with ProcessPoolExecutor(CORES) as pool:
        trained = pool.map(train, *zip(*planned, strict=True), repeat(given.steps), repeat(given.data))
        for (case, seed), run in zip(planned, trained, strict=True):
            results[case.title].append(run)
            print(f"seed {seed}, {case.title}: {run.bits:.4f} bits a byte, {run.seconds:.1f} s", flush=True)
    write_page(Path(__file__).with_suffix(".md"), "\n".join(page(results, steps=given.steps)))


if __name__ == "__main__":
    main()

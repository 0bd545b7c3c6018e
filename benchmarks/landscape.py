"""Record a landscape: every subset of some methods, at every budget of a ladder, on five seeds, trained in full.

    OMP_NUM_THREADS=1 python benchmarks/landscape.py NAME [--data DIR] [--minutes N] [--out DIR]
    OMP_NUM_THREADS=1 python benchmarks/landscape.py NAME --tune     prints the baseline's grid, on seeds of its own

Writes benchmarks/landscapes/NAME.parquet, with a row for each run, in which any searcher can be replayed in seconds
(searchers.py). Interrupted, it continues where it was; `--minutes` ends it after about as many.

Runs are planned, built and stepped as in a sweep, in this process; they keep no directory. The time of a step is the
processor time of this process, which other processes on the machine hardly touch: of each phase of each run the lower
quartile of its steps, and of a recipe's runs, which are spread over the whole recording, the least (searchers.py).
"""

import dataclasses
import datetime
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from options import options, whole

from explorer.canonical import digest
from explorer.data.dataset import Split
from explorer.engine.method import Moment
from explorer.errors import DivergedError
from explorer.recipes import machine
from explorer.recipes.recipe import Recipe, build_recipe
from explorer.training.run import build_loop
from explorer.training.run_plan import phase_of, plan_run

PLACE = Path(__file__).with_name("landscapes")
LADDER = (0.125, 0.5, 1.0)
SEEDS = (0, 1, 2, 3, 4)  # a search sees three of them, and is judged by the others
TUNED_ON = (100, 101, 102)  # seeds of their own
SCHEDULE = {"cosine": {"warmup": 0.1, "scale_warmup": True}}
KEPT_EVERY = 60  # seconds
SCHEMA = pa.schema(
    [
        pa.field("methods", pa.int32()),  # bit i: the i-th method of the metadata
        pa.field("budget", pa.float64()),
        pa.field("seed", pa.int32()),
        pa.field("diverged", pa.bool_()),
        pa.field("quality", pa.float32()),  # signed, so that more is better; null: diverged
        pa.field("steps", pa.int32()),
        pa.field("phases", pa.map_(pa.string(), pa.struct([("steps", pa.int32()), ("seconds", pa.float32())]))),
    ]
)
METADATA = b"landscape"


@dataclass(frozen=True, kw_only=True, slots=True)
class Landscape:
    """Definition of a landscape."""

    task: Mapping[str, Any]
    epochs: float
    batch_size: int
    lr: float
    optimizer: Mapping[str, Any]  # its name, and parameters other than the learning rate
    methods: Mapping[str, Any]  # as a recipe names them
    metric: str
    sign: float
    judged_on: int | None = None  # so many of the test examples, the first; None: all
    precision: str = "fp32"
    tuning: tuple[tuple[int, ...], tuple[float, ...]]  # batch sizes, learning rates

    def recipe(self, mask: int) -> Recipe:
        """Return a subset of the methods as a recipe."""
        chosen = [written for bit, written in enumerate(self.methods.values()) if mask >> bit & 1]
        train = {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "precision": self.precision,
            "optimizer": {name: {"lr": self.lr, **more} for name, more in self.optimizer.items()},
            "schedule": SCHEDULE,
        }
        return build_recipe(f"m{mask}", task=self.task, train=train, methods=chosen, where="landscape")

    @property
    def digest(self) -> str:
        """Return what a file must have been recorded for, so that recording continues; seeds may be added."""
        whole = self.recipe(2 ** len(self.methods) - 1).to_mapping()
        return digest([whole, list(LADDER), self.metric, self.judged_on])


LANDSCAPES = {
    "digits": Landscape(
        task={"dataset": {"digits": {"size": 8}}, "model": "resnet8"},
        epochs=3,
        batch_size=16,
        lr=0.1,
        optimizer={"sgd": {"weight_decay": 5e-3}},
        methods={
            "batch_size_warmup": "batch_size_warmup",
            "blurpool": "blurpool",
            "ema": "ema",
            "label_smoothing": "label_smoothing",
            "layer_freezing": "layer_freezing",
            "muon": {"muon": {"lr": 0.02}},
            "weight_standardization": "weight_standardization",
        },
        metric="accuracy",
        sign=1.0,
        tuning=((16,), (0.05, 0.1, 0.2, 0.4)),
    ),
    "cifar10": Landscape(
        task={"dataset": {"cifar10": {"size": 16, "examples": 5000}}, "model": "resnet8"},
        epochs=3,
        batch_size=32,
        lr=0.1,
        optimizer={"sgd": {"weight_decay": 5e-3}},
        methods={
            "batch_size_warmup": "batch_size_warmup",
            "label_smoothing": {"label_smoothing": {"smoothing": 0.05}},
            "muon": {"muon": {"lr": 0.02}},
            "progressive_resizing": {"progressive_resizing": {"initial_scale": 0.5, "delay": 0.3, "finetune": 0.3}},
            "weight_standardization": "weight_standardization",
        },
        metric="accuracy",
        sign=1.0,
        judged_on=2000,
        tuning=((32,), (0.05, 0.1, 0.2, 0.4)),
    ),
    "shakespeare": Landscape(
        task={"dataset": {"text": {"path": "tinyshakespeare/input.txt", "context": 32}}, "model": "gpt-tiny"},
        epochs=0.1,
        batch_size=8,
        lr=1e-3,
        optimizer={"adamw": {"betas": [0.9, 0.95], "weight_decay": 0.1}},
        methods={
            "alibi": "alibi",
            "batch_size_warmup": "batch_size_warmup",
            "gated_linear_units": "gated_linear_units",
            "layer_freezing": "layer_freezing",
            "muon": {"muon": {"lr": 0.02}},
        },
        metric="bits_per_byte",
        sign=-1.0,
        judged_on=500,
        tuning=((8,), (5e-4, 1e-3, 2e-3)),
    ),
}


def trained(landscape: Landscape, mask: int, budget: float, seed: int, data: Path | None) -> dict[str, Any]:
    """Train one run, and return its row."""
    recipe = landscape.recipe(mask)
    record = plan_run(
        recipe, sweep="landscape", baseline="m0", tuning=None, ssr=budget, seed=seed, threads=1, data=data
    )
    loop = build_loop(record, data=data)
    batches = loop.setting.batches
    if landscape.judged_on is not None:
        batches.dataset = dataclasses.replace(batches.dataset, test=_first(batches.dataset.test, landscape.judged_on))
    seconds: dict[str, list[float]] = defaultdict(list)
    quality = math.nan
    try:
        loop.call("before_fit")
        for step in range(record.steps):
            moment = Moment(
                step=step, total_steps=record.steps, example_shape=batches.dataset.example_shape, pace=batches.pace
            )
            begun = time.process_time()
            loss = loop.step()
            seconds[phase_of(recipe.methods, moment)].append(time.process_time() - begun)
            if not math.isfinite(loss.item()):
                raise DivergedError(f"the loss is {loss.item()} at step {step}")
        loop.call("after_fit")
        quality = landscape.sign * loop.evaluate()[landscape.metric]
        loop.call("after_run")
    except DivergedError as error:
        print(f"{record.run_id}: {error}", flush=True)
    return {
        "methods": mask,
        "budget": budget,
        "seed": seed,
        "diverged": not math.isfinite(quality),
        "quality": quality if math.isfinite(quality) else None,
        "steps": record.steps,
        "phases": [
            (name, {"steps": record.phases[name], "seconds": float(np.quantile(times, 0.25))})
            for name, times in seconds.items()
        ],
    }


def runs(landscape: Landscape) -> Iterator[tuple[int, float, int]]:
    """Yield the runs in the order of recording: all recipes in turn, budget by budget, seed by seed."""
    for seed, budget, mask in product(SEEDS, LADDER, range(2 ** len(landscape.methods))):
        yield mask, budget, seed


def record(name: str, *, data: Path | None, minutes: float, out: Path) -> bool:
    """Record the runs that are missing; return True once all are there."""
    landscape, path, end = LANDSCAPES[name], out / f"{name}.parquet", time.monotonic() + 60 * minutes
    rows = []
    if path.exists():
        table = pq.read_table(path)
        found = json.loads(table.schema.metadata[METADATA])["digest"]
        if found != landscape.digest:
            raise SystemExit(
                f"{path}: recorded for {found[:8]}, found {landscape.digest[:8]}: remove it to record it again"
            )
        rows = table.to_pylist()
    done = {(row["methods"], row["budget"], row["seed"]) for row in rows}
    missing = [run for run in runs(landscape) if run not in done]
    kept = time.monotonic()
    for number, run in enumerate(missing):
        rows.append(trained(landscape, *run, data))
        if time.monotonic() - kept > KEPT_EVERY:
            _keep(path, name, rows)
            print(f"{name}: {len(rows)} runs, {len(missing) - number - 1} left", flush=True)
            kept = time.monotonic()
        if time.monotonic() > end:
            break
    _keep(path, name, rows)
    print(f"{path}: {len(rows)} runs, {path.stat().st_size:,} bytes")
    return len(done) + len(missing) == len(rows)


def tune(name: str, *, data: Path | None) -> None:
    """Print the baseline's quality over batch sizes and learning rates, at equal examples."""
    landscape = LANDSCAPES[name]
    for batch_size, lr in product(*landscape.tuning):
        changed = dataclasses.replace(landscape, batch_size=batch_size, lr=lr)
        found = [trained(changed, 0, 1.0, seed, data) for seed in TUNED_ON]
        qualities = " ".join(f"{landscape.sign * row['quality']:.4f}" for row in found)
        mean = landscape.sign * sum(row["quality"] for row in found) / len(found)
        seconds = sum(phase["steps"] * phase["seconds"] for _, phase in found[0]["phases"])
        print(f"| {batch_size} | {lr:g} | {mean:.4f} | {qualities} | {seconds:.2f} s |", flush=True)


def _first(split: Split, count: int) -> Split:
    return dataclasses.replace(split, inputs=split.inputs[:count], labels=split.labels[:count])


def _keep(path: Path, name: str, rows: list[dict[str, Any]]) -> None:
    landscape = LANDSCAPES[name]
    about = {
        "digest": landscape.digest,
        "methods": list(landscape.methods),
        "written": list(landscape.methods.values()),
        "baseline": landscape.recipe(0).to_mapping(),
        "ladder": LADDER,
        "seeds": SEEDS,
        "metric": landscape.metric,
        "judged_on": landscape.judged_on,
        "hardware": machine.hardware(threads=1).name,
        "versions": machine.versions(),
        "made": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
    }
    table = pa.Table.from_pylist(rows, schema=SCHEMA.with_metadata({METADATA: json.dumps(about).encode()}))
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".tmp")
    pq.write_table(table, part, compression="zstd")
    part.replace(path)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("name", choices=LANDSCAPES)
    parser.add_argument("--data", type=Path, default=os.environ.get("EXPLORER_DATA"), help="directory of data sets")
    parser.add_argument("--minutes", type=whole(), default=24 * 60)
    parser.add_argument("--out", type=Path, default=PLACE, help="directory of the file")
    parser.add_argument("--tune", action="store_true", help="print the baseline's grid; record nothing")
    asked = parser.parse_args()
    if asked.tune:
        tune(asked.name, data=asked.data)
        return 0
    return 0 if record(asked.name, data=asked.data, minutes=asked.minutes, out=asked.out) else 75  # 75: call again


if __name__ == "__main__":
    raise SystemExit(main())

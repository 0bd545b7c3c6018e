"""Ranks on the cores of one machine: the speedup of two, and what governing costs them.

    python benchmarks/ranks.py [--data DIR] [--rounds N]     writes benchmarks/ranks.md

ResNet-20 with GroupNorm on CIFAR-10 (`--data` or EXPLORER_DATA; without it on digits of its size), batch 256, two
lanes, one thread for each rank. Whole runs, in turn: by one rank, by two, and by two under governance with four classes
(`routing`, `contributions`, `recorder`). Times are those of training steps without the first three, without reading
from disk, evaluations and checkpoints, as results have them. Two ranks need two cores that nothing else uses.
"""

import os
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from governed_loops import POLICY, documents_of
from options import options, verdict, whole
from pages import write_page

from explorer import run_files, rundir
from explorer.recipes.recipe import Recipe, build_recipe
from explorer.run_files import ResultRecord
from explorer.runlog.documents import Documents, keep
from explorer.training.run import execute
from explorer.training.run_plan import plan_run

OUT = Path(__file__).with_suffix(".md")
BATCH, LANES, STEPS, CLASSES = 256, 2, 24, 4
GOVERNED = ({"routing": {"policy": POLICY}}, "contributions", "recorder")
CHOSEN: dict[str, Any] = {"sweep": "ranks", "baseline": "plain", "tuning": None, "seed": 0, "threads": 1, "ssr": 1.0}


def recipe_of(data: Path | None, *, governed: bool) -> Recipe:
    name = "cifar10" if data else "digits"
    own: dict[str, Any] = {} if data else {"size": 32}
    dataset = {name: own | ({"simulated_classes": CLASSES} if governed else {})}
    task = {"dataset": dataset, "model": {"resnet20": {"norm": "group"}}}
    examples = 50_000 if data else 898
    train = {
        "epochs": STEPS * BATCH / examples,
        "batch_size": BATCH,
        "lanes": LANES,
        "evaluations": 0,
        "optimizer": {"sgd": {"lr": 0.1}},
    }
    return build_recipe("plain", task=task, train=train, methods=GOVERNED if governed else (), where="benchmark")


def run(root: Path, recipe: Recipe, ranks: int, documents: Documents | None, data: Path | None) -> ResultRecord:
    record = plan_run(replace(recipe, ranks=ranks), data=data, documents=documents, **CHOSEN)
    directory = root / record.run_id
    if documents is not None:
        keep(documents, directory)
    run_files.write(directory / rundir.RUN, record)
    return execute(directory, data=data)


def step(result: ResultRecord) -> float:
    return result.timings.training() / result.timed_steps


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("EXPLORER_DATA"))
    parser.add_argument("--rounds", type=whole(2, 100), default=5, help="runs of each kind")
    chosen = parser.parse_args()
    data = Path(chosen.data) if chosen.data else None
    plain, governed = (recipe_of(data, governed=each) for each in (False, True))
    one, two, four = list[float](), list[float](), list[float]()
    digests: dict[int, set[str]] = {1: set(), 2: set()}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        source = governed.dataset
        documents = documents_of(source, source.load(data), root / "documents", denied=0, data=data)
        for turn in range(chosen.rounds):
            for ranks, times in ((1, one), (2, two)):
                result = run(root / f"{turn}-{ranks}", plain, ranks, None, data)
                times.append(step(result))
                digests[ranks].add(result.state_digest)
            four.append(step(run(root / f"{turn}-governed", governed, 2, documents, data)))
    speedups = [alone / together for alone, together in zip(one, two, strict=True)]
    costs = [under / together for under, together in zip(four, two, strict=True)]
    same = digests[1] == digests[2] and len(digests[1]) == 1
    lines = [
        "# Ranks on the cores of one machine",
        "",
        f"ResNet-20 with GroupNorm, {'CIFAR-10' if data else 'digits at 32x32 pixels'}, batch {BATCH}, {LANES} lanes,"
        f" one thread for each rank, {STEPS} steps a run, {chosen.rounds} runs of each kind in turn. Made by"
        " `benchmarks/ranks.py`.",
        "",
        "| | median | of each round | target |",
        "|---|---|---|---|",
        line("one rank of one thread over two ranks, time of a step", speedups, "at least 1.6"),
        line(f"two ranks, governed with {CLASSES} classes over ungoverned", costs, "at most 1.15"),
        "",
        f"One rank takes {1e3 * statistics.median(one):.0f} ms a step. Models of one and of two ranks:"
        f" {'the same bits in every run' if same else '**other bits**'}.",
    ]
    write_page(OUT, "\n".join(lines))
    print("\n".join(lines))


def line(name: str, ratios: list[float], target: str) -> str:
    middle = statistics.median(ratios)
    shown = ", ".join(f"{each:.2f}" for each in ratios)
    return f"| {name} | {middle:.2f} | {shown} | {verdict(middle, target)} |"


if __name__ == "__main__":
    main()

"""Search for the settings of a baseline: batch size and learning rate at about equal time, on seeds of its own.

A recipe is only compared with a baseline whose own settings were searched. Smaller batches take more time an epoch, so
they get fewer epochs here. The seeds are not those of the sweep.
"""

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from pages import write_page

from explorer import run_files, rundir
from explorer.recipes.recipe import build_recipe
from explorer.run_files import ResultRecord
from explorer.training.run import execute
from explorer.training.run_plan import plan_run

SCHEDULE = {"cosine": {"warmup": 0.1, "scale_warmup": True}}


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """Grid over batch sizes and learning rates."""

    task: Mapping[str, Any]
    optimizer: Callable[[float], Mapping[str, Any]]  # of a learning rate
    ladder: Sequence[tuple[int, float]]  # batch size, epochs
    learning_rates: Sequence[float]
    seeds: Sequence[int]
    metrics: Mapping[str, str]  # name of a metric: title of its column


def write_table(search: Search, title: str, words: str, path: Path) -> None:
    """Train every point of a grid, and write the table of its means."""
    heads = ["batch size", "epochs", "learning rate", *search.metrics.values(), "training seconds"]
    seeds = ", ".join(map(str, search.seeds))
    lines = [
        f"# {title}",
        "",
        f"{words}, cosine schedule with a tenth of warm-up, one thread; mean over seeds {seeds}. Made by"
        f" `benchmarks/{path.stem}.py`.",
        "",
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
    ]
    with tempfile.TemporaryDirectory() as root:
        for (batch_size, epochs), lr in product(search.ladder, search.learning_rates):
            results = [
                _train(search, Path(root), lr=lr, batch_size=batch_size, epochs=epochs, seed=seed)
                for seed in search.seeds
            ]
            means = [f"{statistics.mean(result.metrics[name] for result in results):.4f}" for name in search.metrics]
            seconds = statistics.median(result.timings.training() for result in results)
            lines.append(f"| {batch_size} | {epochs:g} | {lr:g} | {' | '.join(means)} | {seconds:.1f} |")
            print(lines[-1], flush=True)
    write_page(path, "\n".join(lines))


def _train(search: Search, root: Path, *, lr: float, batch_size: int, epochs: float, seed: int) -> ResultRecord:
    settings = {
        "epochs": epochs,
        "batch_size": batch_size,
        "optimizer": search.optimizer(lr),
        "schedule": SCHEDULE,
        "evaluations": 0,  # only the one at the end
    }
    recipe = build_recipe("baseline", task=search.task, train=settings, methods=[], where="tuning")
    run = plan_run(recipe, sweep="tuning", baseline="baseline", tuning=None, ssr=1.0, seed=seed, threads=1, data=None)
    directory = root / run.run_id
    run_files.write(directory / rundir.RUN, run)
    return execute(directory)

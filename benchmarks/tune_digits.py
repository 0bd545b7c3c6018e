"""How the baseline of `notebooks/sweeps/digits.yaml` was tuned: batch size and learning rate at about equal time.

    python benchmarks/tune_digits.py        writes benchmarks/tune_digits.md

A recipe is only compared with a baseline whose own settings were searched. Smaller batches take more time an epoch, so
they get fewer epochs here. The seeds are not those of the sweep.
"""

import statistics
import tempfile
from itertools import product
from pathlib import Path

from options import options

from explorer import run_files, rundir
from explorer.recipes.recipe import build_recipe
from explorer.run_files import ResultRecord
from explorer.training.run import execute
from explorer.training.run_plan import plan_run

TASK = {"dataset": {"digits": {"size": 16}}, "model": "resnet8"}
WEIGHT_DECAY = 5e-3
SEEDS = (100, 101, 102)
LADDER = ((8, 2.5), (16, 4.0), (32, 5.0))  # batch size, epochs
LEARNING_RATES = (0.05, 0.1, 0.2, 0.4)


def train(root: Path, *, lr: float, batch_size: int, epochs: float, seed: int) -> ResultRecord:
    """One baseline run."""
    settings = {
        "epochs": epochs,
        "batch_size": batch_size,
        "optimizer": {"sgd": {"lr": lr, "weight_decay": WEIGHT_DECAY}},
        "schedule": {"cosine": {"warmup": 0.1, "scale_warmup": True}},
    }
    recipe = build_recipe("baseline", task=TASK, train=settings, methods=[], where="tuning")
    run = plan_run(recipe, sweep="tuning", baseline="baseline", tuning=None, ssr=1.0, seed=seed, threads=1, data=None)
    directory = root / run.run_id
    run_files.write(directory / rundir.RUN, run)
    return execute(directory)


def main() -> None:
    options(__doc__).parse_args()
    lines = [
        "# Tuning of the digits baseline",
        "",
        f"resnet8, digits at 16x16, SGD with momentum 0.9 and weight decay {WEIGHT_DECAY:g}, cosine schedule with a"
        f" tenth of warm-up, one thread; mean over seeds {', '.join(map(str, SEEDS))}. Made by"
        " `benchmarks/tune_digits.py`.",
        "",
        "| batch size | epochs | learning rate | accuracy | NLL (nats) | training seconds |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as root:
        for (batch_size, epochs), lr in product(LADDER, LEARNING_RATES):
            found = [train(Path(root), lr=lr, batch_size=batch_size, epochs=epochs, seed=seed) for seed in SEEDS]
            accuracy = statistics.mean(result.metrics["accuracy"] for result in found)
            nll = statistics.mean(result.metrics["nll"] for result in found)
            seconds = statistics.median(result.timings.training() for result in found)
            lines.append(f"| {batch_size} | {epochs:g} | {lr:g} | {accuracy:.4f} | {nll:.4f} | {seconds:.1f} |")
            print(lines[-1], flush=True)
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

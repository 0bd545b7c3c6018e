"""How the baseline of `notebooks/sweeps/cifar10-16px.yaml` was tuned: batch size and learning rate, then weight decay.

    EXPLORER_DATA=DIR python benchmarks/tune_cifar10.py        writes benchmarks/tune_cifar10.md

A recipe is only compared with a baseline whose own settings were searched. The seed is not one of the sweep's.
"""

import os
import tempfile
from pathlib import Path

from options import options
from pages import write_page

from explorer import run_files, rundir
from explorer.recipes.recipe import build_recipe
from explorer.run_files import ResultRecord
from explorer.training.run import execute
from explorer.training.run_plan import plan_run

TASK = {"dataset": {"cifar10": {"size": 16, "examples": 20000}}, "model": "resnet8"}
DATA = Path(os.environ["EXPLORER_DATA"]) if "EXPLORER_DATA" in os.environ else None
SEED = 100
GRID = ((32, 0.1), (32, 0.2), (64, 0.1), (64, 0.2), (64, 0.4), (128, 0.2), (128, 0.4))  # batch size, learning rate
DECAYS = (2e-3, 5e-3, 1e-2)


def train(root: Path, *, batch_size: int, lr: float, decay: float) -> ResultRecord:
    """One baseline run."""
    settings = {
        "epochs": 8,
        "batch_size": batch_size,
        "precision": "bf16",
        "optimizer": {"sgd": {"lr": lr, "weight_decay": decay}},
        "schedule": {"cosine": {"warmup": 0.1, "scale_warmup": True}},
    }
    recipe = build_recipe("baseline", task=TASK, train=settings, methods=[], where="tuning")
    run = plan_run(recipe, sweep="tuning", baseline="baseline", tuning=None, ssr=1.0, seed=SEED, threads=1, data=DATA)
    directory = root / run.run_id
    run_files.write(directory / rundir.RUN, run)
    return execute(directory, data=DATA)


def main() -> None:
    parser = options(__doc__)
    parser.parse_args()
    if DATA is None:
        parser.error("expected the directory of datasets in EXPLORER_DATA")
    lines = [
        "# Tuning of the CIFAR-10 baseline",
        "",
        "resnet8, the first 20,000 training photographs of CIFAR-10 at 16x16, bf16, 8 epochs of SGD with momentum 0.9,"
        f" cosine schedule with a tenth of warm-up, one thread, seed {SEED}. Made by `benchmarks/tune_cifar10.py`.",
        "",
        "| batch size | learning rate | weight decay | accuracy | NLL (nats) |",
        "|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as made:
        found: dict[tuple[int, float, float], ResultRecord] = {}

        def tried(batch_size: int, lr: float, decay: float) -> float:
            key = (batch_size, lr, decay)
            if key not in found:
                found[key] = train(Path(made), batch_size=batch_size, lr=lr, decay=decay)
                metrics = found[key].metrics
                line = f"| {batch_size} | {lr:g} | {decay:g} | {metrics['accuracy']:.4f} | {metrics['nll']:.4f} |"
                print(line, flush=True)
                lines.append(line)
            return found[key].metrics["accuracy"]

        best = max(GRID, key=lambda pair: tried(*pair, DECAYS[1]))
        for decay in DECAYS:
            tried(*best, decay)
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))


if __name__ == "__main__":
    main()

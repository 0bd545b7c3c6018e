"""Writes the fixtures of this directory with the tools themselves: `python make.py wandb|mlflow DIRECTORY`.

It needs `wandb` or `mlflow-skinny` (with sqlalchemy and alembic for its database, and pandas for the table of
`search_runs`), which the tests do not. The recorded fixtures were made by wandb 0.31.0 and mlflow-skinny 3.17.2. Each
has the same five runs: two recipes, two seeds, three epochs; the fifth run fails.
"""

import os
import sys
from pathlib import Path
from typing import Any

RUNS = [("sgd", 0), ("sgd", 1), ("adam", 0), ("adam", 1), ("adam", 2)]
EPOCHS = 3


def measured(optimizer: str, seed: int, epoch: int) -> dict[str, float]:
    """What a run measures in an epoch. The fifth run's loss is no number."""
    gain = {"sgd": 0.0, "adam": 0.05}[optimizer]
    loss = 2.0 / (epoch + 1) - gain if seed < 2 else float("nan")
    return {"train_loss": loss, "val/acc": 0.5 + 0.1 * epoch + gain + 0.01 * seed}


def seconds(optimizer: str, seed: int) -> float:
    return {"sgd": 4.0, "adam": 3.0}[optimizer] + 0.1 * seed


def write_wandb(directory: Path) -> None:
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true")
    import wandb  # pyright: ignore[reportMissingImports]

    quiet = wandb.Settings(x_disable_meta=True, x_disable_stats=True, save_code=False, disable_git=True)
    for optimizer, seed in RUNS:
        config = {"optimizer": optimizer, "seed": seed, "epochs": EPOCHS, "model": {"width": 8}}
        run = wandb.init(
            project="demo", dir=str(directory), name=f"{optimizer}-{seed}", config=config, settings=quiet, reinit=True
        )
        for epoch in range(EPOCHS):
            run.log(measured(optimizer, seed, epoch))
        run.summary["train_seconds"] = seconds(optimizer, seed)
        run.finish(exit_code=0 if seed < 2 else 1)


def write_mlflow(directory: Path) -> None:
    # MLflow 3 writes to a database unless told otherwise.
    os.environ.update(MLFLOW_ALLOW_FILE_STORE="true", LOGNAME="someone", USER="someone")
    os.chdir(directory)
    import mlflow  # pyright: ignore[reportMissingImports]

    for store in ("sqlite:///mlflow.db", "file:mlruns"):
        mlflow.set_tracking_uri(store)
        mlflow.set_experiment("demo")
        log_runs(mlflow)
    mlflow.search_runs(experiment_names=["demo"]).to_csv("search_runs.csv", index=False)


def log_runs(mlflow: Any) -> None:
    for optimizer, seed in RUNS:
        mlflow.start_run(run_name=f"{optimizer}-{seed}")
        mlflow.log_params({"optimizer": optimizer, "seed": seed, "epochs": EPOCHS})
        for epoch in range(EPOCHS):
            mlflow.log_metrics(measured(optimizer, seed, epoch), step=epoch)
        mlflow.log_metric("train_seconds", seconds(optimizer, seed))
        mlflow.end_run("FINISHED" if seed < 2 else "FAILED")


if __name__ == "__main__":
    tool, target = sys.argv[1], Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    {"wandb": write_wandb, "mlflow": write_mlflow}[tool](target)

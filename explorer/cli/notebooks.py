"""`explorer open`: JupyterLab on one of the notebooks."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import explorer
from explorer.cli.settings import RUNS, Data, Runs
from explorer.errors import ExplorerError


class Notebook(StrEnum):
    """The notebooks that are meant to be opened."""

    EXPLORE = "explore"
    SWEEP = "sweep"
    LEDGER = "ledger"


def register(app: typer.Typer) -> None:
    app.command(name="open")(open_notebook)


def notebook_directory() -> Path:
    """The repository's `notebooks/`. Raises `ExplorerError` where the package was installed without it."""
    directory = Path(explorer.__file__).parents[1] / "notebooks"
    if not (directory / "run.ipynb").is_file():
        raise ExplorerError(f"no notebooks in {directory}: install from a clone with 'pip install -e .'")
    return directory


def open_notebook(
    notebook: Annotated[Notebook, typer.Argument(help="Which notebook.")] = Notebook.EXPLORE,
    runs: Runs = RUNS,
    data: Data = None,
) -> None:
    """Open JupyterLab on a notebook: explore (tradeoff curves), sweep (edit, plan and run a sweep) or ledger (what a
    governed run recorded, and its proofs)."""
    path = notebook_directory() / f"{notebook}.ipynb"
    os.environ["EXPLORER_RUNS"] = str(runs.resolve())
    if data is not None:
        os.environ["EXPLORER_DATA"] = str(data.resolve())
    # The server's root holds notebooks and runs, so that the links from one to the other work.
    root = f"--ServerApp.root_dir={path.parents[1]}"
    arguments = [sys.executable, "-m", "jupyterlab", root, str(path)]
    sys.stdout.flush()
    os.execv(sys.executable, arguments)

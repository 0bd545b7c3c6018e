"""`explorer open`: JupyterLab on one of the notebooks."""

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from explorer.bundled import notebook_directory
from explorer.cli import options
from explorer.cli.verbs import part
from explorer.errors import ExplorerError


class Notebook(StrEnum):
    """The notebooks that `explorer open` opens."""

    EXPLORE = "explore"
    SWEEP = "sweep"
    LEDGER = "ledger"
    REPORT = "report"


def open_notebook(
    notebook: Annotated[Notebook, typer.Argument(help="Notebook to open.")] = Notebook.EXPLORE,
    view: Annotated[
        str | None, typer.Option("--view", metavar="TOKEN", help="Token of a shared view, for the explore notebook.")
    ] = None,
    runs: options.Runs = options.RUNS,
    data: options.Data = None,
) -> None:
    """Open JupyterLab on a notebook: explore (tradeoff curves), sweep (edit, plan and run a sweep), ledger (what a
    governed run recorded, and its proofs) or report (write reports by clicks)."""
    path = notebook_directory() / f"{notebook}.ipynb"
    if view is not None:
        os.environ["EXPLORER_VIEW"] = _checked(view, notebook)
    os.environ["EXPLORER_RUNS"] = str(runs.resolve())
    if data is not None:
        os.environ["EXPLORER_DATA"] = str(data.resolve())
    # In a wheel the notebooks belong to the package: a copy keeps what the user saves across upgrades.
    if "site-packages" in path.parts:
        path = _copied(path, Path.cwd() / "notebooks")
    # The server's root holds notebooks and runs, so that the links from one to the other work.
    root = f"--ServerApp.root_dir={path.parents[1]}"
    arguments = [sys.executable, "-m", "jupyterlab", root, str(path)]
    sys.stdout.flush()  # exec drops what is still buffered
    os.execv(sys.executable, arguments)


def _copied(notebook: Path, to: Path) -> Path:
    """Return the user's copy of a notebook, making it if needed."""
    copy = to / notebook.name
    if not copy.exists():
        to.mkdir(exist_ok=True)
        copy.write_bytes(notebook.read_bytes())
    return copy


def _checked(view: str, notebook: Notebook) -> str:
    """Return the token of a view. A damaged one is refused here, before it fails in a cell of the notebook."""
    if notebook is not Notebook.EXPLORE:
        raise ExplorerError(f"--view: found with the notebook {notebook}; expected with explore")
    part("open --view")(view)
    return view

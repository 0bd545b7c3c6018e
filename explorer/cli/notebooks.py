"""`explorer open`: JupyterLab on one of the notebooks, copied into the project and executed before it is shown."""

import hashlib
import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import rundir
from explorer.bundled import notebook_directory
from explorer.cli import options
from explorer.cli.verbs import part
from explorer.errors import ExplorerError, unknown


class Notebook(StrEnum):
    """The notebooks that `explorer open` opens."""

    EXPLORE = "explore"
    SWEEP = "sweep"
    LEDGER = "ledger"
    REPORT = "report"


MAX_BYTES = 2**26  # of a notebook, with its pictures


def open_notebook(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NOTEBOOK] [-- ARGUMENT...]",
            help="explore, sweep, ledger or report. Default: explore. Arguments after -- go to Jupyter.",
        ),
    ] = None,
    view: Annotated[
        str | None,
        typer.Option("--view", metavar="VIEW", help="View to open, such as 'digits?target=0.97'; for explore."),
    ] = None,
    sweep: Annotated[str | None, typer.Option("--sweep", metavar="NAME", help="For explore: the sweep.")] = None,
    metric: Annotated[str | None, typer.Option("--metric", metavar="NAME", help="For explore: the metric.")] = None,
    pay: Annotated[
        str | None, typer.Option("--pay", metavar="AXIS", help="For explore: the x axis, such as time, cost or steps.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="QUALITY", help="For explore: the target, such as 97%.")
    ] = None,
    recipes: Annotated[
        str | None, typer.Option("--recipes", metavar="A,B", help="For explore: the recipes to show.")
    ] = None,
    runs: options.Runs = options.RUNS,
    at: options.ReadAt = None,
    data: options.Data = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser, or only print the address.")
    ] = True,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, metavar="N", help="Port to serve on.")] = None,
    ip: Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="Address to serve on.")] = None,
) -> None:
    """Open JupyterLab on a notebook: explore (tradeoff curves), sweep (edit, plan and run a sweep), ledger (what a
    governed run recorded, and its proofs) or report (write reports by clicks).

    The notebook is copied into the working directory and executed first, so that the browser shows the live view.
    """
    notebook, arguments = _split(words or [])
    if at is not None:
        if notebook is not Notebook.EXPLORE:
            raise ExplorerError(f"--at: found with the notebook {notebook}, which needs runs; expected with explore")
        runs = part("read --at")(at)
    fields = {"metric": metric, "x": pay, "target": target, "recipes": recipes}
    if asked := _view(view, sweep, {name: text for name, text in fields.items() if text is not None}, notebook, runs):
        os.environ["EXPLORER_VIEW"] = asked
    os.environ["EXPLORER_RUNS"] = str(runs.resolve())
    if data is not None:
        os.environ["EXPLORER_DATA"] = str(data.resolve())
    copy, as_shipped = copied(notebook_directory() / f"{notebook}.ipynb", _project())
    # The server's root holds notebooks and runs, so that the links from one to the other work.
    root = Path(os.path.commonpath([copy.parent, runs.resolve()]))
    own = {"ServerApp.port": port, "ServerApp.ip": ip}
    part("open")(
        copy,
        root=root,
        reading=_reading(runs) if at is None else f"Reading the results at {at} ...",
        browser=browser,
        trusted=as_shipped,
        arguments=[*(f"--{name}={value}" for name, value in own.items() if value is not None), *arguments],
    )


def _split(words: list[str]) -> tuple[Notebook, list[str]]:
    """Return the notebook, and the arguments for Jupyter behind it."""
    if not words or words[0].startswith("-"):
        return Notebook.EXPLORE, words
    if words[0] not in list(Notebook):
        raise ExplorerError(unknown("notebook", words[0], [str(notebook) for notebook in Notebook]))
    return Notebook(words[0]), words[1:]


def copied(shipped: Path, project: Path) -> tuple[Path, bool]:
    """Return the project's copy of a notebook, made if needed, and whether its code is as shipped.

    A copy that was never edited follows the package when that changes; an edited one stays. Raises `ExplorerError` for
    a file in its place that is no notebook.
    """
    copy, original = project / shipped.name, _read(shipped)
    if copy.exists():
        mine = _read(copy)
        if _code(mine) == _code(original):
            return copy, True
        if mine["metadata"].get("explorer", {}).get("shipped") != _stamp(mine):
            return copy, False
    original["metadata"]["explorer"] = {"shipped": _stamp(original)}
    rundir.write_bytes(copy, json.dumps(original, indent=1, ensure_ascii=False).encode() + b"\n")
    return copy, True


def _read(path: Path) -> dict[str, Any]:
    content = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ExplorerError)
    try:
        notebook = json.loads(content)
        _code(notebook)
        notebook["metadata"].get("explorer", {}).get("shipped")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ExplorerError(f"{path} is not a notebook: move it away, so that a new copy can be made") from error
    return notebook


def _code(notebook: dict[str, Any]) -> list[str]:
    """Return the sources of the code cells."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _stamp(notebook: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(_code(notebook)).encode()).hexdigest()[:16]


def _project() -> Path:
    """Return the directory of the copy: the working directory, but never that of the notebooks themselves."""
    here = Path.cwd().resolve()
    return here.parent if here == notebook_directory().resolve() else here


def _reading(runs: Path) -> str:
    """Return what is read while the notebook is executed."""

    count = sum(len(_below(sweep)) for sweep in _below(runs))
    return f"Reading {count:,} {'run' if count == 1 else 'runs'} in {runs} ..."


def _view(view: str | None, sweep: str | None, fields: dict[str, str], notebook: Notebook, runs: Path) -> str | None:
    """Return the text of the view that is asked for: a whole one, with options for single fields in their place.

    What cannot be is refused here, before it fails in a cell of the notebook.
    """
    if view is None and sweep is None and not fields:
        return None
    if notebook is not Notebook.EXPLORE:
        raise ExplorerError(f"options of a view: found with the notebook {notebook}; expected with explore")
    names = sorted(Path(directory).name for directory in _below(runs))
    if sweep is not None and sweep not in (*names, "*"):
        raise ExplorerError(unknown("sweep", sweep, names))
    return part("open --view")(runs, view, sweep, fields)


def _below(directory: Path | str) -> list[str]:
    """Return the directories of sweeps, or of runs, in a directory."""
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return []
    return [entry.path for entry in entries if entry.is_dir() and not entry.name.startswith(("_", "."))]

"""The files of a run that a page leads to, and the commands that make, show or repeat them.

Addresses are relative to the directory `here`: what JupyterLab, and a browser with a file from the disk, make of them
is the same file. A command is for a shell in `here`.
"""

import os
import shlex
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from markupsafe import Markup

from explorer import rundir
from explorer.errors import StoreError
from explorer.views import text

REPORT = "report.html"


def run_directory(runs: Path, directory: str) -> Path:
    """The directory of a run, of which the database says where it lies below `runs`.

    Raises `StoreError` for a place that is not below it.
    """
    parts = PurePosixPath(directory).parts
    if not parts or ".." in parts or PurePosixPath(directory).is_absolute():
        raise StoreError(f"the database names {directory!r:.80} as the directory of a run; expected one below {runs}")
    return runs / directory


def reproduce(directory: Path, *, here: Path) -> str:
    """The command that trains a run again."""
    return f"explorer run {_typed(directory / rundir.RUN, here)} --out again"


def notebook(directory: Path, *, here: Path) -> str | Markup:
    """A link to the executed notebook, a dash where there is none."""
    path = directory / rundir.NOTEBOOK
    return link(path, "open", here=here) if path.is_file() else text.MISSING


def ledger(directory: Path, *, here: Path) -> Markup:
    """A link to the ledger of a governed run, and the command that prints its entries."""
    path = directory / rundir.LEDGER
    shown = link(path, "open its directory", here=here) if path.is_dir() else Markup("not on this disk")
    return Markup("{} {}").format(shown, command(f"explorer ledger show {_typed(path, here)}"))


def report(directory: Path, *, runs: Path, governed: bool, here: Path) -> Markup:
    """A link to the report of a governed run, or to that of the sweep of any other; where nobody wrote it yet, the
    command that does."""
    of_run = (directory / REPORT, directory / rundir.PRIVATE / REPORT)
    for path in of_run if governed else (directory.parent / REPORT,):
        if path.is_file():
            return link(path, "open", here=here)
    if governed:
        return command(f"explorer report {_typed(directory, here)}")
    return command(f"explorer report {shlex.quote(directory.parent.name)} --runs {_typed(runs, here)}")


def link(path: Path, words: str, *, here: Path) -> Markup:
    """A link that leaves the page where it is."""
    address = quote(Path(os.path.relpath(path, here)).as_posix())
    return Markup('<a href="{}" target="_blank" rel="noopener">{}</a>').format(address, words)


def command(words: str) -> Markup:
    """A command to copy: one click selects the whole of it."""
    return Markup('<code class="x-command">{}</code>').format(words)


def _typed(path: Path, here: Path) -> str:
    """A path as one types it in a shell."""
    return shlex.quote(Path(os.path.relpath(path, here)).as_posix())

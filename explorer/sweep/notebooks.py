"""Notebook engines: three ways to execute a notebook with parameters, one interface, identical results.

    cold     a fresh kernel for every run: the reference
    warm     one kernel, cleared between runs and replaced after many: the default of sweeps
    inline   no kernel: an IPython shell in this process

All three run through papermill, which injects the parameters. Papermill's own record of success is not used, because
after a killed kernel it claims that every cell was completed. Engines raise instead, and stamp the notebook with the
outcome.
"""

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import nbformat
import papermill
from nbformat import NotebookNode
from papermill.engines import Engine, NotebookExecutionManager, papermill_engines
from papermill.exceptions import PapermillExecutionError
from papermill.execute import ERROR_MARKER_TAG

from explorer import rundir
from explorer.errors import DivergedError, SweepError, unknown

Fault = Literal["exception", "diverged", "dead kernel", "timeout", "interrupted"]

MAX_BYTES = 16 * 2**20
STAMP = "explorer"  # the key of our stamp in the notebook's metadata
INTERRUPTED = "interrupted; run again to resume"

# Without a handler, Python prints papermill's warnings to stderr.
logging.getLogger("papermill").addHandler(logging.NullHandler())


class NotebookError(SweepError):
    """Failure of a notebook to run to its end."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault: Fault = fault


class NotebookEngine(ABC):
    """Executor of notebooks, one at a time."""

    _document: NotebookNode | None = None  # the running notebook, in which outputs appear

    def run(self, notebook: Path, parameters: Mapping[str, Any], output: Path) -> None:
        """Execute `notebook` and write the executed one to `output`, atomically, also if it did not finish.

        Raises `NotebookError` when a cell raised, the kernel died, a cell took too long or the run was interrupted, and
        `RunError` when the output cannot be written.
        """
        self._document = None
        error = self._attempt(notebook, parameters)
        # Outputs up to a fault are kept: they show where it happened.
        if self._document is not None:
            stamp(self._document, error)
            rundir.write_bytes(output, nbformat.writes(self._document).encode())
        if error is not None:
            raise error

    def _attempt(self, notebook: Path, parameters: Mapping[str, Any]) -> NotebookError | None:
        try:
            papermill.execute_notebook(
                str(notebook),
                None,
                parameters=dict(parameters),
                engine_name=_Delegate.NAME,
                progress_bar=False,
                owner=self,
            )
        except PapermillExecutionError as error:
            return _cell_error(error)
        except NotebookError as error:
            return error
        return None

    @abstractmethod
    def execute(self, manager: NotebookExecutionManager) -> None:
        """Execute the cells of `manager.nb`, reporting progress to the manager. Called by papermill."""

    @abstractmethod
    def interrupt(self) -> None:
        """Ask the running notebook to stop, as Ctrl-C does in JupyterLab. It may be called from a signal handler."""

    @abstractmethod
    def close(self) -> None:
        """Release the engine's resources. The engine may be used again."""


class _Delegate(Engine):
    """Papermill's view of our engines: it hands the notebook back to the engine that called papermill."""

    NAME = "explorer"

    @classmethod
    def execute_managed_notebook(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, nb_man: NotebookExecutionManager, kernel_name: str, *, owner: NotebookEngine, **_: Any
    ) -> None:
        owner._document = nb_man.nb
        owner.execute(nb_man)


papermill_engines.register(_Delegate.NAME, _Delegate)


def _cell_error(error: PapermillExecutionError) -> NotebookError:
    if error.ename == "KeyboardInterrupt":
        return NotebookError("interrupted", INTERRUPTED)
    # The kernel is another process: of an exception in it only name and message are known here.
    if error.ename == DivergedError.__name__:
        return NotebookError("diverged", error.evalue)
    return NotebookError("exception", f"{error.ename}: {error.evalue}")


def stamp(document: NotebookNode, error: NotebookError | None) -> None:
    """Write the outcome into the notebook, and correct the status that papermill gave it."""
    state = "complete" if error is None else error.fault
    document.metadata[STAMP] = {"state": state, "message": "" if error is None else str(error)}
    if error is None or error.fault in ("exception", "diverged", "interrupted"):
        return  # the failed cell shows its own traceback, and papermill marked it
    # Papermill saw no exception: the last cell that started is the one that failed, and later ones never ran.
    document.metadata.papermill["exception"] = True
    started = [cell for cell in document.cells if cell.metadata.get("papermill", {}).get("start_time")]
    for cell in document.cells:
        status = cell.metadata.setdefault("papermill", {})
        if cell not in started:
            status["status"] = "pending"
        elif cell is started[-1]:
            status.update(status="failed", exception=True)
    notice = nbformat.v4.new_markdown_cell(f"**This run did not finish: {error}.** Its outputs up to then follow.")
    notice.metadata["tags"] = [ERROR_MARKER_TAG]
    document.cells.insert(0, notice)


def check_notebook(notebook: Path, parameters: Mapping[str, Any]) -> None:
    """Check that the notebook can be read and takes these parameters, before any run starts.

    Raises `SweepError`. Papermill would only warn, and run the notebook with its defaults.
    """
    _check_json(parameters)
    _read(notebook)
    try:
        known = papermill.inspect_notebook(str(notebook))
    except ValueError as error:  # it names no kernel
        raise SweepError(f"{notebook}: {error}") from error
    if not known:
        expected = ", ".join(sorted(parameters))
        raise SweepError(f"{notebook}: found no cell tagged 'parameters'; expected one that sets {expected}")
    for name in parameters:
        if name not in known:
            raise SweepError(f"{notebook}: {unknown('parameter', name, known)}")


def _check_json(parameters: Mapping[str, Any]) -> None:
    for name, value in parameters.items():
        try:
            same = json.loads(json.dumps(value, allow_nan=False)) == value
        except (TypeError, ValueError):
            same = False
        if not same:
            raise SweepError(f"parameter {name!r}: found {value!r:.100}; expected a value that JSON preserves")


def _read(notebook: Path) -> NotebookNode:
    try:
        with notebook.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise SweepError(f"{notebook}: too large for a notebook; at most {MAX_BYTES} bytes are read")
        document = nbformat.reads(content.decode(), as_version=4)
        nbformat.validate(document)
    except OSError as error:
        raise SweepError(f"cannot read {notebook}: {error.strerror or error}") from error
    except (ValueError, AttributeError, KeyError, TypeError, nbformat.ValidationError) as error:
        fault = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SweepError(f"{notebook}: damaged: not a notebook ({fault:.200})") from error
    return document

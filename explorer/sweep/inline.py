"""The engine `inline`: notebooks executed by an IPython shell in this process, without a kernel.

The engine has a shell of its own, apart from that of a notebook it may be called from, and clears it after every run.
Outputs are those that a kernel would have sent: streams, rich displays, results, errors.
"""

import builtins
import contextlib
import io
import signal
import sys
import tempfile
import threading
import types
from collections.abc import Iterator
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from nbformat import NotebookNode
from nbformat.v4 import new_output
from papermill.engines import NotebookExecutionManager
from traitlets import Type
from traitlets.config import Config

from explorer.sweep.notebooks import NotebookEngine
from explorer.sweep.process_state import Session, clear


class InlineEngine(NotebookEngine):
    """Executor of notebooks in this process: no start-up time, but a run that crashes takes the process with it."""

    def __init__(self) -> None:
        self._shell: InlineShell | None = None

    def execute(self, manager: NotebookExecutionManager) -> None:
        shell, session = self._ready(), Session.take()
        try:
            with _as_current(shell):
                _execute_cells(shell, manager)
        finally:
            clear(shell, session)  # the caller's state, which the notebook may have changed

    def interrupt(self) -> None:
        # Signal handlers run in the main thread, and so does the notebook.
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def close(self) -> None:
        self._shell = None

    def _ready(self) -> "InlineShell":
        if self._shell is None:
            # A directory other than the user's, because start-up scripts are not part of a run.
            with tempfile.TemporaryDirectory(prefix="explorer-") as directory:
                self._shell = InlineShell(
                    ipython_dir=directory,
                    user_module=types.ModuleType("explorer_inline_notebook"),
                    config=Config({"HistoryManager": {"enabled": False}}),
                )
        return self._shell


def _execute_cells(shell: "InlineShell", manager: NotebookExecutionManager) -> None:
    for index, cell in enumerate(manager.nb.cells):
        manager.cell_start(cell, index)
        try:
            if cell.cell_type == "code" and cell.source.strip() and not shell.run(cell):
                manager.cell_exception(cell, cell_index=index)
                return
        finally:
            manager.cell_complete(cell, cell_index=index)
    manager.nb.metadata["language_info"] = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"}


class _Publisher(DisplayPublisher):
    """Receiver of what `display` publishes."""

    def publish(
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        source: object = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        assert isinstance(self.shell, InlineShell)
        self.shell.displayed(data, metadata or {}, name=(transient or {}).get("display_id"), update=update)

    def clear_output(self, wait: bool = False) -> None:
        assert isinstance(self.shell, InlineShell)
        self.shell.outputs.clear()


class _Hook(DisplayHook):
    """Receiver of the value of a cell's last expression."""

    def start_displayhook(self) -> None: ...

    def write_output_prompt(self) -> None: ...

    def finish_displayhook(self) -> None: ...

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        assert isinstance(self.shell, InlineShell)
        self.shell.outputs.append(
            new_output(
                "execute_result", data=format_dict, metadata=md_dict or {}, execution_count=self.shell.execution_count
            )
        )


class _Stream(io.TextIOBase):
    """Receiver of printed text."""

    def __init__(self, name: str, outputs: list[NotebookNode]) -> None:
        self.stream = name
        self.outputs = outputs

    def write(self, text: str) -> int:
        # Consecutive text of a stream is one output, as in a kernel's notebook.
        last = self.outputs[-1] if self.outputs else None
        if last is not None and last.output_type == "stream" and last.name == self.stream:
            last.text += text
        elif text:
            self.outputs.append(new_output("stream", name=self.stream, text=text))
        return len(text)

    def writable(self) -> bool:
        return True


class InlineShell(InteractiveShell):
    """IPython shell whose output goes into notebook cells."""

    display_pub_class = Type(_Publisher)
    displayhook_class = Type(_Hook)

    outputs: list[NotebookNode] = []  # of the running cell  # noqa: RUF012

    def init_virtualenv(self) -> None: ...  # the base class adds a virtual environment to sys.path, with a warning

    def run(self, cell: NotebookNode) -> bool:
        """Execute one cell and fill its outputs; return False if it raised."""
        self.outputs = cell.outputs = []
        out, err = _Stream("stdout", self.outputs), _Stream("stderr", self.outputs)
        cell.execution_count = self.execution_count
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):  # pyright: ignore
            result = self.run_cell(cell.source, store_history=True)
        cell.outputs = self.outputs
        return result.success

    def displayed(self, data: dict[str, Any], metadata: dict[str, Any], *, name: str | None, update: bool) -> None:
        output = new_output("display_data", data=data, metadata=metadata)
        if not update:
            self.outputs.append(output)
            self._shown[name] = output
        elif name in self._shown:
            self._shown[name].update(data=data, metadata=metadata)

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException | None, stb: list[str]) -> None:
        error = new_output("error", ename=etype.__name__, evalue=str(evalue), traceback=stb)
        self.outputs.append(error)

    @property
    def _shown(self) -> dict[str | None, NotebookNode]:
        """Displays by their id, for updates; forgotten with everything else when the shell is cleared."""
        return self.user_ns_hidden.setdefault("_explorer_shown", {})


@contextlib.contextmanager
def _as_current(shell: InlineShell) -> Iterator[None]:
    """Make `shell` the one that `display` and `get_ipython` find, within the block.

    IPython does not keep `_`, the last result, where a builtin of that name has another meaning (gettext installs one).
    A kernel has no such builtin, so that of this process is put aside too.
    """
    # Each class between InlineShell and its singleton base holds the instance: all of them are replaced.
    classes = list(InlineShell._walk_mro())
    before = {cls: cls._instance for cls in classes}
    hooks, underscore = sys.excepthook, builtins.__dict__.pop("_", None)
    try:
        for cls in classes:
            cls._instance = shell  # pyright: ignore[reportAttributeAccessIssue]
        yield
    finally:
        for cls, instance in before.items():
            cls._instance = instance
        sys.excepthook = hooks
        if underscore is not None:
            builtins.__dict__["_"] = underscore

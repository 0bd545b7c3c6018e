"""Command line as a process next to the notebook: `explorer sweep run` trains, never the notebook itself.

The process has a session of its own and writes to files, so the sweep continues when the notebook is closed.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer.errors import SweepError
from explorer.page import amounts
from explorer.page.amounts import BUSY

TICK = 1.0  # seconds between two looks at the process
LOGS = "_panel"  # folder in the directory of runs; a name that starts with "_" is no sweep
FORCES_COLOUR = ("FORCE_COLOR", "CLICOLOR_FORCE")  # set by notebook kernels
MAX_MESSAGE = 4000  # characters of the output that is shown


def command(*arguments: str | Path) -> list[str]:
    """Return an `explorer` command with the Python of this notebook."""
    return [sys.executable, "-m", "explorer", *(str(argument) for argument in arguments)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """Output of a finished command: its text, or its errors if it failed."""

    text: str
    succeeded: bool


async def run_command(*arguments: str | Path, most: int = MAX_MESSAGE) -> Output:
    """Run a short `explorer` command and wait for it without blocking the notebook; keep `most` characters."""
    # Kernels ask for colours, whose escape codes a widget would show; 86 columns fit the panel.
    environment = {name: value for name, value in os.environ.items() if name not in FORCES_COLOUR}
    environment |= {"COLUMNS": "86", "NO_COLOR": "1", "TERM": "dumb"}
    process = await asyncio.create_subprocess_exec(
        *command(*arguments), env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await process.communicate()
    succeeded = process.returncode == 0
    return Output(text=(out if succeeded else error).decode(errors="replace")[-most:], succeeded=succeeded)


class SweepProcess:
    """Sweep that was started from the notebook, and its events."""

    def __init__(
        self, spec: Path, *, runs: Path, verb: Sequence[str] = ("sweep", "run"), options: Sequence[str] = ()
    ) -> None:
        """Start `explorer sweep run SPEC`, or another verb on it. Raises `SweepError` if that fails."""
        self._log = runs / LOGS / f"{spec.stem}.jsonl"
        self._errors = self._log.with_suffix(".txt")
        self._read = 0
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("wb") as out, self._errors.open("wb") as errors:
                self._process = subprocess.Popen(
                    command(*verb, spec, "--runs", runs, *options, "--json"),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=errors,
                    start_new_session=True,  # or a Ctrl-C meant for the kernel would stop the sweep
                )
        except OSError as error:
            raise SweepError(f"cannot start the sweep: {error.strerror or error}") from error

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def succeeded(self) -> bool:
        """True once it has ended with every run done."""
        return self._process.poll() == 0

    def stop(self) -> None:
        """Ask it to stop after the current steps. Every run can be resumed."""
        if self.running:
            self._process.send_signal(signal.SIGINT)

    def events(self) -> list[dict[str, Any]]:
        """Return the events since the last call, oldest first. An unfinished line waits for the next call."""
        # The log is read on from the last whole line, because the process is still writing to it.
        with self._log.open("rb") as file:
            file.seek(self._read)
            lines = file.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._read += sum(map(len, whole))
        return [json.loads(line) for line in whole]

    async def watch(self) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the new events at every tick until the process ends, and then the last ones."""
        while self.running:
            yield self.events()
            await asyncio.sleep(TICK)
        yield self.events()  # those between the last look and the end

    def complaint(self) -> str:
        """Return its error output."""
        return self._errors.read_text(errors="replace")[-MAX_MESSAGE:].strip()


class Background:
    """Work that a button starts and the notebook does not wait for."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start the work on the notebook's event loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop holds only a weak reference, so an unreferenced task could vanish
        task.add_done_callback(self._tasks.discard)


def progress_words(event: dict[str, Any]) -> str:
    """Return the progress of a sweep, given its latest event.

    >>> progress_words({"event": "done", "done": 3, "failed": 1, "total": 12, "seconds_left": 90.0, "run": None})
    '3 of 12 runs done, 1 failed, about 2 min left.'
    """
    # A note on measuring or on a busy machine is more urgent than the time left.
    of = "tuning run" if event.get("tunes") else "run"
    parts = [f"{event['done']} of {amounts.count(event['total'], of)} done"]
    if event["failed"]:
        parts.append(f"{event['failed']} failed")
    if event["event"] == "profile":
        parts.append("measuring step times: leave the machine idle")
    elif event["event"] == "busy":
        parts.append(f"{BUSY}: {event['message']}")
    elif event["event"] != "end" and event["seconds_left"]:
        parts.append(f"about {_roughly(event['seconds_left'])} left")
    return ", ".join(parts) + "."


def _roughly(seconds: float) -> str:
    """Return an estimated time in whole minutes, or in tens of seconds."""
    if seconds >= 90:
        return f"{round(seconds / amounts.MINUTE)} min"
    return f"{max(10, round(seconds, -1)):.0f} s"

"""The command line as a process beside the notebook: what trains is `explorer sweep run`, never the notebook itself.

The process belongs to nobody's terminal and writes to files, so the sweep goes on when the notebook is closed.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer.errors import SweepError
from explorer.page import amounts
from explorer.page.amounts import BUSY

TICK = 1.0  # seconds between two looks at the process
LOGS = "_panel"  # in the directory of runs; names that start with "_" are no sweeps
FORCES_COLOUR = ("FORCE_COLOR", "CLICOLOR_FORCE")  # set by notebook kernels
MAX_MESSAGE = 4000  # characters of what a failed command said


def command(*arguments: str | Path) -> list[str]:
    """An `explorer` command with the Python of this notebook."""
    return [sys.executable, "-m", "explorer", *(str(argument) for argument in arguments)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a finished command printed, and whether it succeeded."""

    text: str
    succeeded: bool


async def run_command(*arguments: str | Path) -> Said:
    """Run a short `explorer` command and wait for it without holding up the notebook."""
    environment = {name: value for name, value in os.environ.items() if name not in FORCES_COLOUR}
    environment |= {"COLUMNS": "86", "NO_COLOR": "1", "TERM": "dumb"}
    process = await asyncio.create_subprocess_exec(
        *command(*arguments), env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await process.communicate()
    succeeded = process.returncode == 0
    return Said(text=(out if succeeded else error).decode(errors="replace")[-MAX_MESSAGE:], succeeded=succeeded)


class SweepProcess:
    """A sweep that was started from here, and the events it has told so far."""

    def __init__(self, spec: Path, *, runs: Path) -> None:
        """Start `explorer sweep run SPEC`. Raises `SweepError` if that cannot be done."""
        self._log = runs / LOGS / f"{spec.stem}.jsonl"
        self._errors = self._log.with_suffix(".txt")
        self._read = 0
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("wb") as out, self._errors.open("wb") as errors:
                self._process = subprocess.Popen(
                    command("sweep", "run", spec, "--runs", runs, "--json"),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=errors,
                    start_new_session=True,
                )
        except OSError as error:
            raise SweepError(f"cannot start the sweep: {error.strerror or error}") from error

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def succeeded(self) -> bool:
        """Whether it has ended with every run done."""
        return self._process.poll() == 0

    def stop(self) -> None:
        """Ask it to stop after the current steps; everything stays resumable."""
        if self.running:
            self._process.send_signal(signal.SIGINT)

    def events(self) -> list[dict[str, Any]]:
        """The events since the last call, oldest first. A line that is still being written waits."""
        with self._log.open("rb") as file:
            file.seek(self._read)
            lines = file.read().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith(b"\n")]
        self._read += sum(map(len, whole))
        return [json.loads(line) for line in whole]

    def complaint(self) -> str:
        """What it wrote to its error output."""
        return self._errors.read_text(errors="replace")[-MAX_MESSAGE:].strip()


def progress_words(event: dict[str, Any]) -> str:
    """Where a sweep stands, from its latest event.

    >>> progress_words({"event": "done", "done": 3, "failed": 1, "total": 12, "seconds_left": 90.0, "run": None})
    '3 of 12 runs done, 1 failed, about 2 min left.'
    """
    parts = [f"{event['done']} of {amounts.count(event['total'], 'run')} done"]
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
    """A time that is an estimate: whole minutes, or tens of seconds."""
    if seconds >= 90:
        return f"{round(seconds / amounts.MINUTE)} min"
    return f"{max(10, round(seconds, -1)):.0f} s"

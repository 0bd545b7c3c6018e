"""Runs that several processes of this machine train together, started by torchrun.

    this process     holds the run's directory, starts the agent, and waits
    agent            torchrun (torch.distributed.run): starts the ranks, and ends them all when one of them is lost
    ranks            0 to N - 1: rank 0 trains and writes as a single process would, the others make their passes

Agent and ranks are in rank_process.py.

The ranks report to this process by lines of JSON on their common standard output, one message a line:

    {"rank": 0, "process": 4711}                    it has begun
    {"rank": 0, "steps": [12, 480]}                 rank 0: steps done, and in all
    {"rank": 1, "failed": ["DivergedError", "..."]} it ended with this error
    {"rank": 0, "ended": "stopped"}                 it ended: "done", or "stopped" where it was asked to stop

A rank that ends without the last two was lost. What a model prints goes to the standard error of all, which is shown
only if a rank fails by a defect.
"""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from explorer import errors
from explorer.errors import ExplorerError, RunError
from explorer.guardian import child_environment

RANK_PROCESS = "explorer.training.rank_process"
AGENT, RANK = "agent", "rank"  # its two parts
LOST = "LostRank"  # the error of a rank that could not reach another one, which is not the cause

log = logging.getLogger(__name__)


# --- this process ---


@dataclass(slots=True)
class _Ranks:
    """Reports of the ranks of a run."""

    size: int
    processes: dict[int, int] = field(default_factory=dict)
    failures: dict[int, tuple[str, str]] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)

    def take(self, message: Mapping[str, Any]) -> None:
        rank = message["rank"]
        if "process" in message:
            self.processes[rank] = message["process"]
        if "failed" in message:
            self.failures[rank] = tuple(message["failed"])
        if "ended" in message:
            self.ended[rank] = message["ended"]

    def stop(self) -> None:
        """Ask rank 0 to stop after its step; it tells the others."""
        if 0 in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.processes[0], signal.SIGTERM)

    def error(self, run: str, output: str) -> Exception | None:
        """Return the error that ended the run; None: it is done, or stopped as it was asked to."""
        if 0 in self.ended:
            return KeyboardInterrupt() if self.ended[0] == "stopped" else None  # pyright: ignore[reportReturnType]
        for _, (kind, words) in sorted(self.failures.items()):
            known = getattr(errors, kind, None)
            if isinstance(known, type) and issubclass(known, ExplorerError):
                return known(words)
        for rank, (kind, words) in sorted(self.failures.items()):
            if kind != LOST:
                log.error("%s", output)
                return RunError(f"run {run}: rank {rank} of {self.size} failed: {kind}: {words}")
        lost = [rank for rank in range(self.size) if rank not in self.failures and rank not in self.ended]
        if not self.processes:
            log.error("%s", output)
            return RunError(f"run {run}: torchrun started none of its {self.size} ranks")
        named = " and ".join(f"rank {rank}" for rank in lost) or "a rank"
        return RunError(
            f"run {run}: {named} of {self.size} was lost: its process was killed, or lacked memory; start the run"
            " again, with fewer ranks if need be: it continues from its last checkpoint, to the same bits"
        )


def train(
    directory: Path, *, ranks: int, threads: int, options: Mapping[str, Any], on_progress: Any, on_stop: Any
) -> None:
    """Train the run in a directory by so many ranks, until it is done.

    Args:
        directory: of the run, which this process has locked.
        ranks: how many.
        threads: of torch, in each of them.
        options: arguments of `run.train_as`, which each rank calls.
        on_progress: gets steps done and steps in all.
        on_stop: a context manager in which the function that it is given is called at each signal to stop.

    Raises the error that ended a rank, `RunError` for a rank that was lost, and KeyboardInterrupt when asked to stop.
    """
    reported = _Ranks(ranks)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        with on_stop(reported.stop), _agent(directory, ranks, threads, options, output) as agent:
            assert agent.stdout is not None
            for line in agent.stdout:
                message = _message(line)
                if message is None:
                    print(line, end="", file=sys.stderr)
                    continue
                reported.take(message)
                if "steps" in message:
                    on_progress(*message["steps"])
            agent.wait()
        output.seek(0)
        error = reported.error(directory.name, output.read()[-20_000:])
    if error is not None:
        raise error


def _message(line: str) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError):
        message = json.loads(line)
        if isinstance(message, dict) and type(message.get("rank")) is int:
            return message
    return None


@contextlib.contextmanager
def _agent(
    directory: Path, ranks: int, threads: int, options: Mapping[str, Any], output: IO[str]
) -> Iterator[subprocess.Popen[str]]:
    agent = subprocess.Popen(
        [sys.executable, "-m", RANK_PROCESS, AGENT, str(ranks), str(directory), json.dumps(options)],
        env={**os.environ, **child_environment(threads=threads)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=output,
        text=True,
        start_new_session=True,  # Ctrl-C in the terminal is for this process, which passes it on
    )
    try:
        yield agent
    finally:
        if agent.poll() is None:  # an error here, such as of the caller's progress
            agent.terminate()
            try:
                agent.wait(30)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
        if agent.stdout is not None:
            agent.stdout.close()

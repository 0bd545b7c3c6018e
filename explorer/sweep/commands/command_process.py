"""The execution of a run that a command or notebook trains: its process, its output, and the files of its result.

The command runs in a process group of its own, which ends as a whole: at a timeout, at Ctrl-C, and when the sweep is
killed. What it reports is in `tracked.jsonl` before it continues (`explorer.track`), or is read from its standard
output and put there; the measurements appear in `metrics.jsonl` while it trains. `run.json`, `metrics.jsonl` and
`result.json` are written here, so that everything that reads a run reads this one.

Further files: `stdout.txt` and `stderr.txt`, of which the first and the last part are kept, and `work/`, the directory
of the command's own files.
"""

import collections
import contextlib
import dataclasses
import datetime
import hashlib
import json
import math
import os
import platform
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from explorer import run_files, rundir, track
from explorer.errors import RunError, unknown
from explorer.guardian import child_environment
from explorer.run_files import ALL_STEPS, ResultRecord, RunRecord, Timings
from explorer.sweep.commands import launcher
from explorer.sweep.commands.command_record import Surroundings, check_unchanged, environment_of, surroundings_of
from explorer.sweep.commands.command_task import CommandRecipe, arguments, command_line
from explorer.sweep.commands.tracked import MAX_BYTES, MAX_LINE, START, Tracked, check_record, lines_of, read_tracked
from explorer.sweep.notebooks import INTERRUPTED, NotebookError
from explorer.training.watch import Reading, Watcher, read_machine

WORK = "work"
STREAMS = ("stdout.txt", "stderr.txt")
HEAD = TAIL = 2**18  # bytes that are kept of each stream
LAST_LINES, LAST_BYTES = 12, 2000  # of the standard error, in the message of a failure
POLL = 0.02  # seconds between two looks at the process
TOLD_EVERY = 0.25  # seconds between two looks at its records
FAREWELL = 10.0  # seconds that a command has to end after Ctrl-C or a timeout
PATIENCE = 10.0  # seconds to wait for another process that holds the run
NOTEBOOK_PROCESS = "explorer.sweep.commands.notebook_process"


class CommandEngine:
    """Executor of commands, one at a time, in the place of a notebook engine."""

    def __init__(self, *, threads: int) -> None:
        self.threads = threads
        self._group: int | None = None
        self._interrupted = 0

    def run(self, directory: Path, recipe: CommandRecipe, *, contended: bool) -> None:
        """Train the run that `directory/run.json` describes, from its last checkpoint if there is one.

        Raises `NotebookError` when the command fails, takes too long, is interrupted or reports no result; `RunError`
        when it is not the run that was planned, another process trains it, or the disk refuses.
        """
        self._interrupted = 0
        with rundir.locked(directory, what=f"run {directory.name}", patience=PATIENCE):
            if (directory / rundir.RESULT).exists():
                return
            record = run_files.read(RunRecord, directory / rundir.RUN)
            around = surroundings_of(recipe.task, where=f"run {record.run_id}")
            check_unchanged(record, recipe, around)
            argv = command_of(recipe, record, directory, around)
            write_environment(directory, recipe, around, argv)
            # The watch is for other processes: this one and the command are not among them.
            watcher = Watcher(threads=self.threads, read=read_with_children)
            watcher.attend(lambda: self._attempt(directory, recipe, argv))
            tracked = read_tracked(directory)
            busy = bool(watcher.watch().reasons)
            write_result(directory, record, tracked, contended=contended or busy)

    def interrupt(self) -> None:
        """Ask the command to stop as Ctrl-C does; the second time, kill it. It may be called from a signal handler."""
        self._interrupted += 1
        self._signal(signal.SIGINT if self._interrupted == 1 else signal.SIGKILL)

    def close(self) -> None:
        """Do nothing: no process is left after a run."""

    def _attempt(self, directory: Path, recipe: CommandRecipe, argv: list[str]) -> None:
        """Run the command once. Raises `NotebookError` unless it ended well and reported its end."""
        (directory / WORK).mkdir(exist_ok=True)
        before = read_tracked(directory)
        variables = environment_of(recipe.task) | _variables(directory, before, threads=self.threads)
        with Recorder(directory, base=recipe.task.directory) as recorder:
            recorder.begin()
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", launcher.__file__, str(os.getpid()), *argv],
                cwd=recipe.task.directory,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self._group = process.pid
            if self._interrupted:  # before there was a process to tell
                self._signal(signal.SIGINT)
            try:
                late = self._wait(process, recorder, recipe)
            finally:
                # Before the group's number is free for others: what the command left in the background ends here.
                self._signal(signal.SIGKILL)
                self._group = None
                code = process.wait()
                recorder.finish()
        tracked = read_tracked(directory)
        if self._interrupted and not (tracked.done and code == 0):
            raise NotebookError("interrupted", INTERRUPTED)
        _check_end(directory, recipe, tracked, code=code, late=late, fault=recorder.fault)

    def _wait(self, process: subprocess.Popen[bytes], recorder: "Recorder", recipe: CommandRecipe) -> bool:
        """Wait for the end of the command, and return whether it took too long."""
        recorder.read(process.stdout, process.stderr)
        begun, late, stopped = time.monotonic(), False, math.inf
        while not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            now = time.monotonic()
            if recorder.fault or (self._interrupted and stopped == math.inf):
                stopped = min(stopped, now)
                if recorder.fault:
                    self._signal(signal.SIGTERM)
            if not late and recipe.task.timeout is not None and now - begun > recipe.task.timeout:
                late, stopped = True, now
                self._signal(signal.SIGTERM)
            if now - stopped > FAREWELL:
                self._signal(signal.SIGKILL)
            recorder.tell(now)
            time.sleep(POLL)
        return late

    def _signal(self, number: signal.Signals) -> None:
        if self._group is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: of a group of zombies
                os.killpg(self._group, number)


def command_of(recipe: CommandRecipe, record: RunRecord, directory: Path, around: Surroundings) -> list[str]:
    """Return the words of the command of a run."""
    work = directory.resolve() / WORK
    if recipe.task.notebook is not None:
        place = recipe.task.directory.resolve() / recipe.task.notebook
        parameters = json.dumps(arguments(recipe, record, directory=work))
        output = str(directory.resolve() / rundir.NOTEBOOK)
        threads = str(record.hardware.threads)
        return [around.program, "-m", NOTEBOOK_PROCESS, str(place), output, threads, parameters]
    return [around.program, *command_line(recipe, record, directory=work, python=sys.executable)[1:]]


def write_result(directory: Path, record: RunRecord, tracked: Tracked, *, contended: bool) -> ResultRecord:
    """Write the files of a finished run, the result last."""
    steps = trained(record, tracked).steps
    seconds = tracked.wall if tracked.reported is None else tracked.reported
    # The final metrics are the last lines; one that was logged in the last step too is not measured twice.
    measured = [line for line in tracked.measured if not (line[0] == steps and line[1] in tracked.final)]
    measured += [(steps, name, value) for name, value in tracked.final.items()]
    rundir.write_bytes(directory / rundir.METRICS, lines_of(measured).encode())
    run_files.write(directory / rundir.RUN, trained(record, tracked))
    result = ResultRecord(
        run_id=record.run_id,
        metrics=dict(tracked.final),
        steps=steps,
        examples=tracked.examples or 0,
        # What is not training by the program's own account is the rest of the clock's.
        timings=Timings(other=seconds, evaluation=max(0.0, tracked.wall - seconds)),
        timed_steps=steps,
        contended=contended,
        resumed=max(0, tracked.attempts - 1),
        state_digest="",  # of the model nothing is known
        files={
            name: hashlib.sha256((directory / name).read_bytes()).hexdigest()
            for name in (rundir.RUN, rundir.ENVIRONMENT, rundir.METRICS, track.FILE)
        },
        finished_at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        clock="wall" if tracked.reported is None else "reported",
    )
    run_files.write(directory / rundir.RESULT, result)
    (directory / rundir.FAILURE).unlink(missing_ok=True)
    for left in (directory / track.KEPT, (directory / track.KEPT).parent):
        _remove(left)
    return result


def trained(record: RunRecord, tracked: Tracked) -> RunRecord:
    """Return the record of a run with the steps that its program has made.

    A program that reports no steps counts as one of one step, so that its time is a time of training.
    """
    steps = max(1, tracked.step)
    return dataclasses.replace(record, steps=steps, phases={ALL_STEPS: steps})


def _check_end(directory: Path, recipe: CommandRecipe, tracked: Tracked, *, code: int, late: bool, fault: str) -> None:
    """Raise `NotebookError` unless the command ended well and reported the metric that decides."""
    decides = recipe.task.metrics[0].name
    last = _last_lines(directory / STREAMS[1])
    if fault:
        raise NotebookError("exception", fault)
    if late:
        raise NotebookError("timeout", f"took longer than {recipe.task.timeout:g} s{last}")
    if code < 0:
        raise NotebookError("dead kernel", f"the command was killed by {signal.Signals(-code).name}{last}")
    if code:
        raise NotebookError("exception", f"the command ended with exit status {code}{last}")
    if not tracked.done:
        raise NotebookError(
            "exception", f"the command ended without a result: expected track.done({decides}=...){last}"
        )
    if decides not in tracked.final:
        raise NotebookError("exception", f"the result: {unknown('metric', decides, tracked.final)} as it was reported")
    for name, value in tracked.final.items():
        if not math.isfinite(value):
            raise NotebookError("diverged", f"the final {name} is {value}")


def _variables(directory: Path, before: Tracked, *, threads: int) -> dict[str, str]:
    """Return the variables by which the command finds its run, and its number of threads."""
    counts = {name: value for name, value in child_environment(threads=threads).items() if name.endswith("_THREADS")}
    place = directory.resolve()
    kept = {} if before.checkpoint is None else {track.RESUME: str(place / track.KEPT / before.checkpoint)}
    return {**counts, track.PLACE: str(place), **kept}


def write_environment(directory: Path, recipe: CommandRecipe, around: Surroundings, argv: list[str]) -> None:
    """Write the software of a run, and what was started, for people. Only `explorer run` acts on it."""
    content = {
        "format": 1,
        "python": around.versions.get("python"),
        "platform": platform.platform(),
        "packages": {name: version for name, version in around.versions.items() if name != "python"},
        "command": argv,
        "directory": str(recipe.task.home or recipe.task.directory.resolve()),
        "task": _task_of(recipe),
    }
    rundir.write_json(directory / rundir.ENVIRONMENT, content)


def _task_of(recipe: CommandRecipe) -> dict[str, object]:
    """Return the rest of the task, which with the identity makes the recipe again."""
    task = recipe.task
    return {"files": list(task.files), "env": list(task.env), "timeout": task.timeout}


def read_with_children() -> Reading:
    """Return the clocks of the machine, with the ended children of this process as its own."""
    reading, children = read_machine(), resource.getrusage(resource.RUSAGE_CHILDREN)
    return dataclasses.replace(reading, own=reading.own + children.ru_utime + children.ru_stime)


def _last_lines(path: Path) -> str:
    """Return the end of what the command wrote, to follow a message."""
    try:
        text = path.read_bytes()[-LAST_BYTES:].decode(errors="replace")
    except OSError:
        return ""
    lines = "\n".join(text.strip().splitlines()[-LAST_LINES:])
    return f"; the end of its standard error:\n{lines}" if lines else ""


def _remove(directory: Path) -> None:
    """Remove a directory of ours with the files in it, if it has nothing else."""
    with contextlib.suppress(OSError):
        for path in directory.iterdir() if directory.name == Path(track.KEPT).name else ():
            _remove_tree(path)
        directory.rmdir()


def _remove_tree(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            _remove_tree(inner)
        path.rmdir()
    else:
        path.unlink()


class Recorder:
    """Files that grow while the command runs: its records, its measurements and its output."""

    def __init__(self, directory: Path, *, base: Path) -> None:
        self.directory = directory
        self.base = base  # of the paths that the command prints
        self.fault = ""  # why the run cannot count; empty: nothing is wrong
        self._records: IO[bytes] = (directory / track.FILE).open("ab", buffering=0)
        self._threads: list[threading.Thread] = []
        self._offset = 0  # of the records that `metrics.jsonl` has
        self._next = 0.0  # on the monotonic clock: when the records are looked at again

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        self._records.close()

    def begin(self) -> None:
        """Begin an attempt: what was reported after the last checkpoint is dropped from the measurements."""
        self._cut()
        self.record({track.KIND: START, "at": time.time()})
        rundir.write_bytes(self.directory / rundir.METRICS, lines_of(read_tracked(self.directory).measured).encode())
        self._offset = (self.directory / track.FILE).stat().st_size

    def read(self, *streams: IO[bytes] | None) -> None:
        """Read the output of the command until its end, in threads: a full pipe would stop it."""
        for stream, name in zip(streams, STREAMS, strict=True):
            assert stream is not None
            thread = threading.Thread(target=self._copy, args=(stream, name), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def tell(self, now: float) -> None:
        """Bring new measurements into `metrics.jsonl`, a few times a second."""
        if now < self._next:
            return
        self._next = now + TOLD_EVERY
        path = self.directory / track.FILE
        size = path.stat().st_size
        if size > MAX_BYTES:
            self.fault = f"the command reports too much: more than {MAX_BYTES >> 20} MiB; report fewer steps"
        elif size > self._offset:
            with path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._offset += len(whole)
            with (self.directory / rundir.METRICS).open("ab") as file:
                file.write(lines_of(self._measured(whole)).encode())

    def finish(self) -> None:
        """Wait for the last output. A process that left the group may hold the pipe; it is not waited for."""
        for thread in self._threads:
            thread.join(timeout=2.0)

    def record(self, fields: dict[str, object]) -> None:
        """Append a record, as `explorer.track` does."""
        self._records.write((json.dumps(fields, separators=(",", ":")) + "\n").encode())

    def _measured(self, lines: bytes) -> Iterator[tuple[int, str, float]]:
        from_lines = (json.loads(line) for line in lines.splitlines())
        try:
            for record in map(check_record, from_lines):
                if record[track.KIND] == "log":
                    for name, value in record.items():
                        if name not in ("step", "seconds", "at", track.KIND) and math.isfinite(value):
                            yield record["step"], name, float(value)
        except ValueError as error:
            self.fault = f"{track.FILE}: {error}"

    def _cut(self) -> None:
        """Remove a line that a killed attempt left unfinished."""
        path = self.directory / track.FILE
        content = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=RunError)
        if content and not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)

    def _copy(self, stream: IO[bytes], name: str) -> None:
        """Keep the beginning and the end of a stream; lines that are records go to the records."""
        last: collections.deque[bytes] = collections.deque()
        length = left_out = kept = 0
        with (self.directory / name).open("wb", buffering=0) as file, stream:
            for line in iter(lambda: stream.readline(2**16), b""):
                if name == STREAMS[0] and self._took(line):
                    continue
                if kept + len(line) <= HEAD:
                    kept += file.write(line)
                    continue
                last.append(line)
                length += len(line)
                while length > TAIL:
                    gone = len(last.popleft())
                    length, left_out = length - gone, left_out + gone
            if left_out:
                file.write(f"... {left_out} bytes are left out ...\n".encode())
            file.writelines(last)

    def _took(self, line: bytes) -> bool:
        """Take a line of standard output if it is a record, and return whether it is one."""
        if not line.startswith(b"{") or b'"explorer"' not in line or len(line) > MAX_LINE:
            return False
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or track.KIND not in record:
                return False
            if record[track.KIND] == "checkpoint" and isinstance(record.get("path"), str):
                record["path"] = track.keep(str(self.directory), str(self.base / record["path"]))
            if record[track.KIND] == START:
                raise ValueError("'start' is not for programs")
            self.record(check_record({**record, "at": time.time()}))
        except (ValueError, OSError) as error:
            self.fault = self.fault or f"standard output: {line[:200].decode(errors='replace').strip()}: {error}"
        return True

"""`explorer.begin`: a run of a program that no sweep started, such as a notebook with a Trainer of another library.

    from explorer import track

    place = explorer.Place(runs="runs", sweep="mine", recipe="fast")
    explorer.begin(place, metrics=["accuracy"], settings={"lr": 0.3}, seed=1)
    trainer.train()                      # its callback reports; a loop calls track.log
    track.done(accuracy=0.93)            # ends the run, unless the callback has

The run goes where those of sweeps go, with curves while it trains, and is compared with them. Its records are in the
run directory before `track.log` returns, the measurements too. Where the process is killed, the same program begins the
same run again, and `track.resume()` names its last checkpoint.

**What is known of it.** The settings, budget and seed that are given; this machine; of a script its file, the modules
that it imports from its own folder, `files`, and the versions of Python and of the packages that it imports. Of a
notebook only `files` and Python: its cells may have run in any order. Explorer cannot run either again.
"""

import contextlib
import datetime
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import psutil
from pydantic import Field

from explorer import run_files, rundir, track
from explorer.errors import RecipeError, RunError, unknown
from explorer.machine_class import MAX_THREADS
from explorer.parameters import check
from explorer.recipes import machine
from explorer.run_files import METRICS, FailureRecord, Metric, RunRecord
from explorer.sweep import presence
from explorer.sweep.commands.command_process import Recorder, read_with_children, write_environment, write_result
from explorer.sweep.commands.command_record import command_record, surroundings_of
from explorer.sweep.commands.command_task import (
    MAX_TEXT,
    NAME,
    CommandRecipe,
    CommandTask,
    Label,
    Text,
    Value,
    label_of,
)
from explorer.sweep.commands.tracked import MAX_BYTES, check_record, lines_of, numbers_of, read_tracked
from explorer.training.custom import Place
from explorer.training.run_plan import MAX_BUDGET, MAX_SEED
from explorer.training.watch import Reading, Watcher

WHERE = "explorer.begin"  # in messages
APART = ("recipe", "budget", "seed")  # arguments of their own: as settings they would part the points of a curve

Setting = Annotated[str, Field(max_length=MAX_TEXT)] | bool | int | float


def begin(
    place: Place,
    *,
    metrics: Sequence[str | Metric],
    settings: Mapping[str, Value] | None = None,
    budget: float = 1.0,
    seed: int = 0,
    files: Sequence[str] = (),
    model: str = "",
    threads: int | None = None,
) -> Path:
    """Begin a run that ends with `track.done`, and return its directory.

    Args:
        place: the directory of all runs, the sweep, the recipe and its baseline.
        metrics: what `track.done` reports, by names that Explorer knows, or declared; the first one decides.
        settings: values that make the recipe what it is, such as `{"lr": 0.3}`. Other values are another run.
        budget: the length of this run as a multiple of the recipe's full length.
        seed: of this run.
        files: data, or further code, relative to the folder of the script, or to the working directory of a notebook.
        model: a label for tables. Default: the name of the script, or `notebook`.
        threads: of this process. Default: `OMP_NUM_THREADS`, or the number of cores.

    In a program that a sweep started it does nothing: the run has begun. With several processes, only the main one
    calls it. A run of this process that is not done ends here, unfinished.

    Raises `RecipeError` and `SpecError` for arguments that cannot be, and `RunError` for a run that is finished, or
    that another process trains.
    """
    if (swept := os.environ.get(track.PLACE)) is not None:
        return Path(swept)
    asked = {"settings": dict(settings or {}), "budget": budget, "seed": seed, "files": list(files), "threads": threads}
    known = check(_Asked, asked | ({"model": model} if model else {}), where=WHERE)
    script = getattr(sys.modules["__main__"], "__file__", None)  # a notebook has none
    recipe = _recipe(place, known, _declared(metrics), None if script is None else Path(script).resolve())
    around = surroundings_of(recipe.task, where=WHERE)
    record = command_record(
        recipe,
        around,
        sweep=place.sweep,
        baseline=place.baseline,
        tuning=place.tuning,
        ssr=known.budget,
        seed=known.seed,
        hardware=machine.hardware(threads=known.threads or _threads()),
    )
    for run in tuple(_open):  # one at a time; what is not done stays unfinished
        run.close()
    directory = Path(place.runs).resolve() / record.sweep / record.run_id
    with contextlib.ExitStack() as stack:
        stack.enter_context(rundir.locked(directory, what=f"run {record.run_id}"))
        if (directory / rundir.RESULT).exists():
            raise RunError(
                f"{WHERE}: run {record.run_id} is finished, in {directory}: expected another seed, budget, recipe or"
                " settings; remove that directory to train it again"
            )
        stack.enter_context(presence.training(f"{record.sweep} ({record.recipe})", on_wait=_tell))
        run_files.write(directory / rundir.RUN, record)
        write_environment(directory, recipe, around, [] if script is None else [sys.executable, *sys.argv])
        run = _Begun(directory, record)
        run.locks = stack.pop_all()
        _open.append(run)
    return directory


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    settings: dict[Annotated[str, Field(pattern=rf"^{NAME.pattern}$")], Setting]
    budget: Annotated[float, Field(gt=0, le=MAX_BUDGET)]
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)]
    files: Annotated[tuple[Text, ...], Field(max_length=1000)]
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)] | None
    model: Label | None = None

    def __post_init__(self) -> None:
        for name in APART:
            if name in self.settings:
                raise RecipeError(f"settings: found {name!r}, which is an argument of its own: expected {name}=...")


class _Begun:
    """A run of this process, from `begin` to `track.done`; its locks end with the process, however that ends."""

    def __init__(self, directory: Path, record: RunRecord) -> None:
        self.directory, self.record = directory, record
        self.locks = contextlib.ExitStack()
        before = read_tracked(directory)
        with Recorder(directory, base=directory) as recorder:
            recorder.begin()
        appended = os.O_WRONLY | os.O_APPEND
        self._records, self._measured = (os.open(directory / name, appended) for name in (track.FILE, rundir.METRICS))
        self._size = (directory / track.FILE).stat().st_size
        self._watcher = Watcher(threads=record.hardware.threads, read=_read)
        self._begun = _read()
        kept = None if before.checkpoint is None else str(directory / track.KEPT / before.checkpoint)
        track.report_to(track.Receiver(str(directory), resume=kept, receive=self.receive))

    def receive(self, line: bytes) -> None:
        """Keep a record, and with the last one the result. Raises `ValueError` for one that cannot be."""
        record = json.loads(line)
        kind = record[track.KIND]
        try:
            check_record(record)
            self._size += len(line)
            if self._size > MAX_BYTES:
                raise ValueError(f"too many records: more than {MAX_BYTES >> 20} MiB; expected fewer steps")
            decides = self.record.quality
            if kind == "done" and decides not in record:
                raise ValueError(unknown("metric", decides, dict(numbers_of(record))) + " as it was reported")
        except ValueError as error:
            raise ValueError(f"track.{kind}: {error}") from error
        os.write(self._records, line)
        if kind == "log":
            finite = [(record["step"], name, value) for name, value in numbers_of(record) if math.isfinite(value)]
            os.write(self._measured, lines_of(finite).encode())
        elif kind == "done":
            self._finish(dict(numbers_of(record)))

    def _finish(self, final: Mapping[str, float]) -> None:
        """Write the result. Raises `RunError` for a metric that is no number, after the failure is kept."""
        try:
            wrong = next((name for name, value in final.items() if not math.isfinite(value)), None)
            if wrong is not None:
                self._fail(f"the final {wrong} is {final[wrong]}")
            self._watcher.spans.append((self._begun, _read()))
            shared = bool(self._watcher.watch().reasons)
            write_result(self.directory, self.record, read_tracked(self.directory), contended=shared)
        finally:
            self.close()

    def _fail(self, message: str) -> None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        attempts = read_tracked(self.directory).attempts
        failure = FailureRecord(
            run_id=self.record.run_id, kind="diverged", message=message, attempts=attempts, failed_at=now
        )
        run_files.write(self.directory / rundir.FAILURE, failure)
        raise RunError(f"run {self.record.run_id}: diverged: {message}")

    def close(self) -> None:
        """Record no more, and leave the run to others."""
        track.report_to(None)
        os.close(self._records)
        os.close(self._measured)
        self.locks.close()
        _open.remove(self)


_open: list[_Begun] = []  # the run of this process that is not done; one at most


def _recipe(place: Place, known: _Asked, metrics: tuple[Metric, ...], script: Path | None) -> CommandRecipe:
    """Return the recipe of this program: of a script, or of a notebook."""
    task = CommandTask(
        command=("{python}", *([] if script is None else [script.name])),
        notebook=None,
        metrics=metrics,
        files=known.files,
        env=(),
        dataset=f"{place.sweep}-task",
        model=known.model or label_of("notebook" if script is None else script.stem),
        timeout=None,
        directory=Path.cwd() if script is None else script.parent,
        own="notebook" if script is None else "script",
    )
    changes = tuple(f"{name}={value}" for name, value in known.settings.items())
    return CommandRecipe(name=place.recipe, task=task, values=known.settings, scale={}, changes=changes)


def _declared(metrics: Sequence[str | Metric]) -> tuple[Metric, ...]:
    """Return what the names mean. Raises `RecipeError` for none, and for one that is not known."""
    if not metrics or isinstance(metrics, str):
        raise RecipeError(f"{WHERE}: metrics: found {metrics!r}, expected a list of names, such as ['accuracy']")
    for metric in metrics:
        if isinstance(metric, str) and metric not in METRICS:
            raise RecipeError(
                f"{WHERE}: metrics: {unknown('metric', metric, METRICS)}. Declare one of your own:"
                f" explorer.Metric(name={metric!r}, unit='1', higher_is_better=True)"
            )
        if isinstance(metric, Metric) and METRICS.get(metric.name, metric) != metric:
            raise RecipeError(
                f"{WHERE}: metrics: {metric.name!r} has one meaning in all tables: expected its name only"
            )
    return tuple(METRICS[metric] if isinstance(metric, str) else metric for metric in metrics)


def _threads() -> int:
    """Return how many threads this process may use."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    return min(MAX_THREADS, max(1, int(named) if named.isdecimal() else os.cpu_count() or 1))


def _read() -> Reading:
    """Return the clocks of the machine, where live processes of this one, such as those that read data, are its own."""
    reading, own = read_with_children(), 0.0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            times = child.cpu_times()
            own += times.user + times.system
    return replace(reading, own=reading.own + own)


def _tell(message: str) -> None:
    print(f"{WHERE}: {message}", file=sys.stderr, flush=True)

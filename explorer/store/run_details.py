"""Details of a few runs, beyond their rows of `results`: machine, final metrics, wall time, phases.

A profile belongs to a run on one machine: its own, and each that an imported profile predicts a time for.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from explorer.run_files import Metric
from explorer.store.published import opened

# By sweep: the tables are in the order of sweeps, so that DuckDB reads only the part of one that holds it.
_RUNS = """
SELECT run_id, directory, device, hardware, threads, world_size, phases, imported, clock
FROM runs WHERE sweep = ? AND list_contains(?, directory)
"""
_FINALS = """
SELECT run_id, metric, value, unit, higher_is_better, format FROM qualities
WHERE sweep = ? AND list_contains(?, run_id) ORDER BY metric
"""
_TIMINGS = "SELECT run_id, part, seconds FROM timings WHERE sweep = ? AND list_contains(?, run_id)"
_PROFILES = """
SELECT r.run_id, p.device, p.hardware, p.threads, p.world_size, p.made_at, p.phase, p.seconds, p.low, p.high,
       p.windows, p.split
FROM runs r JOIN run_profiles c USING (directory) JOIN profiles p USING (source)
WHERE r.sweep = ? AND list_contains(?, r.run_id)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The machine that a run was trained or profiled on."""

    device: str
    hardware: str
    threads: int
    world_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Final:
    """The final value of a metric."""

    metric: Metric
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseTime:
    """The steps of one phase of a run, with the profiled time of a step: median seconds and their quartiles."""

    name: str
    steps: int
    seconds: float
    low: float
    high: float
    windows: int
    split: Mapping[str, float]  # seconds of a step by part: keys of `run_files.Timings`


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """The phases of a run that were profiled on a machine, in their order."""

    made_at: str
    phases: tuple[PhaseTime, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDetails:
    """Details of one run."""

    machine: Machine  # that it was trained on
    finals: tuple[Final, ...]
    timings: Mapping[str, float]  # seconds of wall time by part: keys of `run_files.Timings`
    profiles: Mapping[Machine, Profile]
    imported: str | None = None  # where an imported run comes from, in words
    clock: str | None = None  # how a run that a command trained was timed, see `run_files.ResultRecord`


def run_details(database: Path, directories: Sequence[str]) -> dict[str, RunDetails]:
    """Return the details of runs by their directory, "sweep/run"; none for a run that the database does not have.

    Raises `StoreError` if the database cannot be read.
    """
    details = {}
    with opened(database) as connection:
        for sweep in dict.fromkeys(directory.partition("/")[0] for directory in directories):
            details |= _of_sweep(connection, sweep, list(directories))
    return details


def _of_sweep(connection: duckdb.DuckDBPyConnection, sweep: str, directories: list[str]) -> dict[str, RunDetails]:
    runs = connection.execute(_RUNS, [sweep, directories]).fetchall()
    names = [name for name, *_ in runs]
    finals, timings, profiles = (
        connection.execute(sql, [sweep, names]).fetchall() for sql in (_FINALS, _TIMINGS, _PROFILES)
    )
    phases = _phases(profiles)
    return {
        directory: RunDetails(
            machine=Machine(device=device, hardware=hardware, threads=threads, world_size=world_size),
            finals=tuple(
                Final(metric=Metric(name=metric, unit=unit, higher_is_better=higher, format=style), value=value)
                for of, metric, value, unit, higher, style in finals
                if of == name
            ),
            timings={part: seconds for of, part, seconds in timings if of == name},
            profiles=_profiles(steps, phases[name]),
            imported=imported,
            clock=clock,
        )
        for name, directory, device, hardware, threads, world_size, steps, imported, clock in runs
    }


_Timed = dict[Machine, dict[str, tuple[Any, ...]]]


def _phases(rows: list[tuple[Any, ...]]) -> defaultdict[str, _Timed]:
    """Return the profiled phases by run, machine and name: made_at, seconds, low, high, windows, split."""
    phases_of: defaultdict[str, _Timed] = defaultdict(dict)
    for run, device, hardware, threads, world_size, made_at, phase, *timed in rows:
        machine = Machine(device=device, hardware=hardware, threads=threads, world_size=world_size)
        phases_of[run].setdefault(machine, {})[phase] = (made_at, *timed)
    return phases_of


def _profiles(steps: Mapping[str, int], timed: _Timed) -> dict[Machine, Profile]:
    """Return the profiles with the run's steps in each phase; phases that were not profiled are left out."""
    return {
        machine: Profile(
            made_at=next(iter(by_phase.values()))[0],
            phases=tuple(
                PhaseTime(name=name, steps=count, seconds=seconds, low=low, high=high, windows=windows, split=split)
                for name, count in steps.items()
                if count and name in by_phase
                for _, seconds, low, high, windows, split in [by_phase[name]]
            ),
        )
        for machine, by_phase in timed.items()
    }

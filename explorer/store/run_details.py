"""What there is to say of a few runs beside their rows of `results`: machine, final metrics, wall time, phases.

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
SELECT run_id, directory, device, hardware, threads, world_size, phases
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
    """What a run was trained, or profiled, on."""

    device: str
    hardware: str
    threads: int
    world_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Final:
    """A metric as it was at the end."""

    metric: Metric
    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseTime:
    """The steps of one phase of a run, and the profiled time of one of them: seconds, with their quartiles."""

    name: str
    steps: int
    seconds: float
    low: float
    high: float
    windows: int
    split: Mapping[str, float]  # the step apart: keys of `records.Timings`, seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """The phases of a run that were profiled on a machine, in the order in which they come."""

    made_at: str
    phases: tuple[PhaseTime, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDetails:
    """One run."""

    machine: Machine  # that it was trained on
    finals: tuple[Final, ...]
    timings: Mapping[str, float]  # seconds of wall time by part: keys of `records.Timings`
    profiles: Mapping[Machine, Profile]


def run_details(database: Path, directories: Sequence[str]) -> dict[str, RunDetails]:
    """The details of runs by their directory, "sweep/run"; of one that the database does not hold there are none.

    Raises `StoreError` if the database cannot be read.
    """
    found = {}
    with opened(database) as connection:
        for sweep in dict.fromkeys(directory.partition("/")[0] for directory in directories):
            found |= _of_sweep(connection, sweep, list(directories))
    return found


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
        )
        for name, directory, device, hardware, threads, world_size, steps in runs
    }


_Timed = dict[Machine, dict[str, tuple[Any, ...]]]


def _phases(rows: list[tuple[Any, ...]]) -> defaultdict[str, _Timed]:
    """The profiled phases by run, machine and name: made_at, seconds, low, high, windows, split."""
    found: defaultdict[str, _Timed] = defaultdict(dict)
    for run, device, hardware, threads, world_size, made_at, phase, *timed in rows:
        machine = Machine(device=device, hardware=hardware, threads=threads, world_size=world_size)
        found[run].setdefault(machine, {})[phase] = (made_at, *timed)
    return found


def _profiles(steps: Mapping[str, int], timed: _Timed) -> dict[Machine, Profile]:
    """The profiles with the steps that the run has of each phase; phases that were not profiled are left out."""
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

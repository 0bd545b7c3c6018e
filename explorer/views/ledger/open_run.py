"""The governed runs below a directory, and one of them opened: everything that its ledger is shown from.

What every step's entry says is read into arrays once, so that any stretch of steps is quick to show.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.audit.history import Badge, Decided, DepthProfile, badge, decisions, depth_profiles
from explorer.errors import RunError, unknown
from explorer.provenance.trust import Trust, read_trust
from explorer.runlog.admission_tables import InForce, tables_in_force
from explorer.runlog.run_ledger import RunLedger
from explorer.store.examine import candidates, sweeps


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Steps:
    """The latest execution of each step. Shapes: T steps, C classes, L layers."""

    entries: NDArray[np.int64]  # T: numbers of the entries
    examples: NDArray[np.int64]  # T C: rows of each class in the batch, denied or not
    quarantined: NDArray[np.int64]  # T
    numbers: NDArray[np.bool_]  # T C: whether the class has numbers on record
    layers: int  # L
    tables: tuple[InForce, ...]  # the policy's weights; none: the run routes nothing

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def phases(self) -> tuple[tuple[int, str], ...]:
        """The steps at which a table of weights came into force, and the words for its phase."""
        return tuple((table.first, table.phase) for table in self.tables)

    def weights(self, steps: range) -> NDArray[np.float64]:
        """C L: the greatest weight in these steps. Without a policy everybody trains everything."""
        found = [table.weights for table in self._in_force() if table.first < steps.stop and steps.start < table.stop]
        return np.max(found, axis=0) if found else np.zeros((self.examples.shape[1], self.layers))

    def first_admitted(self, class_: int, layers: NDArray[np.bool_]) -> int | None:
        """The first step in which the class had examples and might train one of these layers."""
        for table in self._in_force():
            if table.weights[class_][layers].any():
                there = np.flatnonzero(self.examples[table.first : table.stop, class_])
                if len(there):
                    return table.first + int(there[0])
        return None

    def _in_force(self) -> tuple[InForce, ...]:
        everything = np.ones((self.examples.shape[1], self.layers))
        return self.tables or (InForce(first=0, stop=len(self), entry=0, phase="", weights=everything),)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OpenRun:
    """A run whose ledger was read."""

    ledger: RunLedger
    badge: Badge
    recorded: Steps
    profiles: tuple[DepthProfile, ...]
    decisions: tuple[Decided, ...]
    trust: Trust | None  # whom the reader believes; None: nobody
    now: int  # seconds since 1970, when it was opened

    @property
    def classes(self) -> tuple[str, ...]:
        return self.ledger.genesis.classes

    @property
    def steps(self) -> range:
        """The steps on record: a deletion takes over those before them from another run."""
        return range(self.ledger.begins, self.ledger.steps)

    @property
    def layers(self) -> tuple[str, ...]:
        return self.ledger.genesis.layers


def governed_runs(runs: Path) -> dict[str, Path]:
    """The runs that have a ledger, by `<sweep>/<run id>`; the one that was written to last comes first."""
    found = [path for sweep in sweeps(runs) for path in candidates(sweep) if (path / rundir.LEDGER).is_dir()]
    found.sort(key=lambda path: (path / rundir.LEDGER).stat().st_mtime_ns, reverse=True)
    return {f"{path.parent.name}/{path.name}": path for path in found}


def find_run(runs: Path, name: str) -> Path:
    """A governed run by its directory, its id, or `<sweep>/<id>`. Raises `RunError` with the nearest name."""
    if (Path(name) / rundir.LEDGER).is_dir():
        return Path(name)
    known = governed_runs(runs) if runs.is_dir() else {}
    named = [path for key, path in known.items() if name in (key, path.name)]
    if len(named) > 1:
        raise RunError(f"{name!r} is in {len(named)} sweeps: say which as SWEEP/RUN: {', '.join(known)}")
    if not named:
        raise RunError(f"{runs}: {unknown('governed run', name, [*known, *(path.name for path in known.values())])}")
    return named[0]


def open_run(directory: Path, *, trust: Path | Trust | None, now: int) -> OpenRun:
    """Read a run's ledger and verify it; `trust` is a trust file or what one says, `now` is in seconds since 1970.

    Raises `LedgerError` for a ledger that cannot be read, `StoreError` for a spool that cannot, `ProvenanceError` for
    a trust file that is none.
    """
    ledger, believed = RunLedger(directory), read_trust(trust) if isinstance(trust, Path) else trust
    return OpenRun(
        ledger=ledger,
        badge=badge(ledger, trust=believed, now=now),
        recorded=read_all_steps(ledger),
        profiles=depth_profiles(ledger),
        decisions=decisions(ledger),
        trust=believed,
        now=now,
    )


def read_all_steps(run: RunLedger) -> Steps:
    """Read the entries of all steps. Raises `LedgerError` for one that is damaged or a table that is missing."""
    count, classes = run.steps, len(run.genesis.classes)
    examples, quarantined = np.zeros((count, classes), np.int64), np.zeros(count, np.int64)
    numbers = np.zeros((count, classes), bool)
    for placed in run.read_steps(range(run.begins, count)):
        step, at = placed.entry, placed.entry.step
        examples[at], quarantined[at] = step.examples, step.quarantined
        numbers[at] = [committed is not None for committed in step.numbers]
    return Steps(
        entries=np.array(run.outline.steps, np.int64),
        examples=examples,
        quarantined=quarantined,
        numbers=numbers,
        layers=len(run.genesis.layers),
        tables=tables_in_force(run),
    )

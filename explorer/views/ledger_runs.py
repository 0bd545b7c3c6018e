"""The governed runs below a directory of runs, and one of them opened: everything that its ledger is shown from."""

from dataclasses import dataclass
from pathlib import Path

from explorer import rundir
from explorer.audit.history import Badge, Decided, DepthProfile, badge, decisions, depth_profiles
from explorer.errors import RunError, unknown
from explorer.provenance.trust import Trust, read_trust
from explorer.runlog.run_ledger import RunLedger
from explorer.store.examine import candidates, sweeps
from explorer.views.ledger_steps import Steps, read_all_steps


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

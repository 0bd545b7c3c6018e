"""The ledgers that hold the steps of a run: its own and, where a deletion went on from another run, that one's too.

A run that a deletion made has only the steps that were done anew; those before it stand in the ledger that its first
entry names. That ledger is looked for among the runs of the same project (`<runs>/<sweep>/<run id>`), verified like any
other, and has to be the very one that is named.
"""

from dataclasses import dataclass
from pathlib import Path

from explorer import rundir
from explorer.audit.history import badge
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Parent
from explorer.errors import LedgerError, RunError
from explorer.project import runs_of
from explorer.provenance.trust import Trust
from explorer.runlog.run_ledger import RunLedger

MOST = 100  # deletions in a row


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stretch:
    """The steps of a run that one ledger holds."""

    run: RunLedger
    steps: range


def deletion_of(run: RunLedger) -> Parent | None:
    """What a run goes on from that a deletion made; None: it is a run of its own. Raises `LedgerError` for several."""
    found = [parent for parent in run.genesis.parents if parent.kind == "deletion"]
    if len(found) > 1:
        raise LedgerError(f"{run.run}: entry 0: goes on from {len(found)} runs at once")
    if run.begins and not found:
        raise LedgerError(f"{run.run}: entry 0: begins after {run.begins} steps, and names no ledger that holds them")
    return found[0] if found else None


def before(run: RunLedger, *, trust: Trust, now: int) -> tuple[RunLedger, ...]:
    """The runs that deletions made it of, the newest first. Raises `LedgerError` for one that is not here, does not
    verify, or is not the one that is named."""
    found: list[RunLedger] = []
    while (parent := deletion_of(found[-1] if found else run)) is not None:
        if len(found) == MOST:
            raise LedgerError(f"{run.run}: more than {MOST} deletions in a row")
        found.append(_open(run, parent.ledger, trust=trust, now=now))
    return tuple(found)


def stretches(run: RunLedger, older: tuple[RunLedger, ...]) -> tuple[Stretch, ...]:
    """Which ledger holds which steps of the run, the newest first; none of those before it where it begins anew."""
    found, stop = [Stretch(run=run, steps=range(run.begins, run.steps))], run.begins
    for each in older:
        _check_same(run, each)
        if stop > each.steps:
            raise LedgerError(f"{run.run}: takes over {stop} steps of {each.run.name}, which has {each.steps}")
        first = min(each.begins, stop)
        found.append(Stretch(run=each, steps=range(first, stop)))
        stop = first
    return tuple(found)


def _check_same(run: RunLedger, other: RunLedger) -> None:
    for what in ("classes", "layers", "taxonomy", "policy"):
        if getattr(run.genesis, what) != getattr(other.genesis, what):
            raise LedgerError(f"{run.run}: entry 0: other {what} than the run that it goes on from, {other.run}")


def _open(run: RunLedger, named: LedgerState, *, trust: Trust, now: int) -> RunLedger:
    name, runs = named.origin.rpartition("/")[2], runs_of(run.run)
    for place in _places(runs, name):
        other = RunLedger(place)
        seal = badge(other, trust=trust, now=now)
        if (seal.origin, seal.size, seal.root) != (named.origin, named.size, named.root):
            continue
        if not seal.verified:
            raise LedgerError(f"{place}: the run that {run.run.name} goes on from: {seal.findings[0]}")
        return other
    raise LedgerError(
        f"{run.run}: goes on from the ledger {named.origin}, which is not here: expected in {runs}/<sweep>/{name}"
    )


def _places(runs: Path, name: str) -> list[Path]:
    """The directories of runs of this name; none for what is not a name."""
    if name in ("", ".", ".."):
        return []
    try:
        return sorted(place / name for place in runs.iterdir() if (place / name / rundir.LEDGER).is_dir())
    except OSError as error:
        raise RunError(f"cannot read {runs}: {error.strerror or error}") from error

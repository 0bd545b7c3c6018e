"""The grants whose keys were wrapped for a run, and whether each of them holds."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from explorer import rundir
from explorer.disclosure.opening import believe
from explorer.disclosure.standing import check_standing, check_wrapped
from explorer.disclosure.wrapping import naming, read_wrapped
from explorer.errors import ProvenanceError
from explorer.project import Recorded
from explorer.provenance.grants import Grant, claimed_grant
from explorer.provenance.trust import Trust
from explorer.runlog.run_ledger import RunLedger


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """A file of wrapped keys."""

    path: Path
    grant: Grant | None  # what it says; None for a file that says nothing
    fault: str | None  # why it opens nothing; None: it does


def wrapped_grants(run: RunLedger, recorded: Collection[Recorded], *, trust: Trust, now: int) -> tuple[Listed, ...]:
    """All of them, by file name; `recorded` are the entries of the project's ledger."""
    files = sorted((run.run / rundir.GRANTS).glob("*.json"))
    return tuple(_listed(path, run, recorded, trust, now) for path in files)


def _listed(path: Path, run: RunLedger, recorded: Collection[Recorded], trust: Trust, now: int) -> Listed:
    grant = None
    try:
        file = read_wrapped(path)
        grant = claimed_grant(file.grant, where=str(path))
        name = naming(believe(file, run, trust=trust, now=now, where=str(path)))
        check_standing(recorded, name)
        check_wrapped(recorded, name, origin=file.ledger.origin)
    except ProvenanceError as error:
        return Listed(path=path, grant=grant, fault=str(error).removeprefix(f"{path}: "))
    return Listed(path=path, grant=grant, fault=None)

"""What is to be deleted: classes, the examples that an authority vouches for, or single records."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from explorer.entries.fields import Whole
from explorer.errors import LedgerError, unknown
from explorer.provenance.branches import Path as ClassPath
from explorer.provenance.branches import covers
from explorer.provenance.trust import Name
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import record

MAX_RECORDS = 2**20


@record
class Target:
    """Exactly one of the three has members."""

    classes: tuple[ClassPath, ...] = ()  # classes of the run, in its order
    authorities: tuple[Name, ...] = ()
    records: Annotated[tuple[Whole, ...], Field(max_length=MAX_RECORDS)] = ()  # rows of the tag table, ascending

    @property
    def words(self) -> str:
        """For people."""
        if self.classes:
            return ", ".join(self.classes)
        if self.authorities:
            return f"what {', '.join(self.authorities)} vouches for"
        return f"record {self.records[0]}" if len(self.records) == 1 else f"{len(self.records)} records"


def resolve(
    run: RunLedger, *, class_: str | None = None, authority: str | None = None, records: Sequence[int] = ()
) -> Target:
    """The target that these words mean in a run: a class, all classes of a branch, an authority, or records.

    Which authorities and records there are, the run's tag table says. Raises `LedgerError` unless exactly one of them
    is named, and for a class that the run does not have.
    """
    if (class_ is not None) + (authority is not None) + bool(records) != 1:
        raise LedgerError("expected one of: a class, an authority, records")
    if authority is not None:
        return Target(authorities=(authority,))
    if records:
        return Target(records=tuple(sorted(set(records))))
    assert class_ is not None
    found = tuple(path for path in run.genesis.classes if covers(class_, path))
    if not found:
        raise LedgerError(unknown("class", class_, run.genesis.classes))
    return Target(classes=found)

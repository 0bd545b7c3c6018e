"""Where a figure of a run's report comes from: entries of a ledger, or a signed document that the first entry names by
its digest. And the list of the entries that stands at the end of the report."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from explorer.entries.envelope import read_head
from explorer.merkle import leaf_hash
from explorer.runlog.run_ledger import RunLedger

MAX_LISTED = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """Entries [first, last] of the run's ledger, or of the project's, which goes on when that of the run is closed."""

    first: int
    last: int
    of: Literal["run", "project"] = "run"

    def __str__(self) -> str:
        words = f"entry {self.first}" if self.first == self.last else f"entries {self.first}-{self.last}"
        return words if self.of == "run" else f"{words} of the project's ledger"


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A file that the first entry of the run's ledger binds, by the digest that stands there."""

    what: str  # "taxonomy", "policy", "tags", "trust file", "recipe", "environment"
    digest: str

    def __str__(self) -> str:
        return f"{self.what} sha256:{self.digest}"


GENESIS = Reference(first=0, last=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedEntry:
    """An entry in the list."""

    index: int
    kind: str
    step: int | None
    leaf: str  # its hash in the tree, in hexadecimal


def refer(indices: Iterable[int]) -> Reference:
    """The stretch that holds these entries, of which there is at least one."""
    found = sorted(indices)
    return Reference(first=found[0], last=found[-1])


def list_entries(run: RunLedger, references: Iterable[Reference]) -> tuple[tuple[ListedEntry, ...], int]:
    """The entries that are referred to, and how many of them are left out because there are too many: of a stretch the
    first and the last are always listed. Those of the project's ledger are not this one's. Raises `LedgerError` for
    entries that are damaged."""
    found = {each for each in references if each.of == "run"}
    ends = {end for each in found for end in (each.first, each.last)}
    wanted = {index for each in found for index in range(each.first, each.last + 1)}
    room = MAX_LISTED - len(ends)
    kept = ends | set(sorted(wanted - ends)[: max(0, room)])
    listed = []
    for index, leaf in enumerate(run.ledger.entries()):
        if index in kept:
            head = read_head(leaf)
            step = head.fields.get("step")
            listed.append(
                ListedEntry(
                    index=index,
                    kind=head.kind,
                    step=step if isinstance(step, int) else None,
                    leaf=leaf_hash(leaf).hex(),
                )
            )
    return tuple(listed), len(wanted) - len(kept)

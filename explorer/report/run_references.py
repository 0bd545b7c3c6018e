"""Where a figure of a run's report comes from: the entries of the ledger behind it, and the list of them at its end."""

from collections.abc import Iterable
from dataclasses import dataclass

from explorer.entries.envelope import read_head
from explorer.merkle import leaf_hash
from explorer.recorded.run_ledger import RunLedger

MAX_LISTED = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """Entries [first, last] of the ledger."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"entry {self.first}" if self.first == self.last else f"entries {self.first}-{self.last}"


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
    first and the last are always listed. Raises `LedgerError` for entries that are damaged."""
    found = set(references)
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

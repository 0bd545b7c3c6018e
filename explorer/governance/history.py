"""What a run's ledger records already: the latest execution of every step, read in order and in little memory."""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from explorer.entries.envelope import Head, read_head
from explorer.errors import LedgerError
from explorer.ledger.storage import LedgerDirectory


class Recorded(NamedTuple):
    """An entry as it stands in the ledger."""

    number: int
    head: Head
    leaf: bytes

    @property
    def step(self) -> int:
        """The number of steps done. Raises `LedgerError` where the entry has none."""
        step: Any = self.head.fields.get("begins" if self.head.kind == "genesis" else "step")
        if type(step) is not int:
            raise LedgerError(
                f"entry {self.number}: {self.head.kind}: step: expected a whole number, found {step!r:.80}"
            )
        return step


class History:
    """A ledger under the rule that a decision to re-execute from step r supersedes every earlier entry from r on.

    Reading raises `LedgerError` for what no run's ledger holds.
    """

    def __init__(self, directory: Path) -> None:
        self.ledger = LedgerDirectory(directory)
        self._again: list[tuple[int, int]] = []  # (index, least step that it or a later one executes again)
        found = [(each.number, each.step) for each in self._read(only=b'"re-execution"') if _again(each.head)]
        least = None
        for index, step in reversed(found):
            least = step if least is None else min(least, step)
            self._again.append((index, least))
        self._again.reverse()

    def __len__(self) -> int:
        return self.ledger.checkpoint().size

    def entries(self) -> Iterator[Recorded]:
        """The entries of the latest execution, in order, without the decisions to re-execute."""
        places = [index for index, _ in self._again]
        for each in self._read():
            later = bisect_right(places, each.number)
            superseded = later < len(places) and each.head.kind != "genesis" and each.step >= self._again[later][1]
            if not superseded and not _again(each.head):
                yield each

    def state(self, step: int) -> tuple[Recorded, Iterator[Recorded]]:
        """The `state` entry of that step, or the genesis that begins there, and all entries behind it."""
        entries = self.entries()
        for each in entries:
            if each.head.kind in ("state", "genesis") and each.step == step:
                return each, entries
        raise LedgerError(
            f"{self.ledger.path}: records no state after {step} steps: it is another run's, or was rolled back"
        )

    def ended(self) -> bool:
        """Whether the last entry is `end`: such a ledger is never reopened."""
        size = len(self)
        return size > 0 and read_head(next(self.ledger.entries(size - 1))).kind == "end"

    def _read(self, *, only: bytes = b"") -> Iterator[Recorded]:
        """All entries in which these bytes occur."""
        for index, leaf in enumerate(self.ledger.entries()):
            if only in leaf:
                yield Recorded(index, read_head(leaf), leaf)


def ledger_bytes(directory: Path) -> int:
    """The bytes of all entries and of all blobs beside them."""
    blobs = sum(path.stat().st_size for path in (directory / "blobs").rglob("*") if path.is_file())
    return blobs + sum(map(len, LedgerDirectory(directory).entries()))


def _again(head: Head) -> bool:
    return head.kind == "decision" and head.fields.get("action") == "re-execution"

"""The writer of a run's ledger, and the history that it may have already, where steps are executed again after a crash.

`History` reads the latest execution of every step, in order and in little memory. A re-executed entry is compared with
the one on record, byte for byte, and not appended twice. The first that differs is preceded by a decision: from its
step on entries are written again, and readers take the latest execution.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from explorer.entries.heads import Head, read_head
from explorer.entries.kinds import Decision, Genesis, State, TrainingState, decode, encode
from explorer.errors import LedgerError
from explorer.ledger.log import Log
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.note import Signer


class Recorded(NamedTuple):
    """Entry as it is in the ledger."""

    number: int
    head: Head
    leaf: bytes

    @property
    def step(self) -> int:
        """Return the number of steps done. Raises `LedgerError` where the entry has none."""
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
        restarts = [(entry.number, entry.step) for entry in self._read(only=b'"re-execution"') if _again(entry.head)]
        least = None
        for index, step in reversed(restarts):
            least = step if least is None else min(least, step)
            self._again.append((index, least))
        self._again.reverse()

    def __len__(self) -> int:
        return self.ledger.checkpoint().size

    def entries(self) -> Iterator[Recorded]:
        """The entries of the latest execution, in order, without the decisions to re-execute."""
        places = [index for index, _ in self._again]
        for entry in self._read():
            later = bisect_right(places, entry.number)
            superseded = later < len(places) and entry.head.kind != "genesis" and entry.step >= self._again[later][1]
            if not superseded and not _again(entry.head):
                yield entry

    def state(self, step: int) -> tuple[Recorded, Iterator[Recorded]]:
        """Return the `state` entry of that step, or the genesis that begins there, and all entries behind it."""
        entries = self.entries()
        for entry in entries:
            if entry.head.kind in ("state", "genesis") and entry.step == step:
                return entry, entries
        raise LedgerError(
            f"{self.ledger.path}: records no state after {step} steps: it is another run's, or was rolled back"
        )

    def ended(self) -> bool:
        """Return whether the last entry is `end`: such a ledger is never reopened."""
        size = len(self)
        return size > 0 and read_head(next(self.ledger.entries(size - 1))).kind == "end"

    def _read(self, *, only: bytes = b"") -> Iterator[Recorded]:
        """All entries in which these bytes occur."""
        for index, leaf in enumerate(self.ledger.entries()):
            if only in leaf:
                yield Recorded(index, read_head(leaf), leaf)


def ledger_bytes(directory: Path) -> int:
    """Return the bytes of all entries and of all blobs next to them."""
    blobs = sum(path.stat().st_size for path in (directory / "blobs").rglob("*") if path.is_file())
    return blobs + sum(map(len, LedgerDirectory(directory).entries()))


def _again(head: Head) -> bool:
    return head.kind == "decision" and head.fields.get("action") == "re-execution"


# --- writing ---

log = logging.getLogger(__name__)


class Writer:
    """A ledger of one run, held by this process until it is closed."""

    def __init__(self, directory: Path, ledger: Log, genesis: Genesis) -> None:
        """Use `open`."""
        self.directory, self._log, self._genesis = directory, ledger, genesis
        self._ahead: Iterator[Recorded] | None = None  # what is on record behind the present place
        self._same: list[tuple[int, bytes]] = []  # what is on record of the present step and was found equal

    @classmethod
    def open(cls, directory: Path, *, genesis: Genesis, signer: Signer) -> Self:
        """Begin the ledger of this run, or go on with it. Raises `LedgerError` if it is another run's."""
        first = encode(genesis)
        if not (directory / CHECKPOINT).exists():
            ledger = Log.create(directory, origin=signer.name, signer=signer)
        else:
            ledger = Log.open(directory, signer=signer)
        try:
            if ledger.size == 0:
                ledger.append([first])
            elif next(LedgerDirectory(directory).entries(0, 1)) != first:
                raise LedgerError(f"{directory}: the ledger of another run: its genesis is not the one of this run")
        except BaseException:
            ledger.close()
            raise
        return cls(directory, ledger, genesis)

    @property
    def size(self) -> int:
        """Return how many entries there are."""
        return self._log.size

    def begin(self, step: int) -> TrainingState | None:
        """Take the place behind the state of that step, and return what is on record of it; None for step 0.

        Raises `LedgerError` if nothing is: a ledger that knows less than a checkpoint was rolled back.
        """
        if self._log.checkpoint.size == 0 and step == self._genesis.begins:
            return self._genesis.start
        recorded, self._ahead = History(self.directory).state(step)
        state = decode(recorded.leaf)
        if not isinstance(state, State):
            return self._genesis.start
        self._same = [(step, recorded.leaf)]
        return state.state

    def write_blob(self, content: bytes) -> str:
        """Store a blob and return its digest."""
        return self._log.write_blob(content)

    def put(self, leaf: bytes, *, step: int) -> None:
        """The next entry of the run."""
        if self._ahead is not None:
            recorded = next(self._ahead, None)
            if recorded is not None and recorded.leaf == leaf:
                self._same = [*((at, same) for at, same in self._same if at == step), (step, leaf)]
                return
            self._ahead = None
            if recorded is not None:
                self._execute_again(recorded, step)
        self._log.append([leaf])

    def commit(self) -> None:
        """Make everything durable."""
        self._log.commit()

    def close(self) -> None:
        """Let others have the ledger, without what was not committed."""
        self._log.close()

    def _execute_again(self, recorded: Recorded, step: int) -> None:
        if History(self.directory).ended():
            raise LedgerError(
                f"{self.directory}: finished, and executing it again gives another {recorded.head.kind} entry "
                f"{recorded.number} at step {step}; a finished ledger is never reopened: move the run away"
            )
        log.warning(
            "%s: step %d was executed again with another result; the ledger says so and goes on from there",
            self.directory,
            step,
        )
        decision = Decision(
            step=step,
            action="re-execution",
            rule="other-bits",
            parameters={},
            condition=None,
            subjects=(),
            layers=(),
            evidence={},
            blobs={},
        )
        self._log.append([encode(decision), *(same for at, same in self._same if at == step)])

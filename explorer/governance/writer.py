"""The writer of a run's ledger, and the history of one in which steps were executed again after a crash.

A run that crashed continues from its last checkpoint, while its ledger may already have entries of later steps, and an
append-only log cannot drop them. So a re-executed entry is compared with the one on record, byte for byte, and not
appended twice. The first that differs is preceded by a decision to re-execute: from its step on entries are written
again, and readers take the latest execution. `History` reads that, in order and in little memory.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from explorer.entries.fields import read_float, write_float
from explorer.entries.heads import Head, read_head
from explorer.entries.kinds import Decision, Genesis, State, TrainingState, Trunk, decode, encode
from explorer.errors import LedgerError
from explorer.ledger.log import Log
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.note import Signer


class Recorded(NamedTuple):
    """Entry of a ledger."""

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
    """Ledger under the rule that a decision to re-execute from step r supersedes every earlier entry from r on.

    Reading raises `LedgerError` for entries that no run's ledger can have.
    """

    def __init__(self, directory: Path) -> None:
        self.ledger = LedgerDirectory(directory)
        # Index of each decision to re-execute, and the least step that it or a later one executes again: an entry
        # before it is superseded from that step on. Few entries are decisions, so the others are not even decoded.
        self._again: list[tuple[int, int]] = []
        restarts = [(entry.number, entry.step) for entry in self._read(only=b'"re-execution"') if _again(entry.head)]
        least = None
        for index, step in reversed(restarts):
            least = step if least is None else min(least, step)
            self._again.append((index, least))
        self._again.reverse()

    def __len__(self) -> int:
        return self.ledger.checkpoint().size

    def entries(self) -> Iterator[Recorded]:
        """Yield the entries of the latest execution, in order, without the decisions to re-execute."""
        places = [index for index, _ in self._again]
        for entry in self._read():
            # The first decision behind the entry has the least step of all decisions behind it.
            later = bisect_right(places, entry.number)
            superseded = later < len(places) and entry.head.kind != "genesis" and entry.step >= self._again[later][1]
            if not superseded and not _again(entry.head):
                yield entry

    def state(self, step: int) -> tuple[Recorded, Iterator[Recorded]]:
        """Return the `state` entry of this step, or the genesis that begins there, and all entries after it."""
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
        """Yield all entries in which these bytes occur."""
        for index, leaf in enumerate(self.ledger.entries()):
            if only in leaf:
                yield Recorded(index, read_head(leaf), leaf)


def ledger_bytes(directory: Path) -> int:
    """Return the bytes of all entries and of all blobs next to them."""
    blobs = sum(path.stat().st_size for path in (directory / "blobs").rglob("*") if path.is_file())
    return blobs + sum(map(len, LedgerDirectory(directory).entries()))


def _again(head: Head) -> bool:
    return head.kind == "decision" and head.fields.get("action") == "re-execution"


def is_aside(head: Head) -> bool:
    """Return whether an entry says who made steps, and so is no result of making them again."""
    return head.kind == Trunk.KIND or (head.kind == "decision" and head.fields.get("action") == RANKS)


# --- writing ---

RANKS = "ranks"  # the action of a decision that another number of processes makes the next steps

log = logging.getLogger(__name__)


class Writer:
    """Ledger of one run, held by this process until it is closed."""

    def __init__(self, directory: Path, ledger: Log, genesis: Genesis, ranks: int) -> None:
        """Use `open`."""
        self.directory, self._log, self._genesis = directory, ledger, genesis
        self._ranks: int | None = ranks  # to be compared with the record before the first entry; None: compared
        self._ahead: Iterator[Recorded] | None = None  # entries on record after the current place; None: at the end
        self._same: list[tuple[int, bytes]] = []  # entries of the current step that were equal to the record

    @classmethod
    def open(cls, directory: Path, *, genesis: Genesis, signer: Signer, ranks: int | None = None) -> Self:
        """Begin the ledger of this run, or continue it with so many processes, by default those of the genesis.

        Raises `LedgerError` if it is another run's.
        """
        first = encode(genesis)
        if not (directory / CHECKPOINT).exists():
            ledger = Log.create(directory, origin=signer.name, signer=signer)
        else:
            ledger = Log.open(directory, signer=signer)
        try:
            # A ledger without entries was begun by a process that crashed before its first commit.
            if ledger.size == 0:
                ledger.append([first])
            elif next(LedgerDirectory(directory).entries(0, 1)) != first:
                raise LedgerError(f"{directory}: the ledger of another run: its genesis is not the one of this run")
        except BaseException:
            ledger.close()
            raise
        return cls(directory, ledger, genesis, ranks or ranks_of(genesis))

    @property
    def size(self) -> int:
        """Return how many entries there are."""
        return self._log.size

    def begin(self, step: int) -> TrainingState | None:
        """Move to the place after the state of this step, and return the state on record; None for step 0.

        Raises `LedgerError` if none is: a ledger that knows less than a checkpoint was rolled back.
        """
        # Nothing is committed yet, so there is nothing to compare with: the genesis is in memory only.
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
        """Append the next entry of the run, unless the record has it already."""
        if self._ahead is not None:
            recorded = next(self._ahead, None)
            # Who made earlier steps stays true of steps that are executed again with the same result.
            while recorded is not None and is_aside(recorded.head) and recorded.leaf != leaf:
                self._equal(recorded.leaf, recorded.step)
                recorded = next(self._ahead, None)
            if recorded is not None and recorded.leaf == leaf:
                self._equal(leaf, step)
                return
            # The record ends here, or differs: from now on everything is appended.
            self._ahead = None
            if recorded is not None:
                self._execute_again(recorded, step)
        if self._ranks is not None:
            self._note_ranks(self._ranks, step)
        self._log.append([leaf])

    def commit(self) -> None:
        """Make everything durable."""
        self._log.commit()

    def close(self) -> None:
        """Release the ledger, without uncommitted entries."""
        self._log.close()

    def _equal(self, leaf: bytes, step: int) -> None:
        """Note an entry of the record that is the same again, next to the others of its step."""
        self._same = [*((at, same) for at, same in self._same if at == step), (step, leaf)]

    def _execute_again(self, recorded: Recorded, step: int) -> None:
        if History(self.directory).ended():
            raise LedgerError(
                f"{self.directory}: finished, and executing it again gives another {recorded.head.kind} entry "
                f"{recorded.number} at step {step}; a finished ledger is never reopened: move the run away"
            )
        log.warning(
            "%s: step %d was executed again with another result; the ledger records this and continues from there",
            self.directory,
            step,
        )
        # The decision supersedes all of the step, so its entries that were equal are written once more.
        again = _decision(step, "re-execution", "other-bits")
        self._log.append([again, *(same for at, same in self._same if at == step)])

    def _note_ranks(self, ranks: int, step: int) -> None:
        """Record how many processes make the next steps, if the record says another number last."""
        self._ranks = None
        before = ranks_of(self._genesis)
        for leaf in LedgerDirectory(self.directory).entries() if self._log.checkpoint.size else ():
            if b'"ranks"' in leaf and is_aside(head := read_head(leaf)):
                parameters: Any = head.fields["parameters"]
                before = int(read_float(parameters["ranks"]))
        if ranks != before:
            self._log.append([_decision(step, RANKS, "other-number", before=before, ranks=ranks)])


def ranks_of(genesis: Genesis) -> int:
    """Return how many processes a run was planned for."""
    return 1 if genesis.lanes is None else len(genesis.lanes.ranks)


def _decision(step: int, action: Literal["re-execution", "ranks"], rule: str, **parameters: float) -> bytes:
    """Return the entry of a decision that concerns all classes and layers."""
    return encode(
        Decision(
            step=step,
            action=action,
            rule=rule,
            parameters={name: write_float(value) for name, value in parameters.items()},
            condition=None,
            subjects=(),
            layers=(),
            evidence={},
            blobs={},
        )
    )

"""The writer of a run's ledger, which may know steps already that are executed again after a crash.

A re-executed entry is compared with the one on record, byte for byte, and not appended twice. The first that differs
is preceded by a decision: from its step on the entries are written anew, and whoever reads takes the latest execution.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from explorer.entries.kinds import decode, encode
from explorer.entries.run import Decision, Genesis, State, TrainingState
from explorer.errors import LedgerError
from explorer.governance.history import History, Recorded
from explorer.ledger.log import Log
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.note import Signer

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
        """How many entries there are."""
        return self._log.size

    def begin(self, step: int) -> TrainingState | None:
        """Take the place behind the state of that step, and return what is on record of it; None for step 0.

        Raises `LedgerError` if nothing is: a ledger that knows less than a checkpoint was rolled back.
        """
        if self._log.checkpoint.size == 0 and step == self._genesis.begins:
            return self._genesis.start
        found, self._ahead = History(self.directory).state(step)
        state = decode(found.leaf)
        if not isinstance(state, State):
            return self._genesis.start
        self._same = [(step, found.leaf)]
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

"""The project's ledger, `runs/_audit`, which continues when the ledgers of runs are closed, and points to them.

It records grants of keys and their revocation, reads, deletions, erasures and observations (`explorer.entries.kinds`).
The trainer's key signs it under `<trainer>/_audit`, so that the trust file that anchors the runs anchors it too:
`explorer ledger verify runs/_audit --trust FILE`. It is made when the first entry is appended. An appended entry is on
the disk when `append` returns.

Many verbs append to it, for a moment each, and wait while it is in use. Like every ledger it cannot protect itself from
being replaced by an earlier state of its own; only the holder of a later checkpoint can tell.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import merkle
from explorer.entries.fields import Blob
from explorer.entries.kinds import Access, Deletion, Erasure, GrantUse, Observation, Unknown, decode, encode
from explorer.errors import LedgerError
from explorer.ledger.log import Log
from explorer.ledger.signed_checkpoint import Checkpoint
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.note import Algorithm, Signer

AUDIT = "_audit"
PATIENCE = 30.0  # seconds; an append takes milliseconds

ProjectEntry = Access | Deletion | Erasure | GrantUse | Observation


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """An entry and its number; one of unknown kind or version is kept as it is."""

    index: int
    entry: ProjectEntry | Unknown


class Project:
    """The project's ledger, held by this process until it is closed.

    with Project.open(runs, key=key, name="example.com/trainer") as project:
        project.append(entry)
    """

    @classmethod
    def open(cls, runs: Path, *, key: Ed25519PrivateKey, name: str) -> Self:
        """Open the ledger of the project whose runs are in `runs`, or begin it; `name` is the trainer's.

        Raises `LedgerError` for a ledger that another key has signed, for one that is damaged, and for one that stays
        in use.
        """
        directory = runs / AUDIT
        signer = Signer(name=f"{name}/{AUDIT}", algorithm=Algorithm.ED25519, private_key=key)
        if not (directory / CHECKPOINT).exists():
            try:
                return cls(directory, Log.create(directory, origin=signer.name, signer=signer, patience=PATIENCE))
            except LedgerError:
                # With a checkpoint by now, another process has just begun the ledger.
                if not (directory / CHECKPOINT).exists():
                    raise
        return cls(directory, Log.open(directory, signer=signer, patience=PATIENCE))

    def __init__(self, directory: Path, log: Log) -> None:
        """Use `open`."""
        self._directory, self._log = directory, log

    def append(self, entry: ProjectEntry) -> int:
        """Append an entry and return its number; it is on the disk when this returns. Raises `LedgerError`."""
        index = self._log.size
        self._log.append([encode(entry)])
        self._log.commit()
        return index

    def write_blob(self, content: bytes) -> Blob:
        """Store content for an entry to name; it is on the disk when this returns. Raises `LedgerError`."""
        return Blob(sha256=self._log.write_blob(content), size=len(content))

    def entries(self) -> tuple[Recorded, ...]:
        """Return all entries that the checkpoint of this key covers. Raises `LedgerError` if there are others."""
        return tuple(_checked(self._directory, self._log.checkpoint))

    def close(self) -> None:
        """Release the ledger to other processes."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def runs_of(run: Path) -> Path:
    """Return the directory of the project that a run belongs to: `runs` for `runs/<sweep>/<run id>`."""
    return run.resolve().parent.parent


def read_project(runs: Path) -> Iterator[Recorded]:
    """Yield the entries of a project's ledger, by number; none where it was never begun.

    They are the entries of its checkpoint, whose signatures only `explorer ledger verify` checks. Raises `LedgerError`
    for entries that do not belong to the checkpoint or to a project's ledger.
    """
    if (runs / AUDIT / CHECKPOINT).exists():
        yield from _checked(runs / AUDIT, None)


def _checked(directory: Path, signed: Checkpoint | None) -> list[Recorded]:
    ledger = LedgerDirectory(directory)
    expected = signed or ledger.checkpoint()
    leaves = list(ledger.entries())
    # Every leaf is hashed, so that an altered entry is not read as if it were recorded.
    root = merkle.root_of(map(merkle.leaf_hash, leaves))
    if root != expected.root:
        raise LedgerError(
            f"{directory}: its {len(leaves)} entries were changed: found root {root.hex()}, expected the signed "
            f"{expected.root.hex()}"
        )
    return [Recorded(index=index, entry=_decoded(index, leaf, directory)) for index, leaf in enumerate(leaves)]


def _decoded(index: int, leaf: bytes, directory: Path) -> ProjectEntry | Unknown:
    try:
        entry = decode(leaf)
    except LedgerError as error:
        raise LedgerError(f"{directory}: entry {index}: {error}") from error
    if not isinstance(entry, ProjectEntry | Unknown):
        raise LedgerError(
            f"{directory}: entry {index}: found {entry.KIND}, an entry of a run's ledger; expected one of a project's"
        )
    return entry

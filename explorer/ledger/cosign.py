"""Cosigning: an authority verifies a ledger, remembers its checkpoint, and signs it.

A cosigner never signs a tree that does not extend the one it signed before. It keeps a memory of what it has cosigned,
out of reach of the writers of ledgers:

    <state>/begun                                               this memory was begun, and is not merely missing
    <state>/<its name>+<key id>/<SHA-256 of the origin>.note    the last checkpoint of this log that it cosigned
    <state>/<its name>+<key id>/latest.note                     of any log; its time is the clock of the key

The notes are the very ones that are handed out, so that the key's own signature covers them. A note is on the disk
before it is handed out: a crash in between delays a cosignature until the next call, and loses no memory.

A missing memory would look like one that was never begun. So a memory is begun explicitly, by `begin_memory`: when the
key is made, or when its owner declares it new. Replacing a memory by an older copy of itself cannot be detected.
"""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from explorer import note
from explorer.errors import LedgerError, NoteError, RunError
from explorer.ledger.signed_checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.storage import WITNESS, note_name, read_checkpoint, read_file, write_file
from explorer.ledger.trust_anchor import NONE, Anchor, TrustedKey, utc
from explorer.ledger.verify import Verification, verify
from explorer.note import Algorithm, Note, Signature, Signer
from explorer.rundir import locked


@dataclass(frozen=True, kw_only=True, slots=True)
class Cosigning:
    """Result of cosigning. A ledger that does not verify is not cosigned."""

    verification: Verification
    path: Path | None  # of the note with the cosignature
    time: int | None  # that it carries, in seconds since 1970


def cosign(directory: Path, *, signer: Signer, state: Path, anchor: Anchor, now: int, first: bool = True) -> Cosigning:
    """Verify a ledger, also against what this key has cosigned, and put the cosignature into `witness/`.

    A checkpoint that was cosigned before keeps its time. Raises `LedgerError` if the memory is missing or cannot be
    used, or if the clock is before the time of the key's last cosignature.

    Args:
        directory: the ledger.
        signer: the cosigner's key.
        state: the directory of the key's memory.
        anchor: the logs that are trusted; its quorum is ignored, since cosigning is how one comes about.
        now: the cosigner's own clock, in seconds since 1970.
        first: begin a memory that was never begun; on the command line its user has to ask for that.
    """
    if signer.algorithm is not Algorithm.COSIGNATURE:
        raise LedgerError(f"the key of {signer.name!r} is for plain signatures; cosigning needs a cosignature key (04)")
    memory = Memory(state, signer)
    if not first:
        memory.check_begun()
    with memory.exclusive():
        # The tree has to extend what the key signed last, which is why verification gets it as the held checkpoint.
        memory.check_clock(now)
        held = memory.last(read_checkpoint(directory)[1].origin)
        verification = verify(directory, anchor=_believing(anchor, signer), held=held, now=now)
        if not verification.ok:
            return Cosigning(verification=verification, path=None, time=None)
        if held is None or held.text != verification.note.text:
            held = memory.cosign(note.of_keys(verification.note, anchor.verifiers), now)
        known = note.of_keys(verification.note, anchor.verifiers)
        path = directory / WITNESS / note_name(signer.verifier)
        write_file(path, note.with_signatures(known, [memory.own(held)]).content)
        return Cosigning(verification=verification, path=path, time=memory.time(held))


def _believing(anchor: Anchor, signer: Signer) -> Anchor:
    """Return the anchor without its quorum, and with the cosigner itself, which trusts its own memory."""
    own = TrustedKey(verifier=signer.verifier)
    if all(witness.key.verifier.public_key != own.verifier.public_key for witness in anchor.witnesses):
        anchor = anchor.with_witness(signer.verifier.vkey, own)
    return replace(anchor, quorum=NONE)


# -------------------------------------------------------------------------------------------------- the memory of a key

BEGUN = "begun"
LATEST = "latest.note"
PATIENCE = 10.0  # seconds to wait for another process of this cosigner

_WORDS = """\
This directory remembers what a key has cosigned. Keep it as long as the key: without it, or with an older copy of it,
the key would sign a second history of a log without a word.
"""


def memory_of(key: Path) -> Path:
    """Return the default place of a key's memory: next to its file."""
    return key.with_name(f"{key.name}.cosigned")


def begin_memory(state: Path) -> None:
    """Declare that a key has cosigned nothing yet. An existing memory is kept."""
    write_file(state / BEGUN, _WORDS.encode())


def checkpoint_name(origin: str) -> str:
    """Return the name of a log in file names and URLs, where its origin may not fit (c2sp.org/tlog-witness)."""
    return hashlib.sha256(origin.encode()).hexdigest()


class Memory:
    """The memory of one key. It is read and changed inside `exclusive`."""

    def __init__(self, state: Path, signer: Signer) -> None:
        self.signer = signer
        self._state = state
        self._place = state / note_name(signer.verifier).removesuffix(".note")
        self._lock = threading.Lock()

    def check_begun(self) -> None:
        """Raise `LedgerError` if nothing says that this memory was ever begun."""
        if not (self._state / BEGUN).exists() and not (self._place / LATEST).exists():
            raise LedgerError(
                f"{self._state}: there is no memory of what {self.signer.name!r} has cosigned. A key without memory "
                "could sign a second history of a log: bring the memory back, or say --first if this key has cosigned "
                "nothing yet"
            )

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the memory, so that nothing is signed between reading and writing it.

        Threads of one process wait for each other by a lock of their own; the lock file is for other processes.
        """
        with self._lock:
            try:
                with locked(self._place, what=f"the memory of cosigner {self.signer.name!r}", patience=PATIENCE):
                    yield
            except RunError as error:
                raise LedgerError(str(error)) from error

    def last(self, origin: str) -> Note | None:
        """Return the largest checkpoint of this log that the key has cosigned, with its cosignature."""
        own_note = self._read(f"{checkpoint_name(origin)}.note")
        # The latest note is written first: after a crash between the two it is ahead of the log's own.
        latest = self._read(LATEST)
        if latest is None or _checkpoint(latest).origin != origin:
            return own_note
        return latest if own_note is None or _checkpoint(own_note).size < _checkpoint(latest).size else own_note

    def named(self, name: str) -> Note | None:
        """Return the last checkpoint of the log whose `checkpoint_name` this is."""
        return self._read(f"{name}.note")

    def check_clock(self, now: int) -> None:
        """Raise `LedgerError` if the clock is before the time of the key's last cosignature."""
        latest = self._read(LATEST)
        if latest is not None and now < (last := self.time(latest)):
            raise LedgerError(
                f"the clock was set back: it is {utc(now)}, but {self.signer.name!r} cosigned at {utc(last)} before; "
                "correct the clock first"
            )

    def cosign(self, checkpoint_note: Note, now: int) -> Note:
        """Cosign a checkpoint and remember it; return the note with the cosignature.

        The caller has checked that the checkpoint extends the last one. The note needs room for another line
        (`note.of_keys`), or the memory could not be read again.
        """
        cosigned = note.with_signatures(checkpoint_note, [self.signer.sign(checkpoint_note.text, time=now)])
        write_file(self._place / LATEST, cosigned.content)
        write_file(self._place / f"{checkpoint_name(_checkpoint(checkpoint_note).origin)}.note", cosigned.content)
        return cosigned

    def own(self, cosigned: Note) -> Signature:
        """Return the latest line of this key under a note that it has cosigned."""
        key = self.signer.verifier
        lines = [line for line in cosigned.signatures if (line.name, line.key_id) == (key.name, key.key_id)]
        return max(lines, key=lambda line: line.blob[:8])  # the time, big-endian

    def time(self, cosigned: Note) -> int:
        """Return the time of this key's cosignature under a note."""
        time = self.signer.verifier.check(cosigned.text, self.own(cosigned).blob)
        assert time is not None
        return time

    def _read(self, name: str) -> Note | None:
        content = read_file(self._place, name, max_bytes=note.MAX_BYTES) if self._place.exists() else None
        if content is None:
            return None
        try:
            remembered = note.parse(content)
            note.verify(remembered, [self.signer.verifier])
            _checkpoint(remembered)
        except (NoteError, LedgerError) as error:
            where = self._place / name
            raise LedgerError(f"{where}: the memory of {self.signer.name!r} was damaged: {error}") from error
        return remembered


def _checkpoint(remembered: Note) -> Checkpoint:
    return parse_checkpoint(remembered.text)

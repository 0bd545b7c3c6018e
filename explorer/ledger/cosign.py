"""Cosigning: an authority verifies a ledger, remembers what it saw, and signs that.

A cosigner never signs a tree that does not extend the one it signed before. For that it keeps, out of reach of whoever
writes the ledger, the last checkpoint of every log that it cosigned:

    <state>/<its name>+<key id>/<SHA-256 of the origin>.note
    <state>/<its name>+<key id>/latest.note                     of any log; its time is the clock of the key

These are the very notes that it hands out, so that its own signature covers them. One is remembered before it is
handed out: a crash in between costs a cosignature, which the next call hands out, and never a memory.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from explorer import note
from explorer.errors import LedgerError, NoteError, RunError
from explorer.ledger.anchor import NONE, Anchor, TrustedKey, utc
from explorer.ledger.files import read_file
from explorer.ledger.read import WITNESS
from explorer.ledger.verify import Verification, read_checkpoint, verify
from explorer.ledger.witnesses import note_name
from explorer.note import Algorithm, Note, Signature, Signer
from explorer.rundir import locked, write_bytes

LATEST = "latest.note"
PATIENCE = 10.0  # seconds that a cosigner waits for itself, at work on another log


@dataclass(frozen=True, kw_only=True, slots=True)
class Cosigning:
    """What came of it. A ledger that does not verify is not cosigned."""

    verification: Verification
    path: Path | None  # of the note with the cosignature
    time: int | None  # that it carries, in seconds since 1970


def cosign(directory: Path, *, signer: Signer, state: Path, anchor: Anchor, now: int) -> Cosigning:
    """Verify a ledger, also against what this key has cosigned, and put the cosignature into `witness/`.

    `now` is the cosigner's own clock, in seconds since 1970. The anchor says which logs are believed; its quorum is not
    asked for, since this is how one comes about. A checkpoint that was cosigned before keeps its time. Raises
    `LedgerError` if the memory cannot be used or if the clock stands before the time of the key's last cosignature.
    """
    if signer.algorithm is not Algorithm.COSIGNATURE:
        raise LedgerError(f"the key of {signer.name!r} is for plain signatures; cosigning needs a cosignature key (04)")
    memory = state / note_name(signer.verifier).removesuffix(".note")
    with _locked(memory, signer):
        _check_clock(memory, signer, now)
        name = _origin_file(read_checkpoint(directory)[1].origin)
        held = _remembered(memory, name, signer)
        found = verify(directory, anchor=_believing(anchor, signer), held=held, now=now)
        if not found.ok:
            return Cosigning(verification=found, path=None, time=None)
        if held is None or held.text != found.note.text:
            held = note.with_signatures(found.note, [signer.sign(found.note.text, time=now)])
            _write(memory / LATEST, held)
            _write(memory / name, held)
        own = _own(held, signer)
        path = directory / WITNESS / note_name(signer.verifier)
        _write(path, note.with_signatures(found.note, [own]))
        return Cosigning(verification=found, path=path, time=_time(held, signer))


@contextmanager
def _locked(memory: Path, signer: Signer) -> Iterator[None]:
    """Hold the memory, so that nothing is signed between looking into it and writing it."""
    try:
        with locked(memory, what=f"the memory of cosigner {signer.name!r}", patience=PATIENCE):
            yield
    except RunError as error:
        raise LedgerError(str(error)) from error


def _believing(anchor: Anchor, signer: Signer) -> Anchor:
    """The anchor without its quorum, and with the cosigner itself, who believes what it remembers."""
    own = TrustedKey(verifier=signer.verifier)
    if all(witness.key.verifier.public_key != own.verifier.public_key for witness in anchor.witnesses):
        anchor = anchor.with_witness(signer.verifier.vkey, own)
    return replace(anchor, quorum=NONE)


def _check_clock(memory: Path, signer: Signer, now: int) -> None:
    latest = _remembered(memory, LATEST, signer)
    if latest is not None and now < (last := _time(latest, signer)):
        raise LedgerError(
            f"the clock was set back: it says {utc(now)}, and {signer.name!r} cosigned at {utc(last)} before; "
            "set the clock right first"
        )


def _remembered(memory: Path, name: str, signer: Signer) -> Note | None:
    """A note that this key has cosigned, if it remembers one of this name."""
    content = read_file(memory, name, max_bytes=note.MAX_BYTES)
    if content is None:
        return None
    try:
        found = note.parse(content)
        note.verify(found, [signer.verifier])
    except NoteError as error:
        raise LedgerError(f"{memory / name}: the memory of {signer.name!r} was damaged: {error}") from error
    return found


def _own(cosigned: Note, signer: Signer) -> Signature:
    """The line of this key under a note that it has cosigned."""
    key = signer.verifier
    return next(each for each in cosigned.signatures if (each.name, each.key_id) == (key.name, key.key_id))


def _time(cosigned: Note, signer: Signer) -> int:
    """The time of this key's cosignature under a note."""
    time = signer.verifier.check(cosigned.text, _own(cosigned, signer).blob)
    assert time is not None
    return time


def _origin_file(origin: str) -> str:
    return f"{hashlib.sha256(origin.encode()).hexdigest()}.note"


def _write(path: Path, cosigned: Note) -> None:
    try:
        write_bytes(path, cosigned.content)
    except RunError as error:
        raise LedgerError(str(error)) from error

"""Cosigning: an authority verifies a ledger, remembers what it saw, and signs that.

A cosigner never signs a tree that does not extend the one it signed before: `explorer.ledger.memory`.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from explorer import note
from explorer.errors import LedgerError, RunError
from explorer.ledger.anchor import NONE, Anchor, TrustedKey
from explorer.ledger.memory import Memory
from explorer.ledger.read import WITNESS
from explorer.ledger.verify import Verification, read_checkpoint, verify
from explorer.ledger.witnesses import note_name
from explorer.note import Algorithm, Signer
from explorer.rundir import write_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Cosigning:
    """What came of it. A ledger that does not verify is not cosigned."""

    verification: Verification
    path: Path | None  # of the note with the cosignature
    time: int | None  # that it carries, in seconds since 1970


def cosign(directory: Path, *, signer: Signer, state: Path, anchor: Anchor, now: int, first: bool = True) -> Cosigning:
    """Verify a ledger, also against what this key has cosigned, and put the cosignature into `witness/`.

    `now` is the cosigner's own clock, in seconds since 1970. The anchor says which logs are believed; its quorum is not
    asked for, since this is how one comes about. A checkpoint that was cosigned before keeps its time. `first`: a
    memory that was never begun may begin now; the command line has its user say so. Raises `LedgerError` if the
    memory is not there or cannot be used, or if the clock stands before the time of the key's last cosignature.
    """
    if signer.algorithm is not Algorithm.COSIGNATURE:
        raise LedgerError(f"the key of {signer.name!r} is for plain signatures; cosigning needs a cosignature key (04)")
    memory = Memory(state, signer)
    if not first:
        memory.check_begun()
    with memory.alone():
        memory.check_clock(now)
        held = memory.last(read_checkpoint(directory)[1].origin)
        found = verify(directory, anchor=_believing(anchor, signer), held=held, now=now)
        if not found.ok:
            return Cosigning(verification=found, path=None, time=None)
        if held is None or held.text != found.note.text:
            held = memory.cosign(note.of_keys(found.note, anchor.verifiers), now)
        known = note.of_keys(found.note, anchor.verifiers)
        path = directory / WITNESS / note_name(signer.verifier)
        try:
            write_bytes(path, note.with_signatures(known, [memory.own(held)]).content)
        except RunError as error:
            raise LedgerError(str(error)) from error
        return Cosigning(verification=found, path=path, time=memory.time(held))


def _believing(anchor: Anchor, signer: Signer) -> Anchor:
    """The anchor without its quorum, and with the cosigner itself, who believes what it remembers."""
    own = TrustedKey(verifier=signer.verifier)
    if all(witness.key.verifier.public_key != own.verifier.public_key for witness in anchor.witnesses):
        anchor = anchor.with_witness(signer.verifier.vkey, own)
    return replace(anchor, quorum=NONE)

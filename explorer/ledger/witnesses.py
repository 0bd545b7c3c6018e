"""The notes that witnesses left in a ledger's directory: `witness/<name>.note`, each the checkpoint that one cosigned.

A note stays behind when the log grows; it then says what its witness saw at a smaller size, and the tree has to agree.
Our own cosigners name their notes `<name>+<key id>.note`: a file with the name of a witness that the anchor knows has
to be that witness's note. Any other file may be anybody's. It counts if it is in order, and is otherwise listed as of
no use, however many there are: nobody stops a verification by writing into `witness/`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from explorer import note
from explorer.errors import LedgerError, NoteError
from explorer.ledger.anchor import Anchor
from explorer.ledger.checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.files import read_file
from explorer.ledger.findings import Findings, printable
from explorer.ledger.read import MAX_WITNESSES, WITNESS, list_notes
from explorer.note import Note, Verified, Verifier


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A checkpoint that the log's key signed and that somebody cosigned."""

    path: str  # below the ledger's directory, for messages
    note: Note
    checkpoint: Checkpoint
    cosigners: tuple[Verified, ...]  # those that the anchor knows; there may be none


def note_name(verifier: Verifier) -> str:
    """The name of a cosigner's note; the key id tells two names apart that become the same in a file's name."""
    return f"{re.sub(r'^[.]|[^A-Za-z0-9.-]', '_', verifier.name)}+{verifier.key_id.hex()}.note"


def read_witnesses(directory: Path, *, anchor: Anchor, origin: str, findings: Findings) -> tuple[list[Seen], list[str]]:
    """The notes that a known key has signed, and in words those files that vouch for nothing, with the reason.

    A file with the name of a known witness that is damaged, of another log or without the signatures that it has to
    have is a finding.
    """
    seen: list[Seen] = []
    idle: list[str] = []
    owners = {f"{WITNESS}/{note_name(witness.key.verifier)}": witness.key.verifier for witness in anchor.witnesses}
    try:
        paths, more = list_notes(directory, {path.removeprefix(f"{WITNESS}/") for path in owners})
    except LedgerError as error:
        findings.add(WITNESS, str(error))
        return [], []
    for path in paths:
        try:
            found = _read(directory, path, owners.get(path), anchor, origin)
        except (LedgerError, NoteError) as error:
            why = str(error).removeprefix(f"{directory / path}: ")
            if path in owners:
                findings.add(path, why)
            else:
                idle.append(f"{printable(path)}: {printable(why)}")
            continue
        if found is not None:
            seen.append(found)
        if found is None or not found.cosigners:
            idle.append(f"{printable(path)}: cosigned by nobody who is trusted")
    if more:
        idle.append(f"{WITNESS}/: {more} more notes, which were not read; at most {MAX_WITNESSES} are")
    return seen, idle


def _read(directory: Path, path: str, owner: Verifier | None, anchor: Anchor, origin: str) -> Seen | None:
    found = note.parse(read_file(directory, path, max_bytes=note.MAX_BYTES) or b"")
    checkpoint = parse_checkpoint(found.text)
    logs = {key.verifier for key in anchor.logs}
    witnesses = {witness.key.verifier for witness in anchor.witnesses}
    keys = {(verifier.name, verifier.key_id) for verifier in anchor.verifiers}
    known = any((signature.name, signature.key_id) in keys for signature in found.signatures)
    verified = note.verify(found, anchor.verifiers) if known else ()
    cosigners = tuple(each for each in verified if each.verifier in witnesses)
    if owner is not None and owner not in [each.verifier for each in cosigners]:
        raise LedgerError(f"does not hold the cosignature of {owner.name}")
    if not known:
        return None
    if checkpoint.origin != origin:
        raise LedgerError(f"is of another log, {checkpoint.origin!r}")
    if not any(each.verifier in logs for each in verified):
        raise LedgerError("no trusted log has signed what it cosigns")
    return Seen(path=printable(path), note=found, checkpoint=checkpoint, cosigners=cosigners)

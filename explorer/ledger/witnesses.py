"""The notes that witnesses left in a ledger's directory: `witness/<name>.note`, each the checkpoint that one cosigned.

A note stays behind when the log grows; it then says what its witness saw at a smaller size, and the tree has to agree.
Our own cosigners name their notes `<name>+<key id>.note`, so that it is known whose cosignature has to be in there.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from explorer import note
from explorer.errors import LedgerError, NoteError
from explorer.ledger.anchor import Anchor
from explorer.ledger.checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.files import list_names, read_file
from explorer.ledger.findings import Findings, printable
from explorer.ledger.read import MAX_WITNESSES, WITNESS
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
    """The notes that a known key has signed, and the paths of those that no known witness has: these vouch for nothing.

    A note that is damaged, of another log or without the signatures that it has to have is a finding.
    """
    seen: list[Seen] = []
    unknown: list[str] = []
    try:
        names = [name for name in list_names(directory, WITNESS) if name.endswith(".note") and name[0] != "."]
    except LedgerError as error:
        findings.add(WITNESS, str(error))
        return [], []
    if len(names) > MAX_WITNESSES:
        findings.add(WITNESS, f"{len(names)} notes; at most {MAX_WITNESSES} are read")
    for path in (f"{WITNESS}/{name}" for name in names[:MAX_WITNESSES]):
        try:
            found = _read(directory, path, anchor, origin)
        except (LedgerError, NoteError) as error:
            findings.add(path, str(error).removeprefix(f"{directory / path}: "))
            continue
        if found is not None:
            seen.append(found)
        if found is None or not found.cosigners:
            unknown.append(printable(path))
    return seen, unknown


def _read(directory: Path, path: str, anchor: Anchor, origin: str) -> Seen | None:
    found = note.parse(read_file(directory, path, max_bytes=note.MAX_BYTES) or b"")
    checkpoint = parse_checkpoint(found.text)
    logs = {key.verifier for key in anchor.logs}
    witnesses = {witness.key.verifier for witness in anchor.witnesses}
    keys = {(verifier.name, verifier.key_id) for verifier in anchor.verifiers}
    known = any((signature.name, signature.key_id) in keys for signature in found.signatures)
    verified = note.verify(found, anchor.verifiers) if known else ()
    cosigners = tuple(each for each in verified if each.verifier in witnesses)
    for owner in witnesses:
        if path == f"{WITNESS}/{note_name(owner)}" and owner not in [each.verifier for each in cosigners]:
            raise LedgerError(f"does not hold the cosignature of {owner.name}")
    if not known:
        return None
    if checkpoint.origin != origin:
        raise LedgerError(f"is of another log, {checkpoint.origin!r}")
    if not any(each.verifier in logs for each in verified):
        raise LedgerError("no trusted log has signed what it cosigns")
    return Seen(path=printable(path), note=found, checkpoint=checkpoint, cosigners=cosigners)

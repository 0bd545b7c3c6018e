"""Proof files (c2sp.org/tlog-proof): evidence that one entry is in a log, for readers without the log.

    c2sp.org/tlog-proof@v1
    extra <base64>              optional; here: the entry itself, so that the file is complete
    index <number>
    <base64>                    the hashes of the inclusion proof, from the leaf's sibling to the child of the root
    ...
                                an empty line
    <the checkpoint, a signed note, as in the log>

No signature covers the extra data. Where it is the entry, its hash has to lead to the root.
"""

import base64
import binascii
import os
import re
from dataclasses import dataclass
from pathlib import Path

from explorer import note
from explorer.errors import LedgerError, NoteError
from explorer.ledger.signed_checkpoint import parse_checkpoint
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.tiles import MAX_ENTRY
from explorer.ledger.trust_anchor import Anchor, Judgement, judge
from explorer.merkle import HASH_BYTES, check_inclusion, leaf_hash, prove_inclusion
from explorer.note import Note
from explorer.rundir import write_bytes

HEADER = "c2sp.org/tlog-proof@v1"
SUFFIX = ".tlog-proof"
MAX_BYTES = note.MAX_BYTES + 2 * MAX_ENTRY
MAX_HASHES = 63  # of an inclusion proof in a tree of at most 2**63 - 1 leaves

_INDEX = re.compile(r"index (0|[1-9][0-9]{0,18})", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """The content of a proof file, nothing of it checked."""

    index: int
    hashes: tuple[bytes, ...]  # 32 bytes each
    checkpoint: Note
    extra: bytes | None = None

    @property
    def content(self) -> bytes:
        """Return the file."""
        extra = [] if self.extra is None else [f"extra {_encode(self.extra)}"]
        lines = [HEADER, *extra, f"index {self.index}", *map(_encode, self.hashes), ""]
        return "".join(f"{line}\n" for line in lines).encode() + self.checkpoint.content


def parse_proof(content: bytes, *, where: str) -> Proof:
    """Read a proof file. Raises `LedgerError` that names `where` and the fault."""
    try:
        return _parse(content)
    except (LedgerError, NoteError) as error:
        raise LedgerError(f"{where}: {error}") from error


def make_proof(ledger: LedgerDirectory, index: int) -> Proof:
    """Return the proof that entry `index` is in the ledger, with the entry as extra data.

    Raises `LedgerError` if there is no such entry, or if the ledger is damaged so that the proof would not hold.
    """
    checkpoint = ledger.checkpoint()
    hashes = prove_inclusion(checkpoint.size, index, ledger.read_hashes)
    (entry,) = ledger.entries(index, index + 1)
    proof = Proof(index=index, hashes=hashes, checkpoint=ledger.note(), extra=entry)
    _check_hashes(proof, entry)  # a damaged tile or entry shows here, and not at the reader's
    return proof


def write_proof(path: Path, proof: Proof) -> None:
    """Write a proof file whole or not at all. It replaces an older one and nothing else, such as a file of the ledger.

    Raises `LedgerError` for another file that is there already, `RunError` if the disk refuses.
    """
    if os.path.lexists(path) and not _is_proof(path):
        raise LedgerError(f"{path}: there is a file already, and it is not a proof; it is not replaced")
    write_bytes(path, proof.content)


def check_proof(proof: Proof, entry: bytes | None = None, *, anchor: Anchor, now: int) -> Judgement:
    """Check that an entry, by default the one in the file, is in a log that the anchor trusts.

    Returns the judgement over the checkpoint. `now` is in seconds since 1970. Raises `LedgerError`.
    """
    leaf = proof.extra if entry is None else entry
    if leaf is None:
        raise LedgerError("the proof does not contain its entry: give the entry too")
    judgement = judge(proof.checkpoint, anchor=anchor, now=now)
    _check_hashes(proof, leaf)
    return judgement


def _is_proof(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(HEADER)) == HEADER.encode()


def _check_hashes(proof: Proof, entry: bytes) -> None:
    checkpoint = parse_checkpoint(proof.checkpoint.text)
    leaf = leaf_hash(entry)
    check_inclusion(proof.hashes, size=checkpoint.size, index=proof.index, leaf=leaf, root=checkpoint.root)


def _parse(content: bytes) -> Proof:
    if len(content) > MAX_BYTES:
        raise LedgerError(f"a proof of {len(content)} bytes; at most {MAX_BYTES} are read")
    head, gap, rest = content.partition(b"\n\n")
    if not gap or not head.isascii():
        raise LedgerError("not a proof: expected lines of ASCII, an empty line, and a checkpoint")
    header, *lines = head.decode().split("\n")
    if header != HEADER:
        raise LedgerError(f"not a proof: the first line is {header[:80]!r}, expected {HEADER!r}")
    extra = _decode(lines.pop(0).removeprefix("extra "), "extra") if lines and lines[0].startswith("extra ") else None
    match = _INDEX.fullmatch(lines.pop(0)) if lines else None
    if not match:
        raise LedgerError("not a proof: expected a line 'index <decimal number>'")
    if len(lines) > MAX_HASHES:
        raise LedgerError(f"a proof of {len(lines)} hashes; at most {MAX_HASHES} are possible")
    hashes = tuple(_decode(line, f"hash {number}", HASH_BYTES) for number, line in enumerate(lines))
    return Proof(index=int(match[1]), hashes=hashes, checkpoint=note.parse(rest), extra=extra)


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _decode(text: str, what: str, length: int | None = None) -> bytes:
    """Decode base64. Only the canonical form is accepted, so that a proof has one spelling."""
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise LedgerError(f"{what} of the proof is not base64: {error}") from error
    if _encode(decoded) != text:
        raise LedgerError(f"{what} of the proof is not canonical base64")
    if length is not None and len(decoded) != length:
        raise LedgerError(f"{what} of the proof has {len(decoded)} bytes, expected {length}")
    return decoded

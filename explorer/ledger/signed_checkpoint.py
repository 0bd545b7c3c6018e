"""Checkpoints: the size and root that a log signs (C2SP tlog-checkpoint).

    example.com/ledger                              the origin: the log's name, which is also its key's
    8                                               the number of entries, decimal
    XcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=    the root over them, base64
    ...                                             lines that other software may add; opaque here

This is the text of a signed note (`explorer.note`).
"""

import base64
import binascii
import re
from dataclasses import dataclass

from explorer import note
from explorer.errors import LedgerError, NoteError
from explorer.merkle import EMPTY_ROOT, HASH_BYTES, MAX_SIZE

MAX_ORIGIN = 1_000
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A log at a size. Raises `LedgerError` on construction for values that no checkpoint can have."""

    origin: str
    size: int
    root: bytes  # 32 bytes
    extensions: tuple[str, ...] = ()  # further lines, each without its newline

    def __post_init__(self) -> None:
        try:
            note.check_text(f"{self.origin}\n")
        except NoteError as error:
            raise LedgerError(f"not an origin: {self.origin[:80]!r}: {error}") from error
        if not 0 < len(self.origin) <= MAX_ORIGIN or "\n" in self.origin:
            raise LedgerError(f"not an origin: {self.origin[:80]!r}; expected a line of 1 to {MAX_ORIGIN} characters")
        if not 0 <= self.size <= MAX_SIZE:
            raise LedgerError(f"a checkpoint of size {self.size}; 0 to {MAX_SIZE} are possible")
        if len(self.root) != HASH_BYTES:
            raise LedgerError(f"a checkpoint's root has {HASH_BYTES} bytes, found {len(self.root)}")
        if self.size == 0 and self.root != EMPTY_ROOT:
            raise LedgerError(f"a checkpoint of size 0 with root {self.root.hex()}, expected {EMPTY_ROOT.hex()}")
        if any(not line or "\n" in line for line in self.extensions):
            raise LedgerError("an extension line of a checkpoint is empty or more than one line")

    @property
    def text(self) -> str:
        """Return the text that is signed."""
        lines = (self.origin, str(self.size), base64.b64encode(self.root).decode(), *self.extensions)
        return "".join(f"{line}\n" for line in lines)


def parse_checkpoint(text: str) -> Checkpoint:
    """Read the text of a checkpoint; only the one spelling that `Checkpoint.text` gives is accepted.

    Raises `LedgerError` that names the line.
    """
    lines = text.split("\n")
    if len(lines) < 4 or lines[-1]:
        raise LedgerError("not a checkpoint: expected three lines, origin, size and root, each with its newline")
    origin, size, root, *extensions = lines[:-1]
    if not _SIZE.fullmatch(size):
        raise LedgerError(f"line 2 of the checkpoint is not a size: {size[:40]!r}; expected a decimal number")
    try:
        decoded = base64.b64decode(root, validate=True)
    except (binascii.Error, ValueError) as error:
        raise LedgerError(f"line 3 of the checkpoint is not a root: {root[:80]!r} ({error})") from error
    if base64.b64encode(decoded).decode() != root:
        raise LedgerError(f"line 3 of the checkpoint is not a root: {root[:80]!r} is not canonical base64")
    return Checkpoint(origin=origin, size=int(size), root=decoded, extensions=tuple(extensions))

"""Two signed checkpoints of one log that cannot both be true: what is said about them, and what is kept of them.

Whoever holds both notes can show anybody that the log's key signed two histories; nobody has to be believed for it.
"""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

from explorer.errors import LedgerError, RunError
from explorer.ledger.checkpoint import Checkpoint, parse_checkpoint
from explorer.note import Note
from explorer.rundir import write_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A checkpoint that somebody holds, and the one in the directory that contradicts it."""

    held: Note
    found: Note
    holder: str  # "you hold", or whose file it is
    held_signers: tuple[str, ...]  # keys of the log that have signed the one and the other
    found_signers: tuple[str, ...]
    root_then: bytes | None  # of the entries that the ledger has now, at the held size; None where there are fewer
    proof: tuple[bytes, ...] = ()  # of consistency, from `root_then` to the root of `found`

    @property
    def statement(self) -> str:
        """What happened, for people."""
        held, found = parse_checkpoint(self.held.text), parse_checkpoint(self.found.text)
        done = "rolled back" if held.size > found.size else "rewritten"
        return "\n".join(
            [
                f"the ledger of {found.origin} was {done}",
                _line(f"checkpoint {self.holder}:", held, self.held_signers),
                _line("checkpoint on disk:", found, self.found_signers),
                f"  {self._why(held, found)}",
                "  keep both notes: together they are the evidence",
            ]
        )

    @property
    def name(self) -> str:
        """A name for the directory that keeps it; the same evidence has the same name."""
        return f"ledger-evidence-{hashlib.sha256(self.held.content + self.found.content).hexdigest()[:8]}"

    def keep(self, directory: Path) -> None:
        """Write both notes, the proof and the statement. Raises `LedgerError` if that is not possible."""
        files = {"held.note": self.held.content, "found.note": self.found.content}
        files["statement.txt"] = f"{self.statement}\n".encode()
        if self.proof:
            files["consistency.txt"] = self._consistency()
        try:
            for name, content in files.items():
                write_bytes(directory / name, content)
        except RunError as error:
            raise LedgerError(str(error)) from error

    def _why(self, held: Checkpoint, found: Checkpoint) -> str:
        if held.size > found.size:
            gone = held.size - found.size
            return f"entry {found.size} is gone" if gone == 1 else f"{gone} entries are gone, from {found.size} on"
        if held.size == found.size:
            return "one log has signed two trees of the same size"
        if self.root_then is None:
            return "the second does not extend the first"
        return (
            "the second does not extend the first: "
            f"its first {held.size} entries have root {base64.b64encode(self.root_then).decode()}"
        )

    def _consistency(self) -> bytes:
        """The proof in the form in which witnesses are asked (c2sp.org/tlog-witness): old size, hashes, checkpoint."""
        hashes = "".join(f"{base64.b64encode(hash_).decode()}\n" for hash_ in self.proof)
        return f"old {parse_checkpoint(self.held.text).size}\n{hashes}\n".encode() + self.found.content


def _line(what: str, checkpoint: Checkpoint, signers: tuple[str, ...]) -> str:
    root = base64.b64encode(checkpoint.root).decode()
    return f"  {what:<22} size {checkpoint.size}  root {root}  signed by {', '.join(signers)}"

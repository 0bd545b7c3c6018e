"""Asking a witness for its cosignature over HTTP (c2sp.org/tlog-witness), and putting it into `witness/`.

The client needs to know what the witness saw last: from the note that it left here, else it says 0 and is told. What
may pass is tried again, with longer and longer waits: a witness that cannot be reached, that fails, or that was asked
by somebody else in between.
"""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from explorer import merkle, note
from explorer.errors import LedgerError, NoteError, RunError
from explorer.ledger.anchor import Anchor
from explorer.ledger.checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.read import WITNESS, LedgerDirectory
from explorer.ledger.rebuild import stored_hashes
from explorer.ledger.verify import read_checkpoint
from explorer.ledger.web import Answer, Client, UnreachableError
from explorer.ledger.witness import ADD, Request
from explorer.ledger.witnesses import note_name
from explorer.note import Note, Verified
from explorer.rundir import write_bytes

TRIES = 6
WAIT = 0.5  # seconds before the second try; twice as long before each further one
MAX_ANSWER = 100_000  # bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """A cosignature that came back, and the note that holds it."""

    checkpoint: Checkpoint
    verified: Verified
    path: Path


def submit(
    directory: Path, client: Client, *, anchor: Anchor, sleep: Callable[[float], None] = time.sleep
) -> tuple[Submitted, ...]:
    """Have the checkpoint in `directory` cosigned. The anchor knows the log and the witnesses that may answer.

    Raises `LedgerError` if the tiles do not lead to the checkpoint, if no known log has signed it, and for what the
    witness refuses: in particular where it has seen more entries, or another history.
    """
    found, checkpoint = read_checkpoint(directory)
    try:
        note.verify(found, [key.verifier for key in anchor.logs])
    except NoteError as error:
        raise LedgerError(f"{directory}: {error}") from error
    if not anchor.witnesses:
        raise LedgerError("no witness is known whose cosignature could be taken: name its key")
    root = merkle.root(checkpoint.size, stored_hashes(directory, checkpoint.size))
    if root != checkpoint.root:
        raise LedgerError(f"{directory}: its tiles lead to root {root.hex()}, signed is {checkpoint.root.hex()}")
    old = _seen_here(directory, anchor, checkpoint)
    told: set[int] = set()
    for turn in range(TRIES):
        try:
            answer = client.ask("POST", ADD, _request(directory, found, checkpoint, old).content, max_bytes=MAX_ANSWER)
        except UnreachableError:
            if turn == TRIES - 1:
                raise
            sleep(_wait(turn))
            continue
        if answer.status == 200:
            return _take(directory, found, checkpoint, answer, client, anchor)
        if answer.status == 409:
            old = _told(answer, client, checkpoint)
            if old in told:
                sleep(_wait(turn))
            told.add(old)
        elif answer.status < 500 or turn == TRIES - 1:
            raise LedgerError(f"{client.url}: the witness refused with status {answer.status}: {_words(answer)}")
        else:
            sleep(_wait(turn))
    raise LedgerError(f"{client.url}: tried {TRIES} times, and each time the witness had seen another size")


def _request(directory: Path, found: Note, checkpoint: Checkpoint, old: int) -> Request:
    hashes: tuple[bytes, ...] = ()
    if 0 < old < checkpoint.size:
        hashes = merkle.prove_consistency(old, checkpoint.size, stored_hashes(directory, checkpoint.size))
    return Request(old=old, hashes=hashes, note=found, checkpoint=checkpoint)


def _seen_here(directory: Path, anchor: Anchor, checkpoint: Checkpoint) -> int:
    """The size that a witness has cosigned last, as far as its note here tells; only a guess, which it corrects."""
    notes = LedgerDirectory(directory).witness_notes()
    sizes = [0]
    for witness in anchor.witnesses:
        left = notes.get(f"{WITNESS}/{note_name(witness.key.verifier)}")
        if left is not None:
            with suppress(LedgerError):  # no checkpoint: anybody may have put it there
                sizes.append(parse_checkpoint(left.text).size)
    return max(size for size in sizes if size <= checkpoint.size)


def _told(answer: Answer, client: Client, checkpoint: Checkpoint) -> int:
    """The size in the answer to a request with another one."""
    text = answer.body.decode("ascii", errors="replace").removesuffix("\n")
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise LedgerError(f"{client.url}: the witness says that the size is another, and not which: {text[:80]!r}")
    if int(text) > checkpoint.size:
        raise LedgerError(
            f"{client.url}: the witness has cosigned {text} entries of {checkpoint.origin}, and {checkpoint.size} are "
            "here: this ledger was rolled back, or is an older copy"
        )
    return int(text)


def _take(
    directory: Path, found: Note, checkpoint: Checkpoint, answer: Answer, client: Client, anchor: Anchor
) -> tuple[Submitted, ...]:
    """Check the cosignatures in the answer, and write a note for each witness that made one."""
    try:
        lines = note.parse(f"{found.text}\n".encode() + answer.body)
        verified = note.verify(lines, [witness.key.verifier for witness in anchor.witnesses])
    except NoteError as error:
        raise LedgerError(f"{client.url}: the answer is not the cosignature of a known witness: {error}") from error
    taken, known = [], note.of_keys(found, anchor.verifiers)
    for each in verified:
        key = each.verifier
        own = [line for line in lines.signatures if (line.name, line.key_id) == (key.name, key.key_id)]
        path = directory / WITNESS / note_name(key)
        try:
            write_bytes(path, note.with_signatures(known, own).content)
        except RunError as error:
            raise LedgerError(str(error)) from error
        taken.append(Submitted(checkpoint=checkpoint, verified=each, path=path))
    return tuple(taken)


def _words(answer: Answer) -> str:
    return answer.body[:500].decode(errors="backslashreplace").strip() or "no reason given"


def _wait(turn: int) -> float:
    """Half of it by chance, so that many who were refused at once do not come back at once."""
    return WAIT * 2**turn * random.uniform(0.5, 1.0)

"""Witnesses over HTTP (c2sp.org/tlog-witness): a server that cosigns the checkpoints of logs, and its client.

    POST /add-checkpoint                        old <size>, hashes of the consistency proof, an empty line, a checkpoint
    GET  /<SHA-256 of the origin>/checkpoint    the last checkpoint of that log, with the cosignature

    200  the cosignature, a signature line          409  the old size is another; the body says which one it is
    400  no such request, or old > new size         413  too large
    403  no key that is trusted for the log signed  422  the proof does not hold, or two roots of one size
    404  an unknown log                             500  the memory cannot be used, or the clock was set back

Reading the memory, signing and remembering are one step, and the memory is on the disk before the answer is sent: of
two concurrent requests one waits, and after a crash the memory has at least what was answered. An answer that a crash
loses can be repeated: the client that asks again learns the size (409) and gets its cosignature at that size.

The client (`submit`) puts the cosignature into `witness/`. It has to name the size that the witness saw last: it takes
it from the witness's note in the directory, or begins with 0 and learns it. Temporary failures are retried with growing
waits: a witness that cannot be reached, that fails, or that cosigned for another client in between.
"""

import base64
import binascii
import random
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path

from explorer import merkle, note
from explorer.errors import LedgerError, NoteError
from explorer.ledger import web
from explorer.ledger.cosign import Memory
from explorer.ledger.signed_checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.storage import WITNESS, LedgerDirectory, note_name, read_checkpoint, write_file
from explorer.ledger.trust_anchor import Anchor
from explorer.ledger.web import Answer, Client, UnreachableError
from explorer.merkle import HASH_BYTES
from explorer.note import Note, Verified, Verifier

# ---------------------------------------------------------------------------------------------------------- the witness

ADD = "add-checkpoint"
SIZE_TYPE = "text/x.tlog.size"
MAX_HASHES = 63
MAX_BODY = note.MAX_BYTES + 64 * 64
_OLD = re.compile(r"old (0|[1-9][0-9]{0,18})", re.ASCII)
_PATH = re.compile(r"/([0-9a-f]{64})/checkpoint")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A request to cosign a checkpoint, with a proof that it extends the last one."""

    old: int
    hashes: tuple[bytes, ...]
    note: Note
    checkpoint: Checkpoint

    @property
    def content(self) -> bytes:
        """Return the body of the request."""
        lines = "".join(f"{base64.b64encode(hash_).decode()}\n" for hash_ in self.hashes)
        return f"old {self.old}\n{lines}\n".encode() + self.note.content


def parse_request(content: bytes) -> Request:
    """Read the body of a request. Raises `LedgerError` for any other content."""
    head, gap, rest = content.partition(b"\n\n")
    if not gap or not head.isascii():
        raise LedgerError("expected a line 'old <size>', hashes in base64, an empty line, and a checkpoint")
    first, *lines = head.decode().split("\n")
    match = _OLD.fullmatch(first)
    if not match:
        raise LedgerError(f"the first line is {first[:80]!r}; expected 'old <decimal number>'")
    if len(lines) > MAX_HASHES:
        raise LedgerError(f"{len(lines)} hashes; at most {MAX_HASHES} are possible")
    try:
        checkpoint_note = note.parse(rest)
    except NoteError as error:
        raise LedgerError(str(error)) from error
    checkpoint = parse_checkpoint(checkpoint_note.text)
    return Request(old=int(match[1]), hashes=tuple(map(_hash, lines)), note=checkpoint_note, checkpoint=checkpoint)


class Witness:
    """A cosigner that answers requests. `known` returns the logs that it trusts under an origin."""

    def __init__(self, memory: Memory, known: Callable[[str], Anchor], clock: Callable[[], int]) -> None:
        self._memory, self._known, self._clock = memory, known, clock

    def respond(self, method: str, path: str, body: bytes) -> Answer:
        """Return the answer to any request."""
        if path == f"/{ADD}":
            return self.add(body) if method == "POST" else Answer(status=405, body=b"POST\n", headers={"Allow": "POST"})
        match = _PATH.fullmatch(path)
        if method != "GET" or not match:
            return Answer(status=404, body=b"no such place\n")
        remembered = self._memory.named(match[1])
        if remembered is None:
            return Answer(status=404, body=b"no checkpoint of such a log was cosigned here\n")
        return Answer(status=200, body=remembered.content, headers={"Cache-Control": "no-cache"})

    def add(self, body: bytes) -> Answer:
        """Cosign a checkpoint, or refuse with the reason."""
        try:
            asked = parse_request(body)
        except LedgerError as error:
            return _refusal(400, str(error))
        # The refusals in the order of c2sp.org/tlog-witness: unknown log, unsigned checkpoint, impossible old size.
        now = self._clock()
        logs = self._logs(asked.checkpoint.origin, now)
        if not logs:
            return _refusal(404, f"no log {asked.checkpoint.origin!r} is known here")
        try:
            note.verify(asked.note, logs)
        except NoteError as error:
            return _refusal(403, str(error))
        if asked.old > asked.checkpoint.size:
            return _refusal(400, f"old size {asked.old} is larger than the checkpoint's, {asked.checkpoint.size}")
        # From here on one request at a time: reading the memory, signing and remembering are one step.
        with self._memory.exclusive():
            self._memory.check_clock(now)
            held = self._memory.last(asked.checkpoint.origin)
            last = None if held is None else parse_checkpoint(held.text)
            if asked.old != (size := last.size if last else 0):
                return Answer(status=409, body=f"{size}\n".encode(), content_type=SIZE_TYPE)
            try:
                _check_extends(asked, last)
            except LedgerError as error:
                return _refusal(422, str(error))
            line = self._memory.own(self._memory.cosign(note.of_keys(asked.note, logs), now)).line
        return Answer(status=200, body=f"{line}\n".encode())

    def _logs(self, origin: str, now: int) -> list[Verifier]:
        """Return the keys that may sign this log now."""
        return [
            key.verifier
            for key in self._known(origin).logs
            if (key.verifier.name == origin or not note.is_name(origin)) and key.fault(now) is None
        ]


def start(witness: Witness, port: int) -> ThreadingHTTPServer:
    """Return a server of the witness on 127.0.0.1."""
    return web.serve(port, witness.respond, max_body=MAX_BODY)


def _check_extends(asked: Request, last: Checkpoint | None) -> None:
    """Raise `LedgerError` unless the proof shows that the checkpoint extends the last one."""
    new = asked.checkpoint
    # The empty tree and the same tree are extended without a proof.
    if last is None or last.size in (0, new.size):
        if asked.hashes:
            raise LedgerError(
                f"{len(asked.hashes)} hashes of a proof from size {asked.old} to {new.size}, expected none"
            )
        if last is not None and last.size == new.size and last.root != new.root:
            raise LedgerError(f"another root of size {new.size} was cosigned here: {last.root.hex()}")
        return
    merkle.check_consistency(asked.hashes, old_size=last.size, old_root=last.root, new_size=new.size, new_root=new.root)


def _hash(line: str) -> bytes:
    try:
        decoded = base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError) as error:
        raise LedgerError(f"a hash is not base64: {line[:80]!r}") from error
    if len(decoded) != HASH_BYTES or base64.b64encode(decoded).decode() != line:
        raise LedgerError(f"not a hash: {line[:80]!r}; expected {HASH_BYTES} bytes in canonical base64")
    return decoded


def _refusal(status: int, why: str) -> Answer:
    return Answer(status=status, body=f"{why}\n".encode(errors="backslashreplace"))


# ----------------------------------------------------------------------------------------------------------- the client

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
    """Have the checkpoint in `directory` cosigned. The anchor names the log and the witnesses that may answer.

    Raises `LedgerError` if the tiles do not lead to the checkpoint, if no known log has signed it, and if the witness
    refuses, in particular because it has seen more entries or another history.
    """
    own_note, checkpoint = read_checkpoint(directory)
    try:
        note.verify(own_note, [key.verifier for key in anchor.logs])
    except NoteError as error:
        raise LedgerError(f"{directory}: {error}") from error
    if not anchor.witnesses:
        raise LedgerError("no witness is trusted, so no cosignature could be checked: name its key")
    # A damaged tree is noticed here, before the witness remembers a checkpoint that no proof can extend.
    root = merkle.root(checkpoint.size, LedgerDirectory(directory).hashes(checkpoint.size))
    if root != checkpoint.root:
        raise LedgerError(f"{directory}: its tiles lead to root {root.hex()}, signed is {checkpoint.root.hex()}")
    # The witness corrects the guess with 409. A size that it has named before means that another client is cosigning in
    # between, so that waiting helps; a new size is tried at once.
    old = _seen_here(directory, anchor, checkpoint)
    tried: set[int] = set()
    for turn in range(TRIES):
        try:
            answer = client.ask(
                "POST", ADD, _request(directory, own_note, checkpoint, old).content, max_bytes=MAX_ANSWER
            )
        except UnreachableError:
            if turn == TRIES - 1:
                raise
            sleep(_wait(turn))
            continue
        if answer.status == 200:
            return _take(directory, own_note, checkpoint, answer, client, anchor)
        if answer.status == 409:
            old = _size_in(answer, client, checkpoint)
            if old in tried:
                sleep(_wait(turn))
            tried.add(old)
        elif answer.status < 500 or turn == TRIES - 1:
            raise LedgerError(f"{client.url}: the witness refused with status {answer.status}: {_words(answer)}")
        else:
            sleep(_wait(turn))
    raise LedgerError(f"{client.url}: tried {TRIES} times, and each time the witness had seen another size")


def _request(directory: Path, own_note: Note, checkpoint: Checkpoint, old: int) -> Request:
    hashes: tuple[bytes, ...] = ()
    if 0 < old < checkpoint.size:
        hashes = merkle.prove_consistency(old, checkpoint.size, LedgerDirectory(directory).hashes(checkpoint.size))
    return Request(old=old, hashes=hashes, note=own_note, checkpoint=checkpoint)


def _seen_here(directory: Path, anchor: Anchor, checkpoint: Checkpoint) -> int:
    """Return the size that a witness cosigned last, by its note in the directory; it may have cosigned more since."""
    notes = LedgerDirectory(directory).witness_notes()
    sizes = [0]
    for witness in anchor.witnesses:
        left = notes.get(f"{WITNESS}/{note_name(witness.key.verifier)}")
        if left is not None:
            with suppress(LedgerError):  # not a checkpoint: anyone may have put it there
                sizes.append(parse_checkpoint(left.text).size)
    return max(size for size in sizes if size <= checkpoint.size)


def _size_in(answer: Answer, client: Client, checkpoint: Checkpoint) -> int:
    """Return the size that the witness names when it refuses another one (409)."""
    text = answer.body.decode("ascii", errors="replace").removesuffix("\n")
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise LedgerError(f"{client.url}: the witness refused the size: found {text[:80]!r}, expected its own size")
    if int(text) > checkpoint.size:
        raise LedgerError(
            f"{client.url}: the witness has cosigned {text} entries of {checkpoint.origin}, but {checkpoint.size} are "
            "here: this ledger was rolled back, or is an older copy"
        )
    return int(text)


def _take(
    directory: Path, own_note: Note, checkpoint: Checkpoint, answer: Answer, client: Client, anchor: Anchor
) -> tuple[Submitted, ...]:
    """Check the cosignatures in the answer, and write a note for each witness that made one."""
    try:
        lines = note.parse(f"{own_note.text}\n".encode() + answer.body)
        verified = note.verify(lines, [witness.key.verifier for witness in anchor.witnesses])
    except NoteError as error:
        raise LedgerError(f"{client.url}: the answer is not the cosignature of a known witness: {error}") from error
    taken, known = [], note.of_keys(own_note, anchor.verifiers)
    # Only lines of known keys are kept: a witness cannot fill the note with others.
    for cosignature in verified:
        key = cosignature.verifier
        own = [line for line in lines.signatures if (line.name, line.key_id) == (key.name, key.key_id)]
        path = directory / WITNESS / note_name(key)
        write_file(path, note.with_signatures(known, own).content)
        taken.append(Submitted(checkpoint=checkpoint, verified=cosignature, path=path))
    return tuple(taken)


def _words(answer: Answer) -> str:
    return answer.body[:500].decode(errors="backslashreplace").strip() or "no reason given"


def _wait(turn: int) -> float:
    """Return the seconds to wait, with a random part: clients that were refused together should not return together."""
    return WAIT * 2**turn * random.uniform(0.5, 1.0)

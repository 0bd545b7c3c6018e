"""A witness over HTTP (c2sp.org/tlog-witness): it cosigns checkpoints of logs that it knows, each extending the last.

    POST /add-checkpoint                        old <size>, hashes of the consistency proof, an empty line, a checkpoint
    GET  /<SHA-256 of the origin>/checkpoint    the last checkpoint of that log, with the cosignature

    200  the cosignature, a signature line          409  the old size is another; the body says which one it is
    400  no such request, or old > new size         413  too large
    403  no key that is trusted for the log signed  422  the proof does not hold, or two roots of one size
    404  a log that is not known here               500  the memory cannot be used, or the clock was set back

Looking into the memory, signing and remembering are one step, and what is remembered is on the disk before it is
answered: of two requests at a time one waits, and after a crash the memory knows at least what was answered. The answer
of a crash is lost, and the client that asks again is told the size (409) and gets its cosignature at that size.
"""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from http.server import ThreadingHTTPServer

from explorer import merkle, note
from explorer.errors import LedgerError, NoteError
from explorer.ledger import web
from explorer.ledger.anchor import Anchor
from explorer.ledger.checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.memory import Memory
from explorer.ledger.web import Answer
from explorer.merkle import HASH_BYTES
from explorer.note import Note, Verifier

ADD = "add-checkpoint"
SIZE_TYPE = "text/x.tlog.size"
MAX_HASHES = 63
MAX_BODY = note.MAX_BYTES + 64 * 64
_OLD = re.compile(r"old (0|[1-9][0-9]{0,18})", re.ASCII)
_PATH = re.compile(r"/([0-9a-f]{64})/checkpoint")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a client asks to have cosigned."""

    old: int
    hashes: tuple[bytes, ...]
    note: Note
    checkpoint: Checkpoint

    @property
    def content(self) -> bytes:
        """The body of the request."""
        lines = "".join(f"{base64.b64encode(hash_).decode()}\n" for hash_ in self.hashes)
        return f"old {self.old}\n{lines}\n".encode() + self.note.content


def parse_request(content: bytes) -> Request:
    """Read the body of a request. Raises `LedgerError` for what is none."""
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
        found = note.parse(rest)
    except NoteError as error:
        raise LedgerError(str(error)) from error
    checkpoint = parse_checkpoint(found.text)
    return Request(old=int(match[1]), hashes=tuple(map(_hash, lines)), note=found, checkpoint=checkpoint)


class Witness:
    """A cosigner that answers requests. `known` gives the logs that it believes under an origin."""

    def __init__(self, memory: Memory, known: Callable[[str], Anchor], clock: Callable[[], int]) -> None:
        self._memory, self._known, self._clock = memory, known, clock

    def respond(self, method: str, path: str, body: bytes) -> Answer:
        """The answer to any request."""
        if path == f"/{ADD}":
            return self.add(body) if method == "POST" else Answer(status=405, body=b"POST\n", headers={"Allow": "POST"})
        match = _PATH.fullmatch(path)
        if method != "GET" or not match:
            return Answer(status=404, body=b"no such place\n")
        found = self._memory.named(match[1])
        if found is None:
            return Answer(status=404, body=b"no checkpoint of such a log was cosigned here\n")
        return Answer(status=200, body=found.content, headers={"Cache-Control": "no-cache"})

    def add(self, body: bytes) -> Answer:
        """Cosign a checkpoint, or say why not."""
        try:
            asked = parse_request(body)
        except LedgerError as error:
            return _refusal(400, str(error))
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
        with self._memory.alone():
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
        """The keys that may sign this log now."""
        return [
            key.verifier
            for key in self._known(origin).logs
            if (key.verifier.name == origin or not note.is_name(origin)) and key.fault(now) is None
        ]


def start(witness: Witness, port: int) -> ThreadingHTTPServer:
    """The witness as a server on 127.0.0.1."""
    return web.serve(port, witness.respond, max_body=MAX_BODY)


def _check_extends(asked: Request, last: Checkpoint | None) -> None:
    """Raise `LedgerError` unless the checkpoint extends the last one, by the proof."""
    new = asked.checkpoint
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
        found = base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError) as error:
        raise LedgerError(f"a hash is not base64: {line[:80]!r}") from error
    if len(found) != HASH_BYTES or base64.b64encode(found).decode() != line:
        raise LedgerError(f"not a hash: {line[:80]!r}; expected {HASH_BYTES} bytes in canonical base64")
    return found


def _refusal(status: int, why: str) -> Answer:
    return Answer(status=status, body=f"{why}\n".encode(errors="backslashreplace"))

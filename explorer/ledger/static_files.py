"""The public form of a ledger (c2sp.org/tlog-tiles): written as static files, served, and read over HTTP.

All files are derived from the entries, which have to lead to the signed root: a damaged ledger is not exported. The
checkpoint carries the cosignatures that `witness/` holds for it. Blobs, notes of witnesses and all other files that
tlog-tiles does not define are left out.
"""

import gzip
import os
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

from explorer import merkle
from explorer.errors import LedgerError, RunError
from explorer.ledger import web
from explorer.ledger.edge import Edge
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory, list_names, read_checkpoint, read_file, write_file
from explorer.ledger.tiles import TILE, Bundle, Tile, belongs, bundles, encode_bundle, parse_path
from explorer.ledger.web import BYTES, Answer, Client
from explorer.merkle import HASH_BYTES
from explorer.note import Note
from explorer.rundir import write_bytes

FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}  # tiles never change
BRIEFLY = {"Cache-Control": "no-cache"}  # the checkpoint does, at every commit


def export(directory: Path, target: Path) -> int:
    """Write the files of tlog-tiles to `target`, the checkpoint last; return how many files were new.

    A target with an earlier state of the same log is brought up to date: full tiles are never written again, partial
    ones stay until the full one is there. Raises `LedgerError` for a ledger whose entries do not lead to its
    checkpoint, and for a target with anything else, or with a later state.
    """
    ledger = LedgerDirectory(directory)
    checkpoint = ledger.checkpoint()
    size = checkpoint.size
    before = _before(target, ledger)
    # Everything is derived from the entries. Bundles first, with the tiles that they fill; then the partial tiles.
    written = 0
    edge = Edge()
    for bundle in bundles(size):
        entries = ledger.bundle(bundle)
        made: list[tuple[Tile | Bundle, bytes]] = [(bundle, encode_bundle(entries))]
        made += edge.add(merkle.leaf_hashes(entries))
        if bundle.width < TILE:
            made += [(file, encode_bundle(entries[: file.width])) for file in _narrower(ledger, bundle)]
        written += sum(_write_new(target, file, content) for file, content in made)
    for tile, content in edge.partial():
        made = [(tile, content)]
        made += [(file, content[: file.width * HASH_BYTES]) for file in _narrower(ledger, tile)]
        written += sum(_write_new(target, file, content) for file, content in made)
    # The checkpoint last: until then a reader of the target sees its earlier state.
    if (root := edge.root()) != checkpoint.root:
        raise LedgerError(f"{directory}: its entries lead to root {root.hex()}, signed is {checkpoint.root.hex()}")
    write_file(target / CHECKPOINT, ledger.note().content)
    for path in list(_needless(target, before)):
        path.unlink()
    return written


class Site:
    """A ledger's directory, served over HTTP while a writer may append to it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        read_checkpoint(directory)  # refuses a directory without a ledger now, and not at the first request

    def respond(self, method: str, path: str, body: bytes) -> Answer:
        """Return the answer to any request."""
        if method != "GET":
            return Answer(status=405, body=b"GET\n", headers={"Allow": "GET, HEAD"})
        ledger = LedgerDirectory(self._directory)
        if path == f"/{CHECKPOINT}":
            return Answer(status=200, body=ledger.note().content, headers=BRIEFLY)
        # Files beyond the checkpoint are withheld: they are not signed yet, and may never be.
        file = parse_path(path.removeprefix("/"))
        if file is None or not belongs(file, read_checkpoint(self._directory)[1].size):
            return Answer(status=404, body=b"no such file of this log\n")
        if isinstance(file, Tile):
            return Answer(status=200, body=ledger.tile(file), content_type=BYTES, headers=FOR_EVER)
        content = gzip.compress(encode_bundle(ledger.bundle(file)), mtime=0)
        headers = {**FOR_EVER, "Content-Encoding": "gzip"}  # "Logs MAY use gzip with no negotiation"
        return Answer(status=200, body=content, content_type=BYTES, headers=headers)


def serve(directory: Path, port: int) -> ThreadingHTTPServer:
    """Return a server of the ledger on 127.0.0.1.

    Raises `LedgerError` if there is no ledger, or the port is not available.
    """
    return web.serve(port, Site(directory).respond)


class RemoteLedger(LedgerDirectory):
    """A log that is served as tlog-tiles requires. It has no blobs and no notes of witnesses."""

    def __init__(self, client: Client) -> None:
        super().__init__(Path(client.url.partition("://")[2]))  # for messages
        self._client = client

    def _content(self, relative: str, max_bytes: int) -> bytes | None:
        answer = self._client.ask("GET", relative, max_bytes=max_bytes)
        if answer.status in (404, 410):
            return None
        if answer.status != 200:
            raise LedgerError(f"{self._client.url}/{relative}: status {answer.status}")
        return answer.body

    def witness_notes(self) -> dict[str, Note]:
        """Return no notes: the cosignatures of witnesses are in the served checkpoint."""
        return {}

    def _wider(self, file: Tile | Bundle) -> list[Tile | Bundle]:
        return []  # a server lists no names


def _before(target: Path, ledger: LedgerDirectory) -> int:
    """Return the size of the state that was exported there before, 0 for none. It has to be an earlier state of this
    log."""
    checkpoint = ledger.checkpoint()
    content = read_file(target, CHECKPOINT, max_bytes=2**20) if target.exists() else None
    if content is None:
        if target.exists() and any(target.iterdir()):
            raise LedgerError(f"{target}: not empty, and no log was exported there; name another directory")
        return 0
    _, exported = read_checkpoint(target)
    if exported.origin != checkpoint.origin:
        raise LedgerError(f"{target}: holds another log, {exported.origin!r}; this one is {checkpoint.origin!r}")
    if exported.size > checkpoint.size or merkle.root(exported.size, ledger.read_hashes) != exported.root:
        raise LedgerError(
            f"{target}: the log exported there, {exported.size} entries with root {exported.root.hex()}, is no "
            f"earlier state of this ledger of {checkpoint.size}: one of them was rolled back or rewritten"
        )
    return exported.size


def _narrower(ledger: LedgerDirectory, file: Tile | Bundle) -> list[Tile | Bundle]:
    """Return the partials of earlier checkpoints that the ledger still has of a file at its edge."""
    names = list_names(ledger.path, file.path.rpartition("/")[0])
    widths = [width for width in range(1, file.width) if str(width) in names]
    return [file._replace(width=width) for width in widths]


def _write_new(target: Path, file: Tile | Bundle, content: bytes) -> bool:
    path = target / file.path
    try:
        if path.exists():
            if path.read_bytes() != content:
                raise LedgerError(f"{path}: exists with another content than the entries give")
            return False
        write_bytes(path, content)
    except (RunError, OSError) as error:
        raise LedgerError(f"cannot write {path}: {error}") from error
    return True


def _needless(target: Path, size: int) -> Iterator[Path]:
    """Yield partials whose full file was published before, at this size: no reader needs them any more."""
    for parent, _, names in os.walk(target / "tile"):
        for path in (Path(parent) / name for name in names):
            file = parse_path(path.relative_to(target).as_posix())
            if file is not None and file.width < TILE and belongs(file._replace(width=TILE), size):
                yield path

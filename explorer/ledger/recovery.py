"""What opening a ledger for writing finds in its directory, and how it is brought to its signed checkpoint.

This runs at every opening; a crash makes it find more, not do something else.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from explorer import merkle, note
from explorer.errors import LedgerError, NoteError
from explorer.ledger.checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.durable import flush
from explorer.ledger.edge import Edge
from explorer.ledger.files import list_names, read_file
from explorer.ledger.read import CHECKPOINT, LedgerDirectory
from explorer.ledger.tiles import TILE, Bundle, Tile, belongs, encode_bundle, parse_path
from explorer.note import Verifier

UNSIGNED = "unsigned"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovered:
    """A directory that holds what its checkpoint covers, and partials of earlier checkpoints."""

    checkpoint: Checkpoint
    content: bytes  # of the file `checkpoint`
    superseded: tuple[str, ...]  # partials that wider files have replaced


def recover(directory: Path, verifier: Verifier) -> Recovered:
    """Bring the directory to its checkpoint, which has to be signed by this key. The caller holds the lock.

    A checkpoint that was signed and not yet in place is put in place. Tiles and bundles beyond the checkpoint were
    never signed and never acknowledged: they are moved to `unsigned/<n>/`, since they may also be what is left of a
    ledger whose checkpoint somebody has rolled back. Raises `LedgerError` if a witness has seen a later checkpoint.
    """
    _finish_signing(directory, verifier)
    content = _read(directory, CHECKPOINT)
    if content is None:
        raise LedgerError(f"{directory}: no ledger is kept here: the file {CHECKPOINT!r} is missing")
    checkpoint = _own_checkpoint(content, verifier, where=str(directory / CHECKPOINT))
    _refuse_rolled_back(directory, checkpoint, verifier)
    beyond: list[str] = []
    superseded: list[str] = []
    for path, file in _stored(directory):
        if not belongs(file, checkpoint.size):
            beyond.append(path)
        elif not _current(file, checkpoint.size):
            superseded.append(path)
    _set_aside(directory, beyond)
    return Recovered(checkpoint=checkpoint, content=content, superseded=tuple(superseded))


def load_edge(directory: Path, checkpoint: Checkpoint) -> tuple[Edge, bytearray]:
    """The right edge and the entries of the partial bundle, checked against the signed root."""
    stored = LedgerDirectory(directory)
    edge = Edge.load(checkpoint.size, stored.tile)
    if (found := edge.root()) != checkpoint.root:
        raise LedgerError(
            f"{directory}: the tiles at the edge are damaged: they lead to root {found.hex()} at size "
            f"{checkpoint.size}, signed is {checkpoint.root.hex()}"
        )
    number, width = divmod(checkpoint.size, TILE)
    entries = stored.bundle(Bundle(number, width)) if width else []
    if merkle.leaf_hashes(entries) != edge.leaves():
        raise LedgerError(f"{directory / Bundle(number, width).path}: damaged: not the entries that were signed")
    return edge, bytearray(encode_bundle(entries))


def _finish_signing(directory: Path, verifier: Verifier) -> None:
    """Put a later checkpoint in place whose writer died between signing it and renaming it.

    Its tree is on the disk, as nothing is signed before that; and never is another tree signed in its stead. The name
    is the one that `rundir.write_bytes` gives a file before it renames it.
    """
    for name in list_names(directory, "."):
        if not (name.startswith(f".{CHECKPOINT}.") and name.endswith(".tmp")):
            continue
        if _is_later(_read(directory, name), directory, verifier):
            flush(directory / name)
            _move(directory / name, directory / CHECKPOINT)
            flush(directory)
        else:
            _set_aside(directory, [name])


def _is_later(content: bytes | None, directory: Path, verifier: Verifier) -> bool:
    """Whether this is a whole checkpoint of ours that is larger than the one in place."""
    present = _read(directory, CHECKPOINT)
    if content is None or present is None:
        return False
    try:
        found = _own_checkpoint(content, verifier, where="")
    except LedgerError:
        return False  # written in part only: no signature of ours
    return found.size > _own_checkpoint(present, verifier, where=str(directory / CHECKPOINT)).size


def _own_checkpoint(content: bytes, verifier: Verifier, *, where: str) -> Checkpoint:
    try:
        signed = note.parse(content)
        note.verify(signed, [verifier])
        checkpoint = parse_checkpoint(signed.text)
    except (NoteError, LedgerError) as error:
        raise LedgerError(f"{where}: {error}") from error
    if checkpoint.origin != verifier.name:
        raise LedgerError(f"{where}: a ledger of {checkpoint.origin!r}, the key is of {verifier.name!r}")
    return checkpoint


def _refuse_rolled_back(directory: Path, checkpoint: Checkpoint, verifier: Verifier) -> None:
    """Raise `LedgerError` if a witness holds a checkpoint of this key that the present one does not extend."""
    stored = LedgerDirectory(directory)
    for path, seen in stored.witness_notes().items():
        try:
            note.verify(seen, [verifier])
        except NoteError:
            continue  # not of this key: it says nothing about what this key has signed
        found = parse_checkpoint(seen.text)
        if found.origin != checkpoint.origin:
            continue
        if found.size > checkpoint.size or merkle.root(found.size, stored.read_hashes) != found.root:
            raise LedgerError(
                f"the ledger of {checkpoint.origin} was rolled back or rewritten\n"
                f"  {directory / path}: size {found.size}  root {found.root.hex()}\n"
                f"  {directory / CHECKPOINT}: size {checkpoint.size}  root {checkpoint.root.hex()}\n"
                "  the second does not extend the first, and this ledger's key has signed both\n"
                "  keep both notes: together they are the evidence"
            )


def _stored(directory: Path) -> Iterator[tuple[str, Tile | Bundle]]:
    """Every tile and bundle in the directory; files with other names are not ours and stay where they are.

    On the way every directory is flushed: one that a killed writer made may not be on the disk yet.
    """
    for parent, _, names in os.walk(directory / "tile", onerror=_refuse):
        flush(Path(parent))
        below = Path(parent).relative_to(directory).as_posix()
        for path in (f"{below}/{name}" for name in names):
            if (file := parse_path(path)) is not None:
                yield path, file


def _current(file: Tile | Bundle, size: int) -> bool:
    """Whether a file that belongs to the tree is of this size: full, or as wide as the edge."""
    return not belongs(file._replace(width=file.width + 1), size) or file.width == TILE


def _set_aside(directory: Path, paths: list[str]) -> None:
    if not paths:
        return
    fresh = next(place for n in count(1) if not (place := directory / UNSIGNED / str(n)).exists())
    for path in paths:
        _move(directory / path, fresh / path)


def _move(path: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
    except OSError as error:
        raise LedgerError(f"cannot move {path} to {target}: {error.strerror or error}") from error


def _read(directory: Path, name: str) -> bytes | None:
    return read_file(directory, name, max_bytes=note.MAX_BYTES)


def _refuse(error: OSError) -> None:
    if isinstance(error, FileNotFoundError):
        return  # a ledger without entries has no tiles
    raise LedgerError(f"cannot read {error.filename}: {error.strerror or error}") from error

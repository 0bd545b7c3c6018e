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
from explorer.ledger.rebuild import stored_hashes
from explorer.ledger.tiles import TILE, Bundle, Tile, belongs, encode_bundle, parse_path
from explorer.note import Verifier
from explorer.rundir import make_directory

UNSIGNED = "unsigned"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovered:
    """A directory that holds what its checkpoint covers."""

    checkpoint: Checkpoint
    content: bytes  # of the file `checkpoint`
    partials: tuple[Tile | Bundle, ...]  # that are there: of the edge, and of earlier checkpoints


def recover(directory: Path, verifier: Verifier) -> Recovered:
    """Bring the directory to its checkpoint, which has to be signed by this key. The caller holds the lock.

    A checkpoint that was signed and not yet in place is put in place. Tiles and bundles beyond the checkpoint were
    never signed and never acknowledged: they are moved to `unsigned/<n>/`, since they may also be what is left of a
    ledger whose checkpoint somebody has rolled back. Nothing is replaced or moved before the tree that is to stay has
    been compared with its signed root. Raises `LedgerError` if it does not agree, and if this key has signed another
    history, as a witness's note or a checkpoint that was not yet in place shows.
    """
    _finish_signing(directory, verifier)
    content = _read(directory, CHECKPOINT)
    if content is None:
        raise LedgerError(f"{directory}: no ledger is kept here: the file {CHECKPOINT!r} is missing")
    checkpoint = _own_checkpoint(content, verifier, where=str(directory / CHECKPOINT))
    _refuse_rolled_back(directory, checkpoint, verifier)
    load_edge(directory, checkpoint)
    beyond: list[str] = []
    partials: list[Tile | Bundle] = []
    for path, file in _stored(directory):
        if not belongs(file, checkpoint.size):
            beyond.append(path)
        elif file.width < TILE:
            partials.append(file)
    _set_aside(directory, beyond)
    return Recovered(checkpoint=checkpoint, content=content, partials=tuple(partials))


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

    Its tree is on the disk, as nothing is signed before that: where it is not, or does not extend the checkpoint in
    place, this key has signed two histories, or the directory is an older copy. Nothing is replaced then, and no other
    tree is signed in its stead. The name is the one that `rundir.write_bytes` gives a file before it renames it.
    """
    for name in list_names(directory, "."):
        if not (name.startswith(f".{CHECKPOINT}.") and name.endswith(".tmp")):
            continue
        signed, present = _signed(_read(directory, name), verifier), _read(directory, CHECKPOINT)
        if signed is None or present is None:
            _set_aside(directory, [name])
            continue
        checkpoint = _own_checkpoint(present, verifier, where=str(directory / CHECKPOINT))
        old, new = sorted((checkpoint, signed), key=lambda each: each.size)
        try:
            load_edge(directory, new)
            hashes = stored_hashes(directory, new.size)
            proof = merkle.prove_consistency(old.size, new.size, hashes) if old.size else ()
            if old.size:
                merkle.check_consistency(
                    proof, old_size=old.size, old_root=old.root, new_size=new.size, new_root=new.root
                )
        except LedgerError as error:
            raise _two_histories(directory, name, signed, checkpoint, why=f"  {error}\n") from error
        if signed.size > checkpoint.size:
            flush(directory / name)
            _move(directory / name, directory / CHECKPOINT)
            flush(directory)
        else:
            _set_aside(directory, [name])


def _signed(content: bytes | None, verifier: Verifier) -> Checkpoint | None:
    """The checkpoint of ours that this is, or None: it was written in part only, and bears no signature of ours."""
    try:
        return None if content is None else _own_checkpoint(content, verifier, where="")
    except LedgerError:
        return None


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
            raise _two_histories(directory, path, found, checkpoint)


def _two_histories(directory: Path, path: str, found: Checkpoint, checkpoint: Checkpoint, why: str = "") -> LedgerError:
    return LedgerError(
        f"the ledger of {checkpoint.origin} was rolled back or rewritten\n"
        f"  {directory / path}: size {found.size}  root {found.root.hex()}\n"
        f"  {directory / CHECKPOINT}: size {checkpoint.size}  root {checkpoint.root.hex()}\n"
        f"{why}  the second does not extend the first, and this ledger's key has signed both\n"
        "  keep both notes: together they are the evidence"
    )


def _stored(directory: Path) -> Iterator[tuple[str, Tile | Bundle]]:
    """Every tile and bundle in the directory; files with other names are not ours and stay where they are.

    On the way every directory is flushed, those that blobs stand in too: one that a killed writer made may not be on
    the disk yet.
    """
    for place in (directory, directory / "blobs", directory / "blobs/sha256"):
        if place.is_dir():
            flush(place)
    for parent, _, names in os.walk(directory / "tile", onerror=_refuse):
        flush(Path(parent))
        below = Path(parent).relative_to(directory).as_posix()
        for path in (f"{below}/{name}" for name in names):
            if (file := parse_path(path)) is not None:
                yield path, file


def _set_aside(directory: Path, paths: list[str]) -> None:
    if not paths:
        return
    fresh = next(place for n in count(1) if not (place := directory / UNSIGNED / str(n)).exists())
    for path in paths:
        _move(directory / path, fresh / path)


def _move(path: Path, target: Path) -> None:
    try:
        make_directory(target.parent)
        path.replace(target)
    except OSError as error:
        raise LedgerError(f"cannot move {path} to {target}: {error.strerror or error}") from error


def _read(directory: Path, name: str) -> bytes | None:
    return read_file(directory, name, max_bytes=note.MAX_BYTES)


def _refuse(error: OSError) -> None:
    if isinstance(error, FileNotFoundError):
        return  # a ledger without entries has no tiles
    raise LedgerError(f"cannot read {error.filename}: {error.strerror or error}") from error

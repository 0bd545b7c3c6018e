"""Reading of a ledger's directory, which others may have filled: bounded, following no link, verifying nothing.

files       `read_file`, `list_names`
blobs       content too large for an entry, at blobs/sha256/<first two digits>/<digest>; an entry that names the
            digest thereby authenticates the blob. A blob is written once and never changed
the ledger  `LedgerDirectory`: checkpoint, hashes, entries, notes of witnesses
"""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from explorer import merkle
from explorer.errors import LedgerError, NoteError, RunError
from explorer.ledger.signed_checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.tiles import MAX_BUNDLE, TILE, Bundle, Tile, decode_bundle, slots, split_bundle, tile_of
from explorer.merkle import HASH_BYTES, Place
from explorer.note import MAX_BYTES as MAX_NOTE
from explorer.note import MAX_SIGNATURES, Note, Verifier, parse, with_signatures
from explorer.rundir import flush_directory, write_bytes

UNSIGNED = "unsigned"  # files beyond the checkpoint that a writer met when it opened the ledger
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # non-blocking: a pipe must not block the open
_DIRECTORY = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


def read_file(directory: Path, relative: str, *, max_bytes: int) -> bytes | None:
    """Return the content of a file below the directory, or None if there is no such file.

    Raises `LedgerError` that names the file if it is larger than `max_bytes`, not a regular file, a link or reached
    through one.
    """
    path = directory / relative
    try:
        descriptor = _open(directory, relative, _FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError(f"{path}: not a regular file")
        if status.st_size > max_bytes:
            raise LedgerError(f"{path}: {status.st_size} bytes, expected at most {max_bytes}")
        return os.read(descriptor, status.st_size)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all. Raises `LedgerError` if the disk refuses."""
    try:
        write_bytes(path, content)
    except RunError as error:
        raise LedgerError(str(error)) from error


def list_names(directory: Path, relative: str) -> list[str]:
    """Return the sorted names in a directory below `directory`; none if it does not exist.

    Raises `LedgerError` if it cannot be listed, or is a link or reached through one.
    """
    try:
        descriptor = _open(directory, relative, _DIRECTORY)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(directory / relative, error) from error
    try:
        return sorted(os.listdir(descriptor))  # noqa: PTH208 (a path cannot be a descriptor)
    except OSError as error:
        raise _unreadable(directory / relative, error) from error
    finally:
        os.close(descriptor)


def _open(directory: Path, relative: str, flags: int) -> int:
    """Open a path step by step, so that only `directory` itself may lead through links."""
    *parents, name = relative.split("/")
    at = os.open(directory, _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        for parent in parents:
            inner = os.open(parent, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(name, flags, dir_fd=at)
    finally:
        os.close(at)


def _unreadable(path: Path, error: OSError) -> LedgerError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return LedgerError(f"cannot read {path}: a link, or below something that is no directory; links are refused")
    return LedgerError(f"cannot read {path}: {error.strerror or error}")


# ---------------------------------------------------------------------------------------------------------------- blobs

MAX_BLOB = 2**30
_DIGEST = re.compile(r"[0-9a-f]{64}")


def blob_path(digest: str) -> str:
    """Return the path of a blob below the ledger's directory. Raises `LedgerError` for what is no digest."""
    if not _DIGEST.fullmatch(digest):
        raise LedgerError(f"not a digest: {digest[:80]!r}; expected 64 hexadecimal digits in lower case")
    return f"blobs/sha256/{digest[:2]}/{digest}"


def write_blob(directory: Path, content: bytes) -> str:
    """Store the content and return its digest; it is on the disk when this returns. Storing it again does nothing.

    Raises `LedgerError` if it is larger than 1 GiB, if the disk refuses, or if what is stored there is damaged.
    """
    if len(content) > MAX_BLOB:
        raise LedgerError(f"a blob of {len(content)} bytes; at most {MAX_BLOB} are stored")
    digest = hashlib.sha256(content).hexdigest()
    path = directory / blob_path(digest)
    try:
        if _read(directory, digest) is None:
            write_bytes(path, content)
        else:
            # Stored before, perhaps by a writer that died before the names on the way were on the disk.
            for parent in list(path.parents)[:4]:
                flush_directory(parent)
    except RunError as error:
        raise LedgerError(str(error)) from error
    except OSError as error:
        raise LedgerError(f"cannot write {path}: {error.strerror or error}") from error
    return digest


def read_blob(directory: Path, digest: str) -> bytes:
    """Return the content with this digest. Raises `LedgerError` if it is missing or damaged."""
    content = _read(directory, digest)
    if content is None:
        raise LedgerError(f"{directory / blob_path(digest)}: the blob is missing")
    return content


def _read(directory: Path, digest: str) -> bytes | None:
    content = read_file(directory, blob_path(digest), max_bytes=MAX_BLOB)
    if content is not None and (actual := hashlib.sha256(content).hexdigest()) != digest:
        raise LedgerError(f"{directory / blob_path(digest)}: the blob is damaged: its digest is {actual}")
    return content


# -------------------------------------------------------------------------------------------- the ledger in a directory

CHECKPOINT = "checkpoint"
WITNESS = "witness"
MAX_WITNESSES = 100  # notes that are read; anyone may put more there
_OWN_NAME = re.compile(r".+\+[0-9a-f]{8}\.note")  # as `note_name` gives it


def read_checkpoint(directory: Path) -> tuple[Note, Checkpoint]:
    """Return the ledger's checkpoint, none of its signatures checked. Raises `LedgerError` that names the file."""
    content = read_file(directory, CHECKPOINT, max_bytes=MAX_NOTE)
    if content is None:
        raise LedgerError(f"{directory}: no ledger is kept here: the file {CHECKPOINT!r} is missing")
    try:
        note = parse(content)
        return note, parse_checkpoint(note.text)
    except (LedgerError, NoteError) as error:
        raise LedgerError(f"{directory / CHECKPOINT}: {error}") from error


def note_name(verifier: Verifier) -> str:
    """Return the file name of a cosigner's note; the key id distinguishes names that become the same here."""
    return f"{re.sub(r'^[.]|[^A-Za-z0-9.-]', '_', verifier.name)}+{verifier.key_id.hex()}.note"


def list_notes(directory: Path, first: Collection[str] = ()) -> tuple[list[str], int]:
    """Return the paths of the notes in `witness/` that are read, 100 of them at most, and how many more there are.

    Those named in `first` come first, then those with names as `note_name` gives them. Raises `LedgerError` if the
    directory cannot be listed.
    """
    names = [name for name in list_names(directory, WITNESS) if name.endswith(".note") and name[0] != "."]
    names.sort(key=lambda name: (name not in first, not _OWN_NAME.fullmatch(name), name))
    return [f"{WITNESS}/{name}" for name in names[:MAX_WITNESSES]], max(len(names) - MAX_WITNESSES, 0)


class LedgerDirectory:
    """A ledger in the state in which its checkpoint was first read; a concurrent writer does not disturb the reader.

    Where a partial tile or bundle is gone because the log has grown, its content is read from the wider one. Every
    method raises `LedgerError` that names the file when it is missing, too large or not of its form.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._note: Note | None = None
        self._checkpoint: Checkpoint | None = None

    def note(self) -> Note:
        """Return the signed checkpoint, with the cosignatures in `witness/` of the same text, unchecked."""
        if self._note is None:
            own = self._read_note(CHECKPOINT)
            same = [other for other in self.witness_notes().values() if other.text == own.text]
            merged = with_signatures(own, [signature for other in same for signature in other.signatures])
            self._note = Note(text=merged.text, signatures=merged.signatures[:MAX_SIGNATURES])
        return self._note

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint that the signed text describes."""
        if self._checkpoint is None:
            text = self.note().text
            try:
                self._checkpoint = parse_checkpoint(text)
            except LedgerError as error:
                raise LedgerError(f"{self.path / CHECKPOINT}: {error}") from error
        return self._checkpoint

    def witness_notes(self) -> dict[str, Note]:
        """Return the notes of witnesses by path, each with the checkpoint that its witness saw.

        Files that are no notes are left out, and those that `list_notes` does not read: `verify` reports both.
        """
        notes: dict[str, Note] = {}
        for path in list_notes(self.path)[0]:
            with suppress(LedgerError):
                notes[path] = self._read_note(path)
        return notes

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Yield entries [start, stop), one bundle in memory at a time; `stop` defaults to the checkpoint's size."""
        size = self.checkpoint().size
        stop = size if stop is None else stop
        if not 0 <= start <= stop <= size:
            raise LedgerError(f"no entries {start} to {stop} in a ledger of {size}")
        for number in range(start // TILE, -(-stop // TILE)):
            first = number * TILE
            entries = self.bundle(Bundle(number, min(TILE, size - first)))
            yield from entries[max(start - first, 0) : stop - first]

    def hashes(self, size: int) -> merkle.ReadHashes:
        """Return a reader of the hashes of a tree of this size; in each call it reads a tile once."""

        def read(places: Sequence[Place]) -> list[bytes]:
            wanted = [tile_of(place, size) for place in places]
            contents = {tile: self.tile(tile) for tile in {tile for tile, _, _ in wanted}}
            return [merkle.subtree(slots(contents[tile], first, last)) for tile, first, last in wanted]

        return read

    def read_hashes(self, places: Sequence[Place]) -> Sequence[bytes]:
        """Return the hashes at these places of the checkpoint's tree: a `merkle.ReadHashes`."""
        return self.hashes(self.checkpoint().size)(places)

    def tile(self, tile: Tile) -> bytes:
        """Return the hashes of a tile, in one string of `tile.width` * 32 bytes."""
        path, content, width = self._widest(tile, TILE * HASH_BYTES)
        if len(content) != width * HASH_BYTES:
            raise LedgerError(f"{self.path / path}: {len(content)} bytes, expected {width * HASH_BYTES}")
        return content[: tile.width * HASH_BYTES]

    def bundle(self, bundle: Bundle) -> list[bytes]:
        """Return the `bundle.width` entries of a bundle."""
        path, content, width = self._widest(bundle, MAX_BUNDLE)
        if width == bundle.width:
            return decode_bundle(content, width=width, where=str(self.path / path))
        return split_bundle(content, width=bundle.width, where=str(self.path / path))[0]

    def blob(self, digest: str) -> bytes:
        """Return the blob with this SHA-256, in hexadecimal digits."""
        return read_blob(self.path, digest)

    def _widest(self, file: Tile | Bundle, max_bytes: int) -> tuple[str, bytes, int]:
        """Return the file, or else a wider one that begins with it: path, content and width."""
        for other in self._candidates(file):
            content = self._content(other.path, max_bytes)
            if content is not None:
                return other.path, content, other.width
        raise LedgerError(f"{self.path / file.path}: missing")

    def _content(self, relative: str, max_bytes: int) -> bytes | None:
        """Return a file of the ledger, or None if there is no such file."""
        return read_file(self.path, relative, max_bytes=max_bytes)

    def _candidates(self, file: Tile | Bundle) -> Iterator[Tile | Bundle]:
        """Yield the file and wider ones that begin with it, narrowest first."""
        # The full file may still be incomplete while narrower ones exist, so it comes last. All are tried twice: a
        # writer may remove one and write another between the listing and the reading.
        for _ in range(2):
            yield file
            if file.width < TILE:
                yield from self._wider(file)
                yield file._replace(width=TILE)

    def _wider(self, file: Tile | Bundle) -> list[Tile | Bundle]:
        """Return the wider partials there are, narrowest first."""
        names = set(list_names(self.path, file.path.rpartition("/")[0]))
        return [file._replace(width=width) for width in range(file.width + 1, TILE) if str(width) in names]

    def _read_note(self, relative: str) -> Note:
        content = self._content(relative, MAX_NOTE)
        if content is None:
            raise LedgerError(f"{self.path / relative}: missing; no ledger is kept here without it")
        try:
            return parse(content)
        except NoteError as error:
            raise LedgerError(f"{self.path / relative}: {error}") from error

"""Reading a ledger's directory: checkpoint, hashes, entries, blobs. Bounded, but nothing here is verified."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from explorer import merkle
from explorer.errors import LedgerError, NoteError
from explorer.ledger.blobs import read_blob
from explorer.ledger.checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.files import list_names, read_file
from explorer.ledger.tiles import MAX_BUNDLE, TILE, Bundle, Tile, decode_bundle, slots, split_bundle, tile_of
from explorer.merkle import HASH_BYTES, Place
from explorer.note import MAX_BYTES as MAX_NOTE
from explorer.note import MAX_SIGNATURES, Note, parse, with_signatures

CHECKPOINT = "checkpoint"
WITNESS = "witness"
MAX_WITNESSES = 100  # notes that are read; anybody may put more there
_OWN_NAME = re.compile(r".+\+[0-9a-f]{8}\.note")  # as our own cosigners name their notes


def list_notes(directory: Path, first: Collection[str] = ()) -> tuple[list[str], int]:
    """The paths of the notes in `witness/` that are read, 100 of them at most, and how many more there are.

    Those named in `first` come first, then those with names as our own cosigners give them. Raises `LedgerError` if the
    directory cannot be listed.
    """
    names = [name for name in list_names(directory, WITNESS) if name.endswith(".note") and name[0] != "."]
    names.sort(key=lambda name: (name not in first, not _OWN_NAME.fullmatch(name), name))
    return [f"{WITNESS}/{name}" for name in names[:MAX_WITNESSES]], max(len(names) - MAX_WITNESSES, 0)


class LedgerDirectory:
    """A ledger as it was when its checkpoint was first asked for; a writer that goes on does not disturb the reader.

    Where the file of a partial tile or bundle is gone because the log has grown, the wider one gives what it held.
    Every method raises `LedgerError` that names the file when it is missing, too large or not of its form.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._note: Note | None = None
        self._checkpoint: Checkpoint | None = None

    def note(self) -> Note:
        """The signed checkpoint, with the cosignatures that `witness/` holds for the same text. None is checked."""
        if self._note is None:
            found = self._read_note(CHECKPOINT)
            same = [other for other in self.witness_notes().values() if other.text == found.text]
            merged = with_signatures(found, [signature for other in same for signature in other.signatures])
            self._note = Note(text=merged.text, signatures=merged.signatures[:MAX_SIGNATURES])
        return self._note

    def checkpoint(self) -> Checkpoint:
        """What the signed text says."""
        if self._checkpoint is None:
            text = self.note().text
            try:
                self._checkpoint = parse_checkpoint(text)
            except LedgerError as error:
                raise LedgerError(f"{self.path / CHECKPOINT}: {error}") from error
        return self._checkpoint

    def witness_notes(self) -> dict[str, Note]:
        """The notes that witnesses left, by path below the directory; each is of the checkpoint its witness saw.

        What is no note is left out, and so is what `list_notes` does not read: `verify` says so.
        """
        found: dict[str, Note] = {}
        for path in list_notes(self.path)[0]:
            with suppress(LedgerError):
                found[path] = self._read_note(path)
        return found

    def entries(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Entries [start, stop) in order, a bundle in memory at a time; `stop` defaults to the checkpoint's size."""
        size = self.checkpoint().size
        stop = size if stop is None else stop
        if not 0 <= start <= stop <= size:
            raise LedgerError(f"no entries {start} to {stop} in a ledger of {size}")
        for number in range(start // TILE, -(-stop // TILE)):
            first = number * TILE
            found = self.bundle(Bundle(number, min(TILE, size - first)))
            yield from found[max(start - first, 0) : stop - first]

    def read_hashes(self, places: Sequence[Place]) -> list[bytes]:
        """The hashes at these places of the checkpoint's tree, each tile read once: a `merkle.ReadHashes`."""
        size = self.checkpoint().size
        wanted = [tile_of(place, size) for place in places]
        contents = {tile: self.tile(tile) for tile in {tile for tile, _, _ in wanted}}
        return [merkle.subtree(slots(contents[tile], first, last)) for tile, first, last in wanted]

    def tile(self, tile: Tile) -> bytes:
        """The hashes of a tile, in one string of `tile.width` * 32 bytes."""
        path, content, width = self._widest(tile, TILE * HASH_BYTES)
        if len(content) != width * HASH_BYTES:
            raise LedgerError(f"{self.path / path}: {len(content)} bytes, expected {width * HASH_BYTES}")
        return content[: tile.width * HASH_BYTES]

    def bundle(self, bundle: Bundle) -> list[bytes]:
        """The `bundle.width` entries of a bundle."""
        path, content, width = self._widest(bundle, MAX_BUNDLE)
        if width == bundle.width:
            return decode_bundle(content, width=width, where=str(self.path / path))
        return split_bundle(content, width=bundle.width, where=str(self.path / path))[0]

    def blob(self, digest: str) -> bytes:
        """The blob with this SHA-256, in hexadecimal digits."""
        return read_blob(self.path, digest)

    def _widest(self, file: Tile | Bundle, max_bytes: int) -> tuple[str, bytes, int]:
        """The file, or else a wider one that begins with it: path, content and width."""
        for other in self._candidates(file):
            content = self._content(other.path, max_bytes)
            if content is not None:
                return other.path, content, other.width
        raise LedgerError(f"{self.path / file.path}: missing")

    def _content(self, relative: str, max_bytes: int) -> bytes | None:
        """A file of the ledger, or None if there is no such file."""
        return read_file(self.path, relative, max_bytes=max_bytes)

    def _candidates(self, file: Tile | Bundle) -> Iterator[Tile | Bundle]:
        """Narrow ones first: the widest may be in the making, but not while no other is there.

        Twice, since a writer may remove one and write another between our looking and reading.
        """
        for _ in range(2):
            yield file
            if file.width < TILE:
                yield from self._wider(file)
                yield file._replace(width=TILE)

    def _wider(self, file: Tile | Bundle) -> list[Tile | Bundle]:
        """The wider partials there are, narrowest first."""
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

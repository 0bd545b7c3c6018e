"""Tiles and bundles: the layout of hashes and entries in files (C2SP tlog-tiles).

    tile/<level>/<number>             256 hashes of a level, 32 bytes each
    tile/<level>/<number>.p/<width>   the same at the right edge, with fewer hashes
    tile/entries/<number>             256 entries, each a length (uint16, big-endian) and its bytes
    tile/entries/<number>.p/<width>   the same at the right edge, with fewer entries

Hash i of tile n at level l is the root of the complete subtree over 256**l leaves that begins at leaf
(n * 256 + i) * 256**l. A number is written in groups of three digits, all but the last with an x in front.

>>> Tile(0, 1234067, 112).path
'tile/0/x001/x234/067.p/112'
>>> Bundle(5, 256).path
'tile/entries/005'
"""

import re
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from explorer.errors import LedgerError
from explorer.merkle import HASH_BYTES, MAX_SIZE, Place

HEIGHT = 8  # levels of the tree in one tile
TILE = 2**HEIGHT
MAX_ENTRY = 2**16 - 1
MAX_BUNDLE = TILE * (2 + MAX_ENTRY)

_PATH = re.compile(r"tile/(entries|[0-9]{1,2})/((?:x[0-9]{3}/){0,6}[0-9]{3})(?:\.p/([0-9]{1,3}))?")


class Tile(NamedTuple):
    """A file of hashes: `width` of them, 1 to 256."""

    level: int
    number: int
    width: int

    @property
    def path(self) -> str:
        """Return the path below the ledger's directory."""
        return f"tile/{self.level}/{_spell(self.number, self.width)}"


class Bundle(NamedTuple):
    """A file of entries: `width` of them, 1 to 256."""

    number: int
    width: int

    @property
    def path(self) -> str:
        """Return the path below the ledger's directory."""
        return f"tile/entries/{_spell(self.number, self.width)}"


def bundles(size: int) -> Iterator[Bundle]:
    """Return the bundles that hold the first `size` entries, in order; only the last one can be partial."""
    return (Bundle(number, width) for number, width in _row(size))


def tiles(size: int) -> Iterator[Tile]:
    """Yield the tiles of a tree of `size` leaves, level by level, in order; only the last one of a level can be
    partial."""
    for level in range(level_count(size)):
        yield from (Tile(level, number, width) for number, width in _row(size >> HEIGHT * level))


def level_count(size: int) -> int:
    """Return the number of levels of tiles in a tree of `size` leaves: a level exists once it has a hash."""
    return -(-size.bit_length() // HEIGHT)


def belongs(file: Tile | Bundle, size: int) -> bool:
    """Return whether the file holds only some of the first `size` entries; true for superseded partials too."""
    held = size >> HEIGHT * file.level if isinstance(file, Tile) else size
    return file.number * TILE + file.width <= held


def parse_path(path: str) -> Tile | Bundle | None:
    """Return the tile or bundle of a path; None for any other path, or one that spells it in another way."""
    match = _PATH.fullmatch(path)
    if not match:
        return None
    number = int(match[2].replace("x", "").replace("/", ""))
    width = int(match[3] or TILE)
    file = Bundle(number, width) if match[1] == "entries" else Tile(int(match[1]), number, width)
    return file if file.path == path and width > 0 else None


def tile_of(place: Place, size: int) -> tuple[Tile, int, int]:
    """Return the tile of a tree of `size` leaves that the hash at `place` is made of, and its slots [first, last).

    One slot holds the hash itself; over more slots it is the root. Raises `LedgerError` if the subtree is not
    complete at this size.
    """
    level, inner = divmod(place.level, HEIGHT)
    held = size >> HEIGHT * level
    start, stop = place.number << inner, place.number + 1 << inner
    if not 0 <= start < stop <= held:
        raise LedgerError(f"no complete subtree {place.number} at level {place.level} in a tree of {size} entries")
    number = start // TILE
    return Tile(level, number, min(TILE, held - number * TILE)), start - number * TILE, stop - number * TILE


def slots(tile: bytes, first: int, last: int) -> bytes:
    """Return hashes [first, last) of a tile's content, in one string."""
    return tile[first * HASH_BYTES : last * HASH_BYTES]


def encode_bundle(entries: Iterable[bytes]) -> bytes:
    """Return a bundle of entries. Raises `LedgerError` for one that is longer than 65,535 bytes."""
    return b"".join([encode_entry(entry) for entry in entries])


def encode_entry(entry: bytes) -> bytes:
    """Return an entry as written in a bundle. Raises `LedgerError` if it is longer than 65,535 bytes."""
    if len(entry) > MAX_ENTRY:
        raise LedgerError(f"an entry of {len(entry)} bytes; at most {MAX_ENTRY} fit, larger content goes into a blob")
    return struct.pack(">H", len(entry)) + entry


def decode_bundle(content: bytes, *, width: int, where: str) -> list[bytes]:
    """Return the `width` entries of a bundle. Raises `LedgerError` that names `where` unless it holds exactly these."""
    entries, at = split_bundle(content, width=width, where=where)
    if at != len(content):
        raise LedgerError(f"{where}: {len(content) - at} bytes after entry {width - 1}, the last one")
    return entries


def split_bundle(content: bytes, *, width: int, where: str) -> tuple[list[bytes], int]:
    """Return the first `width` entries of a bundle that may hold more, and the offset of their end.

    Raises `LedgerError` that names `where` if it holds fewer.
    """
    entries: list[bytes] = []
    at, end = 0, len(content)
    for number in range(width):
        start = at + 2
        at = start + (content[at] << 8 | content[at + 1]) if start <= end else end + 1
        if at > end:
            raise LedgerError(f"{where}: ends inside entry {number}, expected {width} entries")
        entries.append(content[start:at])
    return entries, at


def _row(held: int) -> Iterator[tuple[int, int]]:
    """Yield the numbers and widths of the files for this many hashes or entries, 256 in each."""
    if not 0 <= held <= MAX_SIZE:
        raise LedgerError(f"no tree has {held} entries; at most {MAX_SIZE} are possible")
    full, rest = divmod(held, TILE)
    yield from ((number, TILE) for number in range(full))
    if rest:
        yield full, rest


def _spell(number: int, width: int) -> str:
    groups = [f"{number % 1000:03}"]
    while number := number // 1000:
        groups.insert(0, f"x{number % 1000:03}")
    return "/".join(groups) + (f".p/{width}" if width < TILE else "")

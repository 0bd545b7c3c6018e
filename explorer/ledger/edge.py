"""The right edge of a growing tree: the hashes that are in no full tile yet, which is all that appending needs."""

from collections.abc import Callable, Sequence
from typing import Self

from explorer import merkle
from explorer.ledger.tiles import HEIGHT, TILE, Tile, level_count, slots, tile_of
from explorer.merkle import HASH_BYTES, Place


class Edge:
    """A tree of `size` leaves, in memory that grows with the logarithm of its size."""

    def __init__(self) -> None:
        self.size = 0
        self._rows: list[bytearray] = []  # the partial tile of each level, fewer than 256 hashes

    @classmethod
    def load(cls, size: int, read_tile: Callable[[Tile], bytes]) -> Self:
        """Return the edge of a stored tree. The tiles are not checked: compare `root` with a signed one."""
        made = cls()
        made.size = size
        for level in range(level_count(size)):
            number, width = divmod(size >> HEIGHT * level, TILE)
            made._rows.append(bytearray(read_tile(Tile(level, number, width)) if width else b""))
        return made

    def add(self, leaves: bytes) -> list[tuple[Tile, bytes]]:
        """Append leaf hashes, no more than fit in the tile at the edge; return the tiles that became full."""
        self.size += len(leaves) // HASH_BYTES
        full: list[tuple[Tile, bytes]] = []
        hashes = leaves
        # A tile that becomes full gives one hash to the level above, which may fill the tile there in turn.
        while hashes:
            level = len(full)
            if level == len(self._rows):
                self._rows.append(bytearray())
            row = self._rows[level]
            row += hashes
            assert len(row) <= TILE * HASH_BYTES
            hashes = b""
            if len(row) == TILE * HASH_BYTES:
                content = bytes(row)
                row.clear()
                full.append((Tile(level, (self.size >> HEIGHT * level) // TILE - 1, TILE), content))
                hashes = merkle.subtree(content)
        return full

    def partial(self) -> list[tuple[Tile, bytes]]:
        """Return the partial tiles, at most one for each level."""
        return [
            (Tile(level, (self.size >> HEIGHT * level) // TILE, len(row) // HASH_BYTES), bytes(row))
            for level, row in enumerate(self._rows)
            if row
        ]

    def leaves(self) -> bytes:
        """Return the hashes of the leaves that are in no full tile, in one string."""
        return bytes(self._rows[0]) if self._rows else b""

    def root(self) -> bytes:
        """Return the root over all leaves."""
        return merkle.root(self.size, self._read)

    def _read(self, places: Sequence[Place]) -> list[bytes]:
        """Return hashes of complete subtrees."""
        # A root is made of the largest complete subtrees, and all of these end in partial tiles.
        wanted = [tile_of(place, self.size) for place in places]
        return [merkle.subtree(slots(bytes(self._rows[tile.level]), first, last)) for tile, first, last in wanted]

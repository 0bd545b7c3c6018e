"""Where hashes and entries stand: paths, widths, slots, and bundles that are damaged."""

import random

import pytest

from explorer import merkle
from explorer.errors import LedgerError
from explorer.ledger.edge import Edge
from explorer.ledger.tiles import (
    MAX_ENTRY,
    TILE,
    Bundle,
    Tile,
    belongs,
    bundles,
    decode_bundle,
    encode_bundle,
    parse_path,
    slots,
    split_bundle,
    tile_of,
    tiles,
)
from explorer.merkle import Place

SIZES = (0, 1, 2, 255, 256, 257, 511, 512, 65_535, 65_536, 65_537, 70_000)


def test_the_spelling_of_c2sp() -> None:
    assert Tile(0, 1_234_067, TILE).path == "tile/0/x001/x234/067"
    assert Tile(5, 5, 7).path == "tile/5/005.p/7"
    assert Bundle(999, TILE).path == "tile/entries/999"
    assert Bundle(1000, 1).path == "tile/entries/x001/000.p/1"


def test_what_a_log_consists_of() -> None:
    """The examples that tlog-tiles gives: sizes 256 and 70,000."""
    assert [tile.path for tile in tiles(256)] == ["tile/0/000", "tile/1/000.p/1"]
    many = list(tiles(70_000))
    assert many[:273] == [Tile(0, number, TILE) for number in range(273)]
    assert many[273:] == [Tile(0, 273, 112), Tile(1, 0, TILE), Tile(1, 1, 17), Tile(2, 0, 1)]
    assert list(bundles(70_000)) == [Bundle(tile.number, tile.width) for tile in many[:274]]
    assert list(tiles(0)) == list(bundles(0)) == []


@pytest.mark.parametrize("size", SIZES)
def test_paths_are_read_back(size: int) -> None:
    for file in (*tiles(size), *bundles(size)):
        assert parse_path(file.path) == file
        assert belongs(file, size)
        assert not belongs(file._replace(number=file.number + 2**40), size)


@pytest.mark.parametrize(
    "path",
    (
        "tile/0/5", "tile/0/0005", "tile/0/x000/005", "tile/0/001/002", "tile/00/001", "tile/0/001.p/256",
        "tile/0/001.p/0", "tile/0/001.p/07", "tile/0/001.p", "tile/entries/001.p/999", "tile/bundles/001",
        "tile/0/001\n", "/tile/0/001", "tile/0/../001", "tile/0/\u0660\u0660\u0661", "checkpoint", "",
    ),
)  # fmt: skip
def test_another_spelling_is_no_tile(path: str) -> None:
    assert parse_path(path) is None


def test_a_size_beyond_all_trees_is_refused() -> None:
    for size in (-1, 2**63):
        with pytest.raises(LedgerError, match="no tree has"):
            list(tiles(size))


@pytest.mark.slow
@pytest.mark.parametrize("size", (1, 2, 255, 256, 257, 700, 65_536, 66_000))
def test_every_stored_hash_is_found_in_its_tile(size: int) -> None:
    """`tile_of` against an edge that grew leaf by leaf, at random places."""
    leaves = [merkle.leaf_hash(b"%d" % number) for number in range(size)]
    edge = Edge()
    stored: dict[Tile, bytes] = {}
    for start in range(0, size, TILE):
        stored.update(edge.add(b"".join(leaves[start : start + TILE])))
    stored.update(edge.partial())
    assert sorted(stored) == sorted(tiles(size))
    assert all(len(content) == 32 * tile.width for tile, content in stored.items())
    assert edge.root() == merkle.root_of(leaves)
    pick = random.Random(size)
    for _ in range(100):
        level = pick.randrange(size.bit_length())
        number = pick.randrange(size >> level)
        tile, first, last = tile_of(Place(level, number), size)
        found = merkle.subtree(slots(stored[tile], first, last))
        assert found == merkle.root_of(leaves[number << level : number + 1 << level])
    again = Edge.load(size, stored.__getitem__)
    assert again.root() == edge.root() and again.partial() == edge.partial()


@pytest.mark.parametrize(("level", "number"), ((0, 300), (0, -1), (8, 1), (9, 0), (63, 0), (2, 75)))
def test_a_subtree_that_is_not_complete_has_no_place(level: int, number: int) -> None:
    with pytest.raises(LedgerError, match=f"no complete subtree {number} at level {level} in a tree of 300"):
        tile_of(Place(level, number), 300)


def test_bundles_hold_exactly_what_went_in() -> None:
    entries = [b"", b"\x00", b"\x10", bytes(MAX_ENTRY)]
    content = encode_bundle(entries)
    assert content.startswith(bytes.fromhex("0000 0001 00 0001 10 ffff"))
    assert decode_bundle(content, width=4, where="here") == entries
    assert split_bundle(content, width=2, where="here") == (entries[:2], 5)


def test_a_damaged_bundle_is_refused() -> None:
    content = encode_bundle([b"one", b"two"])
    for cut in range(len(content)):
        with pytest.raises(LedgerError, match=r"here: ends inside entry [01], expected 2 entries"):
            decode_bundle(content[:cut], width=2, where="here")
    with pytest.raises(LedgerError, match="here: 1 bytes after entry 1, the last one"):
        decode_bundle(content + b"x", width=2, where="here")
    with pytest.raises(LedgerError, match="here: 5 bytes after entry 0"):
        decode_bundle(content, width=1, where="here")


def test_an_entry_that_is_too_long_is_refused() -> None:
    with pytest.raises(LedgerError, match="an entry of 65536 bytes; at most 65535 fit"):
        encode_bundle([b"fits", bytes(MAX_ENTRY + 1)])

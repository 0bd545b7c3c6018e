"""Merkle trees: every tree up to 128 leaves, every proof, every byte; known answers; one digest over 10,000 cases."""

import hashlib
import random
from collections.abc import Sequence

import pytest

from explorer import merkle
from explorer.errors import LedgerError
from explorer.merkle import (
    EMPTY_ROOT,
    Place,
    check_consistency,
    check_inclusion,
    check_range,
    leaf_hash,
    node_hash,
    prove_consistency,
    prove_inclusion,
    prove_range,
)

LARGEST = 128
RFC_6962 = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
RFC_ROOTS = {
    0: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    4: "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    6: "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


class Tree:
    """All complete subtrees over some leaves, kept by their place."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.levels = [list(leaves)]
        while len(self.levels[-1]) > 1:
            below = self.levels[-1]
            self.levels.append([node_hash(*pair) for pair in zip(below[::2], below[1::2], strict=False)])

    def read(self, places: Sequence[Place]) -> list[bytes]:
        return [self.levels[place.level][place.number] for place in places]


def definition(leaves: Sequence[bytes]) -> bytes:
    """MTH as RFC 6962 defines it, in its own words."""
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256().digest()
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return hashlib.sha256(b"\x01" + definition(leaves[:k]) + definition(leaves[k:])).digest()


LEAVES = [leaf_hash(b"%d" % number) for number in range(LARGEST + 1)]
TREE = Tree(LEAVES)
ROOTS = [definition(LEAVES[:size]) for size in range(LARGEST + 2)]


def test_the_known_answers_of_rfc_6962() -> None:
    leaves = [leaf_hash(entry) for entry in RFC_6962]
    tree = Tree(leaves)
    for size, known in RFC_ROOTS.items():
        assert merkle.root(size, tree.read).hex() == merkle.root_of(leaves[:size]).hex() == known
    assert prove_inclusion(3, 2, tree.read) == (bytes.fromhex(RFC_ROOTS[2]),)
    assert prove_consistency(2, 3, tree.read) == (leaf_hash(b"\x10"),)
    assert [step.hex() for step in prove_inclusion(8, 0, tree.read)] == [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ]
    assert [step.hex() for step in prove_consistency(6, 8, tree.read)] == [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]


def test_the_first_trees_of_the_docstring() -> None:
    for size in (0, 1, 2):
        assert RFC_ROOTS[size] in (merkle.__doc__ or "")


def test_every_root() -> None:
    for size in range(LARGEST + 1):
        assert merkle.root(size, TREE.read) == merkle.root_of(LEAVES[:size]) == ROOTS[size]


def test_hashes_in_one_string() -> None:
    entries = [b"%d" % number for number in range(64)]
    joined = merkle.leaf_hashes(entries)
    assert joined == b"".join(LEAVES[:64])
    assert merkle.parents(joined) == b"".join(TREE.levels[1][:32])
    assert merkle.subtree(joined) == ROOTS[64] and merkle.subtree(joined[:32]) == LEAVES[0]
    assert merkle.leaf_hashes([]) == merkle.parents(b"") == b""


@pytest.mark.slow
def test_every_inclusion_proof_checks_and_nothing_else_does() -> None:
    """All indices of all sizes; then the same proof for every other claim one step away, longer and shorter."""
    for size in range(1, LARGEST + 1):
        for index in range(size):
            proof = prove_inclusion(size, index, TREE.read)
            claim = {"size": size, "index": index, "leaf": LEAVES[index], "root": ROOTS[size]}
            check_inclusion(proof, **claim)
            wrong = [
                (proof, {"index": index - 1}), (proof, {"index": index + 1}), (proof, {"index": index ^ 2}),
                (proof, {"leaf": LEAVES[index + 1]}), (proof, {"root": ROOTS[size + 1]}), (proof, {"root": ROOTS[0]}),
                (proof, {"root": ROOTS[size - 1]}), ((*proof, LEAVES[0]), {}), ((LEAVES[0], *proof), {}),
                *([(proof[:-1], {}), (proof[1:], {}), (proof, {"leaf": proof[0]})] if proof else []),
                *([(proof[::-1], {})] if len(proof) > 1 else []),
            ]  # fmt: skip
            for other, changed in wrong:
                with pytest.raises(LedgerError):
                    check_inclusion(other, **{**claim, **changed})


def test_an_inclusion_proof_of_another_length_is_refused() -> None:
    """A root does not bind the size, a checkpoint signs both; but a proof fits only sizes with a path of its length."""
    for size in range(1, LARGEST + 1):
        for index in range(size):
            proof = prove_inclusion(size, index, TREE.read)
            for other in {size - 1, size + 1, 2 * size} - {0}:
                if other > LARGEST or index >= other or len(prove_inclusion(other, index, TREE.read)) != len(proof):
                    with pytest.raises(LedgerError):
                        check_inclusion(proof, size=other, index=index, leaf=LEAVES[index], root=ROOTS[size])


def test_every_consistency_proof_checks_and_nothing_else_does() -> None:
    for new in range(LARGEST + 1):
        for old in range(new + 1):
            proof = prove_consistency(old, new, TREE.read)
            claim = {"old_size": old, "old_root": ROOTS[old], "new_size": new, "new_root": ROOTS[new]}
            check_consistency(proof, **claim)
            wrong = [
                (proof, {"old_root": ROOTS[old + 1]}), ((*proof, LEAVES[0]), {}), ((LEAVES[0], *proof), {}),
                *([(proof, {"new_root": ROOTS[new + 1]}), (proof, {"old_size": old - 1})] if old else []),
                *([(proof, {"old_size": new, "new_size": old})] if old != new else []),
                *([(proof[:-1], {}), (proof[1:], {})] if proof else []),
                *([(proof[::-1], {})] if len(proof) > 1 else []),
            ]  # fmt: skip
            for other, changed in wrong:
                with pytest.raises(LedgerError):
                    check_consistency(other, **{**claim, **changed})


def test_a_tree_of_no_leaves_is_extended_by_every_tree_and_binds_nothing() -> None:
    check_consistency((), old_size=0, old_root=EMPTY_ROOT, new_size=5, new_root=bytes(32))
    with pytest.raises(LedgerError, match="at size 0, expected e3b0c442"):
        check_consistency((), old_size=0, old_root=bytes(32), new_size=5, new_root=bytes(32))
    with pytest.raises(LedgerError, match="two roots at size 0"):
        check_consistency((), old_size=0, old_root=EMPTY_ROOT, new_size=0, new_root=bytes(32))


def flipped_bytes_pass(sizes: Sequence[int], *, bits: Sequence[int], stride: int) -> int:
    """Flip bytes of all proofs of these trees; return how many were tried. None may check."""
    tried = 0
    for size in sizes:
        for number in range(size):
            inclusion = prove_inclusion(size, number, TREE.read)
            for proof in flips(inclusion, bits, stride, at=size + number):
                tried += 1
                with pytest.raises(LedgerError, match="fails: it leads to root"):
                    check_inclusion(proof, size=size, index=number, leaf=LEAVES[number], root=ROOTS[size])
            consistency = prove_consistency(number, size, TREE.read)
            for proof in flips(consistency, bits, stride, at=size + number):
                tried += 1
                with pytest.raises(LedgerError, match="fails: it leads to root"):
                    check_consistency(
                        proof, old_size=number, old_root=ROOTS[number], new_size=size, new_root=ROOTS[size]
                    )
    return tried


def flips(proof: Sequence[bytes], bits: Sequence[int], stride: int, *, at: int) -> list[list[bytes]]:
    """The proof with one byte changed, for every `stride`-th byte; over all proofs every position has its turn."""
    made = []
    for place in range(at % stride, len(proof) * 32, stride):
        for bit in bits:
            changed = list(proof)
            step, inner = divmod(place, 32)
            changed[step] = proof[step][:inner] + bytes([proof[step][inner] ^ bit]) + proof[step][inner + 1 :]
            made.append(changed)
    return made


@pytest.mark.slow
def test_no_proof_with_a_flipped_byte_checks() -> None:
    """Every byte of every proof of the small trees, and every 61st of the larger ones."""
    assert flipped_bytes_pass(range(1, 14), bits=(1,), stride=1) > 10_000
    assert flipped_bytes_pass(range(14, LARGEST + 1), bits=(0x80,), stride=61) > 40_000


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_no_proof_with_any_byte_flipped_checks(part: int) -> None:
    """Every byte of every proof of every tree of up to 128 leaves."""
    assert flipped_bytes_pass(range(part + 1, LARGEST + 1, 4), bits=(1 << part,), stride=1) > 500_000


CLAIM = {"size": 5, "index": 2, "leaf": LEAVES[2], "root": ROOTS[5]}


@pytest.mark.parametrize(
    ("changed", "proof", "message"),
    (
        ({"index": 5}, None, "for entry 5 of 5: there is no such entry"),
        ({"index": -1}, None, "for entry -1 of 5"),
        ({"size": 2**63}, None, "of 9223372036854775808"),
        ({}, [bytes(32)] * 65, "a proof of 65 hashes; at most 64"),
        ({}, [bytes(31)] * 3, "hash 0 of the proof has 31 bytes, expected 32"),
        ({}, [bytes(32)] * 4, "too long: 4 hashes for size 5"),
        ({}, [bytes(32)] * 2, "too short: 2 hashes for size 5"),
        ({}, [], "too short: 0 hashes"),
        ({"root": bytes(32)}, None, "leads to root [0-9a-f]{64}, expected 00000000"),
    ),
)  # fmt: skip
def test_what_is_wrong_with_an_inclusion_proof_is_said(
    changed: dict[str, int], proof: list[bytes] | None, message: str
) -> None:
    with pytest.raises(LedgerError, match=message):
        check_inclusion(prove_inclusion(5, 2, TREE.read) if proof is None else proof, **{**CLAIM, **changed})


@pytest.mark.parametrize(
    ("old", "new", "proof", "message"),
    (
        (6, 5, None, "a tree of 5 entries cannot extend one of 6"),
        (-1, 5, None, "cannot extend one of -1"),
        (3, 2**63, None, "a tree of 9223372036854775808"),
        (0, 5, [bytes(32)], "from 0 to 5 has to be empty"),
        (5, 5, [bytes(32)], "from 5 to 5 has to be empty"),
        (3, 5, [], "from 3 to 5 is empty"),
        (4, 5, [], "from 4 to 5 is empty"),
        (3, 5, [bytes(32)] * 65, "at most 64"),
        (3, 5, [bytes(33)] * 3, "hash 0 of the proof has 33 bytes"),
        (3, 5, [bytes(32)] * 5, "too long: 5 hashes"),
        (3, 5, [bytes(32)], "too short: 1 hashes"),
        (3, 5, [bytes(32)] * 4, "leads to root [0-9a-f]{64} at size 3, expected"),
    ),
)  # fmt: skip
def test_what_is_wrong_with_a_consistency_proof_is_said(
    old: int, new: int, proof: list[bytes] | None, message: str
) -> None:
    with pytest.raises(LedgerError, match=message):
        check_consistency(
            proof or [], old_size=old, old_root=ROOTS[max(old, 0)], new_size=new, new_root=ROOTS[min(new, 5)]
        )


@pytest.mark.parametrize(("size", "index"), ((0, 0), (5, 5), (5, -1)))
def test_no_proof_of_an_entry_that_is_not_there(size: int, index: int) -> None:
    with pytest.raises(LedgerError, match=f"no entry {index} in a tree of {size}"):
        prove_inclusion(size, index, TREE.read)


@pytest.mark.parametrize(("old", "new"), ((6, 5), (-1, 5)))
def test_no_proof_that_a_smaller_tree_extends_a_larger_one(old: int, new: int) -> None:
    with pytest.raises(LedgerError, match=f"a tree of {new} entries cannot extend one of {old}"):
        prove_consistency(old, new, TREE.read)


def test_one_digest_over_10_000_random_cases() -> None:
    """Any change of a hash, a proof or a root of trees of up to 5,000 leaves changes this number."""
    leaves = [leaf_hash(b"leaf %d" % number) for number in range(5_000)]
    tree, pick, digest = Tree(leaves), random.Random(20_260_101), hashlib.sha256()
    for _ in range(10_000):
        new = pick.randint(1, 5_000)
        old, index = pick.randint(0, new), pick.randrange(new)
        inclusion, consistency = prove_inclusion(new, index, tree.read), prove_consistency(old, new, tree.read)
        old_root, new_root = merkle.root(old, tree.read), merkle.root(new, tree.read)
        check_inclusion(inclusion, size=new, index=index, leaf=leaves[index], root=new_root)
        check_consistency(consistency, old_size=old, old_root=old_root, new_size=new, new_root=new_root)
        digest.update(b"%d %d %d\n" % (new, old, index) + b"".join((*inclusion, *consistency, old_root, new_root)))
    assert digest.hexdigest() == "2f14c21d9f544e9a29318b5dc00e00ba0e264b46b336f9e55d1a9fe54361564c"


def test_every_range_of_every_small_tree_checks_and_no_neighbour_does() -> None:
    leaves = [leaf_hash(bytes([number])) for number in range(20)]
    for size in range(1, len(leaves) + 1):
        tree, root = Tree(leaves), definition(leaves[:size])
        for first in range(size):
            for stop in range(first + 1, size + 1):
                proof = prove_range(size, first, stop, tree.read)
                check_range(proof, size=size, first=first, stop=stop, root=root)
                assert len(proof) <= 4 * size.bit_length()
                for other in ((first, stop - 1), (first + 1, stop), (first, stop + 1)):
                    same = 0 <= other[0] < other[1] <= size and [*merkle._pieces(size, *other)] == [
                        *merkle._pieces(size, first, stop)
                    ]
                    if not same:  # entries 4 to 6 of 7 and entries 0 to 3 cut the tree at the same places
                        with pytest.raises(LedgerError):
                            check_range(proof, size=size, first=other[0], stop=other[1], root=root)


def test_the_hashes_inside_a_range_are_the_roots_of_its_entries() -> None:
    leaves = [leaf_hash(bytes([number])) for number in range(13)]
    proof = prove_range(13, 5, 11, Tree(leaves).read)
    assert proof[2:5] == (leaves[5], definition(leaves[6:8]), definition(leaves[8:10]))
    for at in range(len(proof)):
        changed = [*proof]
        changed[at] = leaf_hash(b"another")
        with pytest.raises(LedgerError, match="the proof of entries 5 to 10 fails: it leads to root"):
            check_range(changed, size=13, first=5, stop=11, root=definition(leaves))
    with pytest.raises(LedgerError, match="hashes, expected"):
        check_range(proof[1:], size=13, first=5, stop=11, root=definition(leaves))
    with pytest.raises(LedgerError, match="no entries 5 to 13 in a tree of 13"):
        prove_range(13, 5, 14, Tree(leaves).read)

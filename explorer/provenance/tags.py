"""Tags: for every example its class, the authority that vouches for it, its source, and a commitment to its content.

They are kept in a Parquet file (tags_file.py), an example in each row; its slot is the number of the row. In a Merkle
tree (RFC 6962) every row is one leaf. It begins with the tag, 40 bytes; numbers are big-endian:

    tag  = class u32 || authority u16 || flags u16 || commitment
    leaf = SHA-256(0x00 || slot u64 || tag || source)                 the source as UTF-8, up to the end

`class` is the class's number in the taxonomy, `authority` the index of the name among the sorted names of the table;
`flags` is 0. Slot 5 with a zero tag and no source has the leaf

    3babad1e0b76fa115b356314a9e861bb6eb8d9a82b0ca02d8c57120e09d743a3

The root, the taxonomy and the list of authorities therefore determine every value of every column.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from explorer import merkle
from explorer.errors import ProvenanceError, unknown
from explorer.provenance.description import Description
from explorer.provenance.spellings import ClassPath, Time
from explorer.provenance.tags_file import MAX_ROWS, Batch, Column, TagFile
from explorer.provenance.trust import Name
from explorer.schema import record

# --------------------------------------------- what the attestation of a tag table says: the predicate of its statement

Count = Annotated[int, Field(ge=1, le=MAX_ROWS)]
Slot = Annotated[int, Field(ge=0, lt=MAX_ROWS)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", max_length=64)]


@record
class ClassCount:
    """The tags of one class that one authority vouches for."""

    records: Count
    first: Slot  # of the first one, for messages


@record
class Voucher:
    """What one authority vouches for."""

    authority: Name
    classes: Annotated[
        dict[ClassPath, ClassCount], Field(min_length=1, json_schema_extra={"additionalProperties": False})
    ]


@record
class TagTable:
    """The predicate of the statement."""

    taxonomy: Digest
    records: Count
    vouchers: Annotated[tuple[Voucher, ...], Field(min_length=1)]  # by name; the place is the number in the tags
    description: Description
    issued: Time
    expires: Time

    @property
    def authorities(self) -> tuple[str, ...]:
        """Their names, in the order of their numbers."""
        return tuple(voucher.authority for voucher in self.vouchers)

    @property
    def histogram(self) -> dict[str, int]:
        """Numbers of records by class."""
        counts: dict[str, int] = {}
        for voucher in self.vouchers:
            for path, count in voucher.classes.items():
                counts[path] = counts.get(path, 0) + count.records
        return dict(sorted(counts.items()))


def difference(counted: tuple[Voucher, ...], signed: TagTable) -> str | None:
    """Return in words the first count of a table that differs from the signed one; None if all agree."""
    for mine, theirs in zip(counted, signed.vouchers, strict=True):
        for path in sorted({*mine.classes, *theirs.classes}):
            have, said = mine.classes.get(path), theirs.classes.get(path)
            if have != said:
                return f"{mine.authority} vouches for {_words(have)} of {path}, signed are {_words(said)}"
    records = sum(count.records for voucher in counted for count in voucher.classes.values())
    return None if records == signed.records else f"it has {records} records, signed are {signed.records}"


def _words(count: ClassCount | None) -> str:
    return "none" if count is None else f"{count.records} from slot {count.first}"


# ------------------------------------------------------------------------------------------------------------- the tags

MAX_AUTHORITIES = 2**16
_SUBTREE = 2**16  # leaves hashed at a time; a power of two, so that it is a complete subtree
_SHOWN = 40  # known names in a message

_LEAF = np.dtype(
    [("mark", "u1"), ("slot", ">u8"), ("class", ">u4"), ("authority", ">u2"), ("flags", ">u2"), ("commitment", "V32")]
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tags:
    """All tags of a table as read-only arrays by slot, and their root."""

    root: bytes
    leaves: npt.NDArray[np.uint8]  # rows x 32
    classes: npt.NDArray[np.uint32]  # numbers of the taxonomy
    authorities: npt.NDArray[np.uint16]
    commitments: npt.NDArray[np.uint8]  # rows x 32

    def __len__(self) -> int:
        return len(self.classes)


def tag(class_code: int, authority: int, commitment: bytes) -> bytes:
    """Return a tag, 40 bytes."""
    return class_code.to_bytes(4, "big") + authority.to_bytes(2, "big") + bytes(2) + commitment


def leaf(slot: int, tag: bytes, source: str = "") -> bytes:
    """Return the leaf hash of a row."""
    return merkle.leaf_hash(slot.to_bytes(8, "big") + tag + source.encode())


def read_authorities(file: TagFile) -> tuple[str, ...]:
    """Return the sorted names of all authorities in a table; the index of a name is its number."""
    names: set[str] = set()
    for batch in file.batches():
        names |= {batch.authorities.values[at] for at in np.unique(batch.authorities.index)}
        if len(names) > MAX_AUTHORITIES:
            raise ProvenanceError(f"{file.path}: more than {MAX_AUTHORITIES} authorities")
    return tuple(sorted(names))


def read_tags(file: TagFile, *, codes: Mapping[str, int], authorities: Sequence[str]) -> Tags:
    """Return all tags of a table and their root. `codes` numbers the classes, the order of `authorities` their names.

    Raises `ProvenanceError` with slot and reason for a class or an authority that is not among these.
    """
    rows = file.rows()
    numbers = {name: number for number, name in enumerate(authorities)}
    classes, owners = np.empty(rows, np.uint32), np.empty(rows, np.uint16)
    leaves, commitments = np.empty((rows, 32), np.uint8), np.empty((rows, 32), np.uint8)
    for batch in file.batches():
        here = slice(batch.first, batch.first + len(batch.classes.index))
        classes[here] = _numbers(file, batch, batch.classes, codes, "class")
        owners[here] = _numbers(file, batch, batch.authorities, numbers, "authority")
        commitments[here] = np.frombuffer(batch.commitments, np.uint8).reshape(-1, 32)
        leaves[here] = _leaves(batch, classes[here], owners[here])
    for array in (leaves, classes, owners, commitments):
        array.flags.writeable = False
    return Tags(root=_root(leaves), leaves=leaves, classes=classes, authorities=owners, commitments=commitments)


def count(tags: Tags, *, authorities: Sequence[str], codes: Mapping[str, int]) -> tuple[Voucher, ...]:
    """Return the number of tags and the first slot by authority and class."""
    paths = {code: path for path, code in codes.items()}
    # Both numbers in one integer, so that one sort counts all pairs.
    pairs = tags.authorities.astype(np.uint64) << np.uint64(32) | tags.classes
    values, firsts, counts = np.unique(pairs, return_index=True, return_counts=True)
    classes: list[dict[str, ClassCount]] = [{} for _ in authorities]
    for value, first, records in zip(values.tolist(), firsts.tolist(), counts.tolist(), strict=True):
        classes[value >> 32][paths[value & 0xFFFFFFFF]] = ClassCount(records=records, first=first)
    return tuple(Voucher(authority=name, classes=mine) for name, mine in zip(authorities, classes, strict=True))


def _numbers(file: TagFile, batch: Batch, column: Column, known: Mapping[str, int], what: str) -> npt.NDArray[np.int64]:
    """Return the number of every row's value. Raises `ProvenanceError` for the first unknown value."""
    # Each different value is looked up once; a table has few of them.
    numbers = np.array([known.get(name, -1) for name in column.values], np.int64)[column.index]
    strange = np.flatnonzero(numbers < 0)
    if len(strange):
        at = int(strange[0])
        reason = unknown(what, column.values[column.index[at]], sorted(known)[:_SHOWN])
        raise ProvenanceError(f"{file.path}: the tag of slot {batch.first + at}: {reason}")
    return numbers


def _leaves(
    batch: Batch, classes: npt.NDArray[np.uint32], authorities: npt.NDArray[np.uint16]
) -> npt.NDArray[np.uint8]:
    """Return the leaf hashes of a batch, rows x 32."""
    # All fixed-length parts are laid out at once by a structured type; `mark` stays 0, the prefix of a leaf (RFC 6962,
    # section 2.1).
    rows = np.zeros(len(classes), _LEAF)
    rows["slot"] = np.arange(batch.first, batch.first + len(classes), dtype=np.uint64)
    rows["class"], rows["authority"] = classes, authorities
    rows["commitment"] = np.frombuffer(batch.commitments, "V32")
    whole, size, sha256 = rows.tobytes(), _LEAF.itemsize, hashlib.sha256
    sources = [value.encode() for value in batch.sources.values]
    hashes = [
        sha256(whole[at : at + size] + sources[source]).digest()
        for at, source in zip(range(0, len(whole), size), batch.sources.index.tolist(), strict=True)
    ]
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, 32)


def _root(leaves: npt.NDArray[np.uint8]) -> bytes:
    """Return the root over leaf hashes."""
    # By complete subtrees: a tree over their roots splits where the tree over their leaves does.
    return merkle.root_of(_subtree(leaves[at : at + _SUBTREE].tobytes()) for at in range(0, len(leaves), _SUBTREE))


def _subtree(leaves: bytes) -> bytes:
    """Return the root over one subtree. Only the last one of a table may be incomplete."""
    if len(leaves) < _SUBTREE * 32:
        return merkle.root_of(leaves[at : at + 32] for at in range(0, len(leaves), 32))
    while len(leaves) > 32:
        leaves = merkle.parents(leaves)
    return leaves

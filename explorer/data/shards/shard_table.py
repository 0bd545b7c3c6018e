"""The file of a shard: its rows, the root over them, and rows that were erased.

A shard is a Parquet file with one row group, not compressed. Every row is a leaf of a Merkle tree (RFC 6962) whose root
is in the index; numbers are big-endian:

    leaf = SHA-256(0x00 || slot u64 || bytes of the label u32 || label || input)

A row is erased by zeros in the place of its input and its label, and by its leaf in the column `erased`, which a
shard of a whole pass lacks. The file then has another digest than the index says, but the same root: the index, its
digest and what was signed about it still hold, every other row is proved as before, and no row can be changed by
calling it erased, or be called erased while its bytes are there. What stays of an erased row is its leaf: a reader
who can guess its bytes in full can confirm the guess.
"""

import io
from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from explorer import merkle
from explorer.data.shards.shard_index import Shard
from explorer.errors import DataError, ProvenanceError
from explorer.provenance.tags_file import UNCOMPRESSED, codecs

ERASED = "erased"  # a column: the leaf of a row that was erased
ERASED_BYTES = 64  # that the column adds for each row, at most
MAX_DECODED = 2**31  # bytes of the columns of a shard
DAMAGE = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)  # that pyarrow raises for damaged files


def encode(table: pa.Table) -> bytes:
    """Return the file. It is not compressed: images are already, and pixels gain little."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        row_group_size=len(table),
        compression="none",
        use_dictionary=["tag"],  # pyright: ignore[reportArgumentType]
        write_statistics=False,
        store_schema=False,
    )
    return sink.getvalue().to_pybytes()


def decode(content: bytes, shard: Shard, *, where: str) -> pa.Table:
    """Return the rows. Raises `DataError` that begins with `where` for other rows than the index says."""
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        if (groups := file.metadata.num_row_groups) != 1 or file.metadata.num_rows != shard.rows:
            raise DataError(
                f"{where}: {groups} row groups and {file.metadata.num_rows} rows: expected one with {shard.rows}"
            )
        if (size := file.metadata.row_group(0).total_byte_size) > MAX_DECODED:
            raise DataError(f"{where}: {size} bytes unpacked: at most {MAX_DECODED} are read")
        table = file.read_row_group(0, use_threads=False).combine_chunks()
        tags = table.column("tag").unique().to_pylist()
    except DAMAGE as error:
        raise DataError(f"{where}: not a shard: {error}") from error
    if tags != [shard.tag or ""]:
        raise DataError(f"{where}: column 'tag': found {tags!r:.80}, the index says {shard.tag or ''!r}")
    return table


def binary(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of a binary column, and where each row begins. Raises TypeError and ValueError."""
    if not pa.types.is_binary(column.type) or column.null_count:
        raise TypeError(f"column of {column.type} with {column.null_count} nulls: expected binary without nulls")
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    bytes_ = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    if starts[0] < 0 or (np.diff(starts) < 0).any() or starts[-1] > len(bytes_):
        raise ValueError("its offsets are damaged")
    return bytes_, starts


def labels_of(table: pa.Table) -> np.ndarray:
    """Return the labels: numbers, or bytes one behind the other; none for tokens. Raises TypeError and ValueError."""
    if "label" not in table.column_names:
        return np.empty(0, np.uint8)
    column = table.column("label").chunk(0)
    if column.null_count:
        raise TypeError("column 'label': found nulls")
    if pa.types.is_binary(column.type):
        data, starts = binary(column)
        return data[starts[0] : starts[-1]]
    return column.to_numpy()


# --- the root, and erased rows ---------------------------------------------------------------------------------------


def root_of(table: pa.Table) -> str:
    """Return the root over the rows, hexadecimal. Raises TypeError and ValueError for other columns."""
    return merkle.root_of(_leaves(table)).hex()


def erased_rows(table: pa.Table) -> np.ndarray:
    """Return whether each row was erased, bool."""
    if ERASED not in table.column_names:
        return np.zeros(len(table), bool)
    return np.array([leaf is not None for leaf in _kept_leaves(table)])


def is_partly_erased(content: bytes, shard: Shard, *, where: str) -> bool:
    """Return whether these bytes are the shard without rows that were erased."""
    # Bytes that no digest vouches for: few damaged files get as far as the library, and none can grow in it.
    if ERASED.encode() not in content:
        return False
    try:
        if codecs(io.BytesIO(content)) != {UNCOMPRESSED}:
            return False
        table = decode(content, shard, where=where)
        return _is_cleared(table) and root_of(table) == shard.root
    except (DataError, ProvenanceError, *DAMAGE):
        return False


def without(table: pa.Table, rows: Collection[int]) -> pa.Table:
    """Return the table with these rows erased, and those that were erased before."""
    leaves = _leaves(table)
    gone = erased_rows(table)
    gone[np.array([*rows], np.int64)] = True
    columns = {name: table.column(name).chunk(0) for name in table.column_names if name != ERASED}
    for name in ("input", "label"):
        if name in columns:
            columns[name] = _zeroed(columns[name], gone)
    kept = [leaf if is_gone else None for leaf, is_gone in zip(leaves, gone.tolist(), strict=True)]
    return pa.table({**columns, ERASED: pa.array(kept, pa.binary())})


def _is_cleared(table: pa.Table) -> bool:
    """Return whether nothing but zeros is in the place of erased rows, and no column has them once more."""
    cleared = without(table, ())
    same = all(table.column(name).equals(cleared.column(name)) for name in table.column_names)
    return same and {*table.column_names} - {"label"} == {"input", "slot", "tag", ERASED}


def _leaves(table: pa.Table) -> list[bytes]:
    data, offsets = binary(table.column("input").chunk(0))
    labels = labels_of(table).tobytes()
    size = len(labels) // len(table)
    kept = _kept_leaves(table)
    return [
        kept[row]
        or merkle.leaf_hash(
            b"".join(
                (
                    slot.to_bytes(8, "big"),
                    size.to_bytes(4, "big"),
                    labels[row * size : (row + 1) * size],
                    data[offsets[row] : offsets[row + 1]].data,
                )
            )
        )
        for row, slot in enumerate(table.column("slot").to_pylist())
    ]


def _kept_leaves(table: pa.Table) -> list[bytes | None]:
    if ERASED not in table.column_names:
        return [None] * len(table)
    leaves = table.column(ERASED).to_pylist()
    if any(leaf is not None and (not isinstance(leaf, bytes) or len(leaf) != merkle.HASH_BYTES) for leaf in leaves):
        raise ValueError(f"column {ERASED!r}: expected {merkle.HASH_BYTES} bytes or nothing")
    return leaves


def _zeroed(column: pa.Array, gone: np.ndarray) -> pa.Array:
    """Return the column with zeros in some rows, of the size of what was there."""
    if not pa.types.is_binary(column.type):
        return pa.array(np.where(gone, 0, column.to_numpy()), column.type)
    return pa.array(
        [bytes(len(value)) if is_gone else value for value, is_gone in zip(column.to_pylist(), gone, strict=True)],
        pa.binary(),
    )

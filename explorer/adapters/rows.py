"""Datasets of dictionaries as examples that can be tagged: each row as bytes, all rows in one tensor.

    examples = rows_of(tokenised, columns=["input_ids", "attention_mask", "labels"])
    explorer.tag(examples, classes, authority=..., documents="governed")

A tag commits to the bytes of an example, and a governed step hands its loss function the examples whose tags were
checked. So a row has to be bytes, and bytes have to give the row back: `rows_from(examples.inputs[:4])` are the first
four dictionaries again, for the collator that the dataset has always had. Padding belongs into that collator.

A row is the length of its header in four bytes, the header, and the values of its columns one after the other. The
header is canonical JSON: the name, kind, type and shape of each column. Rows end in zeros up to the longest of them.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from explorer.canonical import canonical
from explorer.data.dataset import NO_BYTES, Split
from explorer.errors import DataError

Kind = Literal["number", "list", "array", "tensor"]
"""What a column's value was in the dataset, and is again when the row is read."""

LENGTH = 4  # bytes of a header's length
LONGEST = 1 << 28  # bytes of a row: the examples are one tensor, which is as wide as the longest of them
NUMBERS = "biuf"  # numpy's kinds: truth values, integers and floating point numbers


def rows_of(dataset: Any, *, columns: Sequence[str] | None = None) -> Split:
    """Return the rows of a dataset as examples; their labels are in the rows, and those of the split are zeros.

    Args:
        dataset: has a length, and a dictionary of numbers, lists, arrays or tensors for each index. Each row is read
            once: random augmentation belongs into the collator.
        columns: which of a row's entries are kept; None: all of them.

    Raises `DataError` for a row that lacks a column, has other than numbers in one, or differs when it is read again.
    """
    if not hasattr(dataset, "__len__") or not len(dataset):
        raise DataError(f"dataset: found {type(dataset).__name__}, expected one with a length above 0")
    packed = [_packed(_row(dataset, index, columns), index) for index in range(len(dataset))]
    # A dataset that augments its rows as they are read has no bytes to vouch for.
    if packed[0] != _packed(_row(dataset, 0, columns), 0):
        raise DataError("dataset: row 0 differs when it is read again: expected random augmentation in the collator")
    width = max(map(len, packed))
    table = np.zeros((len(packed), width), np.uint8)
    for index, content in enumerate(packed):
        table[index, : len(content)] = np.frombuffer(content, np.uint8)
    return Split(inputs=torch.from_numpy(table), labels=torch.zeros(len(packed), dtype=torch.int64))


def rows_from(inputs: Tensor) -> list[dict[str, Any]]:
    """Return the dictionaries of these examples, on the CPU. Raises `DataError` for inputs of another origin."""
    return [_unpacked(content) for content in inputs.cpu().numpy()]


def _row(dataset: Any, index: int, columns: Sequence[str] | None) -> dict[str, Any]:
    row = dataset[index]
    if not isinstance(row, Mapping):
        raise DataError(f"dataset: row {index}: found {type(row).__name__}, expected a dictionary of columns")
    missing = [name for name in columns or () if name not in row]
    if missing:
        raise DataError(f"dataset: row {index}: no column {missing[0]!r}; it has {', '.join(map(str, row))}")
    return {str(name): row[name] for name in (row if columns is None else columns)}


def _packed(row: Mapping[str, Any], index: int) -> bytes:
    """Return a row as bytes."""
    header, contents = [], []
    for name, value in row.items():
        kind, array = _array(value, f"dataset: row {index}: column {name!r}")
        header.append([name, kind, array.dtype.str, list(array.shape)])
        contents.append(array.tobytes())
    described = canonical(header)
    content = b"".join((len(described).to_bytes(LENGTH, "little"), described, *contents))
    if len(content) > LONGEST:
        raise DataError(f"dataset: row {index}: found {len(content)} bytes, expected at most {LONGEST}")
    return content


def _array(value: Any, where: str) -> tuple[Kind, np.ndarray]:
    if isinstance(value, Tensor):
        if value.dtype in NO_BYTES:
            raise DataError(f"{where}: found {value.dtype}, expected a type that numpy has, such as float32")
        return "tensor", value.detach().cpu().numpy()
    kind: Kind = "array" if isinstance(value, np.ndarray) else "list" if isinstance(value, list | tuple) else "number"
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of unequal lengths
        raise DataError(f"{where}: found a list of unequal lists, expected numbers in one shape: {error}") from error
    if array.dtype.kind not in NUMBERS:
        what = type(value).__name__ if kind == "number" else f"{array.dtype} in {type(value).__name__}"
        raise DataError(
            f"{where}: found {what}, expected numbers; name the columns to keep: rows_of(..., columns=[...])"
        )
    return kind, array


def _unpacked(content: np.ndarray) -> dict[str, Any]:
    """Return the row that these bytes hold."""
    data = content.tobytes()
    start = LENGTH + int.from_bytes(data[:LENGTH], "little")
    row: dict[str, Any] = {}
    try:
        for name, kind, dtype, shape in json.loads(data[LENGTH:start]):
            count = math.prod(shape)
            array = np.frombuffer(data, np.dtype(dtype), count=count, offset=start).reshape(shape)
            start += array.nbytes
            row[name] = _value(kind, array)
    except (ValueError, TypeError) as error:
        raise DataError("examples: found bytes that are no row, expected those of `rows_of`") from error
    return row


def _value(kind: Kind, array: np.ndarray) -> Any:
    if kind == "tensor":
        return torch.from_numpy(array.copy())
    return array.copy() if kind == "array" else array.tolist()

"""`tabular`: the user's own table, a CSV file with a column of labels, for classification.

The first line names the columns. Commas, semicolons or tabs separate them; the text is UTF-8. Of the columns:

    numbers           a feature; a missing one (empty, NA, ?) becomes the mean, and a second feature says so
    texts             a feature for every text of the training side that is not rare, 1 where a row has it
    left out          dates, columns of many different texts or of one value, columns that number the rows

The dataset's card lists what is left out, with the reason. The test side is a share of each class: the rows with the
smallest SHA-256, so that equal rows are on the same side. The column `tag`, if there is one, has the provenance class
of every row, and is not a feature.

Shapes: N rows, F features.
"""

import csv
import hashlib
import io
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from pyarrow import csv as arrow_csv
from pydantic import Field
from torch import Tensor

from explorer import rundir
from explorer.data.dataset import (
    SIMULATED,
    DataFile,
    Dataset,
    DataSource,
    Fitted,
    Modality,
    Skipped,
    Split,
    TaskName,
)
from explorer.data.labelled import Entry, divided, provenance_of
from explorer.data.local import MAX_NAMES, below, is_class, named_classes, shown
from explorer.errors import DataError, unknown

SUFFIXES = (".csv", ".tsv")
MEDIA = "text/csv"
MAX_BYTES = 2**28
MAX_COLUMNS = 10_000
MAX_CELLS = 2**27  # numbers of all features together, 1 GiB
MAX_LABELS = 1_000
MOST_TEXTS = 64  # of a column that becomes features
RARE = 2  # rows on the training side below which a text is no feature: it could not be learned
SHARE = 0.2
TARGETS = ("target", "label", "labels", "class", "y", "outcome", "species", "survived")  # usual names, in this order
TAGS = ("provenance", "source", "origin", "licence", "license", "tag")
SEPARATORS = ",;\t"


class Feature(NamedTuple):
    """A number for every row; NaN: missing."""

    name: str
    values: np.ndarray  # N, float64


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Table(Dataset):
    """Rows of numbers, N F in float64, as the file has them. `mean` and `std` are those of the training rows."""

    modality: ClassVar[Modality] = "tabular"
    task: ClassVar[TaskName] = "classification"

    mean: np.ndarray  # F, float64
    std: np.ndarray

    def preparation(self, where: torch.device) -> Callable[[Tensor], Tensor]:
        """Return a function from rows to float32 of zero mean and unit variance; a missing number becomes the mean."""
        mean, scale = torch.from_numpy(self.mean).to(where), torch.from_numpy(1 / self.std).to(where)

        # In float64 up to here: float32 has 7 digits, too few for a time in seconds or the number of a customer.
        def prepare(inputs: Tensor) -> Tensor:
            rows = inputs.to(where, torch.float64, non_blocking=True)
            return ((rows - mean) * scale).nan_to_num(nan=0.0).to(torch.float32)

        return prepare


@dataclass(frozen=True, kw_only=True, slots=True)
class Tabular(DataSource):
    """A table (CSV) with names in its first line; `target` is the column to predict, whole numbers or texts.

    Numbers are features, and so are columns of at most 64 different texts. `tag` is the column of provenance classes.
    """

    name: ClassVar[str] = "tabular"
    summary: ClassVar[str] = "a table of your own (CSV): predict one column from the others"
    source: ClassVar[str] = "a file of yours"
    licence: ClassVar[str] = "whatever holds for the table"
    modality: ClassVar[Modality] = "tabular"
    task: ClassVar[TaskName] = "classification"
    fitted: ClassVar[Fitted] = {"normalisation": "mean, standard deviation and texts of each column in training rows"}
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "nll")

    path: Annotated[str, Field(min_length=1, max_length=1000, description="file below --data")]
    target: Annotated[str, Field(min_length=1, max_length=200, description="column to predict")]
    tag: Annotated[
        str | None, Field(min_length=1, max_length=200, description="column of the provenance classes; null: none")
    ] = None
    test: Annotated[float, Field(gt=0, le=0.5, description="share of each class for the test side")] = SHARE

    def load(self, data: Path | None) -> Table:
        table = self._table(data)
        labels, names = self._labels(table)
        tags = self._tags(table, labels)
        columns = {name: table.column(name) for name in table.column_names if name not in (self.target, self.tag)}
        rows = zip(labels, *(column.to_pylist() for column in columns.values()), strict=True)
        sides = divided(labels, (repr(row).encode() for row in rows), share=self.test)
        training = np.asarray([side == "train" for side in sides])
        for label in names:
            if not any(mine == label and side == "train" for mine, side in zip(labels, sides, strict=True)):
                raise DataError(
                    f"dataset {self.name!r}: label {label!r} of column {self.target!r} has one row, or equal rows only:"
                    " expected at least two different ones, one for each side"
                )
        features, left = _features(columns, training)
        if not features:
            raise DataError(
                f"dataset {self.name!r}: found no column of {self.path!r} to learn from: expected numbers, or at most"
                f" {MOST_TEXTS} different texts ({'; '.join(f'{column!r} is {reason}' for column, reason in left[:3])})"
            )
        if len(features) * len(labels) > MAX_CELLS:
            raise DataError(
                f"dataset {self.name!r}: {len(labels)} rows of {len(features)} features: expected {MAX_CELLS} numbers"
                " or fewer"
            )
        inputs = np.stack([feature.values for feature in features], axis=1)
        codes = {label: code for code, label in enumerate(names)}
        targets = torch.tensor([codes[label] for label in labels], dtype=torch.int64)
        entries = [
            Entry(name=f"{shown(self.path)}, row {number}", label=label, side=side, tag=tag)
            for number, (label, side, tag) in enumerate(zip(labels, sides, tags, strict=True), start=1)
        ]
        return Table(
            train=Split(inputs=torch.from_numpy(inputs[training]), labels=targets[torch.from_numpy(training)]),
            test=Split(inputs=torch.from_numpy(inputs[~training]), labels=targets[torch.from_numpy(~training)]),
            classes=len(names),
            names=tuple(names),
            mean=np.nanmean(inputs[training], axis=0),
            std=np.nanstd(inputs[training], axis=0),
            provenance=provenance_of([entry for entry in entries if entry.side == "train"]),
            skipped=_skipped(left),
        )

    @classmethod
    def of_path(cls, place: Path) -> Self | None:
        if not place.is_file() or place.suffix.lower() not in SUFFIXES:
            return None
        names = _read(place).column_names
        spelt = {name.lower(): name for name in reversed(names)}
        # The usual names first; else the last column, where most published tables have it.
        return cls(path=place.name, target=next((spelt[name] for name in TARGETS if name in spelt), names[-1]))

    def with_classes(self, data: Path | None) -> Self:
        names = {name.lower(): name for name in reversed(self._table(data).column_names)}
        return replace(self, tag=self.tag or next((names[name] for name in TAGS if name in names), self.target))

    def digest(self, data: Path | None) -> str:
        return hashlib.sha256(_content(self._place(data))).hexdigest()

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        return (DataFile(path=shown(self.path), sha256=self.digest(data), media=MEDIA),)

    def _place(self, data: Path | None) -> Path:
        return below(data, self.path, dataset=self.name)

    def _table(self, data: Path | None) -> pa.Table:
        table = _read(self._place(data))
        for name in (self.target, self.tag or self.target):
            if name not in table.column_names:
                raise DataError(f"{self._place(data)}: {unknown('column', name, table.column_names)}")
        return table

    def _labels(self, table: pa.Table) -> tuple[list[str], list[str]]:
        """Return the label of each row, and all labels in order: whole numbers by size, texts by letters."""
        values = [_label(value, self.target, row) for row, value in enumerate(_texts(table.column(self.target)), 1)]
        ordered = sorted(set(values), key=lambda value: (isinstance(value, str), value))
        if not 2 <= len(ordered) <= MAX_LABELS:
            raise DataError(
                f"dataset {self.name!r}: found {len(ordered)} different values in column {self.target!r}: expected 2 to"
                f" {MAX_LABELS:,} labels; name another column as `target`"
            )
        return [shown(str(value)) for value in values], [shown(str(value)) for value in ordered]

    def _tags(self, table: pa.Table, labels: Sequence[str]) -> Sequence[str | None]:
        """Return the provenance class of each row."""
        if self.tag is None:
            return [None] * len(labels)
        values = labels if self.tag == self.target else _texts(table.column(self.tag))
        for row, value in enumerate(values, 1):
            if value in (None, ""):
                raise DataError(f"row {row}: found nothing in column {self.tag!r}: expected a provenance class")
        texts = [str(value) for value in values]
        if all(map(is_class, texts)) and (self.tag != self.target or any("/" in text for text in texts)):
            return texts
        # Labels are no sources, so a division by them is simulated; any other column is a branch of its own.
        branch = SIMULATED if self.tag == self.target else named_classes([self.tag])[self.tag].rpartition("/")[2]
        spelt = named_classes(texts, branch)
        return [spelt[text] for text in texts]


# --- reading the file ------------------------------------------------------------------------------------------------


def _content(place: Path) -> bytes:
    if not place.is_file():  # opening a pipe would block
        raise DataError(f"dataset {Tabular.name!r}: no file {place}: expected it below the directory of --data")
    return rundir.read_bytes(place, max_bytes=MAX_BYTES, error=DataError)


def _read(place: Path) -> pa.Table:
    """Read a table: numbers, texts without spaces around them, dates. Raises `DataError` for anything else."""
    content = _content(place)
    separator = _check_names(content, str(place))
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(content),
            # One block, in one thread: the types of columns follow from all rows, not from the first megabyte.
            read_options=arrow_csv.ReadOptions(block_size=len(content) + 1, use_threads=False),
            parse_options=arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(null_values=[*arrow_csv.ConvertOptions().null_values, "?", " ?"]),
        )
    except (pa.ArrowException, ValueError, OSError) as error:
        raise DataError(f"{place}: expected a table (CSV) in UTF-8: {' '.join(str(error).split())[:200]}") from error
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        if pa.types.is_binary(kind):
            raise DataError(f"{place}: column {shown(name)!r:.80} is not UTF-8: expected a table (CSV) in UTF-8")
    return table.rename_columns([name.strip() for name in table.column_names])


def _check_names(content: bytes, where: str) -> str:
    """Return the separator, after a look at the first line: it has to name every column, each by another name."""
    try:
        first = content[: 2**20].decode("utf-8-sig", errors="replace").splitlines()[0]
    except IndexError:
        raise DataError(f"{where}: found an empty file, expected a table (CSV) with names in its first line") from None
    separator = max(SEPARATORS, key=first.count)
    names = [name.strip() for name in next(csv.reader(io.StringIO(first), delimiter=separator))]
    if not 2 <= len(names) <= MAX_COLUMNS:
        raise DataError(f"{where}: found {len(names)} columns, expected 2 to {MAX_COLUMNS:,}, with names in line 1")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{where}: two columns are called {twice[0]!r:.80}: expected different names in line 1")
    for name in names:
        if "." in name and _is_number(name):
            raise DataError(f"{where}: found the number {name} in line 1: expected the names of the columns there")
    return separator


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _texts(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column, texts without spaces around them."""
    return [value.strip() if isinstance(value, str) else value for value in column.to_pylist()]


def _label(value: Any, column: str, row: int) -> int | str:
    """Return a label as a whole number or text. Raises `DataError` that names the row."""
    if value is None or value == "":
        raise DataError(f"row {row}: found nothing in column {column!r}: expected a label in every row")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    raise DataError(
        f"row {row}: found {value!s:.40} in column {column!r}: expected a label, a whole number or a text; a column of"
        " other numbers cannot be predicted yet, so name another one as `target`"
    )


# --- features --------------------------------------------------------------------------------------------------------


def _features(
    columns: Mapping[str, pa.ChunkedArray], training: np.ndarray
) -> tuple[list[Feature], list[tuple[str, str]]]:
    """Return the features, in the order of the columns, and the columns that are left out, with the reasons."""
    features: list[Feature] = []
    left: list[tuple[str, str]] = []
    for name, column in columns.items():
        outcome = "a column without a name" if not name else _of_column(name, column, training)
        if isinstance(outcome, str):
            left.append((shown(name), outcome))
        else:
            features += outcome
    return features, left


def _of_column(name: str, column: pa.ChunkedArray, training: np.ndarray) -> list[Feature] | str:
    """Return the features of a column, or the reason why it has none."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        values = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False).copy()
        values[~np.isfinite(values)] = np.nan
        steps = np.unique(np.diff(values)) if pa.types.is_integer(kind) and len(values) > 2 else ()
        if len(steps) == 1 and steps[0] == 1:
            return "a column that numbers the rows"
        made = [Feature(name, values)]
        if np.isnan(values).any():
            made.append(Feature(f"{name} is missing", np.isnan(values).astype(np.float64)))
    elif pa.types.is_string(kind):
        texts = _texts(column)
        counts = Counter(itertools.compress(texts, training))
        if len(counts) > MOST_TEXTS:
            return f"a column of more than {MOST_TEXTS} different texts"
        kept = sorted(text for text, count in counts.items() if count >= RARE)
        held = np.asarray(texts, dtype=object)
        made = [Feature(f"{name} = {text}", (held == text).astype(np.float64)) for text in kept]
    else:
        return "an empty column" if pa.types.is_null(kind) else f"a column of {kind} values"
    return [feature for feature in made if _varies(feature.values[training])] or "a column of one value"


def _varies(values: np.ndarray) -> bool:
    """Return whether the values differ enough to be divided by their deviation."""
    known = values[~np.isnan(values)]
    return len(known) > 0 and float(np.std(known)) > 0


def _skipped(left: Sequence[tuple[str, str]]) -> tuple[Skipped, ...]:
    """Return the columns that are left out, counted by reason."""
    return tuple(
        Skipped(reason=reason, count=len(names), names=tuple(names[:MAX_NAMES])) for reason, names in _grouped(left)
    )


def _grouped(left: Sequence[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    for reason in dict.fromkeys(reason for _, reason in left):
        yield reason, [name for name, mine in left if mine == reason]

"""`tabular`: the user's own table, a CSV or Parquet file with a column to predict: a class, a number, or labels.

The first line of CSV names the columns. Commas, semicolons or tabs separate them; the text is UTF-8. Of the columns:

    numbers           a feature; a missing one (empty, NA, ?) becomes the mean, and a second feature says so
    texts             a feature for every text of the training side that is not rare, 1 where a row has it
    left out          dates, columns of many different texts or of one value, columns that number the rows

The dataset's card lists what is left out, with the reason. The test side is a share of each class: the rows with the
smallest SHA-256, so that equal rows are on the same side. The column `tag`, if there is one, has the provenance class
of every row, and is not a feature.

Shapes: N rows, F features.
"""

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.dataset import DataFile, Dataset, DataSource, Fitted, Modality, Skipped, Split, TableColumn, TaskName
from explorer.data.labelled import Entry, provenance_of
from explorer.data.local import MAX_NAMES, below, shown
from explorer.data.table_file import SUFFIXES, TAGS, TARGETS, content_of, media_of, named, read_table, tags_of, texts
from explorer.data.targets import AIMS, PREDICT, Predict, Target, guess, kind_for, read_target, sides_of
from explorer.errors import DataError
from explorer.schema import LATER

EXAMPLES = "training rows to use, as many of each class, by their digests; null: all"
MAX_CELLS = 2**27  # numbers of all features together, 1 GiB
MOST_TEXTS = 64  # of a column that becomes features
RARE = 2  # rows on the training side below which a text is no feature: it could not be learned
SHARE = 0.2


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
    """A table (CSV with names in its first line, or Parquet); `target` is the column to predict.

    `predict` is `class` (whole numbers or texts), `number` (regression) or `labels` (any number of them in a row).
    Numbers are features, and so are columns of at most 64 different texts. `tag` is the column of provenance classes.
    """

    name: ClassVar[str] = "tabular"
    summary: ClassVar[str] = "a table of your own (CSV, Parquet): predict one column from the others"
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
    predict: Annotated[Predict, Field(description=PREDICT)] = field(default="class", metadata=LATER)
    examples: Annotated[int | None, Field(ge=2, description=EXAMPLES)] = field(default=None, metadata=LATER)

    @property
    def aim(self) -> TaskName:
        return AIMS[self.predict]

    def load(self, data: Path | None) -> Table:
        table = self._table(data)
        target = self._target(table)
        tags = tags_of(table, self.tag, target=self.target, values=target)
        columns = {name: table.column(name) for name in table.column_names if name not in (self.target, self.tag)}
        first = target.groups if self.predict == "class" else texts(table.column(self.target))
        rows = zip(first, *(column.to_pylist() for column in columns.values()), strict=True)
        places = sides_of(
            target,
            [repr(row).encode() for row in rows],
            share=self.test,
            examples=self.examples,
            column=self.target,
            dataset=self.name,
        )
        training, test = (np.isin(np.arange(table.num_rows), side) for side in places)
        features, used, left = _features(columns, training)
        if not features:
            raise DataError(
                f"dataset {self.name!r}: found no column of {self.path!r} to learn from: expected numbers, or at most"
                f" {MOST_TEXTS} different texts ({'; '.join(f'{column!r} is {reason}' for column, reason in left[:3])})"
            )
        if len(features) * table.num_rows > MAX_CELLS:
            raise DataError(
                f"dataset {self.name!r}: {table.num_rows} rows of {len(features)} features: expected {MAX_CELLS}"
                " numbers or fewer"
            )
        inputs = np.stack([feature.values for feature in features], axis=1)
        train_labels, test_labels, centre, scale = target.sides(*places, dataset=self.name)
        entries = [
            Entry(name=f"{shown(self.path)}, row {place + 1}", label="", side="train", tag=tags[place])
            for place in places[0].tolist()
        ]
        return kind_for(Table, self.predict)(
            train=Split(inputs=torch.from_numpy(inputs[training]), labels=train_labels),
            test=Split(inputs=torch.from_numpy(inputs[test]), labels=test_labels),
            classes=target.outputs,
            names=target.names,
            mean=np.nanmean(inputs[training], axis=0),
            std=np.nanstd(inputs[training], axis=0),
            provenance=provenance_of(entries),
            skipped=_skipped(left),
            columns=tuple(used),
            centre=centre,
            scale=scale,
        )

    @classmethod
    def of_path(cls, place: Path, target: str | None = None) -> Self | None:
        if not place.is_file() or place.suffix.lower() not in SUFFIXES:
            return None
        table = read_table(place, dataset=cls.name, columns=(target,))
        # The usual names first; else the last column, where most published tables have it.
        target = target or named(table.column_names, TARGETS) or table.column_names[-1]
        return cls(path=place.name, target=target, predict=guess(texts(table.column(target))))

    def with_classes(self, data: Path | None) -> Self:
        return replace(self, tag=self.tag or named(self._table(data).column_names, TAGS) or self.target)

    def digest(self, data: Path | None) -> str:
        return hashlib.sha256(content_of(self._place(data), dataset=self.name)).hexdigest()

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        return (DataFile(path=shown(self.path), sha256=self.digest(data), media=media_of(Path(self.path))),)

    def _place(self, data: Path | None) -> Path:
        return below(data, self.path, dataset=self.name)

    def _table(self, data: Path | None) -> pa.Table:
        return read_table(self._place(data), dataset=self.name, columns=(self.target, self.tag))

    def _target(self, table: pa.Table) -> Target:
        values = texts(table.column(self.target))
        return read_target(values, self.predict, column=self.target, where=f"dataset {self.name!r}: ")


# --- features --------------------------------------------------------------------------------------------------------


def _features(
    columns: Mapping[str, pa.ChunkedArray], training: np.ndarray
) -> tuple[list[Feature], list[TableColumn], list[tuple[str, str]]]:
    """Return the features, in the order of the columns, these columns, and those that are left out with reasons."""
    features: list[Feature] = []
    used: list[TableColumn] = []
    left: list[tuple[str, str]] = []
    for name, column in columns.items():
        outcome = "a column without a name" if not name else _of_column(name, column, training)
        if isinstance(outcome, str):
            left.append((shown(name), outcome))
        else:
            features += outcome
            made = tuple(shown(feature.name) for feature in outcome)
            used.append(TableColumn(name=shown(name), features=made, missing=_missing(column)))
    return features, used, left


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
        cells = texts(column)
        counts = Counter(itertools.compress(cells, training))
        if len(counts) > MOST_TEXTS:
            return f"a column of more than {MOST_TEXTS} different texts"
        kept = sorted(text for text, count in counts.items() if count >= RARE)
        held = np.asarray(cells, dtype=object)
        made = [Feature(f"{name} = {text}", (held == text).astype(np.float64)) for text in kept]
    else:
        return "an empty column" if pa.types.is_null(kind) else f"a column of {kind} values"
    return [feature for feature in made if _varies(feature.values[training])] or "a column of one value"


def _missing(column: pa.ChunkedArray) -> int:
    """Return in how many rows a column has no value."""
    return sum(
        value in (None, "") or (isinstance(value, float) and not math.isfinite(value)) for value in texts(column)
    )


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

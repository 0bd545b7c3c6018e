"""`parquet`: images of one's own in Parquet files, as the Hugging Face hub keeps them.

    photos/train-00000-of-00002.parquet    train*.parquet and test*.parquet, or
    photos/train-00001-of-00002.parquet    any *.parquet with `test: 0.1`: a tenth of each class is the test side
    photos/test.parquet

A row has an encoded image (PNG, JPEG, WebP) as binary or as struct{bytes, path}, and a label, a whole number or text.
Rows without a readable image are passed over and listed in the dataset's card. The column `tag`, where one is named,
has the path of the provenance class of every row.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from explorer import canonical
from explorer.data.class_table import check_class
from explorer.data.dataset import DataFile, DataSource, Modality, TaskName
from explorer.data.images import Images
from explorer.data.labelled import Entry, Side, labelled
from explorer.data.local import Fault, LocalFile, below, data_files, listed, shown
from explorer.data.pictures import decoded
from explorer.errors import DataError, unknown
from explorer.provenance.croissant import PARQUET

SIDES: tuple[Side, Side] = ("train", "test")
SUFFIX = ".parquet"
MAX_FILE_BYTES = 2**36
MAX_ROWS = 10**6
MAX_GROUP_BYTES = 2**31  # of a column in a row group, unpacked
ROWS_AT_ONCE = 256
ERRORS = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)  # what a damaged file leads pyarrow to

Column = Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parquet(DataSource):
    """Images in the Parquet files of the directory `path`; `image`, `label` and `tag` are the names of columns.

    Each image is cut to the square in its middle and brought to `size`. `test` divides what has no `train` and `test`
    files. `augment` crops (an eighth of the size) and mirrors the training images at random.
    """

    name: ClassVar[str] = "parquet"
    summary: ClassVar[str] = "images of your own, in Parquet files"
    source: ClassVar[str] = "files of yours"
    licence: ClassVar[str] = "whatever holds for the images"
    modality: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "nll")

    path: Annotated[str, Field(min_length=1, max_length=1000)]
    image: Column = "image"
    label: Column = "label"
    tag: Column | None = None
    size: Annotated[int, Field(ge=8, le=512)] = 32
    channels: Literal[1, 3] = 3
    test: Annotated[float, Field(gt=0, le=0.5)] | None = None
    augment: bool = True

    def load(self, data: Path | None) -> Images:
        files = self._files(data)
        rows = [row for side, file in files for row in self._rows(side, file)]
        if len(rows) > MAX_ROWS:
            raise DataError(f"dataset {self.name!r}: {len(rows)} rows, expected {MAX_ROWS} or fewer")
        contents = [self.image, self.size, self.channels, [_named(file) for _, file in files]]
        pixels, faults = decoded(
            f"parquet-{canonical.digest([list(Fault), contents])[:16]}",
            (image for _, file in files for image in self._images(file)),
            count=len(rows),
            size=self.size,
            channels=self.channels,
        )
        return labelled(
            self.name,
            [entry for _, entry in rows],
            pixels,
            faults,
            labels=_ordered({label for label, _ in rows}),
            test=self.test,
            augment=self.augment,
        )

    def digest(self, data: Path | None) -> str:
        return canonical.digest([_named(file) for _, file in self._files(data)])

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        found = [file for _, file in self._files(data)]
        return data_files(self.path, found, media=PARQUET, max_bytes=MAX_FILE_BYTES)

    def _files(self, data: Path | None) -> list[tuple[Side | None, LocalFile]]:
        """The files of each side, by name. Raises `DataError` if there are none."""
        root = below(data, self.path, dataset=self.name)
        if not root.is_dir():
            raise DataError(f"dataset {self.name!r}: no directory {root}: expected it below the directory of --data")
        files = [file for file in listed(root) if file.name.endswith(SUFFIX)]
        sides: list[tuple[Side | None, LocalFile]] = [
            (side, file) for side in SIDES for file in files if Path(file.name).name.startswith(side)
        ]
        divided = {side for side, _ in sides} == set(SIDES)
        if self.test is not None and divided:
            raise DataError(f"dataset {self.name!r}: {root} has train and test files: leave 'test' out")
        undivided: list[tuple[Side | None, LocalFile]] = [(None, file) for file in files]
        found = sides if self.test is None else undivided
        if not found or (self.test is None and not divided):
            raise DataError(
                f"dataset {self.name!r}: found {', '.join(file.name for file in files[:5]) or 'no Parquet file'} in"
                f" {root}: expected train*.parquet and test*.parquet, or a share for the test side, such as test: 0.1"
            )
        return found

    def _rows(self, side: Side | None, file: LocalFile) -> Iterator[tuple[int | str, Entry]]:
        """The label of each row, as it is written, and what else is known of it."""
        columns = [self.label] if self.tag is None else [self.label, self.tag]
        for number, (label, tag) in enumerate(zip(*self._columns(file, columns), strict=True)):
            where = f"{file.name}, row {number}"
            if label is None:
                raise DataError(f"{where}: no label in column {self.label!r}")
            if self.tag is not None:
                check_class(tag, where=where)
            yield label, Entry(name=where, label=shown(str(label)), side=side, tag=tag)

    def _columns(self, file: LocalFile, names: list[str]) -> tuple[list[Any], list[Any]]:
        """Labels and tags; None for every tag where there is no such column."""
        opened = self._opened(file)
        try:
            table = opened.read(columns=names, use_threads=False)
            found = [table.column(name).to_pylist() for name in names]
        except ERRORS as error:
            raise DataError(f"{file.path}: damaged: {error}") from error
        return found[0], found[1] if len(found) > 1 else [None] * len(found[0])

    def _images(self, file: LocalFile) -> Iterator[bytes | Fault]:
        """The encoded image of each row."""
        opened = self._opened(file)
        try:
            for batch in opened.iter_batches(batch_size=ROWS_AT_ONCE, columns=[self.image], use_threads=False):
                column = batch.column(0)
                encoded = column.field("bytes") if isinstance(column, pa.StructArray) else column
                yield from (content if content is not None else Fault.MISSING for content in encoded.to_pylist())
        except ERRORS as error:
            raise DataError(f"{file.path}: damaged: {error}") from error

    def _opened(self, file: LocalFile) -> pq.ParquetFile:
        """The file, found to have the columns that are named, and not too much in them."""
        if file.fault is not None:
            raise DataError(f"{file.path}: {file.fault}: expected a Parquet file")
        try:
            opened = pq.ParquetFile(file.path)
            schema, metadata = opened.schema_arrow, opened.metadata
        except ERRORS as error:
            raise DataError(f"{file.path}: expected a Parquet file: {error}") from error
        kinds = ((self.image, "images", _holds_images), (self.label, "labels", _holds_labels))
        for name, what, fits in (*kinds, *([(self.tag, "class paths", _is_text)] if self.tag else [])):
            if name not in schema.names:
                raise DataError(f"{file.path}: {unknown('column', name, schema.names)}")
            if not fits(schema.field(name).type):
                raise DataError(f"{file.path}: column {name!r} is {schema.field(name).type}, expected {what}")
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            sizes = [group.column(place).total_uncompressed_size for place in range(group.num_columns)]
            if max(sizes, default=0) > MAX_GROUP_BYTES:
                raise DataError(f"{file.path}: a column of a row group has more than {MAX_GROUP_BYTES} bytes")
        if metadata.num_rows > MAX_ROWS:
            raise DataError(f"{file.path}: {metadata.num_rows} rows, expected {MAX_ROWS} or fewer")
        return opened


def _named(file: LocalFile) -> list[str]:
    return [file.name, file.digest(max_bytes=MAX_FILE_BYTES)]


def _ordered(labels: Iterable[int | str]) -> list[str]:
    """The labels in their own order: whole numbers by size, text by letters."""
    return [shown(str(label)) for label in sorted(labels, key=lambda label: (isinstance(label, str), label))]


def _holds_images(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and _holds_images(kind.field("bytes").type)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _holds_labels(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(plain) or pa.types.is_large_string(plain)

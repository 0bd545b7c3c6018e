"""`parquet`: the user's own images in Parquet files, laid out as on the Hugging Face hub.

    photos/data/train-00000-of-00002.parquet    train*.parquet and test*.parquet, or files in `train` and `test`, or
    photos/data/train-00001-of-00002.parquet    any *.parquet with `test: 0.1`: a tenth of each class is the test side
    photos/data/test-00000-of-00001.parquet

Without files for `test`, those for `validation`, `valid`, `val` or `dev` are the test side. Where the directory has a
card of the hub (`README.md` with `configs`), the card says which files are of which side (hub_card.py); `config` names
one of its configurations.

A row has an encoded image (PNG, JPEG, WebP) as binary or as struct{bytes, path}, and a label, a whole number or text;
with `predict: number` any number, with `predict: labels` a list of labels, or a text such as red|round (targets.py).
Names of classes come from the files' header, if the hub has written them, or else from the card. The digest covers the
names and contents of the files, and what only the card says: other sides than those of the files' names, and names of
classes. If all files are in one directory below `path`, they are named as if `path` were that directory. Rows without a
readable image are skipped and listed in the dataset's card. The column `tag`, if there is one, has the path of the
provenance class of every row. It can be the column of the labels: then labels that are no such paths become made-up
classes, such as `simulated/3`.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from explorer import canonical
from explorer.data.dataset import SIMULATED, DataFile, TaskName
from explorer.data.hub_card import README, Configuration, matches, read_hub_card
from explorer.data.labelled import MAX_CLASSES, TESTS, Entry, LabelledImages, Listing, Side
from explorer.data.local import (
    Fault,
    LocalFile,
    below,
    check_class,
    data_files,
    is_class,
    listed,
    named_classes,
    shown,
)
from explorer.data.targets import AIMS, PREDICT, Predict, Target, guess, read_target
from explorer.errors import DataError, unknown
from explorer.provenance.description import PARQUET
from explorer.schema import LATER

CONFIG = "configuration of the hub's card (README.md); null: its default, or its only one"
TEST = "share of each class for the test side, such as 0.1; null: files called train* and test* are the sides"
EXAMPLES = "training images to use, the first of each class; null: all"
SUFFIX = ".parquet"
BEGINNING = r"train|test|validation|(?:valid|val|dev)(?![a-z])"  # of a name; not of values.parquet
MAX_FILE_BYTES = 2**36
MAX_ROWS = 10**7
MAX_HEADER_BYTES = 2**22
SHARE = 0.2  # for the test side of images that are not divided
IMAGES, LABELS = ("image", "img"), ("label", "labels", "class", "target", "fine_label")  # usual names of columns
MOST_VALUES = 32  # of a column that is taken for provenance classes
MAX_GROUP_BYTES = 2**31  # of a column in a row group, unpacked
ROWS_AT_ONCE = 256
ERRORS = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)  # that pyarrow raises for damaged files


@dataclass(frozen=True, kw_only=True, slots=True)
class Parquet(LabelledImages):
    """Images in the Parquet files of the directory `path`; `image`, `label` and `tag` are the names of columns.

    Each image is cut to the square in its middle and brought to `size`. `test` divides what has no `train` and `test`
    files. `augment` crops (an eighth of the size) and mirrors the training images at random. `predict` is `class`,
    `number` (regression) or `labels` (any number of them in a row).
    """

    name: ClassVar[str] = "parquet"
    summary: ClassVar[str] = "images of your own, in Parquet files"
    source: ClassVar[str] = "files of yours"

    path: Annotated[str, Field(min_length=1, max_length=1000, description="directory below --data")]
    image: Annotated[str, Field(min_length=1, max_length=200, description="column of the images")] = "image"
    label: Annotated[str, Field(min_length=1, max_length=200, description="column of the labels")] = "label"
    tag: Annotated[
        str | None, Field(min_length=1, max_length=200, description="column of the provenance classes; null: none")
    ] = None
    size: Annotated[int, Field(ge=8, le=512, description="side of the square that images are brought to")] = 32
    channels: Annotated[Literal[1, 3], Field(description="1: grey, 3: colour")] = 3
    test: Annotated[float | None, Field(gt=0, le=0.5, description=TEST)] = None
    augment: Annotated[bool, Field(description="crop and mirror training images at random")] = True
    examples: Annotated[int | None, Field(ge=2, description=EXAMPLES)] = None

    predict: Annotated[Predict, Field(description=PREDICT)] = field(default="class", metadata=LATER)
    config: Annotated[str | None, Field(min_length=1, max_length=200, description=CONFIG)] = field(
        default=None, metadata=LATER
    )

    @property
    def aim(self) -> TaskName:
        return AIMS[self.predict]

    def listing(self, data: Path | None) -> Listing:
        files = self._files(data)
        entries, target = self._targets(files, data)
        return Listing(
            entries=entries,
            target=target,
            key=canonical.digest([self.image, named_files(files)]),
            readers=lambda: (partial(_same, image) for _, file in files for image in self._images(file)),
        )

    @classmethod
    def of_path(cls, place: Path) -> Self | None:
        files = [file for file in listed(place) if file.name.endswith(SUFFIX)] if place.is_dir() else []
        if not files:
            return None
        card = read_hub_card(place)
        first = None if card is None else card.default or card.configurations[0]
        files = [file for file in files if first is None or first.split_of(file.name) is not None] or files
        source = cls(
            path=place.name,
            test=None if divided_files(splits_of(files, first)) else SHARE,
            config=None if card is None or first is None or card.default is not None else first.name,
        )
        schema = source._schema(files[0].path)
        images = [column.name for column in schema if holds_images(column.type)]
        labels = [column.name for column in schema if _holds_labels(column.type)]
        labels = labels or [column.name for column in schema if _holds_lists(column.type)]
        # The usual names first; else the only column that can be it.
        image = next((name for name in IMAGES if name in images), images[0] if len(images) == 1 else source.image)
        label = next((name for name in LABELS if name in labels), labels[0] if len(labels) == 1 else source.label)
        source = replace(source, image=image, label=label)
        return replace(source, predict=source._guess(files[0])) if label in schema.names else source

    def _guess(self, file: LocalFile) -> Predict:
        """Return what the column of the labels probably is."""
        kind = self._schema(file.path).field(self.label).type
        # Whole numbers under a usual name are classes, however many: photos of one person each have many of them.
        if (pa.types.is_integer(kind) and self.label in LABELS) or not _fits(kind):
            return "class"
        readable = replace(self, predict="labels" if _holds_lists(kind) else "class")
        return guess(readable._columns(file, [self.label])[0])

    @staticmethod
    def _schema(path: Path) -> pa.Schema:
        try:
            return pq.read_schema(path)
        except ERRORS as error:
            raise DataError(f"{path}: expected a Parquet file: {error}") from error

    def with_classes(self, data: Path | None) -> Self:
        return replace(self, tag=self.tag or self._class_column(self._files(data)))

    def digest(self, data: Path | None) -> str:
        files, named = self._files(data), named_files(self._files(data))
        if self._configuration(data) is None:
            return canonical.digest(named)
        # What the files say too leaves the digest as it is without a card.
        plain = divided_files(splits_of(self._all(data), None)) if self.test is None else files
        sides = [] if files == plain else [side for side, _ in files]
        names = () if self.predict != "class" or self._headers(files) else self._names(files, data)
        return canonical.digest([named, sides, list(names)] if sides or names else named)

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        files = [file for _, file in self._files(data)]
        return data_files(self.path, files, media=PARQUET, max_bytes=MAX_FILE_BYTES)

    def _files(self, data: Path | None) -> list[tuple[Side | None, LocalFile]]:
        """Return the files of each side, by name. Raises `DataError` if there are none."""
        root, one = self._root(data), self._configuration(data)
        splits = splits_of(self._all(data), one)
        files, sides = [*splits], divided_files(self._labelled(splits))
        divided = bool(sides)
        if one is not None:
            _check_there(one, files, root)
        if self.test is not None and divided:
            raise DataError(f"dataset {self.name!r}: {root} has train and test files: leave 'test' out")
        undivided: list[tuple[Side | None, LocalFile]] = [(None, file) for file in files]
        chosen = sides if self.test is None else undivided
        if not chosen or (self.test is None and not divided):
            raise DataError(
                f"dataset {self.name!r}: found {', '.join(file.name for file in files[:5]) or 'no Parquet file'} in"
                f" {root}: expected train*.parquet and test*.parquet (or validation*.parquet), or a share for the test"
                " side, such as test: 0.1"
            )
        return chosen

    def _labelled(self, splits: Mapping[LocalFile, str | None]) -> Mapping[LocalFile, str | None]:
        """Leave out test files with the label -1 in every row, as where labels are secret, if there is a validation
        split: it is the test side then."""
        tests = [file for file, split in splits.items() if split == "test"]
        if self.predict != "class" or not tests or not any(split in TESTS[1:] for split in splits.values()):
            return splits
        secret = all(set(self._columns(file, [self.label])[0]) == {-1} for file in tests)
        return {file: split for file, split in splits.items() if split != "test"} if secret else splits

    def _root(self, data: Path | None) -> Path:
        root = below(data, self.path, dataset=self.name)
        if not root.is_dir():
            raise DataError(f"dataset {self.name!r}: no directory {root}: expected it below the directory of --data")
        return root

    def _all(self, data: Path | None) -> list[LocalFile]:
        return [file for file in listed(self._root(data)) if file.name.endswith(SUFFIX)]

    def _configuration(self, data: Path | None) -> Configuration | None:
        """Return what the hub's card says about the files; None without a card."""
        root = self._root(data)
        card = read_hub_card(root)
        if card is None and self.config is not None:
            raise DataError(
                f"dataset {self.name!r}: config: found {self.config!r}, but {root / README} names no configurations:"
                " leave 'config' out"
            )
        return None if card is None else card.chosen(self.config)

    def _names(self, files: Sequence[tuple[Side | None, LocalFile]], data: Path | None) -> tuple[str, ...]:
        """Return the names of the classes, those of the headers or else of the card; none if neither has them."""
        one = self._configuration(data)
        return self._headers(files) or ((one.names.get(self.label) or ()) if one is not None else ())

    def _headers(self, files: Sequence[tuple[Side | None, LocalFile]]) -> tuple[str, ...]:
        """Return the names of the classes in the headers, which have to agree; none if no header has them."""
        headers = {_class_names(self._opened(file), self.label): file for _, file in files}
        if len(headers) > 1:
            one, other = list(headers.values())[:2]
            raise DataError(f"{one.path} and {other.path}: their headers name other classes: expected the same")
        return next(iter(headers))

    def _targets(self, files: Sequence[tuple[Side | None, LocalFile]], data: Path | None) -> tuple[list[Entry], Target]:
        """Return every row without its image, and its target."""
        if self.predict == "class":
            names = self._names(files, data)
            rows = [row for side, file in files for row in self._rows(side, file, names)]
            self._check_count(rows)
            entries = _tagged(rows) if self.tag == self.label else [entry for _, entry in rows]
            labels = [_shown(label, names) for label in _ordered({label for label, _ in rows})]
            return entries, Target.of_classes([entry.label for entry in entries], labels)
        columns = [self.label] if self.tag in (None, self.label) else [self.label, self.tag or ""]
        cells: list[tuple[str, Side | None, Any, Any]] = [
            (f"{file.name}, row {number}", side, value, tag)
            for side, file in files
            for number, (value, tag) in enumerate(zip(*self._columns(file, columns), strict=True))
        ]
        self._check_count(cells)
        target = read_target(
            [value for *_, value, _ in cells],
            self.predict,
            column=self.label,
            where=f"dataset {self.name!r}: ",
            name=lambda place: cells[place][0],
        )
        made = target.simulated() if self.tag == self.label else [None] * len(cells)
        tags = made if self.tag in (None, self.label) else [check_class(tag, where=name) for name, _, _, tag in cells]
        return [
            Entry(name=name, label="", side=side, tag=tag) for (name, side, *_), tag in zip(cells, tags, strict=True)
        ], target

    def _check_count(self, rows: Sequence[object]) -> None:
        if len(rows) > MAX_ROWS:
            raise DataError(f"dataset {self.name!r}: {len(rows)} rows, expected {MAX_ROWS} or fewer")

    def _rows(self, side: Side | None, file: LocalFile, names: tuple[str, ...]) -> Iterator[tuple[int | str, Entry]]:
        """Yield the label of each row, as in the file, and its entry."""
        columns = [self.label] if self.tag in (None, self.label) else [self.label, self.tag or ""]
        for number, (label, tag) in enumerate(zip(*self._columns(file, columns), strict=True)):
            where = f"{file.name}, row {number}"
            if label is None:
                raise DataError(f"{where}: no label in column {self.label!r}")
            number_or_text = _label(label, names, where=where)
            if self.tag not in (None, self.label):
                check_class(tag, where=where)
            yield number_or_text, Entry(name=where, label=_shown(number_or_text, names), side=side, tag=tag)

    def _columns(self, file: LocalFile, names: list[str]) -> tuple[list[Any], list[Any]]:
        """Return labels and tags; tags are None without such a column."""
        opened = self._opened(file)
        try:
            table = opened.read(columns=names, use_threads=False)
            columns = [table.column(name).to_pylist() for name in names]
        except ERRORS as error:
            raise DataError(f"{file.path}: damaged: {error}") from error
        return columns[0], columns[1] if len(columns) > 1 else [None] * len(columns[0])

    def _class_column(self, files: Sequence[tuple[Side | None, LocalFile]]) -> str:
        """Return the column of text in which a few paths of classes repeat; else the column of the labels."""
        for name, kind in [(column.name, column.type) for column in self._opened(files[0][1]).schema_arrow]:
            if is_text(kind) and name != self.label:
                values = {value for _, file in files for value in self._columns(file, [name])[0]}
                if 2 <= len(values) <= MOST_VALUES and all(map(is_class, values)):
                    return name
        return self.label

    def _images(self, file: LocalFile) -> Iterator[bytes | Fault]:
        """Yield the encoded image of each row."""
        opened = self._opened(file)
        try:
            for batch in opened.iter_batches(batch_size=ROWS_AT_ONCE, columns=[self.image], use_threads=False):
                column = batch.column(0)
                encoded = column.field("bytes") if isinstance(column, pa.StructArray) else column
                yield from (content if content is not None else Fault.MISSING for content in encoded.to_pylist())
        except ERRORS as error:
            raise DataError(f"{file.path}: damaged: {error}") from error

    def _opened(self, file: LocalFile) -> pq.ParquetFile:
        """Open the file and check its columns and sizes."""
        # By the footer, before any column is read: its declared sizes bound the memory that reading takes.
        if file.fault is not None:
            raise DataError(f"{file.path}: {file.fault}: expected a Parquet file")
        try:
            opened = pq.ParquetFile(file.path)
            schema, metadata = opened.schema_arrow, opened.metadata
        except ERRORS as error:
            raise DataError(f"{file.path}: expected a Parquet file: {error}") from error
        of_labels = _holds_labels if self.predict == "class" else _fits
        kinds = ((self.image, "images", holds_images), (self.label, "labels", of_labels))
        tags = [(self.tag, "class paths", is_text)] if self.tag not in (None, self.label) else []
        for name, what, fits in (*kinds, *tags):
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


def splits_of(
    files: Sequence[LocalFile],
    one: Configuration | None,
    *,
    side: Callable[[LocalFile], str | None] = lambda file: _side_name(file),
) -> dict[LocalFile, str | None]:
    """Return the split of each file: what the card's configuration calls it, or else the `side` of its name. Files of
    other configurations are left out."""
    if one is None:
        return {file: side(file) for file in files}
    splits = {file: one.split_of(file.name) for file in files}
    return {file: split or side(file) for file, split in splits.items() if split is not None}


def _check_there(one: Configuration, files: Sequence[LocalFile], root: Path) -> None:
    """Raise `DataError` for a pattern of the card that no Parquet file fits."""
    for split, pattern in one.patterns:
        used = split in (None, "train", *TESTS)
        if used and not any(matches(pattern, file.name) for file in files):
            raise DataError(
                f"{root / README}: configuration {one.name!r}: {split or 'data_dir'}: no Parquet file fits {pattern!r}:"
                " expected every file that the card names; download them, or correct the card"
            )


def divided_files(names: Mapping[LocalFile, str | None]) -> list[tuple[Side | None, LocalFile]]:
    """Return the files of the training side and then those of the test side, by their splits; none if one has no
    file."""
    # The hub's names. Those of `validation` are the test side only if there are none of `test`.
    test = next((name for name in TESTS if name in names.values()), None)
    chosen: dict[str | None, Side] = {"train": "train", test: "test"}
    sides: list[tuple[Side | None, LocalFile]] = [
        (side, file) for name, side in chosen.items() for file in names if name is not None and names[file] == name
    ]
    return sides if {side for side, _ in sides} == {"train", "test"} else []


def _side_name(file: LocalFile) -> str | None:
    """Return what a file's side is called, by the beginning of its name, or else by the directory that it is in."""
    place = PurePosixPath(file.name)
    beginning = re.match(BEGINNING, place.name)
    if beginning:
        return beginning[0]
    return place.parent.name if place.parent.name in ("train", *TESTS) else None


def _same(content: bytes | Fault) -> bytes | Fault:
    return content


def named_files(files: Sequence[tuple[Side | None, LocalFile]]) -> list[list[str]]:
    """Return the name and digest of each file."""
    # Names are relative to the directory that has all files, so that the digest does not depend on how deep `path` is.
    above = PurePosixPath(os.path.commonpath([str(PurePosixPath(file.name).parent) for _, file in files] or ["."]))
    return [
        [PurePosixPath(file.name).relative_to(above).as_posix(), file.digest(max_bytes=MAX_FILE_BYTES)]
        for _, file in files
    ]


def _ordered(labels: Iterable[int | str]) -> list[int | str]:
    """Return the labels in their own order: whole numbers by size, text by letters."""
    return sorted(labels, key=lambda label: (isinstance(label, str), label))


def _label(value: Any, names: tuple[str, ...], *, where: str) -> int | str:
    """Return a label as a whole number or text. Raises `DataError` that names the row."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    expected = f"expected 0 to {len(names) - 1}, for the file names {len(names)} classes" if names else ""
    if isinstance(value, float):
        raise DataError(f"{where} has label {value:g}: expected a whole number or text")
    if isinstance(value, int) and (value < 0 or (names and value >= len(names))):
        raise DataError(f"{where} has label {value}: {expected or 'expected 0 or above'}")
    return value


def _shown(label: int | str, names: tuple[str, ...]) -> str:
    return shown(names[label] if names and isinstance(label, int) else str(label))


def _tagged(rows: Sequence[tuple[int | str, Entry]]) -> list[Entry]:
    """Return the entries with their labels as provenance classes: as they are if all of them are paths of classes."""
    paths = all(isinstance(label, str) and is_class(label) for label, _ in rows)
    labels = {entry.label for _, entry in rows}
    classes = {label: label for label in labels} if paths else named_classes(labels, SIMULATED)
    return [replace(entry, tag=classes[entry.label]) for _, entry in rows]


def _class_names(opened: pq.ParquetFile, label: str) -> tuple[str, ...]:
    """Return the names of the classes that the Hugging Face hub writes into the header; none if there are none, or no
    valid ones."""
    content = (opened.schema_arrow.metadata or {}).get(b"huggingface", b"")
    try:
        names = json.loads(content[:MAX_HEADER_BYTES])["info"]["features"][label]["names"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ()
    if not isinstance(names, list) or not all(isinstance(name, str) and 0 < len(name) <= 200 for name in names):
        return ()
    return tuple(names) if 2 <= len(names) == len(set(map(shown, names))) <= MAX_CLASSES else ()


def holds_images(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0 and holds_images(kind.field("bytes").type)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _holds_labels(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_text(kind)


def _holds_lists(kind: pa.DataType) -> bool:
    return (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _holds_labels(kind.value_type)


def _fits(kind: pa.DataType) -> bool:
    """Return whether a column could be a target of any kind; what it has decides then."""
    return _holds_labels(kind) or _holds_lists(kind) or pa.types.is_decimal(kind)


def is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(plain) or pa.types.is_large_string(plain)

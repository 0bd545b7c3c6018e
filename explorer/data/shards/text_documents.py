"""Documents to be packed into shards of text: text files, lines of JSON, rows of Parquet, or samples of MDS shards.

    corpus/news/0001.txt          every text file of a directory is a document
    c4/c4-train.00000.json.gz     every line of .jsonl, .jsonl.gz or .json.gz has one: {"text": "...", ...}
    owt/train-00000.parquet       every row has one in its column of texts
    pile/train/index.json         every sample of MDS shards has one in its column of texts (mds.py)

Files whose names have `train` and `test` (or `validation`, ...) are of these sides. Without them a document is on the
test side by the digest of its text: one in twenty. An only text file is divided: its last twentieth is the test side.
No text is on both sides: of equal ones, those of the training side are left out. What is no text, is empty, or is too
large, is left out and listed.

The files may be hostile: sizes are bounded before they are unpacked, and no path leads out of the directory.
"""

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NamedTuple

import pyarrow.parquet as pq
from pydantic import Field

from explorer import canonical
from explorer.data.hub_card import README, Configuration, read_hub_card
from explorer.data.labelled import TESTS
from explorer.data.local import FOLDERS, Fault, LocalFile, listed, named_classes, shown
from explorer.data.parquet import (
    ERRORS,
    MAX_GROUP_BYTES,
    divided_files,
    holds_images,
    is_text,
    named_files,
    splits_of,
)
from explorer.data.shards.mds_format import INDEX, MdsDirectory, is_mds, value_of
from explorer.data.shards.shard_index import Origin, SideName
from explorer.data.table_file import TARGETS, classes_in, named
from explorer.data.targets import Side
from explorer.data.text import SUFFIXES
from explorer.errors import DataError, unknown

SHARE = 0.05  # of the documents, for the test side
LINES = (".jsonl", ".jsonl.gz", ".json.gz")
TABLE = ".parquet"
TEXTS = ("str", "bytes")  # encodings of MDS
MAX_DOCUMENT = 2**25  # bytes
MAX_LINE = 2 * MAX_DOCUMENT  # with the other keys, and with escapes
MAX_CLASSES = 1_000  # each has shards of its own
ROWS_AT_ONCE = 256
SIDE = re.compile(rf"(?:^|[^a-z])(train|{'|'.join(TESTS)})(?![a-z])")  # in a name: c4-train.00000
NOTHING = (None, "")


class Document(NamedTuple):
    """A document, or the reason why there is none."""

    number: int  # in the source
    name: str  # for messages
    side: SideName
    tag: str | None
    content: bytes | Fault  # UTF-8


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents:
    """The documents of a file or directory. `text` and `tag` are keys of JSON, or columns: of the text, and of its
    provenance class; `tag: folders` makes each folder a class. `config` is a configuration of the hub's card."""

    path: Path
    text: Annotated[str, Field(min_length=1, max_length=200)] = "text"
    tag: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    config: Annotated[str, Field(min_length=1, max_length=200)] | None = None

    def there(self, *, wanted: bool) -> bool:
        """Return whether there are documents. Text files and texts with labels are some only where documents are
        `wanted`: they are data of another kind too. Raises `DataError` for a damaged table."""
        files = self.files()
        if files and files[0][1].path.name == INDEX:
            columns = _mds(files[0][1]).encodings
            return columns.get(self.text) in TEXTS and (wanted or named(list(columns), TARGETS) is None)
        if not files or not files[0][1].name.endswith(TABLE):
            return bool(files) and (wanted or files[0][1].name.endswith(LINES))
        try:
            schema = pq.read_schema(files[0][1].path)
        except ERRORS as error:
            raise DataError(f"{files[0][1].path}: expected a Parquet file: {error}") from error
        texts = self.text in schema.names and not any(holds_images(column.type) for column in schema)
        return texts and (wanted or named(schema.names, TARGETS) is None)

    def files(self) -> list[tuple[Side | None, LocalFile]]:
        """Return the files, those of the test side first; indexes of MDS shards, or else tables, or else lines of JSON,
        or else text files."""
        if self.path.is_dir():
            every = listed(self.path)
        else:
            every = [LocalFile(name=shown(self.path.name), path=self.path)] if self.path.is_file() else []
        indexes = [
            file for file in every if file.path.name == INDEX and file.fault is None and is_mds(file.path.parent)
        ]
        for chosen in (indexes, *([file for file in every if file.name.endswith(kind)] for kind in ((TABLE,), LINES))):
            if chosen:
                splits = splits_of(chosen, self._configuration(), side=_side_name)
                return divided_files(splits)[::-1] or [(None, file) for file in splits]
        return [(None, file) for file in every] if any(file.path.suffix in SUFFIXES for file in every) else []

    def _configuration(self) -> Configuration | None:
        """Return what the hub's card says about the files; None without a card."""
        card = read_hub_card(self.path) if self.path.is_dir() else None
        if card is None and self.config is not None:
            raise DataError(f"config: found {self.config!r}, but {self.path / README} names no configurations")
        return None if card is None else card.chosen(self.config)

    def origin(self) -> Origin:
        """Return what the index says about the source. Reads every byte of it."""
        written = json.dumps({"documents": asdict(self) | {"path": self.path.name}})
        return Origin(
            dataset=written[:2_000],
            digest=canonical.digest(named_files([one for file in self.files() for one in _whole(*file)])),
            licence="whatever holds for the documents",
        )

    def read(self) -> Iterator[Document]:
        """Yield the documents in the order of the files, those of the test side first. Raises `DataError` for a file
        that cannot be read, and for a document without a class where there is a `tag`."""
        classes = self._classes()
        held: set[bytes] = set()  # digests of the documents of the test side, where the files say what that is
        number = -1
        for side, name, text, tag in self._divided():
            number += 1
            content = _content(text)
            own: SideName = "train" if side is None else side
            if isinstance(content, bytes):
                digest = hashlib.sha256(content).digest()
                if side is None:
                    own = side_of(content, SHARE)
                elif side == "test":
                    held.add(digest)
                elif digest in held:
                    content = Fault.HELD_OUT
            yield Document(number, name, own, classes[tag] if tag is not None else None, content)

    def _divided(self) -> Iterator[tuple[Side | None, str, Any, str | None]]:
        """Yield the rows of all files with the side that the files say."""
        files = self.files()
        for side, file in files:
            many = len(files) > 1 or file.name.endswith((TABLE, *LINES)) or file.path.name == INDEX
            for name, text, tag in self._rows(file):
                if not many and side is None and isinstance(text, bytes):
                    cut = _cut(text)
                    yield "test", f"{name}, its end", text[cut:], tag
                    yield "train", f"{name}, its beginning", text[:cut], tag
                else:
                    yield side, name, text, tag

    def _classes(self) -> Mapping[str, str]:
        """Return the provenance class of each value of the tag."""
        if self.tag is None:
            return {}
        values: set[str] = set()
        for _, file in self.files():
            if self.tag == FOLDERS:
                values.add(_folder(file))
                continue
            for name, text, value in self._rows(file, text=False):
                if isinstance(text, Fault):
                    continue
                if value in NOTHING:
                    raise DataError(f"{name}: found nothing under {self.tag!r}: expected a provenance class")
                values.add(str(value))
                if len(values) > MAX_CLASSES:
                    raise DataError(f"{name}: {self.tag!r} has more than {MAX_CLASSES} values: expected few classes")
        return named_classes(values) if self.tag == FOLDERS else classes_in(values, self.tag)

    def _rows(self, file: LocalFile, *, text: bool = True) -> Iterator[tuple[str, Any, str | None]]:
        """Yield name, text and tag of each document of a file."""
        column = None if self.tag == FOLDERS else self.tag
        folder = _folder(file) if self.tag == FOLDERS else None
        if file.name.endswith(TABLE):
            rows = self._of_table(file, [self.text] if text else [], column)
        elif file.path.name == INDEX:
            rows = self._of_mds(file, [self.text] if text else [], column)
        elif file.name.endswith(LINES):
            rows = self._of_lines(file, column)
        elif column is not None:
            raise DataError(f"{file.path}: a text file has no {column!r}: expected the tag {FOLDERS!r}")
        else:
            yield file.name, file.read(max_bytes=MAX_DOCUMENT), folder
            return
        for number, (content, tag) in enumerate(rows, start=1):
            yield f"{file.name}, row {number}", content, folder if tag is None else str(tag)

    def _of_lines(self, file: LocalFile, column: str | None) -> Iterator[tuple[Any, Any]]:
        try:
            with gzip.open(file.path) if file.name.endswith(".gz") else file.path.open("rb") as stream:
                while line := stream.readline(MAX_LINE):
                    if not line.endswith(b"\n") and len(line) == MAX_LINE:
                        while (rest := stream.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                            pass
                        yield Fault.TOO_LARGE, None
                    elif line.strip():
                        yield self._of_line(line, column)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{file.path}: damaged: {error}") from error

    def _of_line(self, line: bytes, column: str | None) -> tuple[Any, Any]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return Fault.DAMAGED, None
        if not isinstance(value, dict):
            return Fault.DAMAGED, None
        return value.get(self.text), None if column is None else value.get(column)

    def _of_mds(self, file: LocalFile, texts: list[str], column: str | None) -> Iterator[tuple[Any, Any]]:
        directory = _mds(file)
        for name in texts:
            if (kind := directory.encoding(name)) not in TEXTS:
                raise DataError(f"{directory.place}: column {name!r} is {kind!r:.40}, expected texts")
        columns = [*texts, *([column] if column is not None else [])]
        for where, values in directory.samples(columns):
            tag = None if column is None else value_of(values[-1], directory.encoding(column), where=where)
            yield bytes(values[0]) if texts else None, tag

    def _of_table(self, file: LocalFile, texts: list[str], column: str | None) -> Iterator[tuple[Any, Any]]:
        columns = [*texts, *([column] if column is not None else [])]
        if file.fault is not None:
            raise DataError(f"{file.path}: {file.fault}: expected a Parquet file")
        try:
            opened = pq.ParquetFile(file.path)
            for name in columns:
                if name not in opened.schema_arrow.names:
                    raise DataError(f"{file.path}: {unknown('column', name, opened.schema_arrow.names)}")
            for name in texts:
                if not is_text(kind := opened.schema_arrow.field(name).type):
                    raise DataError(f"{file.path}: column {name!r} is {kind}, expected texts")
            for group in map(opened.metadata.row_group, range(opened.metadata.num_row_groups)):
                sizes = [group.column(place).total_uncompressed_size for place in range(group.num_columns)]
                if max(sizes, default=0) > MAX_GROUP_BYTES:
                    raise DataError(f"{file.path}: a column of a row group has more than {MAX_GROUP_BYTES} bytes")
            for batch in opened.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns, use_threads=False):
                nothing = [None] * len(batch)
                content = batch.column(self.text).to_pylist() if texts else nothing
                yield from zip(content, batch.column(column).to_pylist() if column else nothing, strict=True)
        except ERRORS as error:
            raise DataError(f"{file.path}: damaged: {error}") from error


def _mds(file: LocalFile) -> MdsDirectory:
    return MdsDirectory.at(file.path.parent)


def _whole(side: Side | None, file: LocalFile) -> list[tuple[Side | None, LocalFile]]:
    """Return the files behind one: itself, or those that an index of MDS shards names."""
    if file.path.name != INDEX:
        return [(side, file)]
    return [(side, replace(one, name=f"{PurePosixPath(file.name).parent}/{one.name}")) for one in _mds(file).files]


def _content(text: Any) -> bytes | Fault:
    """Return the text in UTF-8."""
    if isinstance(text, Fault):
        return text
    try:
        if isinstance(text, bytes):
            text.decode()
        elif isinstance(text, str):
            text = text.encode()
    except UnicodeError:
        return Fault.NO_TEXT
    if not isinstance(text, bytes) or not text:
        return Fault.NO_DOCUMENT
    return text if len(text) <= MAX_DOCUMENT else Fault.TOO_LARGE


def side_of(content: bytes, share: float) -> SideName:
    """Return the side of a text by its digest, so that equal ones are on the same side."""
    return "test" if int.from_bytes(hashlib.sha256(content).digest()[:8], "big") < share * 2**64 else "train"


def _side_name(file: LocalFile) -> str | None:
    """Return what a file's side is called, by its name, or else by the directory that it is in."""
    place = PurePosixPath(file.name)
    match = SIDE.search(place.name)
    return match[1] if match else place.parent.name if place.parent.name in ("train", *TESTS) else None


def _cut(text: bytes) -> int:
    """Return where the test side of an only document begins: at a line, if there is one, else at a character."""
    most = int(len(text) * (1 - SHARE))
    if line := text.rfind(b"\n", 0, most) + 1:
        return line
    while most and text[most] & 0xC0 == 0x80:  # a byte inside a character of UTF-8
        most -= 1
    return most


def _folder(file: LocalFile) -> str:
    """Return the first folder that is not that of a side; the file itself where it is in none."""
    return next(part for part in PurePosixPath(file.name).parts if part not in ("train", *TESTS))

"""Records to tag: a file of JSON lines, with a record in each.

    {"text": "the content itself", "class": "open/mit", "source": "example 1.0"}
    {"file": "articles/0001.txt", "class": "licensed/news", "source": "news.example.com", "authority": "example.com/dg"}

The content is `text` in UTF-8, or a file below the directory of the records. `authority` may be left out if the whole
table has the same one.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from explorer import schema
from explorer.errors import ProvenanceError, unknown
from explorer.provenance.commitments import DESTROYED, Salts, check_commitment, commit, new_salt, write_salts
from explorer.provenance.spellings import ClassPath
from explorer.provenance.tags import Tags
from explorer.provenance.tags_file import Row, write_table
from explorer.provenance.trust import Name
from explorer.schema import from_json, parse_json

MAX_LINE = 16 * 2**20
MAX_CONTENT = 2**28
_KEYS = ("text", "file", "class", "source", "authority")


class Record(NamedTuple):
    """One record: its content and its tag."""

    content: bytes | None  # None: it was erased, and the commitment of its tag opens to nothing
    class_path: str
    source: str
    authority: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """Numbers of records that match their tags, and of records that can no longer be checked."""

    matching: int
    destroyed: int  # their salts are destroyed


def read_records(path: Path, *, authority: str | None = None) -> Iterator[Record]:
    """Yield the records of a file, in order. Raises `ProvenanceError` that names file, line and fault."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise ProvenanceError(f"cannot read {path}: {error.strerror or error}") from error
    with file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            yield _record(line, path, f"{path}:{number}", authority)


def tag_records(records: Iterable[Record], salts: bytearray) -> Iterator[Row]:
    """Yield the rows of a table, each with a new salt, which is added to `salts`; an erased record's is destroyed.

    Raises `ProvenanceError` for an invalid name of a class or an authority, with which no authority could sign the
    table.
    """
    sound = set[tuple[str, str]]()  # names that were checked: a table has many records but few names
    for slot, record in enumerate(records):
        if (record.class_path, record.authority) not in sound:
            _check_names(record, where=f"the record of slot {slot}")
            sound.add((record.class_path, record.authority))
        salt = new_salt()
        commitment = commit(salt, record.content or b"")
        salts += DESTROYED if record.content is None else salt
        yield Row(commitment, record.class_path, record.source, record.authority)


def write_tagged(table: Path, salts: Path, records: Iterable[Record]) -> int:
    """Write the table of these records and its salts, both or neither; return the number of records.

    Raises `ProvenanceError` if one of the files exists already.
    """
    # Never over existing salts: without them their table commits to content that nothing can prove any more.
    for path in (table, salts):
        if os.path.lexists(path):  # a dangling link too
            raise ProvenanceError(f"{path}: there is a file already; a table and its salts belong together")
    made = bytearray()
    number = write_table(table, tag_records(records, made))
    try:
        write_salts(salts, Salts(content=bytes(made)))
    except BaseException:
        table.unlink()  # useless without its salts, which prove its commitments
        raise
    return number


def check_records(records: Iterable[Record], *, tags: Tags, salts: Salts, codes: dict[str, int]) -> Checked:
    """Check that these are the records of a table, slot by slot, with the classes in their tags.

    Raises `ProvenanceError` for the first slot that differs, and for more or fewer records.
    """
    if len(salts) != len(tags):
        raise ProvenanceError(f"{len(salts)} salts, and the table has {len(tags)} tags; they belong to another table")
    slot, destroyed = -1, 0
    for slot, record in enumerate(records):
        where = f"the record of slot {slot}"
        if slot >= len(tags):
            raise ProvenanceError(f"{where}: the table ends before it, with {len(tags)} tags")
        if codes.get(record.class_path) != tags.classes[slot]:
            tagged = next(path for path, code in codes.items() if code == tags.classes[slot])
            raise ProvenanceError(f"{where}: class {record.class_path!r}, and its tag says {tagged!r}")
        salt = salts.of(slot)
        if salt is None:
            destroyed += 1
        elif record.content is None:
            raise ProvenanceError(f"{where}: it was erased, and the salt of its tag was not: destroy that too")
        else:
            check_commitment(tags.commitments[slot].tobytes(), salt=salt, content=record.content, where=where)
    if slot + 1 != len(tags):
        raise ProvenanceError(f"{slot + 1} records, and the table has {len(tags)} tags")
    return Checked(matching=len(tags) - destroyed, destroyed=destroyed)


@schema.record
class _Names:
    class_: Annotated[ClassPath, Field(alias="class")]
    authority: Name


def _check_names(record: Record, *, where: str) -> None:
    from_json(_Names, {"class": record.class_path, "authority": record.authority}, where=where, error=ProvenanceError)


def _record(line: bytes, path: Path, where: str, authority: str | None) -> Record:
    value = parse_json(line, where=where, error=ProvenanceError, max_bytes=MAX_LINE)
    if not isinstance(value, dict):
        raise ProvenanceError(f"{where}: expected a JSON object with text or file, class and source")
    for key in value:
        if key not in _KEYS:
            raise ProvenanceError(f"{where}: {unknown('key', key, _KEYS)}")
    if ("text" in value) == ("file" in value):
        raise ProvenanceError(f"{where}: expected text or file, one of the two")
    if authority is not None:
        value.setdefault("authority", authority)
    class_path, source, who = (_text(value, key, where) for key in ("class", "source", "authority"))
    if "text" in value:
        content = _text(value, "text", where).encode()
    else:
        content = _content(path.parent, _text(value, "file", where), where)
    return Record(content, class_path, source, who)


def _text(value: dict[str, Any], key: str, where: str) -> str:
    text = value.get(key)
    if not isinstance(text, str):
        raise ProvenanceError(f"{where}: {key}: expected text" if key in value else f"{where}: {key} is missing")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ProvenanceError(f"{where}: {key}: holds a lone surrogate") from error
    return text


def _content(directory: Path, name: str, where: str) -> bytes:
    """Return the content of a file below the directory."""
    # Links are resolved before the comparison: a link inside the directory may lead out of it.
    root = os.path.realpath(directory)
    try:
        real = os.path.realpath(directory / name)
        if os.path.commonpath([root, real]) != root:
            raise ProvenanceError(f"{where}: file: {name!r} is not below {directory}")
        if not Path(real).is_file():  # a pipe would be waited for
            raise ProvenanceError(f"{where}: file: {name!r} is not a regular file")
        with Path(real).open("rb") as file:
            content = file.read(MAX_CONTENT + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProvenanceError(f"{where}: file: cannot read {name!r}: {reason}") from error
    if len(content) > MAX_CONTENT:
        raise ProvenanceError(f"{where}: file: {name!r} is too large; at most {MAX_CONTENT} bytes are read")
    return content

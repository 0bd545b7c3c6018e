"""W&B's offline directories as a source: `wandb/offline-run-DATE-ID/run-ID.wandb`, read without W&B.

Such a file is a log in LevelDB's format (github.com/google/leveldb, doc/log_format.md) behind seven bytes, with the
CRC-32 of zlib. Its records are messages of Protocol Buffers, `Record` in `wandb_internal.proto`; of their fields these
are read, by number:

    Record          2 history, 3 summary, 5 config, 17 run, 18 exit
    RunRecord       1 run_id, 4 config, 5 summary, 6 run_group, 7 job_type, 8 display_name
    HistoryRecord   1 item, 2 step (1 num)
    Config, Summary 1 update; an item of any: 1 key, 2 nested_key, 16 value_json; of history: 4 to 8, one value
    RunExitRecord   1 exit_code, 2 runtime (seconds)

A file that ends in the middle of a record belongs to a run that was killed: it is no finished run.
"""

import json
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from explorer.errors import RunError
from explorer.imports.files_read import Reading, flattened
from explorer.imports.mapping import Cell, Source, SourceRow

MAX_BYTES = 2**29  # of one run
MAX_RECORD = 2**26
BLOCK = 32768
START = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
HISTORY, SUMMARY, CONFIG, RUN, EXIT = 2, 3, 5, 17, 18
# Columns that W&B adds for itself. Of those only `_runtime` is used, the time of a run in seconds.
HIDDEN = ("_wandb", "_timestamp", "_step", "_wandb.runtime")


def read_wandb(path: Path) -> Source:
    """Open a directory of W&B's runs, one of them, or its file. Raises `RunError` that names file and fault."""
    reading = Reading(path)
    files = [path] if path.suffix == ".wandb" else reading.find("*.wandb")
    if not files:
        raise RunError(f"{path}: no .wandb file in it; expected W&B's directory `wandb`, or a CSV file of its runs")
    rows = [_row(file, reading.read(file, max_bytes=MAX_BYTES)) for file in files]
    return reading.source("wandb", rows)


@dataclass(slots=True)
class _Told:
    """The content of a run's records, in their order."""

    run_id: str = ""
    config: dict[str, Cell] = field(default_factory=dict)
    summary: dict[str, Cell] = field(default_factory=dict)
    about: dict[str, Cell] = field(default_factory=dict)
    curves: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    exit_code: int | None = None


def _row(path: Path, content: bytes) -> SourceRow:
    told = _Told()
    try:
        for record in _records(content):
            for number, value in _fields(record):
                _tell(told, number, value)
    except (ValueError, IndexError, struct.error, RecursionError) as error:
        raise RunError(f"{path}: damaged: {str(error)[:200]}") from error
    # The last measurement of a metric is its final number, unless the summary says otherwise.
    last: dict[str, Cell] = {name: values[-1] for name, (_, values) in told.curves.items()}
    finals = {name: cell for name, cell in {**last, **told.summary}.items() if name not in HIDDEN}
    config = {(name if name not in finals else f"config.{name}"): cell for name, cell in told.config.items()}
    return SourceRow(
        where=str(path),
        run_id=told.run_id or path.stem.removeprefix("run-"),
        cells={**told.about, **config, **finals},
        curves={name: points for name, points in told.curves.items() if not name.startswith("_")},
        fault={None: "it did not end", 0: ""}.get(told.exit_code, f"it ended with exit code {told.exit_code}"),
    )


def _tell(told: _Told, number: int, value: Any) -> None:
    match number:
        case _ if number not in (HISTORY, SUMMARY, CONFIG, RUN, EXIT):
            return
        case _ if not isinstance(value, bytes):
            raise ValueError(f"field {number}: expected a message")
        case 2:
            _history(told, value)
        case 3:
            told.summary |= _items(value)
        case 5:
            told.config |= {name: cell for name, cell in _items(value).items() if not name.startswith("_wandb")}
        case 17:
            _run(told, value)
        case 18:
            ended = dict(_fields(value))
            told.exit_code = ended.get(1, 0)
            if isinstance(ended.get(2), int):
                told.about["_runtime"] = ended[2]


def _run(told: _Told, message: bytes) -> None:
    names = {6: "group", 7: "job_type", 8: "name"}
    for number, value in _fields(message):
        if number == 1:
            told.run_id = _text(value)
        elif number in names:
            told.about[names[number]] = _text(value)
        elif number in (4, 5):
            _tell(told, CONFIG if number == 4 else SUMMARY, value)


def _history(told: _Told, message: bytes) -> None:
    cells, step = dict[str, Cell](), None
    for number, value in _fields(message):
        if number == 1:
            cells |= _item(value)
        elif number == 2:
            step = dict(_fields(value)).get(1, 0)
    step = cells.pop("_step", step)
    if isinstance(step, float) and step.is_integer():
        step = int(step)
    if not isinstance(step, int) or not 0 <= step < 2**53:
        raise ValueError(f"a measurement at the step {step!r:.40}")
    for name, cell in cells.items():
        if name not in HIDDEN and isinstance(cell, (int, float)) and math.isfinite(cell):
            steps, values = told.curves.setdefault(name, ([], []))
            steps.append(step)
            values.append(float(cell))


def _items(message: bytes) -> dict[str, Cell]:
    cells = dict[str, Cell]()
    for number, value in _fields(message):
        if number == 1:
            cells |= _item(value)
    return cells


def _item(message: bytes) -> dict[str, Cell]:
    """Return the cells of a key; a value that is an object has one for each of its keys."""
    keys, value = list[str](), None
    for number, field_value in _fields(message):
        if number in (1, 2):
            keys.append(_text(field_value))
        elif number == 6:
            value = struct.unpack("<d", field_value)[0]
        elif number == 5:
            value = (field_value >> 1) ^ -(field_value & 1)  # zigzag
        elif number == 4:
            value = int(field_value)
        elif number == 7:
            value = _text(field_value)
        elif number in (8, 16):
            value = json.loads(_text(field_value))  # NaN and Infinity are values here
    return flattened(".".join(key for key in keys if key), value)


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        raise ValueError("expected a text")
    return value.decode()


# --- the two formats ---


def _records(content: bytes) -> Iterator[bytes]:
    """Yield the records of a log; the last one may be cut off, and is then left out."""
    if not content.startswith(START):
        raise ValueError("it does not begin as a file of W&B does")
    place, parts, size = len(START), list[bytes](), 0
    while place + 7 <= len(content):
        room = BLOCK - place % BLOCK
        if room < 7:  # the end of a block is filled up
            place += room
            continue
        checksum, length, kind = struct.unpack_from("<IHB", content, place)
        data = content[place + 7 : place + 7 + length]
        if len(data) < length or (kind, length, checksum) == (0, 0, 0):
            return
        if zlib.crc32(data, zlib.crc32(bytes([kind]))) != checksum:
            raise ValueError(f"the checksum at byte {place:,} is wrong")
        place += 7 + length
        size = len(data) if kind in (1, 2) else size + len(data)
        if kind not in (1, 2, 3, 4) or size > MAX_RECORD:
            raise ValueError(f"a record at byte {place:,} is of unknown kind, or has more than {MAX_RECORD:,} bytes")
        parts = [data] if kind in (1, 2) else [*parts, data]
        if kind in (1, 4):  # full, or the last part
            yield b"".join(parts)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a message: a whole number, or bytes."""
    place, end = 0, len(message)
    while place < end:
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 0:
            value, place = _varint(message, place)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
            value, place = message[place : place + length], place + length
        elif kind == 2:
            length, place = _varint(message, place)
            value, place = message[place : place + length], place + length
        else:
            raise ValueError(f"a field of the unknown wire type {kind}")
        if place > end:
            raise ValueError("a message is cut off")
        yield key >> 3, value


def _varint(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while shift < 70:
        byte = message[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place
    raise ValueError("a number of more than ten bytes")

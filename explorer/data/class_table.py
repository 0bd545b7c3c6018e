"""The provenance classes of local files, as a table says them: CSV with a header, a path and its class in each row.

    path,class
    .,open/permissive/mit
    articles,licensed/news
    articles/0001.txt,personal/customer

A path is that of a file or a directory below the dataset's own, `.` being all of it. A file has the class of the
longest path that it is or lies below. The table covers every file and has no row to spare: a name that is written
wrongly would otherwise leave its files to a wider row.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from explorer import rundir
from explorer.errors import DataError
from explorer.provenance.spellings import CLASS_PATTERN, MAX_PATH

MAX_BYTES = 2**24
MAX_ROWS = 10**5
ALL = "."


def read_class_table(path: Path) -> dict[str, str]:
    """The class of each path. Raises `DataError` that names file, row and fault."""
    if not path.is_file():
        raise DataError(f"no file {path}: expected a table of provenance classes below the data directory")
    return parse_class_table(rundir.read_bytes(path, max_bytes=MAX_BYTES, error=DataError), where=str(path))


def parse_class_table(content: bytes, *, where: str) -> dict[str, str]:
    """The class of each path. Raises `DataError` that begins with `where`."""
    try:
        rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        if next(rows, None) != ["path", "class"]:
            raise DataError(f"{where}: expected a table (CSV) that begins with the line: path,class")
        table: dict[str, str] = {}
        for number, row in enumerate(rows, start=2):
            if row:
                name, found = _checked(row, where=f"{where}, row {number}")
                if name in table:
                    raise DataError(f"{where}, row {number}: {name!r} stands twice")
                table[name] = found
            if len(table) > MAX_ROWS:
                raise DataError(f"{where}: more than {MAX_ROWS} rows")
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{where}: damaged: not CSV in UTF-8 ({error})") from error
    return table


def classes_of(names: Sequence[str], table: Mapping[str, str], *, where: str) -> list[str]:
    """The class of each file. Raises `DataError` for a file that no row covers, and for a row that covers none."""
    used: set[str] = set()
    found = []
    for name in names:
        lineage = [name, *(parent.as_posix() for parent in PurePosixPath(name).parents)]
        row = next((above for above in lineage if above in table), None)
        if row is None:
            raise DataError(f"{where}: no row covers {name!r}: expected one, or a row {ALL!r} for all that is left")
        used.update(lineage)
        found.append(table[row])
    if idle := sorted(table.keys() - used):
        raise DataError(f"{where}: {idle[0]!r} is no file or directory that is read: expected a path that is")
    return found


def check_class(path: object, *, where: str) -> str:
    """The path of a class as a taxonomy has it. Raises `DataError` that begins with `where`."""
    if not isinstance(path, str) or len(path) > MAX_PATH or not re.fullmatch(CLASS_PATTERN.strip("^$"), path):
        raise DataError(
            f"{where}: found class {path!r:.80}: expected a path as in a taxonomy, such as 'open/permissive/mit'"
        )
    return path


def _checked(row: list[str], *, where: str) -> tuple[str, str]:
    if len(row) != 2:
        raise DataError(f"{where}: found {len(row)} fields, expected path and class")
    name = PurePosixPath(row[0])
    if not row[0] or name.is_absolute() or ".." in name.parts:
        raise DataError(f"{where}: found path {row[0]!r:.80}: expected one below the dataset's directory")
    return name.as_posix(), check_class(row[1], where=where)

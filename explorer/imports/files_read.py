"""The files of a source: found without following links, bounded, and hashed as they are read."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from explorer.errors import RunError
from explorer.imports.imported_file import MAX_RUNS
from explorer.imports.mapping import Cell, Source, SourceRow
from explorer.rundir import read_bytes

MAX_FILES = 10 * MAX_RUNS
MAX_TOTAL = 2**34  # bytes of all files together
MAX_DEPTH = 8
MAX_COLUMNS = 5000


class Reading:
    """A directory that is being read: the digest of its files, and how many bytes they have."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._digests: dict[str, str] = {}
        self._bytes = 0

    def find(self, pattern: str) -> list[Path]:
        """Return the files of a name below the directory, in order. Links are not followed."""
        return sorted(path for path in self.files(self.root) if path.match(pattern))

    def files(self, directory: Path, depth: int = 0) -> Iterator[Path]:
        """Yield the files below a directory. Raises `RunError` for one that cannot be listed, or has too many."""
        if depth > MAX_DEPTH:
            raise RunError(f"{directory}: more than {MAX_DEPTH} directories deep")
        try:
            entries = sorted(directory.iterdir())
        except OSError as error:
            raise RunError(f"cannot read {directory}: {error.strerror or error}") from error
        if len(entries) > MAX_FILES:
            raise RunError(f"{directory}: more than {MAX_FILES:,} files")
        for path in entries:
            if path.is_symlink():
                continue
            if path.is_dir():
                yield from self.files(path, depth + 1)
            elif path.is_file():
                yield path

    def read(self, path: Path, *, max_bytes: int) -> bytes:
        """Return the bytes of a file. Raises `RunError` for one that is too large."""
        content = read_bytes(path, max_bytes=max_bytes, error=RunError)
        self._count(len(content))
        self._digests[str(path)] = hashlib.sha256(content).hexdigest()
        return content

    def digest(self, path: Path) -> None:
        """Hash a file that something else reads. Raises `RunError` for one that is too large."""
        try:
            self._count(path.stat().st_size)
            with path.open("rb") as file:
                self._digests[str(path)] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror or error}") from error

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_TOTAL:
            raise RunError(f"{self.root}: more than {MAX_TOTAL:,} bytes; import a part of it")

    def source(self, tool: str, rows: Sequence[SourceRow]) -> Source:
        """Return the source that consists of these rows, with its columns in their order."""
        if len(rows) > MAX_RUNS:
            raise RunError(f"{self.root}: more than {MAX_RUNS:,} runs; import a part of it")
        columns = list(dict.fromkeys(name for row in rows for name in row.cells))
        if len(columns) > MAX_COLUMNS:
            raise RunError(f"{self.root}: more than {MAX_COLUMNS:,} different columns")
        lines = "".join(f"{digest}\n" for _, digest in sorted(self._digests.items()))
        # One file has the digest that anybody gets with `sha256sum`.
        whole = self._digests.get(str(self.root)) or hashlib.sha256(lines.encode()).hexdigest()
        return Source(
            tool=tool,
            name=self.root.resolve().name,
            sha256=whole,
            columns=tuple(columns),
            rows=lambda: iter(rows),
        )


def flattened(name: str, value: Any, depth: int = 0) -> dict[str, Cell]:
    """Return a value as cells; the keys of an object follow its name after a dot.

    >>> flattened("opt", {"lr": 0.1, "betas": [0.9, 0.99]})
    {'opt.lr': 0.1, 'opt.betas': '[0.9, 0.99]'}
    """
    if isinstance(value, dict) and depth < 4:
        cells = dict[str, Cell]()
        for key, inner in value.items():
            cells |= flattened(f"{name}.{key}", inner, depth + 1)
        return cells
    if value is None or isinstance(value, (int, float)):
        number = int(value) if isinstance(value, bool) else value
        # A whole number that no float holds is no measurement; it stays a text.
        return {name: str(number) if isinstance(number, int) and not -math.inf < _float(number) < math.inf else number}
    return {name: str(value)[:1000]}


def _float(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf

"""Files that are created once, never changed, and on the disk before anything is said about them."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from explorer.errors import LedgerError

MAX_OPEN = 128
AT_ONCE = 8  # files that are flushed at the same time: the disk then writes its journal once for many of them


class NewFiles:
    """Creates files below a directory. After `flush` they survive a power failure, directories and all.

    Files stay open until they are flushed, so that the kernel reports to us, and not to somebody before us, what went
    wrong with writing them.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: list[IO[bytes]] = []
        self._touched: set[Path] = set()

    def create(self, relative: str, content: bytes) -> None:
        """Create a file. Raises `LedgerError` if it exists or the disk refuses. A crash leaves a part of it."""
        path = self._root / relative
        try:
            self._make(path.parent)
            self._open.append(path.open("xb", buffering=0))
            _write(self._open[-1], content)
        except OSError as error:
            raise _refused(path, error) from error
        self._touched.add(path.parent)
        if len(self._open) == MAX_OPEN:
            self._flush_content()

    def flush(self) -> None:
        """Bring everything created so far to the disk. Raises `LedgerError` if it refuses."""
        self._flush_content()
        for directory in sorted(self._touched):
            flush(directory)
        self._touched.clear()

    def close(self) -> None:
        """Close what is open; of what was not flushed nothing is known."""
        for file in self._open:
            file.close()
        self._open.clear()

    def _make(self, directory: Path) -> None:
        try:
            directory.mkdir()
        except FileExistsError:
            return
        except FileNotFoundError:
            self._make(directory.parent)
            directory.mkdir()
        self._touched.add(directory.parent)

    def _flush_content(self) -> None:
        if len(self._open) > AT_ONCE:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(_flush_file, self._open))
        else:
            for file in self._open:
                _flush_file(file)
        self._open.clear()


def flush(path: Path) -> None:
    """Make the content of a file, or the names in a directory, durable. Raises `LedgerError` if the disk refuses."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _refused(path, error) from error


def _flush_file(file: IO[bytes]) -> None:
    try:
        os.fsync(file.fileno())
        file.close()
    except OSError as error:
        raise _refused(Path(file.name), error) from error


def _write(file: IO[bytes], content: bytes) -> None:
    """All of it: an unbuffered write may take a part, as on a disk that fills up."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def _refused(path: Path, error: OSError) -> LedgerError:
    return LedgerError(f"cannot write {path}: {error.strerror or error}")

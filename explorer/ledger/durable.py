"""Files that are created once, never changed, and on the disk before anything is said about them."""

import os
from pathlib import Path

from explorer.errors import LedgerError


class NewFiles:
    """Creates files below a directory. After `flush` they survive a power failure, directories and all."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._touched: set[Path] = set()

    def create(self, relative: str, content: bytes) -> None:
        """Create a file and flush its content. Raises `LedgerError` if it exists or the disk refuses.

        A crash in here leaves a part of the file.
        """
        path = self._root / relative
        try:
            self._make(path.parent)
            with path.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise LedgerError(f"cannot write {path}: {error.strerror or error}") from error
        self._touched.add(path.parent)

    def flush(self) -> None:
        """Flush the directories that hold what was created. A crash before this may lose some of the files."""
        for directory in sorted(self._touched):
            flush_directory(directory)
        self._touched.clear()

    def _make(self, directory: Path) -> None:
        try:
            directory.mkdir()
        except FileExistsError:
            return
        except FileNotFoundError:
            self._make(directory.parent)
            directory.mkdir()
        self._touched.add(directory.parent)


def flush_directory(directory: Path) -> None:
    """Make the names in a directory durable. Raises `LedgerError` if the disk refuses."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise LedgerError(f"cannot flush {directory}: {error.strerror or error}") from error

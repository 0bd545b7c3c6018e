"""Reading files out of a ledger's directory that somebody else may have filled."""

import os
import stat
from pathlib import Path

from explorer.errors import LedgerError


def read_file(directory: Path, relative: str, *, max_bytes: int) -> bytes | None:
    """The content of a file below the directory, or None if there is no such file.

    Raises `LedgerError` that names the file if it is larger than `max_bytes`, not a regular file, or reached through
    a link that leaves the directory.
    """
    path = directory / relative
    if not _inside(path.parent, directory):
        raise LedgerError(f"{path}: a link leads out of the ledger's directory")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error.strerror or error}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError(f"{path}: not a regular file")
        if status.st_size > max_bytes:
            raise LedgerError(f"{path}: {status.st_size} bytes, expected at most {max_bytes}")
        try:
            content = file.read(max_bytes + 1)
        except OSError as error:
            raise LedgerError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > max_bytes:
        raise LedgerError(f"{path}: grew while it was read, expected at most {max_bytes} bytes")
    return content


def list_names(directory: Path, relative: str) -> list[str]:
    """The names in a directory below the directory, sorted; none if it does not exist.

    Raises `LedgerError` if it cannot be listed or is reached through a link that leaves the directory.
    """
    path = directory / relative
    if not _inside(path, directory):
        raise LedgerError(f"{path}: a link leads out of the ledger's directory")
    try:
        return sorted(entry.name for entry in path.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error.strerror or error}") from error


def _inside(path: Path, directory: Path) -> bool:
    """Whether the path, all links followed, is the directory or below it."""
    root = os.path.realpath(directory)
    return os.path.commonpath([root, os.path.realpath(path)]) == root

"""Reading files out of a ledger's directory that somebody else may have filled: bounded, and no link is followed."""

import errno
import os
import stat
from pathlib import Path

from explorer.errors import LedgerError

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not keep us waiting
_DIRECTORY = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


def read_file(directory: Path, relative: str, *, max_bytes: int) -> bytes | None:
    """The content of a file below the directory, or None if there is no such file.

    Raises `LedgerError` that names the file if it is larger than `max_bytes`, not a regular file, a link or reached
    through one.
    """
    path = directory / relative
    try:
        descriptor = _open(directory, relative, _FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError(f"{path}: not a regular file")
        if status.st_size > max_bytes:
            raise LedgerError(f"{path}: {status.st_size} bytes, expected at most {max_bytes}")
        return os.read(descriptor, status.st_size)
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        os.close(descriptor)


def list_names(directory: Path, relative: str) -> list[str]:
    """The names in a directory below the directory, sorted; none if it does not exist.

    Raises `LedgerError` if it cannot be listed, or is a link or reached through one.
    """
    try:
        descriptor = _open(directory, relative, _DIRECTORY)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(directory / relative, error) from error
    try:
        return sorted(os.listdir(descriptor))  # noqa: PTH208 (a path cannot be a descriptor)
    except OSError as error:
        raise _unreadable(directory / relative, error) from error
    finally:
        os.close(descriptor)


def _open(directory: Path, relative: str, flags: int) -> int:
    """Open step by step: of the whole path only `directory` itself may lead through links."""
    *parents, name = relative.split("/")
    at = os.open(directory, _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        for parent in parents:
            inner = os.open(parent, _DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(name, flags, dir_fd=at)
    finally:
        os.close(at)


def _unreadable(path: Path, error: OSError) -> LedgerError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return LedgerError(f"cannot read {path}: a link, or below something that is no directory; none is followed")
    return LedgerError(f"cannot read {path}: {error.strerror or error}")

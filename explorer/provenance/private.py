"""Files that their owner alone can read, from the moment they exist, and that are refused when others can open them.

Keys, salts and requests are written once and never over another. What is read out of a run with a grant or with the
run's secrets may be read again, and replaces what was there.
"""

import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

from explorer.errors import ProvenanceError
from explorer.rundir import flush_directory

# The environment variables that hold passphrases. Who audits and who trains are two parties: a process that opens both
# kinds of key never takes both passphrases from one place.
PASSPHRASE = "EXPLORER_PASSPHRASE"  # of a key that signs
READER_PASSPHRASE = "EXPLORER_READER_PASSPHRASE"  # of a reader's key
NEW_PASSPHRASE = "EXPLORER_NEW_PASSPHRASE"  # that a key file gets in place of its own


def write_private(path: Path, *content: bytes) -> None:
    """Write a new file of mode 0600 from these pieces; it is on the disk when this returns.

    Raises `ProvenanceError` if there is a file already or the disk refuses; then nothing is left behind.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise ProvenanceError(f"{path}: there is a file already; a secret is never written over another") from error
    except OSError as error:
        raise ProvenanceError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        flush_directory(path.parent)
    except BaseException as error:  # an interruption too
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ProvenanceError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def replace_private(path: Path, *content: bytes) -> None:
    """Write a file of mode 0600 whole or not at all, in the place of one that may be there; it is on the disk when this
    returns. A link that stands there is replaced, and not followed. Raises `ProvenanceError` if the disk refuses."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProvenanceError(f"cannot write {path}: {error.strerror or error}") from error
    write_private(beside, *content)
    try:
        beside.replace(path)
        flush_directory(path.parent)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ProvenanceError(f"cannot write {path}: {error.strerror or error}") from error


def open_private(path: Path, *, max_bytes: int, write: bool = False) -> BinaryIO:
    """Open such a file. Raises `ProvenanceError` for links, for what others can open, and for what is too large."""
    mode = os.O_RDWR if write else os.O_RDONLY
    try:
        descriptor = os.open(path, mode | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise ProvenanceError(f"{path}: a link; name the file itself") from error
        raise ProvenanceError(f"cannot open {path}: {error.strerror or error}") from error
    try:
        _check(path, os.fstat(descriptor), max_bytes)  # first: a directory cannot become a file object
    except ProvenanceError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "r+b" if write else "rb")


def _check(path: Path, status: os.stat_result, max_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ProvenanceError(f"{path}: not a regular file")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise ProvenanceError(f"{path}: others can read or write it (mode {mode:04o}); first: chmod 600 {path}")
    if status.st_size > max_bytes:
        raise ProvenanceError(f"{path}: too large: {status.st_size} bytes, at most {max_bytes} are read")

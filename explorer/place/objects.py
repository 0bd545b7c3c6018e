"""Named objects in a directory or a bucket: the few operations that a place needs, and what they promise.

    /shared/digits, runs/place         a directory, also one that several machines mount
    s3://..., gs://..., az://...       a bucket, by `obstore` (extra `cloud`); credentials from its usual variables

An object appears whole or not at all, and `create` makes it for one caller only: by a hard link in a directory, which
works on network file systems too, and by `If-None-Match: *` in a bucket. Nothing else is needed of a place: no lock, no
rename and no server of ours.

Requests that fail are repeated. The answer to a request that succeeded may be lost, so a creator that finds an object
with its own content there has made it: callers whose contents could be equal by chance put something unique in them.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from explorer import rundir
from explorer.errors import PlaceError

MAX_KEY = 500  # characters
MAX_OBJECT = 2**40  # bytes that a file of a run may have

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+,@-]*")


class Missing(PlaceError):
    """No object of this name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """An object in a listing."""

    key: str
    size: int  # bytes


class Objects(Protocol):
    """Objects by key, such as `claims/fast-s0/00000001.json`. All methods raise `PlaceError` if the store refuses."""

    url: str

    def create(self, key: str, content: bytes) -> bool:
        """Make an object that is not there. False: one with another content is."""
        ...

    def put(self, key: str, content: bytes) -> None:
        """Make an object, in place of one that may be there."""
        ...

    def read(self, key: str, *, max_bytes: int) -> bytes:
        """Return an object's content. Raises `Missing` if there is none, `PlaceError` for more than `max_bytes`."""
        ...

    def list(self, prefix: str) -> Iterator[Listed]:
        """List the objects whose keys begin with `prefix`, which ends in a slash, in no particular order."""
        ...

    def remove(self, key: str) -> None:
        """Remove an object, if it is there."""
        ...


def check_key(key: str) -> str:
    """Return the key if it is one. Raises `PlaceError` for a name that could leave the place."""
    if len(key) > MAX_KEY or not all(_PART.fullmatch(part) for part in key.split("/")):
        raise PlaceError(f"{key!r:.200} is not the name of an object")
    return key


# --- a directory ---


class DirectoryObjects:
    """Objects as files of a directory, on this machine or on a file system that several machines share."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = str(directory)

    def create(self, key: str, content: bytes) -> bool:
        path = self._path(key)
        draft = self._draft(path, content)
        try:
            # A link and no exclusive open: the name appears with the whole content, also on NFS.
            os.link(draft, path)
            rundir.flush_directory(path.parent)
        except FileExistsError:
            return self.read(key, max_bytes=MAX_OBJECT) == content
        except OSError as error:
            raise PlaceError(f"cannot create {path}: {error.strerror or error}") from error
        finally:
            draft.unlink(missing_ok=True)
        return True

    def put(self, key: str, content: bytes) -> None:
        path = self._path(key)
        draft = self._draft(path, content)
        try:
            draft.replace(path)
            rundir.flush_directory(path.parent)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise PlaceError(f"cannot write {path}: {error.strerror or error}") from error

    def read(self, key: str, *, max_bytes: int) -> bytes:
        path = self._path(key)
        try:
            with path.open("rb") as file:
                if (size := os.fstat(file.fileno()).st_size) > max_bytes:
                    raise PlaceError(f"{path}: too large: {size} bytes, at most {max_bytes} are read")
                return file.read()
        except FileNotFoundError as error:
            raise Missing(f"{path}: no such object") from error
        except OSError as error:
            raise PlaceError(f"cannot read {path}: {error.strerror or error}") from error

    def list(self, prefix: str) -> Iterator[Listed]:
        waiting = [self._path(prefix.removesuffix("/"))]
        while waiting:
            try:
                entries = sorted(os.scandir(waiting.pop()), key=lambda entry: entry.name)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise PlaceError(f"cannot list {self.directory / prefix}: {error.strerror or error}") from error
            for entry in entries:
                if entry.name.startswith("."):  # a draft
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    key = Path(entry.path).relative_to(self.directory).as_posix()
                    yield Listed(key=key, size=entry.stat(follow_symlinks=False).st_size)

    def remove(self, key: str) -> None:
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError as error:
            raise PlaceError(f"cannot remove {self._path(key)}: {error.strerror or error}") from error

    def _path(self, key: str) -> Path:
        return self.directory / check_key(key)

    def _draft(self, path: Path, content: bytes) -> Path:
        """Write the content next to its place, to the disk."""
        # Hosts that share the directory may have equal process numbers, so the draft has a random name.
        draft = path.with_name(f".{path.name[:80]}.{secrets.token_hex(8)}.tmp")
        try:
            rundir.make_directory(path.parent)
            with draft.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):  # the disk that refused the draft may refuse this too
                draft.unlink()
            raise PlaceError(f"cannot write {path}: {error.strerror or error}") from error
        return draft

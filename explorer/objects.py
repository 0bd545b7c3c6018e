"""Named objects in a directory or a bucket: the few operations that a place needs, and what they promise.

    /shared/digits, runs/place         a directory, also one that several machines mount
    s3://..., gs://..., az://...       a bucket, by `obstore` (extra `cloud`); credentials from its usual variables

An object appears whole or not at all, and `create` makes it for one caller only: by a hard link in a directory, which
works on network file systems too, and by `If-None-Match: *` in a bucket. Nothing else is needed of a place: no lock, no
rename and no server of ours.

Requests to a bucket that fail are repeated, here and not by `obstore`, so that all of them are. The answer to a request
that succeeded may be lost, so a creator that finds an object with its own content there has made it: callers whose
contents could be equal by chance put something unique in them.
"""

import contextlib
import functools
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

from explorer import rundir
from explorer.errors import PlaceError, unknown

MAX_KEY = 500  # characters
MAX_OBJECT = 2**40  # bytes that a file of a run may have
SCHEMES = ("s3", "gs", "az")
DRAFTS = ".*.tmp"  # names of files that are being written
PAUSES = (0.1, 0.3, 1.0, 3.0, 5.0, 5.0)  # seconds before a failed request is repeated
LASTING = ("InvalidPathError", "NotSupportedError", "PermissionDeniedError", "UnauthenticatedError")  # repeated in vain

Answer = TypeVar("Answer")

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+,@-]*")


class Missing(PlaceError):
    """No object of this name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """An object in a listing."""

    key: str
    size: int  # bytes
    modified: float  # seconds since 1970, by the clock of the store


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

    def remove_drafts(self, prefix: str) -> None:
        """Remove what killed processes left of objects below a prefix, while no other process writes there."""
        ...


def open_objects(url: str) -> Objects:
    """Return the objects at a directory, or at the URL of a bucket.

    Raises `PlaceError` for another kind of URL, and for a bucket without the extra `cloud`.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        return DirectoryObjects(Path(url))
    if scheme not in SCHEMES:
        raise PlaceError(f"{url}: {unknown('kind of place', scheme, SCHEMES)}, or a directory")
    return BucketObjects(url)


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
        # Without paths, of which a place of thousands of runs would need as many.
        name = prefix.removesuffix("/")
        waiting = [(str(self._path(name)), name)]
        while waiting:
            folder, name = waiting.pop()
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise PlaceError(f"cannot list {self.directory / prefix}: {error.strerror or error}") from error
            for entry in entries:
                key = f"{name}/{entry.name}"
                if entry.name.startswith("."):  # a draft
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, key))
                elif entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):  # removed since
                        status = entry.stat(follow_symlinks=False)
                        yield Listed(key=key, size=status.st_size, modified=status.st_mtime)

    def remove(self, key: str) -> None:
        try:
            self._path(key).unlink(missing_ok=True)
        except OSError as error:
            raise PlaceError(f"cannot remove {self._path(key)}: {error.strerror or error}") from error

    def remove_drafts(self, prefix: str) -> None:
        folder = self._path(prefix.removesuffix("/"))
        try:
            for draft in folder.glob(DRAFTS):
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise PlaceError(f"cannot remove drafts in {folder}: {error.strerror or error}") from error

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


# --- a bucket ---


class BucketObjects:
    """Objects below a prefix of a bucket. Every method raises `PlaceError` where the store keeps refusing."""

    def __init__(self, url: str) -> None:
        """Raises `PlaceError` without the extra, and for a URL or settings that the store does not accept."""
        try:
            self._obstore = import_module("obstore")
            self._errors = import_module("obstore.exceptions")
        except ImportError as error:
            raise PlaceError(f"{url}: a bucket needs the extra 'cloud': pip install 'explorer[cloud]'") from error
        self.url = url.rstrip("/")
        try:
            self._store = _client(self.url, frozenset(os.environ.items()))
        except (self._errors.BaseError, ValueError, TypeError) as error:
            raise PlaceError(f"{url}: {_first_line(error)}") from error

    def create(self, key: str, content: bytes) -> bool:
        def attempt() -> bool:
            try:
                self._obstore.put(self._store, check_key(key), content, mode="create", use_multipart=False)
            except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
                return False
            return True

        # Where an answer was lost, the repeated request learns only that there is an object: it may be this one.
        return self._again(key, attempt) or self.read(key, max_bytes=MAX_OBJECT) == content

    def put(self, key: str, content: bytes) -> None:
        self._again(key, lambda: self._obstore.put(self._store, check_key(key), content))

    def read(self, key: str, *, max_bytes: int) -> bytes:
        def attempt() -> bytes:
            answer = self._obstore.get(self._store, check_key(key))
            if (size := answer.meta["size"]) > max_bytes:
                raise PlaceError(f"{self.url}/{key}: too large: {size} bytes, at most {max_bytes} are read")
            return bytes(answer.bytes())

        return self._again(key, attempt)

    def list(self, prefix: str) -> Iterator[Listed]:
        whole = check_key(prefix.removesuffix("/"))

        def attempt() -> list[Listed]:
            pages = self._obstore.list(self._store, whole)
            return [
                Listed(key=meta["path"], size=meta["size"], modified=meta["last_modified"].timestamp())
                for page in pages
                for meta in page
            ]

        yield from self._again(prefix, attempt)

    def remove(self, key: str) -> None:
        try:
            self._again(key, lambda: self._obstore.delete(self._store, check_key(key)))
        except Missing:
            return

    def remove_drafts(self, prefix: str) -> None:
        """Do nothing: a bucket keeps whole objects only."""

    def _again(self, key: str, attempt: Callable[[], Answer]) -> Answer:
        """Make a request, again while the store fails. Raises `Missing`, or `PlaceError` that names object and
        fault."""
        for pause in (*PAUSES, None):
            try:
                return attempt()
            except (self._errors.NotFoundError, FileNotFoundError) as error:
                raise Missing(f"{self.url}/{key}: no such object, or no such bucket") from error
            except (self._errors.BaseError, OSError) as error:
                if pause is None or type(error).__name__ in LASTING:
                    raise PlaceError(f"{self.url}/{key}: {_first_line(error)}") from error
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")


@functools.lru_cache(maxsize=8)
def _client(url: str, settings: frozenset[tuple[str, str]]) -> Any:
    """Return the client of a bucket under these environment variables. It keeps its connections: to make a client takes
    as long as several requests, and a worker opens its place for every run."""
    return import_module("obstore").store.from_url(url, retry_config={"max_retries": 0})


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]

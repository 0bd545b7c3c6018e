"""Named objects in a bucket of S3, Google Cloud Storage or Azure, or of a server that speaks one of their protocols.

`obstore` makes the requests (extra `cloud`). Requests that fail are repeated here and not by it, so that all of them
are, and the pauses are known.
"""

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TypeVar

from explorer.errors import PlaceError
from explorer.place.objects import MAX_OBJECT, Listed, Missing, check_key

SCHEMES = ("s3", "gs", "az")
PAUSES = (0.1, 0.3, 1.0, 3.0, 5.0, 5.0)  # seconds before a failed request is repeated
LASTING = ("InvalidPathError", "NotSupportedError", "PermissionDeniedError", "UnauthenticatedError")  # repeated in vain

Answer = TypeVar("Answer")


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
            self._store = self._obstore.store.from_url(self.url, retry_config={"max_retries": 0})
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
            return [Listed(key=meta["path"], size=meta["size"]) for page in pages for meta in page]

        yield from self._again(prefix, attempt)

    def remove(self, key: str) -> None:
        try:
            self._again(key, lambda: self._obstore.delete(self._store, check_key(key)))
        except Missing:
            return

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


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]

"""A bounded cache of shards on disk, named by their digests.

    CACHE/shards/3f/3f9c...

The directory is `rundir.cache_directory()`. A file appears whole, and a reader verifies its digest, so a cache is never
stale, survives a crash at any moment, and may be deleted at any time. Several processes share it: what one of them
removes while another would read it is read again from its place.
"""

import contextlib
import logging
import os
import re
import secrets
import time
from pathlib import Path

from explorer import rundir
from explorer.errors import DataError

VARIABLE = "EXPLORER_SHARD_CACHE"
USUAL = 10 * 2**30  # bytes
OLD = 3600.0  # seconds after which a draft was left behind by a crash
ROOM, FULL = 0.85, 0.9  # shares of the limit: what is kept of a full cache, and what counts as full
LOOKS = 20  # how often the directory is measured while the cache is filled once
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(KB|MB|GB|TB)?", re.IGNORECASE)
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}

log = logging.getLogger(__name__)


def limit(*, local: bool) -> int:
    """Return how many bytes of shards the cache may hold, by `EXPLORER_SHARD_CACHE`, such as 300MB.

    Unless it is set, shards of a bucket have 10 GiB, and those of a directory none: they are on a disk already. Raises
    `DataError` for another text.
    """
    if not (written := os.environ.get(VARIABLE)):
        return 0 if local else USUAL
    match = _SIZE.fullmatch(written.strip())
    if match is None:
        raise DataError(f"{VARIABLE}: found {written!r:.40}, expected a size such as 300MB or 20GB, or 0 for no cache")
    return int(float(match[1]) * _UNITS[(match[2] or "").upper()])


class ShardCache:
    """The cache. All its methods are safe from several threads and processes."""

    def __init__(self, limit: int, directory: Path | None = None) -> None:
        self._directory = directory or rundir.cache_directory() / "shards"
        self._limit = limit
        self._added = 0  # bytes since the directory was measured last
        self._shrink()

    def read(self, digest: str) -> bytes | None:
        """Return the file with this digest in its name, unverified; None if it is not here."""
        path = self._path(digest)
        try:
            content = path.read_bytes()
            os.utime(path)  # what was used last is removed last
        except OSError:
            return None
        return content

    def write(self, digest: str, content: bytes) -> None:
        """Keep a file. A cache that cannot be written is as good as none, so that is a warning."""
        path = self._path(digest)
        draft = path.with_name(f".{path.name[:16]}.{secrets.token_hex(8)}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(content)
            draft.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):  # the disk that refused the draft may refuse this too
                draft.unlink()
            log.warning("cache of shards: cannot write %s: %s", path, error.strerror or error)
        self._added += len(content)
        if self._added * LOOKS >= self._limit:
            self._shrink()

    def drop(self, digest: str) -> None:
        """Remove a file that turned out to be damaged."""
        self._path(digest).unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        return self._directory / digest[:2] / digest

    def _shrink(self) -> None:
        """Measure the directory; remove the files that were used least recently, and drafts of crashed processes."""
        self._added = 0
        files: list[tuple[float, int, Path]] = []
        for path in self._directory.glob("*/*"):
            try:
                status = path.stat()
                if not path.name.endswith(".tmp"):
                    files.append((status.st_mtime, status.st_size, path))
                elif time.time() - status.st_mtime > OLD:
                    path.unlink()
            except FileNotFoundError:  # removed by another process
                continue
        size = sum(bytes_ for _, bytes_, _ in files)
        # What other threads and processes write between two looks is the rest.
        if size <= self._limit * FULL:
            return
        for _, bytes_, path in sorted(files):
            path.unlink(missing_ok=True)
            size -= bytes_
            if size <= self._limit * ROOM:
                return

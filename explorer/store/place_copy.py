"""Results at a place, for readers who do not have the runs: a snapshot of one sweep there, and a copy of it here.

    snapshot.json           the sweep, and the digest and size of its newest snapshot
    snapshots/<sha256>      that snapshot, and the one before it, which a reader may be fetching

The copy is in the user's caches, in a directory that every reader takes for a directory of runs. Before each answer it
is compared with the digest at the place, which costs one small request, and fetched again where it is another one. It
comes from outside: its size is bounded, its bytes are compared with their digest, and `connect` opens it so that
nothing in it can reach another file.
"""

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from explorer import rundir
from explorer.errors import ExplorerError, PlaceError, StoreError
from explorer.objects import Missing
from explorer.place.published_sweep import Digest, Published, undamaged
from explorer.schema import from_json, record, to_json
from explorer.store.ingest import extract
from explorer.store.published import COPY, DATABASE, database, opened

MAX_SNAPSHOT = 2**30  # bytes
POINTER = "snapshot.json"
FOLDER = "snapshots"


@record
class SnapshotAt:
    """`snapshot.json`."""

    format: Literal[1] = 1
    sweep: Annotated[str, Field(min_length=1, max_length=200)]
    digest: Digest
    size: Annotated[int, Field(gt=0, le=MAX_SNAPSHOT)]


@record
class CopyOf:
    """`copy_of.json`, next to the copy."""

    format: Literal[1] = 1
    place: Annotated[str, Field(max_length=4096)]


def publish_results(runs: Path, sweep: str, place: str) -> None:
    """Publish what the database has of a sweep, and of no other, at the sweep's place.

    Raises `PlaceError` where the place refuses, and what `ingest` raises.
    """
    published = Published.at(place)
    content = rundir.read_bytes(extract(runs, sweep), max_bytes=MAX_SNAPSHOT, error=StoreError)
    now = SnapshotAt(sweep=sweep, digest=hashlib.sha256(content).hexdigest(), size=len(content))
    before = published.find(SnapshotAt, POINTER)
    if now == before:
        return
    published.objects.put(f"{FOLDER}/{now.digest}", content)
    published.write(POINTER, now)  # a reader sees the old one or the new one, each of them whole
    kept = {now.digest, None if before is None else before.digest}
    for listed in list(published.objects.list(f"{FOLDER}/")):
        if listed.key.removeprefix(f"{FOLDER}/") not in kept:
            published.objects.remove(listed.key)


def copy_of(place: str) -> Path:
    """Return a directory with a copy of the newest snapshot at a place, fetched if there is none yet, or an old one.

    Raises `PlaceError` where nothing is published, for a damaged snapshot, and where the place cannot be reached.
    """
    where = place if "://" in place else str(Path(place).resolve())
    directory = rundir.cache_directory() / "places" / hashlib.sha256(where.encode()).hexdigest()[:32]
    rundir.write_json(directory / COPY, to_json(CopyOf(place=where)))
    _fetch(where, directory)
    return directory


def refresh(directory: Path) -> tuple[str, ...]:
    """Bring a copy up to its place. Where that fails, the copy stays as it is, and a warning is returned."""
    value = rundir.read_json(directory / COPY)
    place = from_json(CopyOf, value, where=str(directory / COPY), error=StoreError).place
    try:
        _fetch(place, directory)
    except ExplorerError as error:
        if not database(directory).exists():
            raise
        return (f"{error}; shown is what was fetched before",)
    return ()


def _fetch(place: str, directory: Path) -> None:
    published, path = Published.at(place), database(directory)
    for again in (True, False):
        now = published.find(SnapshotAt, POINTER)
        if now is None:
            raise PlaceError(f"{place}: has no results yet; expected {POINTER}, which `explorer sweep run --at` writes")
        if path.exists() and _digest(path) == now.digest:
            return
        key = f"{FOLDER}/{now.digest}"
        try:
            content = published.objects.read(key, max_bytes=now.size)
        except Missing:  # a newer one has taken its place meanwhile
            if again:
                continue
            raise
        undamaged(content, now.digest, where=f"{published.objects.url}/{key}")
        rundir.write_bytes(directory / DATABASE, content)
        with opened(path):  # of this version, or it says so
            return


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

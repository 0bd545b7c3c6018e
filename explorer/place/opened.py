"""The objects at a place, by its URL."""

from pathlib import Path

from explorer.errors import PlaceError, unknown
from explorer.place.bucket import SCHEMES, BucketObjects
from explorer.place.objects import DirectoryObjects, Objects


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

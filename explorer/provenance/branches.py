"""Paths in a taxonomy: `open/permissive/mit`. A branch is a path with everything below it."""

from typing import Annotated

from pydantic import Field

PATTERN = r"^[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*$"
MAX_PATH = 200

Path = Annotated[str, Field(pattern=PATTERN, max_length=MAX_PATH)]
"""The type of a path in a record: lower-case parts with `/` between them."""


def covers(branch: str, path: str) -> bool:
    """Whether `path` is the branch or lies below it.

    >>> covers("open", "open/permissive/mit"), covers("open", "open"), covers("open", "openish")
    (True, True, False)
    """
    return path == branch or path.startswith(f"{branch}/")


def lineage(path: str) -> tuple[str, ...]:
    """Every branch that the path lies in, from the widest to itself.

    >>> lineage("open/permissive/mit")
    ('open', 'open/permissive', 'open/permissive/mit')
    """
    parts = path.split("/")
    return tuple("/".join(parts[:count]) for count in range(1, len(parts) + 1))

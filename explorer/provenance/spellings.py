"""Spellings of times, digests, numbers, text and class paths in records: one for each, so that digests agree.

Times are RFC 3339 in UTC, to the second: `2026-01-01T00:00:00Z`. In memory a time is a whole number of seconds since
1970. A span of time includes its start but not its end.
"""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from explorer.errors import ProvenanceError
from explorer.schema import record

_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"
_FORM = "%Y-%m-%dT%H:%M:%SZ"

UNKNOWN_TEXTS = "on texts that are not known here"  # of a tokeniser that came from a file


def parse_time(text: str) -> int:
    """Return the seconds since 1970. Raises `ProvenanceError` for other spellings and for days that do not exist.

    >>> parse_time("2026-01-01T00:00:00Z")
    1767225600
    """
    try:
        # `strptime` is laxer: it would accept single digits and digits of other scripts.
        if not re.fullmatch(_PATTERN[1:-1], text, re.ASCII):
            raise ValueError
        return int(datetime.strptime(text, _FORM).replace(tzinfo=UTC).timestamp())
    except ValueError as error:
        raise ProvenanceError(f"not a time: {text!r:.80}; expected UTC such as 2026-01-31T12:00:00Z") from error


def format_time(seconds: int) -> str:
    """Return the spelling of a time. Raises `ProvenanceError` outside the years 1 to 9999.

    >>> format_time(1767225600)
    '2026-01-01T00:00:00Z'
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError) as error:
        raise ProvenanceError(f"not a moment of the years 1 to 9999: {seconds} seconds since 1970") from error


def _checked(text: str) -> str:
    try:
        parse_time(text)
    except ProvenanceError as error:
        raise PydanticCustomError("time", "expected a moment in UTC such as 2026-01-31T12:00:00Z") from error
    return text


Time = Annotated[str, AfterValidator(_checked), Field(json_schema_extra={"format": "date-time", "pattern": _PATTERN})]
"""The type of a time in a record."""


# -------------------------- digests, numbers, names: the forms that ledger entries have too (`explorer.entries.fields`)

MAX_WHOLE = 2**53 - 1  # the largest integer that every reader of JSON keeps exactly (RFC 8785 uses doubles)

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", max_length=64)]
"""SHA-256 in hexadecimal."""

Whole = Annotated[int, Field(ge=0, le=MAX_WHOLE)]

Ascii = Annotated[str, Field(pattern=r"^[ -~]+$", max_length=200)]
"""Printable ASCII: the name of a run, a layer, a log's origin."""


@record
class LedgerName:
    """A ledger as one of its checkpoints names it."""

    origin: Ascii
    size: Whole
    root: Digest


# ------------------------------------------------------------- text for people: one line that a terminal shows as it is


def _one_line(text: str) -> str:
    hidden = next((char for char in text if not char.isprintable()), None)
    if hidden is not None:
        raise PydanticCustomError(
            "line", "expected one line of printable text, without {hidden}", {"hidden": repr(hidden)}
        )
    if not text.strip():
        raise PydanticCustomError("line", "expected one line of printable text")
    return text


Line = Annotated[
    str, AfterValidator(_one_line), Field(min_length=1, json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f]+$"})
]
"""The type of text that is safe to print: no control characters, and no marks that change the writing direction."""


# -------------------------------------- class paths: `open/permissive/mit`; a branch is a path with everything below it

CLASS_PATTERN = r"^[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*$"
MAX_PATH = 200

ClassPath = Annotated[str, Field(pattern=CLASS_PATTERN, max_length=MAX_PATH)]
"""The type of a path in a record: lower-case parts with `/` between them."""


def covers(branch: str, path: str) -> bool:
    """Return whether `path` is the branch or lies below it.

    >>> covers("open", "open/permissive/mit"), covers("open", "open"), covers("open", "openish")
    (True, True, False)
    """
    return path == branch or path.startswith(f"{branch}/")


def lineage(path: str) -> tuple[str, ...]:
    """Return every branch that contains the path, from the widest to the path itself.

    >>> lineage("open/permissive/mit")
    ('open', 'open/permissive', 'open/permissive/mit')
    """
    parts = path.split("/")
    return tuple("/".join(parts[:count]) for count in range(1, len(parts) + 1))

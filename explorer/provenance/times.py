"""Moments in documents: RFC 3339 in UTC, to the second, in one spelling: `2026-01-01T00:00:00Z`.

In memory a moment is a whole number of seconds since 1970. A span of time holds its start and not its end.
"""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from explorer.errors import ProvenanceError

_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"
_FORM = "%Y-%m-%dT%H:%M:%SZ"


def parse_time(text: str) -> int:
    """Seconds since 1970. Raises `ProvenanceError` for any other spelling and for days that do not exist.

    >>> parse_time("2026-01-01T00:00:00Z")
    1767225600
    """
    try:
        if not re.fullmatch(_PATTERN[1:-1], text, re.ASCII):
            raise ValueError
        return int(datetime.strptime(text, _FORM).replace(tzinfo=UTC).timestamp())
    except ValueError as error:
        raise ProvenanceError(f"not a time: {text!r:.80}; expected UTC such as 2026-01-31T12:00:00Z") from error


def format_time(seconds: int) -> str:
    """The spelling of a moment. Raises `ProvenanceError` outside the years 1 to 9999.

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
"""The type of a moment in a record."""

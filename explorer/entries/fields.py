"""The types of entries' fields."""

from typing import Annotated, TypeVar

from pydantic import Field
from pydantic.config import JsonDict

from explorer.entries.heads import BLOB_NAME, DIGEST, MAX_BLOB_NAME, MAX_BLOBS, MAX_WHOLE
from explorer.errors import LedgerError
from explorer.provenance.spellings import ClassPath
from explorer.schema import record

Value = TypeVar("Value")

_SHUT: JsonDict = {"additionalProperties": False}  # a key that does not fit its pattern is refused by the schema too

Digest = Annotated[str, Field(pattern=f"^{DIGEST}$", max_length=64)]
"""SHA-256 in hexadecimal."""

Whole = Annotated[int, Field(ge=0, le=MAX_WHOLE)]

Line = Annotated[str, Field(pattern=r"^[ -~]+$", max_length=200)]
"""Printable ASCII: the name of a run, a layer, a phase, a log's origin."""

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=64)]

Float = Annotated[
    str,
    Field(
        pattern=r"^(-?0x0\.0p\+0|-?0x1\.[0-9a-f]{13}p(\+([0-9]|[1-9][0-9]{1,2}|10[01][0-9]|102[0-3])"
        r"|-([1-9]|[1-9][0-9]{1,2}|10[01][0-9]|102[0-2]))|-?0x0\.[0-9a-f]{13}p-1022|nan|-?inf)$",
        max_length=32,
    ),
]
"""A floating-point number, exactly: `float.hex()`."""

ByClass = Annotated[dict[ClassPath, Value], Field(json_schema_extra=_SHUT)]
"""One value for each class, by its path."""

ByName = Annotated[dict[Name, Value], Field(json_schema_extra=_SHUT)]


@record
class Blob:
    """Content that an entry names and does not hold."""

    sha256: Digest
    size: Whole  # bytes


BlobName = Annotated[str, Field(pattern=f"^{BLOB_NAME}$", max_length=MAX_BLOB_NAME)]
Blobs = Annotated[dict[BlobName, Blob], Field(max_length=MAX_BLOBS, json_schema_extra=_SHUT)]


@record
class LedgerState:
    """A ledger as one of its checkpoints names it."""

    origin: Line
    size: Whole
    root: Digest


def write_float(number: float) -> str:
    """Return a number as entries write it.

    >>> write_float(3.0), write_float(float("inf"))
    ('0x1.8000000000000p+1', 'inf')
    """
    return float(number).hex()


def read_float(text: str) -> float:
    """Read a number of an entry. Raises `LedgerError` for text that `write_float` does not write."""
    # A number has one spelling here: `fromhex` would also accept others, and then equal entries would differ in bytes.
    try:
        number = float.fromhex(text)
    except (ValueError, OverflowError) as error:
        raise LedgerError(f"not a number of an entry: {text!r:.40}; expected float.hex() text") from error
    if number.hex() != text:
        raise LedgerError(f"not a number of an entry: {text!r:.40}; expected {number.hex()!r}")
    return number

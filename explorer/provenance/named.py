"""How statements name things: digests, whole numbers, layers, and a ledger as one of its checkpoints has it.

These are the forms that ledger entries have for the same things (`explorer.entries.fields`), for what stands below it.
"""

from typing import Annotated

from pydantic import Field

from explorer.schema import record

MAX_WHOLE = 2**53 - 1

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

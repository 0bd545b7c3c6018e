"""What the attestation of a tag table says: the predicate of its statement (`schemas/tag-table.v1.json`)."""

from typing import Annotated

from pydantic import Field

from explorer.provenance import branches
from explorer.provenance.description import Description
from explorer.provenance.times import Time
from explorer.provenance.trust import Name
from explorer.schema import record

MAX_ROWS = 2**24  # a larger dataset has several tables

Count = Annotated[int, Field(ge=1, le=MAX_ROWS)]
Slot = Annotated[int, Field(ge=0, lt=MAX_ROWS)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", max_length=64)]


@record
class ClassCount:
    """The tags of one class that one authority vouches for."""

    records: Count
    first: Slot  # of the first one, for messages


@record
class Voucher:
    """What one authority vouches for."""

    authority: Name
    classes: Annotated[
        dict[branches.Path, ClassCount], Field(min_length=1, json_schema_extra={"additionalProperties": False})
    ]


@record
class TagTable:
    """The predicate of the statement."""

    taxonomy: Digest
    records: Count
    vouchers: Annotated[tuple[Voucher, ...], Field(min_length=1)]  # by name; the place is the number in the tags
    description: Description
    issued: Time
    expires: Time

    @property
    def authorities(self) -> tuple[str, ...]:
        """Their names, in the order of their numbers."""
        return tuple(voucher.authority for voucher in self.vouchers)

    @property
    def histogram(self) -> dict[str, int]:
        """How many records of each class."""
        counts: dict[str, int] = {}
        for voucher in self.vouchers:
            for path, count in voucher.classes.items():
                counts[path] = counts.get(path, 0) + count.records
        return dict(sorted(counts.items()))


def difference(found: tuple[Voucher, ...], signed: TagTable) -> str | None:
    """In words, the first count of a table that is not the one signed; None where all are."""
    for mine, theirs in zip(found, signed.vouchers, strict=True):
        for path in sorted({*mine.classes, *theirs.classes}):
            have, said = mine.classes.get(path), theirs.classes.get(path)
            if have != said:
                return f"{mine.authority} vouches for {_words(have)} of {path}, signed are {_words(said)}"
    records = sum(count.records for voucher in found for count in voucher.classes.values())
    return None if records == signed.records else f"it has {records} records, signed are {signed.records}"


def _words(count: ClassCount | None) -> str:
    return "none" if count is None else f"{count.records} from slot {count.first}"

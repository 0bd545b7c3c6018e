"""What a dataset is, in the 22 fields of the Data Provenance Standards 1.0.0 (Data & Trust Alliance).

People write it as YAML, as in `notebooks/policies/news.description.yaml`; the attestation of a tag table carries it
(attestation.py). The fields that the standards ask for only where they apply may be left out.
"""

from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from explorer.document import Document
from explorer.errors import SpecError
from explorer.provenance.lines import Line
from explorer.schema import from_json, record

Text = Annotated[Line, Field(max_length=2_000)]


def _date(text: str) -> str:
    try:
        if date.fromisoformat(text).isoformat() == text:
            return text
    except ValueError:
        pass
    raise PydanticCustomError("date", "expected a day such as 2026-01-31, found {text}", {"text": repr(text)})


Day = Annotated[
    str,
    AfterValidator(_date),
    Field(json_schema_extra={"format": "date", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}, max_length=10),
]


@record
class Days:
    """From the first of these days to the last, both included."""

    first: Day
    last: Day


@record
class Description:
    """The description of a dataset."""

    # Source
    standards_version: Literal["1.0.0"]
    title: Text
    identifier: Text  # unique
    location: Text  # where this description is published
    issuer: Text
    description: Text
    # Provenance
    source_metadata: Text | None = None  # of the datasets that this one was made from
    source: Text | None = None  # where it differs from the issuer
    origin_geography: Text
    issue_date: Day
    previous_issue_date: Day | None = None
    generated: Days
    method: Text
    format: Text
    # Use
    confidentiality: Text
    consent_location: Text | None = None  # where consent is documented
    privacy_technologies: Text | None = None
    processing_geography: Text | None = None  # where it may and may not be processed; absent: no limits
    storage_geography: Text | None = None
    licence: Text
    intended_use: Text
    proprietary: bool  # whether it holds proprietary data


def read_description(document: Document) -> Description:
    """The description that a document says. Raises `SpecError` that names file, line, key and fault."""
    try:
        return from_json(Description, document.value, where=document.where, error=SpecError)
    except SpecError as fault:
        raise document.locate(fault) from fault

"""Descriptions of datasets: the Data Provenance Standards 1.0.0 (Data & Trust Alliance), and MLCommons Croissant 1.0.

The 22 fields of the standards are written as YAML, as in `notebooks/policies/news.description.yaml`; the attestation of
a tag table carries them (tag_attestation.py). Fields that the standards require only where they apply may be left out.

Croissant (docs.mlcommons.org/croissant/docs/croissant-spec.html) is JSON-LD that dataset search engines and
`mlcroissant` read, here with the fields of its vocabulary for responsible AI that have known values. The context is
part of the document, as in the specification, so that a reader fetches nothing. Unknown facts are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from explorer.errors import SpecError
from explorer.provenance.spellings import Line
from explorer.schema import from_json, record
from explorer.yaml_document import Document

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
    """Return the description in a document. Raises `SpecError` that names file, line, key and fault."""
    try:
        return from_json(Description, document.value, where=document.where, error=SpecError)
    except SpecError as fault:
        raise document.locate(fault) from fault


# ------------------------------------------------------------------------------------------------------------ Croissant

CONFORMS_TO = ("http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0")
PARQUET = "application/x-parquet"
DSSE = "application/vnd.dsse.envelope.v1+json"

DataType = Literal["sc:Text", "sc:Integer", "sc:Boolean"]

CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """A file of the dataset. Its id in the document is `file-<n>`: a path may have characters that an id may not."""

    path: str
    sha256: str
    encoding: str  # a media type
    description: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A field of each record."""

    name: str  # a word
    type: DataType
    description: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Records:
    """Records within the document, or in the columns of the same names in one of its files."""

    name: str  # a word
    description: str
    columns: Sequence[Column]
    key: str  # the column whose values are unique
    rows: Sequence[Mapping[str, Any]] = ()
    file: int | None = None  # the index of the file that holds them


def croissant(
    *,
    name: str,
    description: str,
    facts: Mapping[str, Any],
    files: Sequence[File],
    records: Sequence[Records],
) -> dict[str, Any]:
    """Return the Croissant document.

    Args:
        name: the name of the dataset.
        description: the description of the dataset.
        facts: further properties by their names in schema.org, or after `rai:`; those that are None or empty are left
            out.
        files: the files of the dataset.
        records: sets of records; one with neither rows nor a file is left out.
    """
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": list(CONFORMS_TO),
        "name": name,
        "description": description,
        **{key: value for key, value in facts.items() if value not in (None, "", [], ())},
        "distribution": [_file(at, described) for at, described in enumerate(files)],
        "recordSet": [_records(described) for described in records if described.rows or described.file is not None],
    }


def _file(at: int, file: File) -> dict[str, Any]:
    made = {
        "@type": "cr:FileObject",
        "@id": f"file-{at}",
        "name": file.path.rpartition("/")[2],
        "contentUrl": file.path,
        "encodingFormat": file.encoding,
        "sha256": file.sha256,
    }
    return made | ({"description": file.description} if file.description else {})


def _records(records: Records) -> dict[str, Any]:
    made: dict[str, Any] = {
        "@type": "cr:RecordSet",
        "@id": records.name,
        "name": records.name,
        "description": records.description,
        "key": {"@id": f"{records.name}/{records.key}"},
        "field": [_field(records, column) for column in records.columns],
    }
    if records.file is None:
        rows = [{f"{records.name}/{key}": value for key, value in row.items()} for row in records.rows]
        return made | {"data": rows}
    return made


def _field(records: Records, column: Column) -> dict[str, Any]:
    made: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": f"{records.name}/{column.name}",
        "name": column.name,
        "description": column.description,
        "dataType": column.type,
    }
    if records.file is not None:
        made["source"] = {"fileObject": {"@id": f"file-{records.file}"}, "extract": {"column": column.name}}
    return made

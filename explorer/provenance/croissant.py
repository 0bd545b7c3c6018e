"""What a dataset is, as MLCommons Croissant 1.0 (docs.mlcommons.org/croissant/docs/croissant-spec.html): JSON-LD that
dataset search engines and `mlcroissant` read, with the fields of its vocabulary for responsible AI where there are
facts for them.

The context stands in the document, as the specification gives it: whoever reads one fetches nothing. What is not known
is left out; a field without a fact is none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
    """A file of the dataset. Its name in the document is `file-<n>`: a path may hold what no name can."""

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
    """Records that stand in the document, or in the columns of one of its files that have their names."""

    name: str  # a word
    description: str
    columns: Sequence[Column]
    key: str  # the column that no two records have in common
    rows: Sequence[Mapping[str, Any]] = ()
    file: int | None = None  # the place of the file that holds them


def croissant(
    *,
    name: str,
    description: str,
    facts: Mapping[str, Any],
    files: Sequence[File],
    records: Sequence[Records],
) -> dict[str, Any]:
    """The document. `facts` are further properties by their names in schema.org, or behind `rai:`; those that are None
    or empty are left out."""
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": list(CONFORMS_TO),
        "name": name,
        "description": description,
        **{key: value for key, value in facts.items() if value not in (None, "", [], ())},
        "distribution": [_file(at, each) for at, each in enumerate(files)],
        "recordSet": [_records(each) for each in records if each.rows or each.file is not None],
    }


def _file(at: int, each: File) -> dict[str, Any]:
    made = {
        "@type": "cr:FileObject",
        "@id": f"file-{at}",
        "name": each.path.rpartition("/")[2],
        "contentUrl": each.path,
        "encodingFormat": each.encoding,
        "sha256": each.sha256,
    }
    return made | ({"description": each.description} if each.description else {})


def _records(each: Records) -> dict[str, Any]:
    made: dict[str, Any] = {
        "@type": "cr:RecordSet",
        "@id": each.name,
        "name": each.name,
        "description": each.description,
        "key": {"@id": f"{each.name}/{each.key}"},
        "field": [_field(each, column) for column in each.columns],
    }
    if each.file is None:
        rows = [{f"{each.name}/{key}": value for key, value in row.items()} for row in each.rows]
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

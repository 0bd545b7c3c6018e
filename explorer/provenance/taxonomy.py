"""The taxonomy: a published, versioned tree of the classes that data can have.

Every node of the tree is a class, inner nodes too: an example that is only known to be open has the class `open`. A
taxonomy is written as YAML and signed as canonical JSON:

    format: explorer/taxonomy/v1
    name: licences
    version: 1
    issued: 2026-01-01T00:00:00Z
    expires: 2031-01-01T00:00:00Z
    classes:
      - path: open
        definition: Published under a licence that the Open Source Initiative has approved.
        personal_data: false
        source: public

`personal_data` says whether examples of this class may hold personal data, and `source` is the regulator's category of
their origin. Both apply to the class itself, not to the classes below it.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from explorer.canonical import digest
from explorer.errors import ProvenanceError, unknown
from explorer.provenance.signing import Kind, Name, Version, check_span, read_draft
from explorer.provenance.spellings import ClassPath, Line, Time, covers
from explorer.provenance.trust import Role
from explorer.schema import record, to_json
from explorer.yaml_document import Document

FORMAT = "explorer/taxonomy/v1"
QUARANTINE = "quarantine"  # built in: holds examples without valid tags, and never trains
MAX_CLASSES = 10_000
MAX_DEFINITION = 2_000


class Source(StrEnum):
    """Where data came from, in the seven categories of the summary that Article 53(1)(d) of the EU AI Act asks for."""

    PUBLIC = "public"
    LICENSED = "licensed"
    THIRD_PARTY = "third-party"  # private, from others, and not licensed commercially
    CRAWLED = "crawled"
    USER = "user"
    SYNTHETIC = "synthetic"
    OTHER = "other"


@record
class TaxonomyClass:
    """One class: its place in the tree and what it means."""

    path: ClassPath
    definition: Annotated[Line, Field(max_length=MAX_DEFINITION)]
    personal_data: bool
    source: Source


@record
class Taxonomy:
    """The classes, as a tree without gaps."""

    format: Literal["explorer/taxonomy/v1"]
    name: Name
    version: Version
    issued: Time
    expires: Time
    classes: Annotated[tuple[TaxonomyClass, ...], Field(min_length=1, max_length=MAX_CLASSES)]

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, which is what a signature covers."""
        return digest(to_json(self))

    @property
    def codes(self) -> dict[str, int]:
        """The number of every class: the quarantine is 0, the others follow in the order of their paths."""
        return {path: code for code, path in enumerate([QUARANTINE, *sorted(class_.path for class_ in self.classes)])}

    def branch(self, prefix: str) -> tuple[str, ...]:
        """Return the class of this path and all classes below it, sorted. Raises `ProvenanceError` for an unknown
        path."""
        paths = sorted(class_.path for class_ in self.classes)
        if prefix not in paths:
            raise ProvenanceError(f"taxonomy {self.name!r}: {unknown('class', prefix, paths)}")
        return tuple(path for path in paths if covers(prefix, path))


def check_taxonomy(taxonomy: Taxonomy, where: str) -> None:
    """Check that it is a tree: every class once, no parent missing, and no class in place of the quarantine.

    Raises `ProvenanceError` that begins with `where`.
    """
    check_span(taxonomy, where)
    first: dict[str, int] = {}
    for index, class_ in enumerate(taxonomy.classes):
        here = f"{where}: classes[{index}].path"
        if covers(QUARANTINE, class_.path):
            raise ProvenanceError(f"{here}: {QUARANTINE!r} is built in and cannot be defined")
        if class_.path in first:
            raise ProvenanceError(f"{here}: {class_.path!r} is given twice, first in classes[{first[class_.path]}]")
        first[class_.path] = index
    for index, class_ in enumerate(taxonomy.classes):
        above = class_.path.rpartition("/")[0]
        if above and above not in first:
            raise ProvenanceError(
                f"{where}: classes[{index}].path: {class_.path!r} lies below {above!r}, which is not defined"
            )


TAXONOMY = Kind(name="taxonomy", record=Taxonomy, role=Role.DATA_GOVERNANCE, check=check_taxonomy)


def read_taxonomy(document: Document) -> Taxonomy:
    """Return the taxonomy in a draft. Raises `SpecError` that names file, line, key and fault."""
    return read_draft(TAXONOMY, document)

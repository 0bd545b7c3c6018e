"""Sections, which a report is made of: one file and one line in a table add one.

A section gathers a record, whose fields are keys of the report's JSON document, and shows it as blocks of the page that
HTML, Markdown and PDF are made from. The published schema of the document is composed of the sections' records.
"""

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar, get_type_hints

from explorer import plugins
from explorer.errors import RecipeError
from explorer.page.document import Block
from explorer.schema import record, to_json

OFFERED = "report section"

log = logging.getLogger(__name__)

S = TypeVar("S")
R = TypeVar("R")


class Section(ABC, Generic[S, R]):
    """A part of a report on an S, with a record R."""

    record: ClassVar[type[Any]]  # R
    report: ClassVar[str] = ""  # of a section of another package: "run" or "sweep"

    @abstractmethod
    def gather(self, subject: S, /) -> R:
        """Return the record of the section."""

    @abstractmethod
    def blocks(self, record: R, subject: S, /) -> list[Block]:
        """Return the blocks that show the record, the heading first."""


def offered_sections(report: str) -> tuple[Section[Any, Any], ...]:
    """Return the sections that installed packages offer for a report, "run" or "sweep"; one that cannot be used gives a
    warning in its place. They are shown on pages; the JSON document is as published."""
    sections: list[Section[Any, Any]] = []
    for offer in plugins.offers(OFFERED):
        try:
            kind = plugins.load(offer.path, code=None)
            if not (isinstance(kind, type) and issubclass(kind, Section) and kind.report in ("run", "sweep")):
                raise RecipeError(f"{offer.path}: expected a subclass of {Section.__module__}.Section with `report`")
            if kind.report == report:
                sections.append(kind())
        except (RecipeError, TypeError) as error:  # `TypeError`: a method of the section is missing
            log.warning("report section %r of %s cannot be used: %s", offer.name, offer.package, error)
    return tuple(sections)


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """Subject of a report, which computes once what several sections need."""

    sections: tuple[Section[Any, Any], ...]
    _records: dict[type[Section[Any, Any]], Any] = field(default_factory=dict, init=False, repr=False)

    def of(self, section: type[Section[Any, R]]) -> R:
        """Return the record of a section, which is gathered once."""
        if section not in self._records:
            self._records[section] = section().gather(self)
        return self._records[section]

    def blocks(self) -> list[Block]:
        """Return the blocks of all sections, in order."""
        return [block for section in self.sections for block in section.blocks(self.of(type(section)), self)]


@cache
def document_type(name: str, says: str, sections: tuple[Section[Any, Any], ...], order: Sequence[str]) -> type[Any]:
    """Compose the record of a whole document from the records of its sections.

    Keys come in the published `order`; keys that it does not name follow, section by section.
    """
    # Type hints are resolved here, because the composed class lives in this module and knows none of their names.
    types: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for section in sections:
        hints = get_type_hints(section.record, include_extras=True)
        for key in fields(section.record):
            assert key.name not in types, f"two sections have the key {key.name!r}"
            types[key.name] = hints[key.name]
            if key.default is not MISSING:
                defaults[key.name] = key.default
    known = [key for key in order if key in types]
    annotations = {key: types[key] for key in dict.fromkeys([*known, *types])}
    return record(type(name, (), {"__doc__": says, "__module__": __name__, "__annotations__": annotations, **defaults}))


def document_json(subject: Subject, kind: type[Any]) -> str:
    """Return the document of this kind as JSON text; unknown values are null."""
    values = {
        key.name: getattr(subject.of(type(section)), key.name)
        for section in subject.sections
        if not section.report
        for key in fields(section.record)
    }
    return json.dumps(to_json(kind(**values)), indent=1, allow_nan=False, ensure_ascii=False) + "\n"

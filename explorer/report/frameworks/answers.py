"""What a form of a regulator asks, and what a run's record answers: an answer names what it rests on, and where the
record has none, that is said, with the place where it would have to stand.

Nothing is inferred. A field of a signed document is quoted under the name that it has there; a question that no field
is for is "not recorded", however easily somebody who knows the dataset could guess.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from explorer.report.run_content import RunContent
from explorer.report.run_references import GENESIS, Document, Reference

NOT_RECORDED = "not recorded"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the record says."""

    text: str
    references: tuple[Reference, ...]
    documents: tuple[Document, ...] = ()
    lacks: str = ""  # what was asked too and is not recorded; empty: nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class NotRecorded:
    """The record has no answer."""

    where: str  # it would have to be recorded


Resolver = Callable[[RunContent], Answer | NotRecorded]


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """A question of a form."""

    name: str  # ours, unique in its framework
    reference: str  # where the form asks it: "Annex IV(2)(d)"
    asks: str  # in our own words
    answer: Resolver
    verified: bool = True  # against the official text; False: the reference is as commonly stated


@dataclass(frozen=True, kw_only=True, slots=True)
class Date:
    """A day from which something of a form holds."""

    day: str  # "2 August 2026"
    what: str  # holds from then on
    source: str  # that says so
    verified: bool  # against the official text

    def __str__(self) -> str:
        return f"{self.day}: {self.what} ({self.source}; {verified_words(self.verified)})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Framework:
    """A form, or a part of one."""

    name: str
    says: str  # what it is for
    fields: tuple[Field, ...]
    dates: tuple[Date, ...] = ()
    verified: bool | None = False  # its title and sections, against the official text; None: there is no such text


COMMENTARIES = "the Digital Omnibus of 2026, as several commentaries have it"

HIGH_RISK_DATES = (
    Date(
        day="2 December 2027",
        what="duties for high-risk systems of Annex III, moved from 2 August 2026",
        source=COMMENTARIES,
        verified=False,
    ),
    Date(
        day="2 August 2028",
        what="duties for high-risk systems in products of Annex I, moved from 2 August 2027",
        source=COMMENTARIES,
        verified=False,
    ),
)
GENERAL_PURPOSE_DATES = (
    Date(
        day="2 August 2025",
        what="duties of providers of general-purpose models",
        source="the AI Act, as commonly stated",
        verified=False,
    ),
    Date(
        day="2 August 2026",
        what="powers to enforce them",
        source="the AI Act, as commonly stated",
        verified=False,
    ),
)
"""When the parts of the EU AI Act apply. They were moved once, and may be again."""


def verified_words(verified: bool) -> str:
    """What is said of a date, a title or a reference."""
    return "verified against the official text" if verified else "not verified against the official text"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """A field with its answer."""

    field: Field
    answer: Answer | NotRecorded

    @property
    def status(self) -> Literal["answered", "in part", "not recorded"]:
        if isinstance(self.answer, NotRecorded):
            return NOT_RECORDED
        return "in part" if self.answer.lacks else "answered"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mapped:
    """A framework with all of its answers."""

    framework: Framework
    answers: tuple[Answered, ...]

    @property
    def coverage(self) -> str:
        """How many of its fields the record answers."""
        found = [each.status for each in self.answers]
        partly = f", {found.count('in part')} more in part" if "in part" in found else ""
        return f"answered from the record: {found.count('answered')} of {len(found)}{partly}"


def nowhere(where: str) -> Resolver:
    """Of what neither an entry nor a signed document has a place for."""
    return lambda content: NotRecorded(where=where)


def described(*names: str, lacks: str = "") -> Resolver:
    """Fields of the description that the tags' attestation carries, quoted under their names; those that it leaves out
    are left out, and where it has none of them there is no answer."""

    def answer(content: RunContent) -> Answer | NotRecorded:
        asked = " or ".join(f"'{name}'" for name in names)
        where = f"{asked} in the description of the dataset that the tags' attestation carries"
        if content.description is None:
            return NotRecorded(where=f"{where}; no attestation of this run is believed")
        found = [
            f"{name}: {_said(value)}" for name in names if (value := getattr(content.description, name)) is not None
        ]
        if not found:
            return NotRecorded(where=where)
        return bound(content, "; ".join(found), "tags", lacks=lacks)

    return answer


def bound(content: RunContent, text: str, *documents: str, lacks: str = "") -> Answer:
    """An answer from documents that the first entry binds, each of which is here."""
    return Answer(
        text=text, references=(GENESIS,), documents=tuple(content.documents[each] for each in documents), lacks=lacks
    )


def has(content: RunContent, *documents: str) -> bool:
    """Whether all of these documents are here and believed."""
    return all(each in content.documents for each in documents)


def unique(references: Iterable[Reference]) -> tuple[Reference, ...]:
    """Each once, in order."""
    return tuple(dict.fromkeys(references))


def _said(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    first, last = getattr(value, "first", None), getattr(value, "last", None)
    return str(value) if first is None else f"{first} to {last}"

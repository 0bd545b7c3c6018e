"""The section on forms: the questions of regulators and standards, field by field, with answers from the run's record.

Forms are data, one file each (`explorer/report/forms/*.toml`), in the order of their names:

    name, says, verified    the form, its purpose, and whether its title and sections were verified against the official
                            text; without `verified`, there is no such text
    [[dates]]               days from which parts of it apply
    [places]                places where an answer would have to be recorded, by name
    [[fields]]              questions: `name`, `reference`, `asks`, `verified` (the reference), and either
                            `answer`, a function of `explorer.report.run.answers`, with its arguments `of` and `lacks`,
                            the part of the question that is not recorded; or `nowhere`, one of the places

The mapping helps people who fill in such a form to find what is on record. It is no legal advice, and claims no
conformity. Every date, title and reference says whether it was verified against the official text.
"""

import inspect
import tomllib
from collections.abc import Collection
from dataclasses import field
from pathlib import Path
from typing import Literal, get_args

from explorer.errors import ExplorerError, unknown
from explorer.page.document import Block, Column, Heading, Paragraph, Row, Span, Table, Text, with_note
from explorer.provenance.deletion_certificate import What
from explorer.provenance.description import Description
from explorer.provenance.taxonomy import Source
from explorer.report.run.answers import DELETION, RESOLVERS, Answer, NotRecorded
from explorer.report.run.history_section import HistorySection
from explorer.report.run.integrity_section import integrity_words
from explorer.report.run.references import Document, Reference
from explorer.report.run.reported_run import ReportedRun
from explorer.report.section import Section
from explorer.schema import from_json, record

DIRECTORY = Path(__file__).parents[1] / "forms"
NOT_RECORDED = "not recorded"
DISCLAIMER = (
    "This mapping helps people who fill in these forms to find what is on record. The questions are paraphrased; the "
    "text of the form decides. This is no legal advice, and no claim of conformity with a law or a standard."
)
COLUMNS = (Column("Question"), Column("Reference"), Column("Answer"), Column("Evidence"))

ARGUMENTS: dict[str, Collection[str]] = {
    "described": Description.__dataclass_fields__,
    "deletion": DELETION,
    "source": [category.value for category in Source],
    "to_destroy": get_args(What),
}
"""Allowed arguments of functions in `explorer.report.run.answers`, for those that do not take just any."""


@record
class FormField:
    """A question of a form, and what the record says."""

    name: str
    reference: str
    verified: bool  # the reference, against the official text
    asks: str
    status: Literal["answered", "in part", "not recorded"]
    answer: str | None
    lacks: str | None  # the part of the question that is not recorded
    would_stand_in: str | None  # where an answer that is not recorded would have to be
    references: tuple[Reference, ...]
    documents: tuple[Document, ...]


@record
class FormDate:
    """A day from which something of a form holds."""

    day: str
    what: str
    source: str
    verified: bool  # against the official text

    def __str__(self) -> str:
        return f"{self.day}: {self.what} ({self.source}; {verified_words(self.verified)})"


@record
class Form:
    """A form of a regulator or a standard."""

    name: str
    says: str
    verified: bool | None  # its titles and sections, against the official text; None: there is no such text
    dates: tuple[FormDate, ...]
    coverage: str
    fields: tuple[FormField, ...]


@record
class Question:
    """A question in a form's file."""

    name: str  # ours, unique in its form
    reference: str  # the place in the form: "Annex IV(2)(d)"
    asks: str  # paraphrased
    verified: bool = False  # the reference, against the official text
    answer: str | None = None  # a function of `explorer.report.run.answers`
    of: tuple[str, ...] = ()  # its arguments
    lacks: str = ""  # the part of the question that is not recorded, where the rest is
    nowhere: str | None = None  # one of the form's places, where no record has an answer


@record
class Framework:
    """A form's file."""

    name: str
    says: str  # its purpose
    verified: bool | None = None  # its title and sections, against the official text; None: there is no such text
    dates: tuple[FormDate, ...] = ()
    places: dict[str, str] = field(default_factory=dict)
    fields: tuple[Question, ...]

    def answer(self, question: Question, run: ReportedRun) -> FormField:
        """Answer a question from the record only."""
        if question.nowhere is None:
            answer = RESOLVERS[question.answer or ""](run, *question.of)
        else:
            answer = NotRecorded(where=self.places[question.nowhere])
        given = answer if isinstance(answer, Answer) else None
        # The resolver knows better than the form what this run lacks.
        lacks = (given.lacks or question.lacks or None) if given else None
        return FormField(
            name=question.name,
            reference=question.reference,
            verified=question.verified,
            asks=question.asks,
            status=NOT_RECORDED if given is None else "in part" if lacks else "answered",
            answer=given and given.text,
            lacks=lacks,
            would_stand_in=answer.where if isinstance(answer, NotRecorded) else None,
            references=given.references if given else (),
            documents=given.documents if given else (),
        )


def read_forms(directory: Path) -> tuple[Framework, ...]:
    """Read all forms, in the order of their file names. Raises `ExplorerError`, which names the file and the fault."""
    return tuple(map(read_form, sorted(directory.glob("*.toml"))))


def read_form(path: Path) -> Framework:
    """Read a form. Raises `ExplorerError`, which names the file, the question and the fault."""
    # The form of the file first, then every question: a fault must not wait until a report is made.
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as damaged:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise ExplorerError(f"{path}: not TOML: {damaged}") from damaged
    form = from_json(Framework, content, where=str(path), error=ExplorerError)
    names = [question.name for question in form.fields]
    for question in form.fields:
        where = f"{path}: {question.name!r}"
        if names.count(question.name) > 1:
            raise ExplorerError(f"{where} is asked more than once")
        if (question.answer is None) == (question.nowhere is None):
            raise ExplorerError(f"{where} needs either `answer`, a function, or `nowhere`, one of the places")
        if question.nowhere is not None:
            if question.nowhere not in form.places:
                raise ExplorerError(f"{where}: {unknown('place', question.nowhere, form.places)}")
            continue
        answer = question.answer or ""
        if answer not in RESOLVERS:
            raise ExplorerError(f"{where}: {unknown('answer', answer, RESOLVERS)}")
        # Arguments that the function cannot take would otherwise raise in the middle of a report.
        try:
            inspect.signature(RESOLVERS[answer]).bind(None, *question.of)
        except TypeError as unfit:
            raise ExplorerError(f"{where}: {answer!r} cannot be given of = {list(question.of)}: {unfit}") from unfit
        for argument in question.of:
            if answer in ARGUMENTS and argument not in ARGUMENTS[answer]:
                raise ExplorerError(f"{where}: {unknown(f'argument of {answer!r}', argument, ARGUMENTS[answer])}")
    return form


FRAMEWORKS = read_forms(DIRECTORY)


@record
class FormsRecord:
    """Forms of regulators, filled in."""

    disclaimer: str  # of the forms
    forms: tuple[Form, ...]


class FormsSection(Section[ReportedRun, FormsRecord]):
    """Questions of regulators with the answers on record."""

    record = FormsRecord

    def gather(self, run: ReportedRun) -> FormsRecord:
        return FormsRecord(disclaimer=DISCLAIMER, forms=tuple(fill_in(form, run) for form in FRAMEWORKS))

    def blocks(self, record: FormsRecord, run: ReportedRun) -> list[Block]:
        blocks: list[Block] = [
            Heading(2, "What regulators ask, and what is on record", "forms"),
            Paragraph(record.disclaimer),
        ]
        # Reasons to distrust the answers come before the answers.
        if run.simulated:
            words = "Provenance is simulated: answers about sources are about made-up classes."
            blocks.append(Paragraph(words, "warning"))
        if integrity_words(run).verdict == "broken":
            blocks.append(Paragraph("The ledger is broken: do not rely on anything in these tables.", "bad"))
        if doubt := run.of(HistorySection).history.doubt:
            rests = "answers that rest on its entries are not verified"
            blocks.append(Paragraph(f"The project's ledger is {doubt}; {rests}.", "warning"))
        for form in record.forms:
            blocks += form_blocks(form, run)
        return blocks


def fill_in(form: Framework, run: ReportedRun) -> Form:
    """Answer every question of a form."""
    answers = tuple(form.answer(question, run) for question in form.fields)
    statuses = [answer.status for answer in answers]
    partly = f", and {statuses.count('in part')} more in part" if "in part" in statuses else ""
    coverage = f"answered from the record: {statuses.count('answered')} of {len(statuses)}{partly}"
    return Form(
        name=form.name, says=form.says, verified=form.verified, dates=form.dates, coverage=coverage, fields=answers
    )


def form_blocks(form: Form, run: ReportedRun) -> list[Block]:
    """Return the blocks of a form: what was verified about it, then its questions as a table."""
    blocks: list[Block] = [
        Heading(3, form.name),
        Paragraph(f"{form.says} {form.coverage[:1].upper()}{form.coverage[1:]}."),
    ]
    if form.verified is not None:
        unverified = sum(not question.verified for question in form.fields)
        titles = f"Titles and sections: {verified_words(form.verified)}"
        marked = f"{unverified} of {len(form.fields)} references are marked as not verified" if unverified else ""
        blocks.append(Paragraph(". ".join(filter(None, [titles, marked, *map(str, form.dates)])) + "."))
    return [*blocks, Table(COLUMNS, [_row(question, run) for question in form.fields])]


def verified_words(verified: bool) -> str:
    """Return words for whether a date, a title or a reference was verified."""
    return "verified against the official text" if verified else "not verified against the official text"


def _row(question: FormField, run: ReportedRun) -> Row:
    where = with_note(question.reference, "" if question.verified else verified_words(False))
    asked = with_note(question.asks, question.name)
    if question.answer is None:
        place = f"It would be in: {question.would_stand_in}"
        said: Text = (Span(NOT_RECORDED, "strong"), Span(place, "small"))
        return Row((asked, where, said, ""), quiet=True)
    lacks = f"{NOT_RECORDED}: {question.lacks}" if question.lacks else ""
    cited = run.cite.all(question.references, question.documents)
    return Row((asked, where, with_note(question.answer, lacks), cited))

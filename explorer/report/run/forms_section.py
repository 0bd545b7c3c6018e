"""The section on forms: what regulators and standards ask, field by field, and what the run's record answers.

The forms are data, one file each (`explorer/report/forms/*.toml`), in the order of their names:

    name, says, verified    the form, what it is for, whether its title and sections were verified against the official
                            text; without `verified` there is no such text
    [[dates]]               days from which something of it holds
    [places]                names of places where an answer would have to be recorded
    [[fields]]              questions: `name`, `reference`, `asks`, `verified` (the reference), and either
                            `answer`, a function of `explorer.report.run.answers`, with its arguments `of`, and `lacks`,
                            what of the question is not recorded; or `nowhere`, one of the places

A mapping helps people who fill in such a form to find what is on record; it is no legal advice, and claims no
conformity with anything. Each date, title and reference says whether it was verified against the official text.
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
from explorer.report.run.history_section import UNVERIFIED, HistorySection
from explorer.report.run.integrity_section import integrity_words
from explorer.report.run.references import Document, Reference
from explorer.report.run.reported_run import ReportedRun
from explorer.report.section import Section
from explorer.schema import from_json, record

DIRECTORY = Path(__file__).parents[1] / "forms"
NOT_RECORDED = "not recorded"
DISCLAIMER = (
    "This mapping helps people who fill in these forms to find what is on record. The questions are in our own words; "
    "the forms' own text decides. It is no legal advice, and no claim that anything conforms to a law or a standard."
)
COLUMNS = (Column("Asked"), Column("Where"), Column("Answer"), Column("From"))

ARGUMENTS: dict[str, Collection[str]] = {
    "described": Description.__dataclass_fields__,
    "deletion": DELETION,
    "source": [category.value for category in Source],
    "to_destroy": get_args(What),
}
"""Arguments that functions of `explorer.report.run.answers` take, where not just any."""


@record
class FormField:
    """A question of a form, and what the record says."""

    name: str
    reference: str
    verified: bool  # the reference, against the official text
    asks: str
    status: Literal["answered", "in part", "not recorded"]
    answer: str | None
    lacks: str | None  # what of the question is not recorded
    would_stand_in: str | None  # of what is not recorded: where it would have to be
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
    """A question as a form's file has it."""

    name: str  # ours, unique in its form
    reference: str  # where the form asks it: "Annex IV(2)(d)"
    asks: str  # in our own words
    verified: bool = False  # the reference, against the official text
    answer: str | None = None  # a function of `explorer.report.run.answers`
    of: tuple[str, ...] = ()  # its arguments
    lacks: str = ""  # what of the question is not recorded, where something is
    nowhere: str | None = None  # one of the form's places: no record has an answer


@record
class Framework:
    """A form's file."""

    name: str
    says: str  # what it is for
    verified: bool | None = None  # its title and sections, against the official text; None: there is no such text
    dates: tuple[FormDate, ...] = ()
    places: dict[str, str] = field(default_factory=dict)
    fields: tuple[Question, ...]

    def answer(self, question: Question, run: ReportedRun) -> FormField:
        """Answer a question from the record and nothing else."""
        if question.nowhere is None:
            answer = RESOLVERS[question.answer or ""](run, *question.of)
        else:
            answer = NotRecorded(where=self.places[question.nowhere])
        given = answer if isinstance(answer, Answer) else None
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
    """Read all forms, in the order of their files' names. Raises `ExplorerError` that names the file and the fault."""
    return tuple(map(read_form, sorted(directory.glob("*.toml"))))


def read_form(path: Path) -> Framework:
    """Read a form. Raises `ExplorerError` that names the file, the question and the fault."""
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
        if run.simulated:
            words = "Provenance is simulated: answers about sources are about made-up classes."
            blocks.append(Paragraph(words, "warning"))
        if integrity_words(run).verdict == "broken":
            blocks.append(Paragraph("The ledger is broken: nothing in these tables is to be relied on.", "bad"))
        judged = run.of(HistorySection).history.judged
        if judged and judged.startswith(UNVERIFIED):
            rests = "answers that rest on its entries are not verified"
            blocks.append(Paragraph(f"The project's ledger is {judged}; {rests}.", "warning"))
        for form in record.forms:
            blocks += form_blocks(form, run)
        return blocks


def fill_in(form: Framework, run: ReportedRun) -> Form:
    """Answer every question of a form."""
    answers = tuple(form.answer(question, run) for question in form.fields)
    statuses = [answer.status for answer in answers]
    partly = f", {statuses.count('in part')} more in part" if "in part" in statuses else ""
    coverage = f"answered from the record: {statuses.count('answered')} of {len(statuses)}{partly}"
    return Form(
        name=form.name, says=form.says, verified=form.verified, dates=form.dates, coverage=coverage, fields=answers
    )


def form_blocks(form: Form, run: ReportedRun) -> list[Block]:
    """Show a form as a table, under what was verified of it."""
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
    """Say whether a date, a title or a reference was verified."""
    return "verified against the official text" if verified else "not verified against the official text"


def _row(question: FormField, run: ReportedRun) -> Row:
    where = with_note(question.reference, "" if question.verified else verified_words(False))
    asked = with_note(question.asks, question.name)
    if question.answer is None:
        place = f"It would be found in: {question.would_stand_in}"
        said: Text = (Span(NOT_RECORDED, "strong"), Span(place, "small"))
        return Row((asked, where, said, ""), quiet=True)
    lacks = f"{NOT_RECORDED}: {question.lacks}" if question.lacks else ""
    cited = run.cite.all(question.references, question.documents)
    return Row((asked, where, with_note(question.answer, lacks), cited))

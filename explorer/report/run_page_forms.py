"""The section of a run's report that maps it to what regulators and standards ask, field by field."""

from collections.abc import Sequence

from explorer.report.frameworks.answers import (
    NOT_RECORDED,
    Answered,
    Framework,
    Mapped,
    NotRecorded,
    verified_words,
)
from explorer.report.frameworks.mapping import DISCLAIMER
from explorer.report.page import Block, Column, Heading, Paragraph, Row, Span, Table, Text, with_note
from explorer.report.run_cite import Citations
from explorer.report.run_content import RunContent
from explorer.report.run_history import UNVERIFIED

COLUMNS = (Column("Asked"), Column("Where"), Column("Answer"), Column("From"))


def forms(content: RunContent, answers: Sequence[Mapped], cite: Citations) -> list[Block]:
    """A table for each form."""
    found: list[Block] = [Heading(2, "What regulators ask, and what is on record", "forms"), Paragraph(DISCLAIMER)]
    if content.simulated:
        found.append(Paragraph("Provenance is simulated: answers about sources are about made-up classes.", "warning"))
    if content.integrity.verdict == "broken":
        found.append(Paragraph("The ledger is broken: nothing in these tables is to be relied on.", "bad"))
    if content.history.judged and content.history.judged.startswith(UNVERIFIED):
        rests = "answers that rest on its entries rest on nobody's word"
        found.append(Paragraph(f"The project's ledger is {content.history.judged}; {rests}.", "warning"))
    for each in answers:
        found += [
            Heading(3, each.framework.name),
            Paragraph(f"{each.framework.says} {each.coverage[:1].upper()}{each.coverage[1:]}."),
            *([] if each.framework.verified is None else [Paragraph(_verified(each.framework))]),
            Table(COLUMNS, [_row(one, cite) for one in each.answers]),
        ]
    return found


def _verified(framework: Framework) -> str:
    """What of a form was held against the official text."""
    unverified = sum(not field.verified for field in framework.fields)
    told = f"Titles and sections: {verified_words(bool(framework.verified))}"
    marked = f"{unverified} of {len(framework.fields)} references are marked as not verified" if unverified else ""
    return ". ".join(filter(None, [told, marked, *map(str, framework.dates)])) + "."


def _row(each: Answered, cite: Citations) -> Row:
    where = with_note(each.field.reference, "" if each.field.verified else verified_words(False))
    asked = with_note(each.field.asks, each.field.name)
    answer = each.answer
    if isinstance(answer, NotRecorded):
        said: Text = (Span(NOT_RECORDED, "strong"), Span(f"It would be found in: {answer.where}", "small"))
        return Row((asked, where, said, ""), quiet=True)
    lacks = f"{NOT_RECORDED}: {answer.lacks}" if answer.lacks else ""
    return Row((asked, where, with_note(answer.text, lacks), cite.all(answer.references, answer.documents)))

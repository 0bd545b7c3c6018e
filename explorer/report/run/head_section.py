"""The frame of a run's report: at its head the verdict and its warnings, at its end the limits of any such record and
the entries that the figures rest on."""

from typing import Literal

import explorer
from explorer.page import amounts
from explorer.page.document import Block, Bullets, Column, Heading, Paragraph, Row, Span, Table, Tone, sentence
from explorer.provenance.spellings import Time, format_time
from explorer.report.run.class_lines import ClassLine
from explorer.report.run.history_section import HistorySection
from explorer.report.run.integrity_section import integrity_words
from explorer.report.run.references import ListedEntry
from explorer.report.run.reported_run import ReportedRun, opens
from explorer.report.section import Section
from explorer.runlog.run_ledger import Missing
from explorer.schema import record
from explorer.views.ledger.open_run import SIGNS, Verdict

FORMAT = 2
MOST = 5  # classes that the sentence names
SIMULATED = (
    "Simulated provenance: this data has no real sources; the classes were made up for demonstration. Every figure "
    "below is about these made-up classes."
)
LIMITS = (
    "The record says what this pipeline did with the tags it was given. The authority of a tag vouches for its truth; "
    "a replay shows whether the record is true.",
    "A class that is denied in a layer does not train that layer directly. Through layers that admit it, it affects "
    "every later forward pass: only a class that is sealed or denied everywhere leaves the other layers untouched.",
    "A share is a class's part of the summed gradient over these steps. It measures neither what the class taught nor "
    "what the model would be without it.",
    "That classes can be told apart in a layer does not prove that training on them is the cause.",
    "This record does not cover the tokeniser, normalisation constants, the choice of hyper-parameters, or work that "
    "was done before the run.",
    "A ledger that was rolled back to an earlier checkpoint looks the same. Only someone who holds a later checkpoint "
    "can detect it.",
)
TONES: dict[Verdict, Tone] = {"verified": "good", "unchecked": "warning", "broken": "bad"}


@record
class HeadRecord:
    """The head of the report."""

    format: Literal[2] = FORMAT
    explorer: str  # the version that made it
    made: Time
    run: str
    simulated_provenance: bool
    answer: str  # what trained what, in one sentence
    confidential: str | None  # a warning about confidential classes; None: the run has none


class HeadSection(Section[ReportedRun, HeadRecord]):
    """The head of the report."""

    record = HeadRecord

    def gather(self, run: ReportedRun) -> HeadRecord:
        opened = run.opened
        return HeadRecord(
            explorer=explorer.__version__,
            made=format_time(opened.now),
            run=run.run_id,
            simulated_provenance=run.simulated,
            answer=sentence_of(
                run.classes,
                measured=bool(opened.recorded.numbers.any()),
                closed=run.sealed and not opens(run.ledger),
                erased=bool(opened.badge.blobs.erased),
            ),
            confidential=run.confidential,
        )

    def blocks(self, record: HeadRecord, run: ReportedRun) -> list[Block]:
        # A warning that the data is simulated outranks even the verdict, which is true of made-up classes too.
        words = integrity_words(run)
        blocks: list[Block] = [Paragraph(SIMULATED, "warning")] if record.simulated_provenance else []
        blocks.append(Paragraph(f"{SIGNS[words.verdict]} {words.title}.", TONES[words.verdict]))
        blocks.append(Paragraph(" ".join(map(sentence, words.sentences))))
        if words.findings:
            blocks.append(Bullets(words.findings, "bad"))
        # The sign is about the run's own ledger, and a reader takes it for all that follows.
        if doubt := run.of(HistorySection).history.doubt:
            about = "The project's ledger, which records deletions and reads"
            blocks.append(Paragraph(f"{about}, is {doubt}.", "warning"))
        if record.confidential:
            blocks.append(Paragraph(record.confidential, "warning"))
        return blocks


def sentence_of(lines: tuple[ClassLine, ...], *, measured: bool, closed: bool, erased: bool = False) -> str:
    """Return the headline: the classes that moved the layers most, and those that were denied everywhere.

    lines     the classes
    measured  numbers of the steps are on record
    closed    those numbers are sealed, and the reader has no key to them
    erased    some of those numbers were erased
    """
    moved = sorted((line for line in lines if line.share is not None), key=lambda line: -(line.share or 0))
    kept = [line.path for line in lines if line.first_admitted is None]
    # Numbers that exist and cannot be shown are never reported as unmeasured.
    words = "What moved this model was not measured"
    if measured:
        gone = "some of the numbers were erased" if erased else "the numbers are not next to the ledger"
        where = f"is {Missing.SEALED}" if closed else gone
        words = f"What moved this model was measured, but {where}"
    if moved:
        named = [f"{line.path} {_rounded(line.share or 0)}" for line in moved[:MOST]]
        named += [f"{len(moved) - MOST} more"] if len(moved) > MOST else []
        words = f"What moved this model: {', '.join(named)}"
    return f"{words}; denied everywhere: {', '.join(kept)}." if kept else f"{words}."


def _rounded(share: float) -> str:
    """Format a share for a headline, where a small share must not read as none."""
    return "under 1%" if 0 < abs(share) < 0.01 else f"{share:.0%}"


@record
class LimitsRecord:
    """Limits of any record of this kind."""

    limits: tuple[str, ...]


class LimitsSection(Section[ReportedRun, LimitsRecord]):
    """Limits of the record."""

    record = LimitsRecord

    def gather(self, run: ReportedRun) -> LimitsRecord:
        return LimitsRecord(limits=LIMITS)

    def blocks(self, record: LimitsRecord, run: ReportedRun) -> list[Block]:
        return [Heading(2, "What this record does not show", "limits"), Bullets(record.limits)]


@record
class EntriesRecord:
    """The entries that the figures rest on."""

    entries: tuple[ListedEntry, ...]
    entries_not_listed: int


class EntriesSection(Section[ReportedRun, EntriesRecord]):
    """The entries that the figures rest on."""

    record = EntriesRecord

    def gather(self, run: ReportedRun) -> EntriesRecord:
        return EntriesRecord(entries=run.cite.listed, entries_not_listed=run.cite.unlisted)

    def blocks(self, record: EntriesRecord, run: ReportedRun) -> list[Block]:
        blocks: list[Block] = [Heading(2, "Entries that the figures rest on", "entries")]
        if record.entries_not_listed:
            more = f"{record.entries_not_listed:,} more entries lie within the ranges above; "
            blocks.append(Paragraph((Span(more), Span("explorer ledger show", "code"), Span(" prints them."))))
        columns = (Column("Entry"), Column("Kind"), Column("Step", number=True), Column("Leaf hash"))
        rows = [
            Row(
                (
                    str(entry.index),
                    entry.kind,
                    amounts.MISSING if entry.step is None else f"{entry.step:,}",
                    (Span(entry.leaf, "code"),),
                ),
                anchor=f"entry-{entry.index}",
            )
            for entry in record.entries
        ]
        return [*blocks, Table(columns, rows)]

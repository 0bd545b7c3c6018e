"""The frame of a run's report: at its head what has to be known before anything else is read, at its end what a record
of this kind does not show, and the entries that the figures rest on."""

from typing import Literal

import explorer
from explorer.page import amounts
from explorer.page.document import Block, Bullets, Column, Heading, Paragraph, Row, Span, Table, Tone, sentence
from explorer.provenance.spellings import Time, format_time
from explorer.report.run.class_lines import ClassLine
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
    "Simulated provenance: this data has no real sources; the classes were cut for demonstration. Every figure below "
    "is about these made-up classes."
)
LIMITS = (
    "The record says what this pipeline did with the tags it was given. Whether a tag is true, its authority vouches "
    "for; whether the record is true, a replay shows.",
    "A denied class has no direct part in a layer. Through layers that admit it, it reaches every later forward pass: "
    "only a class that is sealed or denied everywhere leaves the rest untouched.",
    "A share is a class's part in the summed gradient over these steps. It is neither what the class taught nor what "
    "the model would be without it.",
    "That classes can be told apart in a layer does not show that training on them is why.",
    "Tokeniser, normalisation constants, chosen hyper-parameters and the order of work before the run are not on this "
    "record.",
    "A ledger that was rolled back to an earlier checkpoint looks like this too: only who holds a later one can tell.",
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
    confidential: str | None  # what the reader of a run with confidential classes has to know


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
        words = integrity_words(run)
        blocks: list[Block] = [Paragraph(SIMULATED, "warning")] if record.simulated_provenance else []
        blocks.append(Paragraph(f"{SIGNS[words.verdict]} {words.title}.", TONES[words.verdict]))
        blocks.append(Paragraph(" ".join(map(sentence, words.sentences))))
        if words.findings:
            blocks.append(Bullets(words.findings, "bad"))
        if record.confidential:
            blocks.append(Paragraph(record.confidential, "warning"))
        return blocks


def sentence_of(lines: tuple[ClassLine, ...], *, measured: bool, closed: bool, erased: bool = False) -> str:
    """Say who moved the layers most, and who was kept out."""
    moved = sorted((line for line in lines if line.share is not None), key=lambda line: -(line.share or 0))
    kept = [line.path for line in lines if line.first_admitted is None]
    words = "What moved this model was not measured"
    if measured:
        gone = "numbers of it were erased" if erased else "the sums are not next to the ledger"
        where = f"is {Missing.SEALED}" if closed else gone
        words = f"What moved this model was measured, and {where}"
    if moved:
        named = [f"{line.path} {_rounded(line.share or 0)}" for line in moved[:MOST]]
        named += [f"{len(moved) - MOST} more"] if len(moved) > MOST else []
        words = f"What moved this model: {', '.join(named)}"
    return f"{words}; denied everywhere: {', '.join(kept)}." if kept else f"{words}."


def _rounded(share: float) -> str:
    """Format a share for a headline: one that is not zero is never called zero."""
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
            more = f"{record.entries_not_listed:,} more lie within the stretches that are named; "
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

"""The section on the classes: the tree of the taxonomy, what each class means, and how many tagged records it has."""

from collections.abc import Mapping
from dataclasses import dataclass

from explorer.page import amounts
from explorer.page.document import Block, Column, Heading, Paragraph, Row, Span, Table, with_note
from explorer.provenance.description import Description
from explorer.provenance.taxonomy import Source, Taxonomy
from explorer.report.run.references import GENESIS
from explorer.report.run.reported_run import ReportedRun
from explorer.report.section import Section
from explorer.schema import record

SOURCES: dict[Source, str] = {
    Source.PUBLIC: "publicly available datasets",
    Source.LICENSED: "private data, licensed from who holds the rights",
    Source.THIRD_PARTY: "private data from others, not licensed commercially",
    Source.CRAWLED: "crawled from the web",
    Source.USER: "from users of the provider's services",
    Source.SYNTHETIC: "made by models or programs",
    Source.OTHER: "other sources",
}
"""The regulator's categories in our words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaxonomyLine:
    """A class in the tree."""

    path: str
    depth: int  # 0: a root
    definition: str
    personal_data: bool  # whether it may hold any
    source: Source
    records: int | None  # of the tag table; None: the tags are not believed
    in_run: bool  # whether it is one of the run's classes


@record
class TaxonomyRecord:
    """The classes and the dataset."""

    taxonomy: tuple[TaxonomyLine, ...]
    dataset: Description | None  # as the tags' attestation has it


class TaxonomySection(Section[ReportedRun, TaxonomyRecord]):
    """The tree of classes."""

    record = TaxonomyRecord

    def gather(self, run: ReportedRun) -> TaxonomyRecord:
        signed = run.vouchers
        if signed is None:
            return TaxonomyRecord(taxonomy=(), dataset=None)
        classes = run.ledger.genesis.classes
        return TaxonomyRecord(
            taxonomy=taxonomy_lines(signed.basis.taxonomy, classes=classes, tagged=run.tagged),
            dataset=signed.tags.table.description,
        )

    def blocks(self, record: TaxonomyRecord, run: ReportedRun) -> list[Block]:
        heading = Heading(2, "Taxonomy and dataset", "taxonomy")
        if not record.taxonomy:
            return [heading, Paragraph(f"No taxonomy is believed: {run.not_vouched}.", "warning")]
        columns = (
            Column("Class"),
            Column("Definition"),
            Column("Personal data"),
            Column("Source, by the regulator's categories"),
            Column("Tagged examples", number=True),
        )
        said = "The classes that the tags may name, as the signed taxonomy defines them. "
        return [
            heading,
            Paragraph((Span(said), run.cite(GENESIS))),
            Table(columns, list(map(_row, record.taxonomy))),
            Paragraph("The tags count examples. Sizes in bytes or tokens are on no record.", "note"),
        ]


def taxonomy_lines(
    taxonomy: Taxonomy, *, classes: tuple[str, ...], tagged: Mapping[str, int] | None
) -> tuple[TaxonomyLine, ...]:
    """List all classes, each after the one that it lies below."""
    return tuple(
        TaxonomyLine(
            path=class_.path,
            depth=class_.path.count("/"),
            definition=class_.definition,
            personal_data=class_.personal_data,
            source=class_.source,
            records=None if tagged is None else tagged.get(class_.path, 0),
            in_run=class_.path in classes,
        )
        for class_ in sorted(taxonomy.classes, key=lambda class_: class_.path.split("/"))
    )


def _row(line: TaxonomyLine) -> Row:
    cells = (
        with_note("\N{NO-BREAK SPACE}" * 4 * line.depth + line.path, "" if line.in_run else "not in this run"),
        line.definition,
        "may hold it" if line.personal_data else "no",
        SOURCES[line.source],
        amounts.MISSING if line.records is None else f"{line.records:,}",
    )
    return Row(cells, quiet=not line.in_run)

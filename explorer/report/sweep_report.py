"""The report of a sweep: the answer, the curves, recipes at equal quality and at equal budget, controls, negative
results, and the conditions of measurement.

html    one self-contained file, with charts that react to the mouse and remain visible without scripts and on paper
pdf     the same on A4, to send
md      the same tables for a pull request or a wiki
json    the same numbers for other tools, as a published schema says (`schemas/sweep_report.v3.json`); unknown values
        are null

A section is a file in `explorer.report.sweep` and a line in `SECTIONS`.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import yaml

import explorer
from explorer import rundir
from explorer.errors import StoreError, unknown
from explorer.page.document import Block, Code, Heading, Page, Paragraph, Span, sentence
from explorer.page.html import render_html
from explorer.page.markdown import render_markdown
from explorer.page.pdf import render_pdf
from explorer.planned import data_option
from explorer.provenance.spellings import Time, format_time
from explorer.report.section import Section, document_json, document_type, offered_sections
from explorer.report.sweep.composed_section import ComposedSection
from explorer.report.sweep.learning_section import LearningSection
from explorer.report.sweep.live_pictures import offline_page
from explorer.report.sweep.measured_section import MeasuredSection
from explorer.report.sweep.metrics_section import MetricsSection, quoted
from explorer.report.sweep.negatives_section import NegativesSection
from explorer.report.sweep.reported_sweep import ReportedSweep
from explorer.report.sweep.searched_section import SearchedSection
from explorer.report.sweep.tuned_section import TunedSection
from explorer.schema import record
from explorer.store import frames
from explorer.views.explorer.snapshot import read_snapshot

FORMAT = 3


@record
class HeadRecord:
    """The head of the report."""

    format: Literal[3] = FORMAT
    explorer: str  # the version that made it
    made: Time
    sweep: str
    answer: str
    database_sha256: str


class HeadSection(Section[ReportedSweep, HeadRecord]):
    """The head of the report, which the page has as its title and at its foot."""

    record = HeadRecord

    def gather(self, sweep: ReportedSweep) -> HeadRecord:
        return HeadRecord(
            explorer=explorer.__version__,
            made=format_time(sweep.made),
            sweep=sweep.name,
            answer=sweep.sentence,
            database_sha256=sweep.snapshot.sha256,
        )

    def blocks(self, record: HeadRecord, sweep: ReportedSweep) -> list[Block]:
        return []


@record
class AgainRecord:
    """Commands that repeat the sweep."""

    specification: dict[str, Any] | None  # None: the sweep's directory has none


class AgainSection(Section[ReportedSweep, AgainRecord]):
    """Commands that repeat the sweep."""

    record = AgainRecord

    def gather(self, sweep: ReportedSweep) -> AgainRecord:
        return AgainRecord(specification=dict(sweep.plan["spec"]) if sweep.plan is not None else None)

    def blocks(self, record: AgainRecord, sweep: ReportedSweep) -> list[Block]:
        blocks: list[Block] = [Heading(2, "How to repeat it", "again")]
        if record.specification is not None:
            spec = quoted(f"{sweep.name}.yaml")
            save = (Span("Save the specification as "), Span(f"{sweep.name}.yaml", "code"), Span(", then:"))
            where = "".join(f" {word}" for word in data_option(record.specification))
            commands = (
                f"explorer sweep plan {spec}{where}    # lists the runs, their time and their cost\n"
                f"explorer sweep run {spec}{where}     # executes the missing runs"
            )
            content = yaml.safe_dump(record.specification, sort_keys=False, allow_unicode=True)
            blocks += [Paragraph(save), Code(commands), Code(content, title="Specification")]
        further = (
            "explorer open explore          # these curves, with other axes, baselines, targets and prices\n"
            f"explorer results {quoted(sweep.name)} --format csv\n"
            "explorer methods               # the methods that recipes are made of"
        )
        return [*blocks, Heading(3, "Next steps"), Code(further)]


SECTIONS: tuple[Section[ReportedSweep, Any], ...] = (
    HeadSection(),
    MetricsSection(),
    NegativesSection(),
    ComposedSection(),
    LearningSection(),
    TunedSection(),
    SearchedSection(),
    MeasuredSection(),
    AgainSection(),
)
"""The sections in reading order."""

ORDER = (
    *("format", "explorer", "made", "sweep", "answer", "sections", "negatives", "composition", "integrity", "ledgers"),
    *("facts", "specification", "database_sha256"),
)
"""Keys of the JSON document, in the order in which format 3 was published. Keys of later sections follow them."""


def report_type() -> type[Any]:
    """Return the record of the whole JSON document."""
    return document_type("SweepReport", "The whole report.", SECTIONS, ORDER)


def read_sweep(runs: Path, sweep: str) -> ReportedSweep:
    """Read a sweep for its report from a database that is up to date. Raises `StoreError` if the sweep is unknown."""
    snapshot = read_snapshot(runs)
    return ReportedSweep(
        sections=(*SECTIONS, *offered_sections("sweep")),
        runs=runs,
        name=sweep,
        made=int(time.time()),
        snapshot=snapshot,
        every=frames.runs(snapshot.database, sweep=sweep),
        results=frames.results(snapshot.database, sweep=sweep),
    )


def sweep_page(sweep: ReportedSweep) -> Page:
    """Return the document that HTML, PDF and Markdown are made from."""
    # A sentence may begin with a recipe's name, which keeps its case.
    names = [label for results in sweep.metrics[:1] for label in results.labels]
    return Page(
        title=f"Report of the sweep {sweep.name}",
        subtitle=sentence(sweep.sentence, names=names),
        blocks=sweep.blocks(),
        facts=(
            ("Explorer", f"{explorer.__version__}, from finished runs only"),
            ("Made", format_time(sweep.made)),
            ("Database", (Span(f"sha256:{sweep.snapshot.sha256}", "code"),)),
        ),
        made=sweep.made,
    )


def offline_html(runs: Path, sweep: str) -> bytes:
    """Return the interactive page of a sweep, from a database that is up to date."""
    return render_html(offline_page(read_sweep(runs, sweep))).encode()


def as_json(sweep: ReportedSweep) -> str:
    """Return the numbers of the report."""
    return document_json(sweep, report_type())


FORMATS: dict[str, Callable[[ReportedSweep], bytes]] = {
    "html": lambda sweep: render_html(sweep_page(sweep)).encode(),
    "json": lambda sweep: as_json(sweep).encode(),
    "md": lambda sweep: render_markdown(sweep_page(sweep)).encode(),
    "pdf": lambda sweep: render_pdf(sweep_page(sweep)),
}


def write_sweep_report(runs: Path, sweep: str, output: Path, *, format: str = "html") -> None:
    """Write the report of a sweep atomically, from a database that is up to date.

    Raises `StoreError` for an unknown format or sweep.
    """
    if format not in FORMATS:
        raise StoreError(unknown("format", format, FORMATS))
    rundir.write_bytes(output, FORMATS[format](read_sweep(runs, sweep)))

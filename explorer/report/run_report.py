"""The governance report of one run: what trained what, who vouched, policy and decisions, entropy, deletion, integrity,
and the questions of regulators.

html, pdf, md    one self-contained document, to read, print and send
json             the same figures for other tools, with those that the page has no room for, as a published schema says
                 (`schemas/run_report.v2.json`); unknown values are null
croissant        the training dataset, as MLCommons Croissant

Every figure names the entries of the ledger that it rests on, and the document ends with a list of them. A section is
a file in `explorer.report.run` and a line in `SECTIONS`.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import explorer
from explorer import rundir
from explorer.audit.shares import is_confidential
from explorer.errors import RunError, StoreError, unknown
from explorer.page.document import Page
from explorer.page.html import render_html
from explorer.page.markdown import render_markdown
from explorer.page.pdf import render_pdf
from explorer.provenance.keys import replace_private
from explorer.provenance.spellings import format_time
from explorer.report.run.course_section import CourseSection
from explorer.report.run.entropy_section import EntropySection
from explorer.report.run.forms_section import FormsSection
from explorer.report.run.head_section import EntriesSection, HeadSection, LimitsSection
from explorer.report.run.history_section import HistorySection
from explorer.report.run.integrity_section import IntegritySection
from explorer.report.run.policy_section import PolicySection
from explorer.report.run.replay_section import ReplaySection, commands_of
from explorer.report.run.reported_run import ReportedRun, opens
from explorer.report.run.run_croissant import as_croissant
from explorer.report.run.shares_section import SharesSection
from explorer.report.run.taxonomy_section import TaxonomySection
from explorer.report.run.vouchers_section import VouchersSection
from explorer.report.section import Section, document_json, document_type, offered_sections
from explorer.runlog.run_ledger import RunLedger
from explorer.views.ledger.open_run import open_run

SECTIONS: tuple[Section[ReportedRun, Any], ...] = (
    SharesSection(),
    TaxonomySection(),
    VouchersSection(),
    PolicySection(),
    EntropySection(),
    CourseSection(),
    HistorySection(),
    IntegritySection(),
    ReplaySection(),
    FormsSection(),
)
"""The sections in reading order, between the head of the report and the list of entries."""

ORDER = (
    *("format", "explorer", "made", "run", "simulated_provenance", "answer", "facts", "metrics", "integrity"),
    *("confidential", "classes", "counts", "layers", "quarantined_slots", "profiles", "taxonomy", "dataset"),
    *("documents", "vouchers", "not_vouched", "policy", "decisions", "channels", "trust", "replay", "history"),
    *("environment", "not_here", "disclaimer", "forms", "reproduce", "limits", "entries", "entries_not_listed"),
)
"""Keys of the JSON document, in the order in which format 2 was published. Keys of later sections follow them."""


def report_type() -> type[Any]:
    """Return the record of the whole JSON document."""
    return document_type("RunReport", "The whole report.", _framed(), ORDER)


def _framed(others: tuple[Section[ReportedRun, Any], ...] = ()) -> tuple[Section[ReportedRun, Any], ...]:
    return (HeadSection(), *SECTIONS, *others, LimitsSection(), EntriesSection())


def read_run(run_directory: Path, *, trust: Path | None, now: int) -> ReportedRun:
    """Read a run for its report. `trust` is the reader's trust file, `now` is in seconds since 1970.

    Raises `RunError` for a run without steps of its own, and `ExplorerError` where the ledger cannot be read.
    """
    opened = open_run(run_directory, trust=trust, now=now)
    run = opened.ledger
    # A run that only keeps what a deletion left has the steps of another run, and none of its own to report.
    if run.begins == run.steps:
        kept = "it holds what a deletion kept, and trained nothing; report on the run that the deletion continued from"
        why = kept if run.begins else "no step is on record yet, so there is nothing to report"
        raise RunError(f"{run_directory}: {why}")
    commands = commands_of(run_directory, range(run.begins, run.steps))
    return ReportedRun(
        sections=_framed(offered_sections("run")),
        cited=SECTIONS,
        opened=opened,
        directory=run_directory,
        commands=commands,
    )


def run_page(run: ReportedRun) -> Page:
    """Return the document that HTML, PDF and Markdown are made from. Raises `LedgerError` for damaged entries."""
    head = run.of(HeadSection)
    return Page(
        title=f"Governance report of the run {run.run_id}{' (simulated provenance)' if run.simulated else ''}",
        subtitle=head.answer,
        blocks=run.blocks(),
        facts=(
            ("Made", f"{format_time(run.opened.now)} by Explorer {explorer.__version__}"),
            ("From", "the run's directory, and its project's ledger if that is next to it"),
        ),
        made=run.opened.now,
    )


def as_json(run: ReportedRun) -> str:
    """Return the figures of the report, each with the entries that it rests on."""
    return document_json(run, report_type())


CROISSANT = "croissant"
FORMATS: dict[str, Callable[[ReportedRun], bytes]] = {
    CROISSANT: lambda run: as_croissant(run).encode(),
    "html": lambda run: render_html(run_page(run)).encode(),
    "json": lambda run: as_json(run).encode(),
    "md": lambda run: render_markdown(run_page(run)).encode(),
    "pdf": lambda run: render_pdf(run_page(run)),
}


def page_of(run_directory: Path, *, format: str = "html") -> Path:
    """Return the default path of a report: in the run's directory, or in its `private` folder if it is confidential.

    A report is confidential if it holds numbers that are sealed in the run; a description of the dataset never does.
    Raises `ExplorerError` where the ledger cannot be read.
    """
    if format == CROISSANT:
        return run_directory / f"{CROISSANT}.json"
    run = RunLedger(run_directory)
    private = is_confidential(run) and opens(run)
    return run_directory / (rundir.PRIVATE if private else "") / f"report.{format}"


def write_run_report(run_directory: Path, page: Path, *, trust: Path | None = None, format: str = "html") -> None:
    """Write the report of a governed run atomically; with mode 0600 if it holds numbers that are sealed in the run.

    `trust` is the reader's trust file; without one the page says that nothing was verified. Raises `StoreError` for an
    unknown format, and `ExplorerError` where the ledger cannot be read.
    """
    if format not in FORMATS:
        raise StoreError(unknown("format", format, FORMATS))
    content = FORMATS[format](read_run(run_directory, trust=trust, now=int(time.time())))
    # The content decides, not the path that the user chose: a confidential report is private everywhere.
    if page_of(run_directory, format=format).parent.name == rundir.PRIVATE:
        replace_private(page, content)
    else:
        rundir.write_bytes(page, content)

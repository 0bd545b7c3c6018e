"""The governance report of one run: what trained what, who vouched, policy and decisions, entropy, deletion, integrity,
and what regulators ask.

html, pdf, md    one document that needs nothing else, to be read, printed and sent
json             the same figures for other tools, in the form of a published schema
croissant        the dataset that it was trained on, as MLCommons Croissant

Every figure names the entries of the ledger that it rests on, and the document ends with a list of them.
"""

import time
from collections.abc import Callable
from pathlib import Path

from explorer import rundir
from explorer.audit.ledger_sums import is_confidential
from explorer.errors import StoreError, unknown
from explorer.provenance.private import replace_private
from explorer.report.render_html import render_html
from explorer.report.render_markdown import render_markdown
from explorer.report.render_pdf import render_pdf
from explorer.report.run_content import RunContent, gather
from explorer.report.run_croissant import as_croissant
from explorer.report.run_json import as_json
from explorer.report.run_page import run_page
from explorer.report.run_summary import opens
from explorer.runlog.run_ledger import RunLedger

CROISSANT = "croissant"
FORMATS: dict[str, Callable[[RunContent], bytes]] = {
    CROISSANT: lambda content: as_croissant(content).encode(),
    "html": lambda content: render_html(run_page(content)).encode(),
    "json": lambda content: as_json(content).encode(),
    "md": lambda content: render_markdown(run_page(content)).encode(),
    "pdf": lambda content: render_pdf(run_page(content)),
}


def page_of(run_directory: Path, *, format: str = "html") -> Path:
    """Where a report goes unless somebody says otherwise: into the run's directory; into `private` where it holds
    numbers that are sealed there, as a description of the dataset never does. Raises `ExplorerError` where the ledger
    cannot be read."""
    if format == CROISSANT:
        return run_directory / f"{CROISSANT}.json"
    run = RunLedger(run_directory)
    private = is_confidential(run) and opens(run)
    return run_directory / (rundir.PRIVATE if private else "") / f"report.{format}"


def write_run_report(run_directory: Path, page: Path, *, trust: Path | None = None, format: str = "html") -> None:
    """Write the report of a governed run whole or not at all; with mode 0600 where it holds numbers that are sealed in
    the run. `trust` is the trust file of those whom the reader believes; without one the page says that nothing was
    verified.

    Raises `StoreError` for an unknown format, `ExplorerError` where the ledger cannot be read.
    """
    if format not in FORMATS:
        raise StoreError(unknown("format", format, FORMATS))
    content = gather(run_directory, trust=trust, now=int(time.time()))
    made = FORMATS[format](content)
    if page_of(run_directory, format=format).parent.name == rundir.PRIVATE:
        replace_private(page, made)
    else:
        rundir.write_bytes(page, made)

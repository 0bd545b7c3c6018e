"""The report of a sweep: the answer, the curves, recipes at equal quality and at equal budget, controls, negative
results, and how all of it was measured.

html    one file that needs nothing else: charts react to the mouse, and are still there without scripts or on paper
pdf     the same on A4, to be sent
md      the same tables for a pull request or a wiki
json    the same numbers for other tools, in the form of a published schema
"""

from collections.abc import Callable
from pathlib import Path

from explorer import rundir
from explorer.errors import StoreError, unknown
from explorer.page.html import render_html
from explorer.page.markdown import render_markdown
from explorer.page.pdf import render_pdf
from explorer.report.content import SweepContent, gather
from explorer.report.sweep_document import as_json
from explorer.report.sweep_page import sweep_page

FORMATS: dict[str, Callable[[SweepContent], bytes]] = {
    "html": lambda content: render_html(sweep_page(content)).encode(),
    "json": lambda content: as_json(content).encode(),
    "md": lambda content: render_markdown(sweep_page(content)).encode(),
    "pdf": lambda content: render_pdf(sweep_page(content)),
}


def write_sweep_report(runs: Path, sweep: str, output: Path, *, format: str = "html") -> None:
    """Write the report of a sweep whole or not at all. The database has to be up to date.

    Raises `StoreError` for an unknown format or sweep.
    """
    if format not in FORMATS:
        raise StoreError(unknown("format", format, FORMATS))
    rundir.write_bytes(output, FORMATS[format](gather(runs, sweep)))

"""The report of a sweep: the answer, the curves, the equal-quality table, the recipes, and how all of it was measured.

html    one file that needs nothing else: charts react to the mouse, and are still there without scripts or on paper
md      the same tables for a pull request or a wiki
json    the same numbers for other tools
"""

from collections.abc import Callable
from pathlib import Path

from explorer import rundir
from explorer.errors import StoreError, unknown
from explorer.report.as_html import as_html
from explorer.report.as_json import as_json
from explorer.report.as_markdown import as_markdown
from explorer.report.content import SweepContent, gather

FORMATS: dict[str, Callable[[SweepContent], str]] = {"html": as_html, "md": as_markdown, "json": as_json}


def write_sweep_report(runs: Path, sweep: str, output: Path, *, format: str = "html") -> None:
    """Write the report of a sweep whole or not at all. The database has to be up to date.

    Raises `StoreError` for an unknown format or sweep, or a sweep without a finished run.
    """
    if format not in FORMATS:
        raise StoreError(unknown("format", format, FORMATS))
    rundir.write_bytes(output, FORMATS[format](gather(runs, sweep)).encode())

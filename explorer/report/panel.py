"""The report panel: choose a sweep or a governed run, a format and a trust file, and press a button.

`reports()` is the one call in `report.ipynb`. A command-line process writes the report, so the notebook stays free.
"""

import asyncio
import re
from pathlib import Path

import ipywidgets as widgets

from explorer.page.document import Span
from explorer.page.html import element, inline, style
from explorer.report.run_report import CROISSANT
from explorer.store.run_sources import sweeps
from explorer.views.explorer.tabs.run_cards import link
from explorer.views.ledger.open_run import governed_runs
from explorer.views.notebook import runs_directory
from explorer.views.sweep_process import run_command

FORMATS = {
    "HTML, to read and to print": "html",
    "PDF, to send": "pdf",
    "Markdown, for a pull request": "md",
    "JSON, for other tools": "json",
    "Croissant, the dataset of a run": CROISSANT,
}
PREVIEW = 200_000  # characters of a text that the notebook shows
SHOWN = 90  # characters of a name in a list
FRAME = "width:100%;height:640px;border:1px solid var(--line);border-radius:6px"


def reports(runs: str | Path | None = None) -> "ReportPanel":
    """Open the panel on a directory of runs."""
    return ReportPanel(runs_directory(runs))


class ReportPanel(widgets.VBox):
    """Panel that writes nothing before its button is pressed. `written` is the file of the last report."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._task: asyncio.Task[None] | None = None
        self.written: Path | None = None
        subjects = _subjects(runs)
        self.subject = widgets.Dropdown(description="Report of", options=subjects)
        self.format = widgets.Dropdown(description="Format", options=list(FORMATS.items()))
        self.trust = widgets.Text(description="Trust file (runs)", placeholder="none: nothing is verified", value="")
        self.button = widgets.Button(
            description="Write", tooltip="Write the report to a file", button_style="primary", disabled=not subjects
        )
        self.said, self.preview = widgets.HTML(), widgets.HTML()
        self.button.on_click(lambda _: self._start())
        self.subject.observe(self._choose, "value")
        fields = widgets.Box([self.subject, self.format, self.trust]).add_class("x-controls")
        buttons = widgets.HBox([self.button]).add_class("x-buttons")
        super().__init__([widgets.HTML(style()), fields, buttons, self.said, self.preview])
        self.add_class("explorer")
        self._choose()
        if not subjects:
            begin = (
                Span(f"There is nothing to report in {runs} yet. Begin with "),
                Span("explorer quickstart", "code"),
                Span(", or run a sweep."),
            )
            self.said.value = element("p", inline(begin), class_="x-empty")

    async def write(self) -> None:
        """Write the chosen report, and show it or the error."""
        subject, format, trust = self.subject.value, self.format.value, self.trust.value.strip()
        if subject is None or format is None:
            return
        self.written, self.preview.value, self.button.disabled = None, "", True
        self._say("Writing ...")
        trusting = ["--trust", trust] if trust and not self.trust.disabled else []
        try:
            # A name may begin with a hyphen, so it comes after `--`.
            done = await run_command("report", "--format", format, *trusting, "--runs", self._runs, "--", subject)
            if done.succeeded:
                self._show(Path(done.text.removesuffix("\n")), format)
            else:
                self._say(done.text.strip(), failed=True)
        finally:
            self.button.disabled = False

    def _show(self, path: Path, format: str) -> None:
        self.written = path
        size = f"{path.stat().st_size / 1000:,.0f} kB"
        text = (Span(f"{path} ({size}). "), link(path, "Open it", here=Path.cwd()))
        self.said.value = element("p", inline(text), class_="x-progress", role="status")
        if format != "pdf":
            self.preview.value = preview(path.read_text(encoding="utf-8"), page=format == "html")

    def _choose(self, _: object = None) -> None:
        """Disable the trust file for a sweep, whose report verifies no signature."""
        self.trust.disabled = self.subject.value is None or not Path(self.subject.value).is_absolute()

    def _say(self, words: str, *, failed: bool = False) -> None:
        kind, role = ("x-said x-warn", "alert") if failed else ("x-said", "status")
        self.said.value = element("pre", words, class_=kind, role=role)

    def _start(self) -> None:
        """Write without blocking the notebook. Without a reference, the task could be collected before it is done."""
        self._task = asyncio.get_running_loop().create_task(self.write())


def preview(content: str, *, page: bool) -> str:
    """Return a report as HTML for the notebook: a page in a frame without scripts or requests, other text as it is."""
    if not page:
        more = "\n..." if len(content) > PREVIEW else ""
        return element("pre", content[:PREVIEW] + more, class_="x-said", tabindex="0")
    # The sandbox would not run the scripts, and the bundle of charts is a megabyte.
    still = re.sub(r"<script\b.*?</script>", "", content, flags=re.DOTALL)
    return element("iframe", title="The report", sandbox="", srcdoc=still, style=FRAME)


def _subjects(runs: Path) -> list[tuple[str, str]]:
    """List the possible subjects: sweeps by name, then governed runs by absolute directory."""
    if not runs.is_dir():
        return []
    subjects = [(_short(f"Sweep {path.name}"), path.name) for path in sweeps(runs)]
    return subjects + [(_short(f"Run {name}"), str(path.resolve())) for name, path in governed_runs(runs).items()]


def _short(name: str) -> str:
    return name if len(name) <= SHOWN else f"{name[: SHOWN - 20]}\u2026{name[-19:]}"

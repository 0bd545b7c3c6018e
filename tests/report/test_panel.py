"""The report panel: its choices, the report that it writes, and its errors."""

import asyncio
import html
import sys
from pathlib import Path

import pytest

from explorer.report.panel import FORMATS, ReportPanel, preview, reports
from explorer.views import sweep_process
from tests.governed_sample import write_governed_run
from tests.sample import write_sample


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("panel") / "runs"
    write_sample(directory, seeds=1)
    write_governed_run(directory)
    return directory


def replace_command(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let a Python script stand for the command line; it gets the same arguments."""
    monkeypatch.setattr(sweep_process, "command", lambda *given: [sys.executable, "-c", script, *map(str, given)])


def choose(panel: ReportPanel, subject: str, format: str) -> None:
    value = next(value for label, value in panel.subject.options if subject in label)
    panel.subject.value, panel.format.value = value, format


@pytest.mark.slow
def test_a_button_writes_the_report_that_the_command_line_writes(runs: Path) -> None:
    panel = reports(runs)
    choose(panel, "Sweep digits", "md")
    asyncio.run(panel.write())
    assert panel.written == runs / "digits" / "report.md"
    assert "# Report of the sweep digits" in panel.preview.value
    assert 'href="' in panel.said.value and 'role="status"' in panel.said.value
    assert not panel.button.disabled


def test_a_trust_file_is_only_for_runs_and_is_passed_on(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = reports(runs)
    choose(panel, "Sweep digits", "pdf")
    assert panel.trust.disabled
    choose(panel, "Run ", "json")
    assert not panel.trust.disabled
    panel.trust.value = " trust.json "
    replace_command(monkeypatch, "import sys; sys.exit(repr(sys.argv[1:]))")
    asyncio.run(panel.write())
    said = html.unescape(str(panel.said.value))
    assert f"['report', '--format', 'json', '--trust', 'trust.json', '--runs', '{runs}', '--', '{runs}" in said


def test_an_error_is_shown_and_nothing_is_written(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = reports(runs)
    replace_command(monkeypatch, "import sys; sys.exit('no space left on <device>')")
    asyncio.run(panel.write())
    assert 'role="alert"' in panel.said.value and "no space left on &lt;device&gt;" in panel.said.value
    assert panel.written is None and panel.preview.value == "" and not panel.button.disabled


def test_an_empty_store_says_what_to_do(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "absent"):
        panel = reports(directory)
        assert panel.button.disabled and "explorer quickstart" in panel.said.value


def test_a_preview_runs_nothing_and_cannot_leave_its_frame() -> None:
    page = '<p title="x">report</p><script>alert(1)</script>'
    shown = preview(page, page=True)
    assert 'sandbox=""' in shown and "alert(1)" not in shown
    assert "&lt;p title=&#34;x&#34;&gt;report" in shown
    assert "<script>" not in preview("<script>", page=False)


def test_every_control_has_a_label_and_every_format_is_one_of_the_command_line(runs: Path) -> None:
    from explorer.cli.report import ReportFormat

    panel = reports(runs)
    assert all(field.description for field in (panel.subject, panel.format, panel.trust, panel.button))
    assert set(FORMATS.values()) == {each.value for each in ReportFormat}

"""`explorer open` as a user meets it: the picture is there without a click, and stays in the saved file."""

import base64
import html
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from playwright.sync_api import Page, expect

from explorer.cli.notebooks import Notebook
from tests.browser.lab import READY, free_port, jupyterlab
from tests.governed_sample import write_governed_run
from tests.sample import write_sample

pytestmark = pytest.mark.browser

CHART = ".vega-embed svg.marks"
WIDGET = "application/vnd.jupyter.widget-view+json"
ERRORS = re.compile("Error displaying widget|model not found|Loading widget", re.IGNORECASE)


@contextmanager
def opened(project: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `explorer open` in a directory until it prints the address, and yield the process and the address."""
    with started(project, *arguments) as process:
        address, said = "", ""
        for line in process.stdout or ():
            said += line
            address = line.strip() if line.startswith("http") else address
            if line.startswith("Ctrl-C"):
                break
        assert address, said
        assert "Reading" in said and "ssh -L" in said
        yield process, address


@contextmanager
def started(project: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start `explorer open` in a directory."""
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
        "JUPYTER_DATA_DIR": str(project / ".data"),
        "JUPYTER_CONFIG_DIR": str(project / ".config"),
        "JUPYTER_RUNTIME_DIR": str(project / ".runtime"),
        "IPYTHONDIR": str(project / ".ipython"),
    }
    own = ["--no-browser", "--port", str(free_port()), "--", "--allow-root", "--ServerApp.ip=127.0.0.1"]
    command = [sys.executable, "-m", "explorer", "open", *arguments, *own]
    process = subprocess.Popen(command, cwd=project, env=environment, text=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(timeout=600)
        process.stdout.close()


def outputs(notebook: Path, seconds: float = 600) -> list[dict[str, Any]]:
    """Return all outputs in a saved notebook.

    Jupyter writes a notebook in place, so a reader in the meantime meets none or half of it, and reads again.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            cells = json.loads(notebook.read_text())["cells"]
        except json.JSONDecodeError:
            assert time.monotonic() < deadline, f"{notebook} was never whole"
            time.sleep(0.2)
        else:
            return [output for cell in cells for output in cell.get("outputs", ())]


def shown(notebook: Path) -> list[dict[str, object]]:
    """Return the MIME bundles of all outputs in a saved notebook."""
    return [output.get("data", {}) for output in outputs(notebook)]


def assert_still(notebook: Path) -> None:
    """Check that a saved notebook holds a picture and a table, and no widget."""
    bundles = shown(notebook)
    assert not any(WIDGET in bundle for bundle in bundles)
    picture, *_ = [bundle["image/png"] for bundle in bundles if "image/png" in bundle]
    assert base64.b64decode(str(picture)).startswith(b"\x89PNG")
    words = html.unescape("".join("".join(bundle.get("text/html", ())) for bundle in bundles))  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert "<table" in words and "accuracy" in words
    assert "<button" not in words and "<input" not in words, "nothing there could be pressed"
    assert notebook.stat().st_size < 300_000


def test_the_live_picture_without_a_click_and_a_still_one_in_the_file(
    page: Page, tmp_path: Path, screenshots: Path
) -> None:
    write_sample(tmp_path / "runs")
    with opened(tmp_path, "explore", "--view", "digits?metric=nll") as (process, address):
        page.goto(address, wait_until="domcontentloaded")
        page.wait_for_selector(CHART)
        explorer = page.locator(".explorer").first
        expect(explorer.locator(".x-answer").first).to_contain_text("nll")
        page.screenshot(path=screenshots / "open-first-sight.png")
        assert page.evaluate("document.querySelector('.explorer').getBoundingClientRect().top") < 200

        # A control answers: the widgets are those of the living kernel.
        explorer.get_by_label("Metric", exact=True).first.select_option("accuracy")
        expect(explorer.locator(".x-answer").first).to_contain_text("accuracy")

        def saved() -> bool:
            # A kernel that is busy keeps its last stills: saved again, the file has those of now.
            page.locator('[data-command="docmanager:save"]').first.click()
            page.wait_for_timeout(3000)
            return "accuracy" in str(shown(tmp_path / "explore.ipynb"))

        until(saved)
        expect(page.locator(".jp-mod-dirty")).to_have_count(0)  # a page that is not saved asks before it reloads
        assert_still(tmp_path / "explore.ipynb")

        # A reload shows the same widgets, though the file holds none.
        page.reload(wait_until="domcontentloaded")
        page.wait_for_selector(CHART)
        expect(explorer.locator(".x-answer").first).to_contain_text("accuracy")
        page.goto("about:blank")

        kernels = [child for child in psutil.Process(process.pid).children(recursive=True) if child.is_running()]
        assert kernels
        process.send_signal(signal.SIGINT)
        process.wait(timeout=600)
        psutil.wait_procs(kernels, timeout=300)
        assert not [kernel for kernel in kernels if kernel.is_running()]

    (tmp_path / ".plain").mkdir()
    with jupyterlab(tmp_path, workspace=tmp_path / ".plain") as plain:
        page.goto(f"{plain}/lab/tree/explore.ipynb?reset", wait_until="domcontentloaded")
        area = page.locator(".jp-OutputArea-output")
        expect(area.locator("img").first).to_be_visible()
        expect(area.locator("table").first).to_be_attached()
        expect(page.get_by_text(ERRORS)).to_have_count(0)
        page.screenshot(path=screenshots / "open-saved.png")
        # A server that is stopped while a kernel starts waits for that kernel.
        page.evaluate(READY)
        page.goto("about:blank")


def test_a_changed_notebook_is_not_executed_unasked(tmp_path: Path) -> None:
    """Control of the trust: code that neither came with the package nor was run here could be anybody's."""
    mark = tmp_path / "executed"
    write_sample(tmp_path / "runs", seeds=1)
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": None}
    hostile = {**cell, "source": f"open({str(mark)!r}, 'w')"}
    notebook = {"cells": [hostile], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "explore.ipynb").write_text(json.dumps(notebook))
    with pytest.raises(AssertionError, match="was changed elsewhere"), opened(tmp_path, "explore"):
        pass
    assert not mark.exists()


def saved(page: Page) -> bool:
    """Save, and return whether nothing has changed since: a page that is not saved asks before it is left."""
    page.locator('[data-command="docmanager:save"]').first.click()
    page.wait_for_timeout(1000)
    return page.locator(".jp-mod-dirty").count() == 0


def until(holds: object, seconds: float = 600) -> None:
    """Wait until a condition holds."""
    assert callable(holds)
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never held"
        time.sleep(0.2)


@pytest.mark.parametrize("name", list(Notebook))
def test_every_notebook_opens_executed(page: Page, tmp_path: Path, screenshots: Path, name: Notebook) -> None:
    write_sample(tmp_path / "runs", seeds=1)
    write_governed_run(tmp_path / "runs")
    file = tmp_path / f"{name}.ipynb"
    with opened(tmp_path, name) as (_, address):
        page.goto(address, wait_until="domcontentloaded")
        expect(page.locator(".explorer").first).to_be_visible()
        page.wait_for_timeout(3000)  # an error would be drawn by then
        expect(page.get_by_text(ERRORS)).to_have_count(0)
        expect(page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')).to_have_count(0)
        page.screenshot(path=screenshots / f"open-{name}.png")
        until(lambda: any("text/html" in bundle for bundle in shown(file)))
        until(lambda: saved(page))
        page.goto("about:blank")
    kinds = {output["output_type"] for output in outputs(file)}
    assert kinds == {"display_data"}, "neither an error nor words on stderr"


@pytest.mark.parametrize("seconds", [0.0, 1.0, 3.0])
def test_an_interrupt_before_the_picture_is_there_ends_everything(tmp_path: Path, seconds: float) -> None:
    """While the kernel starts, or the cells are executed."""
    write_sample(tmp_path / "runs", seeds=1)
    with started(tmp_path, "explore") as process:
        assert process.stdout is not None
        assert next(process.stdout).startswith("Reading")
        time.sleep(seconds)
        kernels = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=600) == 0
        psutil.wait_procs(kernels, timeout=300)
        assert not [kernel for kernel in kernels if kernel.is_running()]


def test_an_empty_project_opens_to_words(page: Page, tmp_path: Path) -> None:
    with opened(tmp_path) as (_, address):
        assert urlsplit(address).path.endswith("explore.ipynb")
        page.goto(address, wait_until="domcontentloaded")
        expect(page.locator(".explorer").first).to_contain_text("No runs yet")

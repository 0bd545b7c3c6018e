"""The sweep notebook: a real sweep, started by its button or from a terminal, followed live."""

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.lab import open_notebook

pytestmark = pytest.mark.browser

SPEC = """\
name: tiny
task: {dataset: digits, model: resnet8}
train:
  epochs: 1
  batch_size: 64
  optimizer: {sgd: {lr: 0.2}}
baseline: baseline
recipes:
  baseline: []
  smooth: [label_smoothing]
budgets: [0.25, 0.5]
seeds: [0]
"""


def test_plan_and_run(page: Page, address: str, workplace: Path, screenshots: Path) -> None:
    open_notebook(page, address, "notebooks/sweep.ipynb")
    editor = page.get_by_role("textbox", name="Specification")
    editor.fill(SPEC.replace("label_smoothing", "label_smothing"))
    page.get_by_role("button", name="Plan").click()
    expect(page.get_by_role("alert")).to_contain_text("did you mean 'label_smoothing'?")

    editor.fill(SPEC)
    page.get_by_role("button", name="Plan").click()
    expect(page.locator(".x-said")).to_contain_text("4 runs, 0 done, 4 to do")
    page.screenshot(path=screenshots / "sweep-plan.png")

    page.get_by_role("button", name="Run", exact=True).click()
    progress = page.locator(".x-progress")
    expect(progress).to_contain_text("of 4 runs done", timeout=60_000)
    expect(progress).to_contain_text("Finished", timeout=600_000)
    expect(page.locator(".vega-embed svg.marks")).to_have_count(2)
    page.screenshot(path=screenshots / "sweep-done.png")
    assert len(list((workplace / "runs" / "tiny").glob("*/result.json"))) == 4


def test_a_sweep_from_a_terminal_is_followed(page: Page, address: str, workplace: Path, screenshots: Path) -> None:
    spec = workplace / "notebooks" / "sweeps" / "mine.yaml"
    spec.parent.mkdir(exist_ok=True)
    spec.write_text(SPEC.replace("name: tiny", "name: elsewhere").replace("epochs: 1", "epochs: 20"))
    command = [sys.executable, "-m", "explorer", "sweep", "run", spec, "--runs", workplace / "runs", "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        open_notebook(page, address, "notebooks/sweep.ipynb")
        progress = page.locator(".x-progress")
        expect(progress).to_contain_text("another process runs this sweep", timeout=240_000)
        expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
        expect(page.locator(".vega-embed svg.marks").first).to_be_visible(timeout=240_000)
        page.screenshot(path=screenshots / "sweep-elsewhere.png")
        expect(progress).to_contain_text("4 of 4 runs done.", timeout=480_000)
    finally:
        process.terminate()
        process.wait(timeout=60)
    expect(page.get_by_role("button", name="Look at it in explore")).to_be_visible()
    page.screenshot(path=screenshots / "sweep-elsewhere-done.png")

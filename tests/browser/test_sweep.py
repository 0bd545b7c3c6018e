"""The sweep notebook: a real sweep, started by its button, followed live."""

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

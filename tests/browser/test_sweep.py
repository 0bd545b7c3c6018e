"""The sweep notebook: a real sweep, started by its button or from a terminal, followed live."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.lab import cut, faults, open_notebook
from tests.place.attempts import RUNS, WrittenPlace, eventful

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
    expect(progress).to_contain_text("of 4 runs done", timeout=600_000)
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
        process.wait(timeout=600)
    expect(page.get_by_role("button", name="Look at it in explore")).to_be_visible()
    page.screenshot(path=screenshots / "sweep-elsewhere-done.png")


def test_a_sweep_at_a_place_shows_hosts_and_faults(
    page: Page, address: str, workplace: Path, screenshots: Path
) -> None:
    now = time.time()
    eventful(workplace / "place", now)
    open_notebook(page, address, "notebooks/sweep.ipynb")
    place, hosts = page.get_by_role("textbox", name="Place"), page.locator(".x-blocks table").first
    expect(page.locator(".x-progress")).to_be_visible()
    place.fill(str(workplace / "place"))
    place.press("Enter")
    expect(page.locator(".x-progress")).to_contain_text("2 of 8 runs done, 2 in progress on 2 hosts, 2 to do, 2 failed")
    expect(hosts).to_contain_text("node-7")
    expect(hosts).to_contain_text("<img src=x onerror=alert(1)>")  # as text: the page fails the test if it is obeyed
    assert page.locator(".x-blocks img").count() == 0
    expect(page.locator(".x-seen ul")).to_contain_text("not reproducible")
    expect(page.locator(".x-seen ul")).to_contain_text("lost worker on node-8")
    expect(page.locator(".x-facts")).to_contain_text("machine time")
    for width in (900, 1260, 1600):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_timeout(800)
        assert cut(page) == []
        page.screenshot(path=screenshots / f"sweep-place-{width}.png")
    assert faults(page, ".explorer") == []
    # The control: a place where nothing went wrong has hosts and no faults.
    WrittenPlace(workplace / "quiet").claim(RUNS[0], "node-1", now, now + 3600)
    place.fill(str(workplace / "quiet"))
    place.press("Enter")
    expect(hosts).to_contain_text("node-1")
    expect(page.locator(".x-seen ul")).to_have_count(0)

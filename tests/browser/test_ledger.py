"""The ledger's notebook in a real browser: choose steps, click a cell, come to its entries and their proof."""

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import open_notebook, scroll_to
from tests.governed_sample import write_governed_run

pytestmark = pytest.mark.browser

CHARTS = 4  # heat map, depth profile, directions, timeline


@pytest.fixture(scope="module")
def trust(workplace: Path) -> Path:
    """The trust file of somebody who looks at a run that he was given."""
    run = write_governed_run(workplace / "runs")
    return run / "governance" / "trust.json"


@pytest.fixture
def view(page: Page, address: str, trust: Path) -> Locator:
    open_notebook(page, address, "notebooks/ledger.ipynb")
    expect(page.locator(".vega-embed svg.marks")).to_have_count(CHARTS)
    scroll_to(page, ".explorer")
    return page.locator(".explorer").first


def cell(view: Locator, layer: str, class_: str) -> Locator:
    """A cell of the heat map, by what it says to a screen reader."""
    return view.locator(f".cells_marks path[aria-label*='Layer: {layer};'][aria-label*='Class: {class_};']").first


def test_from_the_badge_to_a_proof(view: Locator, page: Page, trust: Path, screenshots: Path) -> None:
    expect(view.locator(".x-badge")).to_contain_text("Not checked against anybody")
    page.screenshot(path=screenshots / "ledger.png")
    field = view.get_by_label("Trust file")
    field.fill(str(trust))
    field.press("Enter")
    expect(view.locator(".x-badge")).to_contain_text("Verified")
    expect(view.locator(".x-head, .widget-html").filter(has_text="Signed by example.com").first).to_be_visible()
    cell(view, "norm", "open/bsd").click()
    expect(view).to_contain_text("Entries behind open/bsd in norm, steps 0 to 47")
    expect(view.get_by_label("Class", exact=True)).to_have_value("open/bsd")
    page.wait_for_timeout(500)
    page.screenshot(path=screenshots / "ledger-cell.png")
    scroll_to(page, ".x-halves")
    page.screenshot(path=screenshots / "ledger-lower.png")

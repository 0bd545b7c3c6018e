"""The ledger's notebook and the governance report in a real browser: from a cell to its entries and their proof."""

import re
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from explorer.report.run_report import write_run_report
from tests.browser.lab import VIEWPORT, Fence, open_notebook, scroll_to
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
    expect(view.locator(".x-badge")).to_contain_text("Not verified")
    page.screenshot(path=screenshots / "ledger.png")
    field = view.get_by_label("Trust file")
    field.fill(str(trust))
    field.press("Enter")
    expect(view.locator(".x-badge")).to_contain_text("Verified")
    expect(view.locator(".x-head, .widget-html").filter(has_text="Signed by example.com").first).to_be_visible()
    page.wait_for_timeout(1000)  # the heat map is drawn; its cells are connected a moment later
    cell(view, "norm", "open/bsd").click()
    expect(view).to_contain_text("Entries behind open/bsd in norm, steps 0 to 47")
    expect(view.get_by_label("Class", exact=True)).to_have_value("open/bsd")
    page.wait_for_timeout(500)
    page.screenshot(path=screenshots / "ledger-cell.png")
    scroll_to(page, ".x-halves")
    page.screenshot(path=screenshots / "ledger-lower.png")


def test_a_stretch_of_steps_and_the_dark(view: Locator, page: Page, screenshots: Path) -> None:
    """Before step 16 the policy lets open/bsd in nowhere; afterwards it does above the middle."""
    expect(cell(view, "norm", "open/bsd")).to_have_attribute("aria-label", re.compile("Share: [1-9]"))
    field = view.get_by_label("To step")
    field.fill("15")
    field.press("Enter")
    expect(cell(view, "norm", "open/bsd")).to_have_attribute("aria-label", re.compile("Share: denied"))
    view.get_by_role("button", name="Classes told apart").click()
    expect(view.locator(".role-axis-title").filter(has_text="Balanced accuracy")).to_be_visible()
    page.evaluate("() => { window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'}) }")
    page.wait_for_selector('body[data-jp-theme-light="false"]', state="attached")
    page.wait_for_timeout(500)
    page.screenshot(path=screenshots / "ledger-dark.png")
    page.evaluate("() => { window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'}) }")
    page.wait_for_selector('body[data-jp-theme-light="true"]', state="attached")
    page.wait_for_timeout(1000)  # the setting is saved after a moment


def test_the_report_needs_no_script_and_can_be_read_in_the_dark_and_on_paper(
    browser: Browser, workplace: Path, trust: Path, screenshots: Path
) -> None:
    report = workplace / "governance.html"
    write_run_report(trust.parents[1], report, trust=trust)
    context = browser.new_context(viewport=VIEWPORT, java_script_enabled=False, color_scheme="dark")
    fence = Fence(context)
    page = context.new_page()
    page.goto(report.as_uri())
    expect(page.locator("figure svg.marks")).to_have_count(5)
    expect(page.get_by_role("heading", level=1)).to_contain_text("What moved this model")
    page.screenshot(path=screenshots / "governance-dark.png", full_page=True)
    page.locator("main a[href^='#entry-']").first.click()
    assert page.url.endswith("#entry-2")
    page.emulate_media(color_scheme="light", media="screen")
    page.screenshot(path=screenshots / "governance.png", full_page=True)
    media: list[tuple[Literal["screen", "print"], int]] = [("screen", 1100), ("print", 720)]
    for medium, width in media:  # the second one is A4 paper
        page.emulate_media(media=medium)
        page.set_viewport_size({"width": width, "height": 900})
        beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert beyond == 0  # nothing is cut off at the right
    assert page.pdf(path=screenshots / "governance.pdf", format="A4").startswith(b"%PDF")
    assert fence.blocked == []
    context.close()

"""The report of a sweep as a page: with scripts, without, in the dark and on paper."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.lab import VIEWPORT

pytestmark = pytest.mark.browser

CHARTS = 3  # accuracy, negative log-likelihood, and where the time of a step goes


def test_charts_answer_the_mouse(page: Page, workplace: Path, screenshots: Path) -> None:
    page.goto((workplace / "report.html").as_uri())
    charts = page.locator("figure .vega-embed svg.marks")
    expect(charts).to_have_count(CHARTS)
    page.screenshot(path=screenshots / "report.png", full_page=True)
    box = charts.first.locator(".hollow_marks path, .mark-symbol.role-mark path").last.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#vg-tooltip-element")).to_contain_text("Seeds (n)")


def test_in_the_dark(page: Page, workplace: Path, screenshots: Path) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto((workplace / "report.html").as_uri())
    expect(page.locator("figure .vega-embed svg.marks")).to_have_count(CHARTS)
    page.screenshot(path=screenshots / "report-dark.png", full_page=True)
    red = page.evaluate("Number(getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/)[0])")
    assert red < 60


def test_without_scripts_the_pictures_remain(browser: Browser, workplace: Path) -> None:
    context = browser.new_context(viewport=VIEWPORT, java_script_enabled=False)
    page = context.new_page()
    page.goto((workplace / "report.html").as_uri())
    pictures = page.locator("figure svg.marks")
    assert pictures.count() == CHARTS
    box = pictures.first.bounding_box()
    assert box is not None and box["height"] > 300
    context.close()


def test_on_paper(page: Page, workplace: Path, screenshots: Path) -> None:
    page.goto((workplace / "report.html").as_uri())
    expect(page.locator("figure .vega-embed svg.marks")).to_have_count(CHARTS)
    paper = page.pdf(path=screenshots / "report.pdf", format="A4")
    assert paper.startswith(b"%PDF")

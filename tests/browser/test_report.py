"""Reports as pages: with scripts, without, in the dark, narrow and on paper; and the notebook that writes them."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from explorer.report.sweep_report import write_sweep_report
from tests.browser.lab import VIEWPORT, Fence, faults, open_notebook

pytestmark = pytest.mark.browser

CHARTS = 4  # accuracy, negative log-likelihood, learning curves, and where the time of a step goes


def test_charts_answer_the_mouse_in_the_light_and_in_the_dark(page: Page, workplace: Path, screenshots: Path) -> None:
    page.goto((workplace / "report.html").as_uri())
    charts = page.locator("figure .vega-embed svg.marks")
    expect(charts).to_have_count(CHARTS)
    page.screenshot(path=screenshots / "report.png", full_page=True)
    box = charts.first.locator(".points_marks path").last.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#vg-tooltip-element")).to_contain_text("Recipe")
    assert faults(page, "body") == []
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 760, "height": 1000})
    page.screenshot(path=screenshots / "report-dark.png", full_page=True)
    red = page.evaluate("Number(getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/)[0])")
    assert red < 60
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert faults(page, "body") == []


def test_without_scripts_the_pictures_remain_and_so_they_do_on_paper(
    browser: Browser, workplace: Path, screenshots: Path
) -> None:
    context = browser.new_context(viewport=VIEWPORT, java_script_enabled=False)
    fence = Fence(context)
    page = context.new_page()
    page.goto((workplace / "report.html").as_uri())
    pictures = page.locator("figure svg.marks")
    assert pictures.count() == CHARTS
    box = pictures.first.bounding_box()
    assert box is not None and box["height"] > 300
    assert page.pdf(path=screenshots / "report.pdf", format="A4").startswith(b"%PDF")
    assert fence.blocked == []
    context.close()


def test_hostile_names_are_names(page: Page, workplace: Path, screenshots: Path) -> None:
    """Names that are HTML, a script, a formula, written from right to left, or very long; no dialog may appear."""
    report = workplace / "hostile.html"
    write_sweep_report(workplace / "runs", "hostile", report)
    page.goto(report.as_uri())
    expect(page.locator("body")).to_contain_text("<img src=x onerror=alert(1)>")
    page.wait_for_timeout(1000)
    assert page.locator("img").count() == 0
    page.screenshot(path=screenshots / "report-hostile.png", full_page=True)


def test_a_report_is_written_by_clicks(page: Page, address: str, workplace: Path, screenshots: Path) -> None:
    open_notebook(page, address, "notebooks/report.ipynb")
    panel = page.locator(".explorer")
    panel.get_by_label("Report of").select_option("Sweep digits")
    panel.get_by_label("Format").select_option("PDF, to send")
    panel.get_by_role("button", name="Write").click()
    expect(panel.locator(".x-progress")).to_contain_text("report.pdf")
    assert (workplace / "runs" / "digits" / "report.pdf").read_bytes().startswith(b"%PDF")
    panel.get_by_label("Format").select_option("HTML, to read and to print")
    panel.get_by_role("button", name="Write").click()
    expect(panel.frame_locator("iframe").locator("h1")).to_contain_text("fast reaches the baseline's accuracy")
    assert faults(page, ".explorer") == []
    page.screenshot(path=screenshots / "report-notebook.png")

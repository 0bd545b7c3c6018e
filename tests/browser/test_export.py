"""The page of `explorer export`: opened from a file, chosen in by keyboard and mouse, in the dark, and on a phone."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from explorer.report.sweep_report import offline_html
from tests.browser.lab import faults

pytestmark = pytest.mark.browser


def written(workplace: Path, sweep: str) -> str:
    file = workplace / f"{sweep}-export.html"
    file.write_bytes(offline_html(workplace / "runs", sweep))
    return file.as_uri()


def test_a_reader_chooses_without_a_kernel_and_without_a_network(
    page: Page, workplace: Path, screenshots: Path
) -> None:
    page.goto(written(workplace, "digits"))
    charts = page.locator("figure .vega-embed svg.marks")
    expect(charts).to_have_count(2)
    page.screenshot(path=screenshots / "export.png", full_page=True)
    assert faults(page, "body") == []
    first, points = page.locator("figure").first, "figure >> nth=0 >> .points_marks path"
    expect(first).to_contain_text("Training time")
    first.get_by_label("X axis").select_option("steps")
    expect(first).to_contain_text("Optimiser steps")
    first.get_by_label("Metric").select_option("nll")
    expect(first).to_contain_text("lower is better")
    before = page.locator(points).count()
    first.get_by_label("fast", exact=True).focus()
    page.keyboard.press("Space")
    expect(page.locator(points)).not_to_have_count(before)
    first.get_by_label("Log x").uncheck()
    page.screenshot(path=screenshots / "export-chosen.png", full_page=True)
    box = page.locator(points).last.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#vg-tooltip-element")).to_contain_text("Recipe")


def test_a_phone_in_the_dark_shows_all_of_it(page: Page, workplace: Path, screenshots: Path) -> None:
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(written(workplace, "digits"))
    expect(page.locator("figure .vega-embed svg.marks")).to_have_count(2)
    page.screenshot(path=screenshots / "export-phone-dark.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert faults(page, "body") == []


def test_hostile_names_are_names(page: Page, workplace: Path, screenshots: Path) -> None:
    page.goto(written(workplace, "hostile"))
    expect(page.locator("figure .vega-embed svg.marks").first).to_be_visible()
    expect(page.locator(".vega-bindings").first).to_contain_text("<img src=x onerror=alert(1)>")
    page.wait_for_timeout(1000)
    assert page.locator("img").count() == 0
    page.screenshot(path=screenshots / "export-hostile.png", full_page=True)

"""The explorer in a real JupyterLab in a real browser, with everything outside this machine out of reach."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.lab import VIEWPORT, Fence, drag, open_notebook, scroll_to

pytestmark = pytest.mark.browser


@pytest.fixture
def explorer(page: Page, address: str) -> Locator:
    open_notebook(page, address, "notebooks/explore.ipynb")
    page.wait_for_selector(".vega-embed svg.marks")
    scroll_to(page, ".explorer")
    return page.locator(".explorer").first


def choose(button: Locator) -> None:
    """Press a toggle until it is on: one that has just appeared may be drawn anew under the mouse."""
    for _ in range(5):
        button.click()
        try:
            expect(button).to_have_class(re.compile("mod-active"), timeout=4000)
            return
        except AssertionError:
            continue
    expect(button).to_have_class(re.compile("mod-active"))


def test_choose_brush_and_export(explorer: Locator, page: Page, workplace: Path, screenshots: Path) -> None:
    expect(explorer.locator(".x-answer")).to_contain_text("Fast reaches the baseline's accuracy in 0.52 of its time")
    rows = explorer.locator(".x-main .x-table").first.locator("tbody tr")  # the next one is of the controls
    expect(rows).to_have_count(3)
    page.screenshot(path=screenshots / "explore.png")

    explorer.get_by_label("Quality", exact=True).select_option("nll")
    expect(explorer.locator(".x-answer")).to_contain_text("nll")
    expect(explorer.locator(".role-axis-title").filter(has_text="nll (nats)")).to_be_visible()
    explorer.get_by_label("Quality", exact=True).select_option("accuracy")
    expect(explorer.locator(".x-answer")).to_contain_text("accuracy")

    explorer.get_by_label("Recipes (Ctrl adds)").select_option(["baseline", "heavy"])
    expect(rows).to_have_count(2)
    explorer.get_by_label("Recipes (Ctrl adds)").select_option(["baseline", "fast", "heavy"])
    expect(rows).to_have_count(3)

    zero = explorer.locator(".x-main .role-axis-label text").filter(has_text=re.compile("^0$"))
    expect(zero).to_have_count(0)
    explorer.get_by_role("button", name="Linear").click()
    expect(zero).to_have_count(1)
    explorer.get_by_role("button", name="Log").click()
    expect(zero).to_have_count(0)

    chart = explorer.locator(".x-main .vega-embed svg.marks")
    page.wait_for_timeout(1000)  # the chart is drawn; its brush is connected a moment later
    drag(page, chart, start=(0.35, 0.2), end=(0.75, 0.7))
    heading = explorer.locator(".x-body > .widget-html .x-heading")
    expect(heading).to_contain_text("selected")
    count = int(heading.inner_text().split()[0])
    assert 0 < count < 45
    listed = explorer.locator(".x-body > .widget-html .x-table tbody tr")
    expect(listed).to_have_count(count)
    expect(listed.first).to_contain_text("explorer run ../runs/digits/")
    scroll_to(page, ".x-exports")
    page.screenshot(path=screenshots / "explore-brushed.png")

    explorer.get_by_role("button", name="CSV").click()
    expect(explorer.locator(".x-exports")).to_contain_text("Wrote exports/")
    exported = next((workplace / "notebooks" / "exports").glob("*.csv"))
    assert len(exported.read_text().splitlines()) == count + 1


def test_a_run_links_to_its_executed_notebook(explorer: Locator, page: Page) -> None:
    drag(page, explorer.locator(".x-main .vega-embed svg.marks"), start=(0.12, 0.2), end=(0.98, 0.85))
    link = explorer.get_by_role("link", name="open")
    expect(link).to_have_count(1)
    with page.context.expect_page() as opened:
        link.click()
    opened.value.wait_for_selector(".jp-Notebook .jp-Cell")
    assert "/runs/digits/resnet8-digits-baseline-ssr1-s0" in opened.value.url


def test_prices_and_targets_of_ones_own(explorer: Locator, page: Page, screenshots: Path) -> None:
    explorer.get_by_label("Price", exact=True).select_option("own value")
    field = explorer.get_by_label("Own price ($/hour)")
    field.fill("1.5")
    field.press("Enter")
    choose(explorer.get_by_role("button", name="Cost"))
    expect(explorer.locator(".x-answer")).to_contain_text("of its cost")
    expect(explorer.locator(".role-axis-title").filter(has_text="Training cost (US dollars)")).to_be_visible()
    explorer.get_by_label("Target quality", exact=True).select_option("own value")
    field = explorer.get_by_label("Own target")
    field.fill("0.99")
    field.press("Enter")
    expect(explorer.locator(".x-main .x-table").first).to_contain_text("not reached")
    page.screenshot(path=screenshots / "explore-cost.png")


def test_dark_theme(explorer: Locator, page: Page, screenshots: Path) -> None:
    page.evaluate("() => { window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'}) }")
    page.wait_for_selector('body[data-jp-theme-light="false"]', state="attached")
    page.wait_for_timeout(500)
    page.screenshot(path=screenshots / "explore-dark.png")
    label = explorer.locator(".vega-embed .role-axis-label text").first
    red = label.evaluate("e => Number(getComputedStyle(e).fill.match(/\\d+/)[0])")
    assert red > 150  # light text on a dark ground
    page.evaluate("() => { window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'}) }")
    page.wait_for_selector('body[data-jp-theme-light="true"]', state="attached")
    page.wait_for_timeout(1000)  # the setting is saved after a moment


def test_how_methods_compose(explorer: Locator, page: Page, screenshots: Path) -> None:
    panel = explorer.locator(".x-composition")
    expect(panel).to_contain_text("No recipe here combines methods")
    explorer.get_by_label("Sweep", exact=True).select_option("together")
    expect(panel).to_contain_text("both shorten forward and backward")
    cells = panel.locator(".cells_marks path")
    expect(cells).to_have_count(12)
    expect(panel).to_contain_text("From baseline to fast")
    panel.get_by_label("Recipe of the waterfall").select_option("resize-layout")
    expect(panel).to_contain_text("From baseline to resize-layout")
    expect(panel.locator(".changes_marks path")).to_have_count(4)  # two methods, same parts, not predicted
    panel.get_by_label("Budget").select_option("0.5 of the full schedule")
    expect(panel.locator(".role-axis-title").filter(has_text="Training time")).to_be_visible()
    scroll_to(page, ".x-composition")
    page.screenshot(path=screenshots / "explore-composition.png")
    explorer.get_by_label("Sweep", exact=True).select_option("digits")
    expect(panel).to_contain_text("No recipe here combines methods")


def test_the_fence_holds(browser: Browser) -> None:
    context = browser.new_context(viewport=VIEWPORT)
    fence = Fence(context)
    page = context.new_page()
    page.set_content('<img src="https://example.org/x.png"><script src="https://cdn.example.org/vega.js"></script>')
    assert sorted(fence.blocked) == ["https://cdn.example.org/vega.js", "https://example.org/x.png"]
    context.close()

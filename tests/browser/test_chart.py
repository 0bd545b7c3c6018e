"""The tradeoff chart under the mouse: hover, click, brush, wheel and zoom; and that it opens on a slow machine."""

import re

import pytest
from playwright.sync_api import Browser, Locator, Page, WebSocketRoute, expect

from tests.browser.conftest import fenced_page
from tests.browser.lab import becomes, drag, open_notebook, scroll_to

pytestmark = pytest.mark.browser

LATE = """
const given = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (wait) => given(wait === 2000 ? 0 : wait);
"""  # in a page, anywidget gives up every module
RESTORES = (b"update_states", b"comm_info_reply")  # messages by which a page gets the widgets of its kernel
SLOWER = 6  # times, as Chromium can pretend


@pytest.fixture(scope="module")
def explorer(shared_page: Page, address: str) -> Locator:
    open_notebook(shared_page, address, "notebooks/explore.ipynb")
    shared_page.wait_for_selector(".x-chart-place .vega-embed svg.marks")
    explorer = shared_page.locator(".explorer").first
    explorer.get_by_label("Sweep", exact=True).select_option("digits")
    expect(chart(explorer)).to_contain_text("heavy")
    scroll_to(shared_page, ".explorer")
    return explorer


def chart(explorer: Locator) -> Locator:
    return explorer.locator(".x-chart-place .vega-embed svg.marks")


def faint(explorer: Locator, layer: str) -> int:
    """How many marks of a layer are dimmed."""
    marks = chart(explorer).locator(f".{layer}_marks").locator("path, text")
    return marks.evaluate_all("marks => marks.filter(mark => Number(mark.getAttribute('opacity') ?? 1) <= 0.2).length")


def eventually(count: int, explorer: Locator, layer: str) -> None:
    becomes(explorer.page, lambda: faint(explorer, layer), count)


def test_a_name_isolates_its_curve_and_leaving_it_shows_all(explorer: Locator, shared_page: Page) -> None:
    eventually(0, explorer, "runs")
    name = chart(explorer).locator(".names_marks text").filter(has_text="heavy")
    name.hover(force=True)
    eventually(30, explorer, "runs")
    shared_page.mouse.move(2, 2)
    eventually(0, explorer, "runs")


def test_a_click_rings_its_run_and_dims_the_rest(explorer: Locator, shared_page: Page) -> None:
    rings = chart(explorer).locator(".rings_marks path")
    expect(rings).to_have_count(0)
    chart(explorer).locator(".runs_marks path[aria-label*='Budget: 1 of']").first.click(force=True)
    expect(rings).to_have_count(1)
    shared_page.mouse.move(2, 2)
    eventually(44, explorer, "runs")
    box = chart(explorer).bounding_box()
    assert box is not None
    shared_page.mouse.click(box["x"] + 0.2 * box["width"], box["y"] + 0.35 * box["height"])  # empty space
    expect(rings).to_have_count(0)


def test_the_wheel_over_a_brush_scrolls_the_page_and_changes_nothing(explorer: Locator, shared_page: Page) -> None:
    page = shared_page
    drag(page, chart(explorer), start=(0.35, 0.2), end=(0.6, 0.7))
    brush = chart(explorer).locator(".brush_brush path, .brush_brush").first
    zoom = explorer.get_by_role("button", name="Zoom in")
    expect(zoom).to_be_visible()
    shape = brush.evaluate("mark => mark.getBBox().width")
    box = chart(explorer).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.wheel(0, 240)
    page.wait_for_timeout(1500)
    after = chart(explorer).bounding_box()
    assert after is not None and after["y"] < box["y"] - 50
    assert brush.evaluate("mark => mark.getBBox().width") == pytest.approx(shape)
    scroll_to(page, ".explorer")
    ticks = chart(explorer).locator(".role-axis-label text").all_inner_texts()
    zoom.click()
    reset = explorer.get_by_role("button", name="Reset zoom")
    expect(reset).to_be_visible()
    becomes(page, lambda: chart(explorer).locator(".role-axis-label text").all_inner_texts() != ticks, True)
    reset.click()
    expect(reset).to_be_hidden()
    becomes(page, chart(explorer).locator(".role-axis-label text").all_inner_texts, ticks)


def test_it_opens_on_a_slow_machine_without_a_page_error(browser: Browser, address: str) -> None:
    """`fenced_page` fails on a page error. benchmarks/openings.py opens it fifty times."""
    for _ in range(2):
        with fenced_page(browser) as page:
            page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
            page.set_default_timeout(180_000)
            open_notebook(page, address, "notebooks/explore.ipynb")
            page.wait_for_selector(".x-chart-place .vega-embed svg.marks", timeout=180_000)
            metric = page.get_by_label("Metric", exact=True).first  # the curves have one, too
            metric.select_option("nll")
            title = page.locator(".x-chart-place .role-axis-title").filter(has_text="nll (nats)")
            expect(title).to_be_visible(timeout=180_000)  # the chart still hears of changes


def test_widgets_whose_modules_load_late_hear_the_kernel(browser: Browser, address: str) -> None:
    """anywidget gives a module two seconds; here it gives none at all."""
    with fenced_page(browser) as page:
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.add_init_script(LATE)
        open_notebook(page, address, "notebooks/explore.ipynb")
        chart = page.locator(".x-chart-place .vega-embed svg.marks")
        expect(chart).to_be_visible()
        page.get_by_label("Metric", exact=True).first.select_option("nll")
        expect(chart.locator(".role-axis-title").filter(has_text="nll (nats)")).to_be_visible()
        expect(page.locator(".x-table-place")).to_contain_text("nats")
        page.get_by_role("button", name="Runs", exact=True).first.click()
        rows = page.locator(".x-grid tbody tr")
        expect(rows.first).to_be_visible()
        page.locator(".x-grid").get_by_label("Search").fill("heavy baseline")
        expect(rows).to_have_count(1)
        expect(rows).to_contain_text("No run matches the search.")
        page.get_by_role("button", name="Share, export").click()
        page.context.grant_permissions(["clipboard-read"])
        page.get_by_role("button", name="Copy", exact=True).click()
        page.get_by_role("button", name="Copied").wait_for()
        assert "metric=nll" in page.evaluate("navigator.clipboard.readText()")
        assert any("Failed to initialize model" in error for error in errors), "no module was late"


def test_a_second_page_draws_before_it_has_restored_the_first(
    explorer: Locator, browser: Browser, address: str
) -> None:
    """Here the second page never gets the widgets that its kernel has since the first."""
    with fenced_page(browser) as page:
        held: list[str | bytes] = []

        def hold(socket: WebSocketRoute) -> None:
            server = socket.connect_to_server()

            def receive(message: str | bytes) -> None:
                restores = isinstance(message, bytes) and any(name in message for name in RESTORES)
                held.append(message) if restores else socket.send(message)

            server.on_message(receive)

        page.route_web_socket(re.compile("/channels"), hold)
        open_notebook(page, address, "notebooks/explore.ipynb")
        expect(page.locator(".x-chart-place .vega-embed svg.marks")).to_be_visible()
        assert held

"""The explorer in a real JupyterLab in a real browser, with everything outside this machine out of reach.

The notebook is opened once; each test begins with the view of a token, as a colleague would paste it.
"""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from explorer.views.explorer.question import ALL, Question, from_token, to_token
from explorer.views.explorer.sharing import LABEL
from tests.browser.conftest import fenced_page, is_of_others
from tests.browser.lab import VIEWPORT, Fence, cut, drag, faults, open_notebook, overflow, scroll_to, theme

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def notebook(shared_page: Page, address: str) -> Locator:
    open_notebook(shared_page, address, "notebooks/explore.ipynb")
    shared_page.wait_for_selector(".vega-embed svg.marks")
    return shared_page.locator(".explorer").first


@pytest.fixture
def explorer(notebook: Locator, shared_page: Page) -> Locator:
    paste(notebook, Question(sweep="digits"))
    expect(notebook.locator(".x-answer").first).to_contain_text("fast reaches the baseline's accuracy 1.93x faster")
    scroll_to(shared_page, ".explorer")
    return notebook


def unfold(explorer: Locator, group: str) -> None:
    """Open a group of fields, if it is not open already."""
    button = explorer.locator(".x-links button").filter(has_text=group)
    if "mod-active" not in str(button.get_attribute("class")):
        button.click()


def paste(explorer: Locator, question: Question) -> None:
    """Open a view by its token."""
    unfold(explorer, "Share")
    field = explorer.get_by_label(LABEL)
    field.fill(to_token(question))
    field.press("Enter")


def open_runs(explorer: Locator) -> None:
    """Open the section of runs."""
    explorer.locator(".x-sections button").filter(has_text=re.compile("^Runs$")).first.click()
    expect(explorer.locator(".x-grid")).to_be_visible()


def test_choose_brush_and_export(explorer: Locator, shared_page: Page, workplace: Path, screenshots: Path) -> None:
    page = shared_page
    rows = explorer.locator(".x-main .x-table").first.locator("tbody tr")
    expect(rows).to_have_count(3)
    page.screenshot(path=screenshots / "explore.png")

    explorer.locator(".x-rail").get_by_label("Metric").first.select_option("nll")
    expect(explorer.locator(".x-answer").first).to_contain_text("nll")
    expect(explorer.locator(".role-axis-title").filter(has_text="nll (nats)")).to_be_visible()
    explorer.locator(".x-rail").get_by_label("Metric").first.select_option("accuracy")
    expect(explorer.locator(".x-answer").first).to_contain_text("accuracy")

    explorer.get_by_label("Show heavy").uncheck()
    expect(explorer.locator(".x-compare")).to_contain_text("1 recipe hidden from the chart")
    expect(explorer.locator(".x-links button").filter(has_text="Filters (1)")).to_be_visible()
    expect(explorer.locator(".x-main .vega-embed")).not_to_contain_text("heavy")
    explorer.get_by_role("button", name="Show all").click()
    expect(explorer.get_by_label("Show heavy")).to_be_checked()
    expect(rows).to_have_count(3)

    unfold(explorer, "Drawing")
    zero = explorer.locator(".x-main .role-axis-label text").filter(has_text=re.compile("^0$"))
    expect(zero).to_have_count(0)
    explorer.get_by_label("X scale").select_option("linear")
    expect(zero).to_have_count(1)
    explorer.get_by_label("X scale").select_option("log")
    expect(zero).to_have_count(0)

    chart = explorer.locator(".x-main .vega-embed svg.marks")
    page.wait_for_timeout(1000)  # the chart is drawn; its brush is connected a moment later
    drag(page, chart, start=(0.35, 0.2), end=(0.75, 0.7))
    open_runs(explorer)
    heading = explorer.locator(".x-rule .x-note").filter(has_text="selected with the brush")
    expect(heading).to_be_visible()
    count = int(heading.inner_text().split()[0])
    assert 0 < count < 45
    expect(explorer.locator(".x-card")).to_have_count(count if count <= 6 else 0)
    expect(explorer.locator(".x-grid tbody tr")).to_have_count(count)
    scroll_to(page, ".x-sharing")
    page.screenshot(path=screenshots / "explore-brushed.png")

    unfold(explorer, "Share")
    explorer.get_by_role("button", name="CSV").click()
    expect(explorer.locator(".x-sharing")).to_contain_text("Wrote exports/")
    exported = next((workplace / "notebooks" / "exports").glob("*.csv"))
    assert len(exported.read_text().splitlines()) == count + 1


def test_a_click_on_a_run_gives_its_card_with_its_executed_notebook(explorer: Locator, shared_page: Page) -> None:
    mark = explorer.locator(
        ".runs_marks path[aria-label*='Recipe: baseline'][aria-label*='Budget: 1 of'][aria-label*='Seed: 0']"
    )
    shared_page.wait_for_timeout(1500)  # the chart is drawn; its selections are connected a moment later
    mark.first.click(force=True)
    expect(explorer.locator(".x-picked")).to_contain_text("1 run picked: baseline")
    explorer.get_by_role("button", name="Card", exact=True).click()
    open_runs(explorer)
    card = explorer.locator(".x-card")
    expect(card).to_have_count(1)
    expect(card).to_contain_text("seed 0")
    with shared_page.context.expect_page() as opened:
        card.get_by_role("link").first.click()
    opened.value.wait_for_selector(".jp-Notebook .jp-Cell")
    assert "/runs/digits/resnet8-digits-baseline-ssr1-s0" in opened.value.url
    opened.value.close()


def test_all_runs_are_a_table_and_two_of_them_are_compared(
    explorer: Locator, shared_page: Page, screenshots: Path
) -> None:
    open_runs(explorer)
    grid = explorer.locator(".x-grid")
    expect(grid.get_by_role("status")).to_contain_text("46 runs")
    grid.get_by_label("Search Runs of the sweep").fill("diverged")
    expect(grid.locator("tbody tr")).to_have_count(1)
    expect(grid.locator("tbody")).to_contain_text("the loss is nan at step 36")
    grid.locator("tbody tr").click()
    card = explorer.locator(".x-card")
    expect(card).to_contain_text("training diverged: the loss is nan at step 36")
    grid.get_by_label("Search Runs of the sweep").fill("")
    grid.get_by_role("button", name="Training time").click()
    expect(grid.get_by_role("columnheader", name="Training time")).to_have_attribute("aria-sort", "ascending")
    grid.locator("tbody tr[data-id*=fast] input").first.check()
    expect(card).to_have_count(2)
    expect(explorer.get_by_text("What differs")).to_be_visible()
    scroll_to(shared_page, ".x-sections")
    shared_page.screenshot(path=screenshots / "explore-runs.png")
    scroll_to(shared_page, ".x-cards")
    shared_page.screenshot(path=screenshots / "explore-compared.png")
    assert faults(shared_page, ".explorer .x-rule") == []


def test_the_view_is_a_token_and_a_token_is_the_view(explorer: Locator) -> None:
    unfold(explorer, "Share")
    field = explorer.get_by_label(LABEL)
    before = field.input_value()
    explorer.locator(".x-rail").get_by_label("Metric").select_option("nll")
    expect(field).not_to_have_value(before)
    token = field.input_value()
    assert from_token(token).metric == "nll"
    paste(explorer, Question(sweep="digits", payment="steps", section="versus", versus=("heavy", "fast")))
    expect(explorer.locator(".role-axis-title").filter(has_text="Optimiser steps")).to_be_visible()
    expect(explorer.get_by_label("Second recipe", exact=True)).to_have_value("fast")
    field = explorer.get_by_label(LABEL)
    field.fill("digits?metrc=nll")
    field.press("Enter")
    expect(explorer.get_by_role("alert").first).to_contain_text("did you mean 'metric'?")


def test_prices_and_targets_of_ones_own(explorer: Locator, shared_page: Page, screenshots: Path) -> None:
    unfold(explorer, "Prices")
    field = explorer.get_by_label("Your price ($ per hour)")
    field.fill("1.5")
    field.press("Enter")
    explorer.get_by_label("X axis", exact=True).select_option("Training cost (US dollars)")
    expect(explorer.locator(".x-answer").first).to_contain_text("x cheaper")
    expect(explorer.locator(".role-axis-title").filter(has_text="Training cost (US dollars)")).to_be_visible()
    field = explorer.get_by_label("Target", exact=True)
    field.fill("97")
    field.press("Enter")
    expect(explorer.locator(".x-compare")).to_contain_text("Gain at 97.00%")
    expect(field).to_have_value("97%")
    field.fill("99.9")
    field.press("Enter")
    expect(explorer.get_by_role("alert").first).to_contain_text("No run here reaches accuracy 99.90%")
    expect(explorer.locator(".x-compare")).to_contain_text("Gain at 97.00%")  # the view is kept
    shared_page.screenshot(path=screenshots / "explore-cost.png")


def test_what_stands_below_the_chart(explorer: Locator, shared_page: Page, screenshots: Path) -> None:
    place = explorer.locator(".x-rule").last
    for section, words in (
        ("ask", "fast reaches accuracy"),
        ("confirm", "Confirm fast on 3 fresh seeds"),
        ("controls", "but is worse than baseline trained for as long"),
        ("versus", "chosen after seeing the data"),
    ):
        paste(explorer, Question(sweep="digits", section=section))
        expect(explorer).to_contain_text(words)
        scroll_to(shared_page, ".x-sections")
        shared_page.screenshot(path=screenshots / f"explore-{section}.png")
    paste(explorer, Question(sweep="together", section="composition"))
    panel = explorer.locator(".x-composition")
    expect(panel).to_contain_text("both shorten forward and backward")
    expect(panel.locator(".cells_marks path")).to_have_count(12)
    panel.get_by_label("Recipe of the waterfall").select_option("resize-layout")
    expect(panel).to_contain_text("From baseline to resize-layout")
    expect(panel.locator(".changes_marks path")).to_have_count(4)  # two methods, same parts, not predicted
    panel.get_by_label("Budget").select_option("0.5 of full")
    expect(panel.locator(".role-axis-title").filter(has_text="Training time")).to_be_visible()
    scroll_to(shared_page, ".x-composition")
    shared_page.screenshot(path=screenshots / "explore-composition.png")
    assert place is not None


def test_small_multiples_a_third_axis_and_many_sweeps(explorer: Locator, shared_page: Page, screenshots: Path) -> None:
    paste(explorer, Question(sweep="digits", split="seed", size="inference"))
    expect(explorer.locator(".x-main svg.marks .role-title-text").filter(has_text="seed")).to_have_count(3)
    expect(explorer.locator(".x-main svg.marks").filter(has_text="Inference per example")).to_be_visible()
    shared_page.screenshot(path=screenshots / "explore-multiples.png")
    paste(explorer, Question(dataset="digits", sweep=ALL, hardware=ALL))
    expect(explorer.locator(".x-head")).to_contain_text("compared with the baseline of sweep")
    expect(explorer.locator(".x-main .x-table")).to_contain_text("baseline of sweep")
    shared_page.screenshot(path=screenshots / "explore-across-sweeps.png")


def test_hostile_names_are_names(explorer: Locator, shared_page: Page, screenshots: Path) -> None:
    """Names that are HTML, a script, a formula, written from right to left, or very long; no dialog may appear."""
    for section in ("", "versus", "ask", "composition"):
        paste(explorer, Question(sweep="hostile", section=section, chosen=()))
        expect(explorer.locator(".x-main .x-table").first).to_contain_text("<img src=x onerror=alert(1)>")
        shared_page.wait_for_timeout(500)
    assert explorer.locator("img").count() == 0
    assert overflow(shared_page, ".explorer .x-body") <= 0
    shared_page.screenshot(path=screenshots / "explore-hostile.png")


def test_dark_narrow_and_without_faults(explorer: Locator, shared_page: Page, screenshots: Path) -> None:
    page = shared_page
    paste(explorer, Question(sweep="digits", section="runs", brush=(1.0, 4.0, 0.9, 1.0)))
    expect(explorer.locator(".x-rule .x-note").filter(has_text="selected with the brush")).to_be_visible()
    expect(explorer.locator(".x-grid tbody tr")).not_to_have_count(46)
    ticks = explorer.locator(".x-grid tbody input")
    for place in (0, 1):
        ticks.nth(place).check()
        expect(explorer.locator(".x-card")).to_have_count(place + 1)
    # A chart that gets another width reports its brush again, which is no new brush.
    page.set_viewport_size({"width": VIEWPORT["width"] - 100, "height": VIEWPORT["height"]})
    page.wait_for_timeout(1500)
    expect(explorer.locator(".x-card")).to_have_count(2)
    assert faults(page, ".explorer") == []
    theme(page, "Dark")
    scroll_to(page, ".explorer")
    page.screenshot(path=screenshots / "explore-dark.png")
    red = explorer.locator(".vega-embed .role-axis-label text").first.evaluate(
        "e => Number(getComputedStyle(e).fill.match(/\\d+/)[0])"
    )
    assert red > 150  # light text on a dark ground
    assert faults(page, ".explorer") == []
    page.set_viewport_size({"width": 900, "height": 1100})
    page.wait_for_timeout(1000)
    assert overflow(page, ".explorer .x-body") <= 0
    page.screenshot(path=screenshots / "explore-dark-narrow.png")
    page.set_viewport_size(VIEWPORT)
    theme(page, "Light")


def test_no_text_is_cut_off(explorer: Locator, shared_page: Page) -> None:
    page = shared_page
    for width in (900, 1260, 1600):
        page.set_viewport_size({"width": width, "height": 1000})
        for group in ("Filters", "Prices", "Drawing", "Share"):
            unfold(explorer, group)
            page.wait_for_timeout(500)  # the panel is laid out for the new width
            assert cut(page) == [], f"{group} at {width} px"
    page.set_viewport_size({"width": 900, "height": 1000})
    sections, wrong = explorer.locator(".x-sections button"), list[str]()
    for place in range(sections.count()):
        sections.nth(place).click()
        page.wait_for_timeout(1000)
        wrong += cut(page)
    assert wrong == []
    # The control: a field that is too narrow for its choice is found.
    explorer.get_by_label("Metric", exact=True).first.evaluate("field => field.style.width = '40px'")
    assert "accuracy" in " ".join(cut(page))
    explorer.get_by_label("Metric", exact=True).first.evaluate("field => field.style.width = ''")
    page.set_viewport_size(VIEWPORT)


def test_everything_can_be_reached_by_keyboard(explorer: Locator, shared_page: Page) -> None:
    explorer.get_by_role("button", name="Refresh").focus()
    reached = []
    for _ in range(60):
        shared_page.keyboard.press("Tab")
        reached.append(shared_page.evaluate("document.activeElement.title || document.activeElement.textContent"))
        if shared_page.evaluate("document.activeElement.textContent") == "Composition":
            break
    words = " ".join(str(each) for each in reached)
    for name in ("Filters", "Prices", "Drawing", "Share", "Recipe", "heavy", "How this is computed", "Composition"):
        assert name in words
    shared_page.keyboard.press("Enter")
    expect(explorer.locator(".x-composition")).to_be_visible()


def test_the_fence_holds(browser: Browser) -> None:
    context = browser.new_context(viewport=VIEWPORT)
    fence = Fence(context)
    page = context.new_page()
    page.set_content('<img src="https://example.org/x.png"><script src="https://cdn.example.org/vega.js"></script>')
    assert sorted(fence.blocked) == ["https://cdn.example.org/vega.js", "https://example.org/x.png"]
    context.close()


def test_a_failing_script_of_ours_fails_its_test(browser: Browser) -> None:
    with pytest.raises(AssertionError, match="ours"), fenced_page(browser) as page:
        page.set_content("<script>setTimeout(() => { throw new Error('ours') })</script>")
        page.wait_for_timeout(200)
    core, other = "at a (http://127.0.0.1:1/static/lab/jlab_core.1.js:1:2)", "at b (blob:http://127.0.0.1:1/x:1:2)"
    assert is_of_others(f"TypeError: Failed to fetch\n    {core}")
    assert is_of_others(f"Error: [anywidget] Failed to initialize model.\n    {other}")
    assert not is_of_others(f"TypeError: selected\n    {other}\n    {core}")
    assert not is_of_others("TypeError: without a stack")

"""The grid's script in a browser, joined to a real grid in this process: mouse, keyboard, axe, hostile names."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from explorer.page.html import CSS
from explorer.views.grid import PAGE, Grid, GridColumn, GridRow, Listed
from tests.browser.lab import becomes, faults

pytestmark = pytest.mark.browser

SYNCED = (
    "title",
    "noun",
    "columns",
    "hidden",
    "lines",
    "total",
    "count",
    "page",
    "view",
    "checks",
    "tools",
    "selected",
)
# The browser's half of a widget model: a change goes to Python, and what Python changed by it comes back.
MODEL = """
state => {
  const listeners = {}, pending = {};
  const apply = (now) => {
    const changed = Object.keys(now).filter((key) => JSON.stringify(now[key]) !== JSON.stringify(state[key]));
    for (const key of changed) state[key] = now[key];
    for (const key of changed) for (const act of listeners[`change:${key}`] ?? []) act();
  };
  window.model = {
    get: (key) => state[key],
    set: (key, value) => { state[key] = value; pending[key] = value;
                           for (const act of listeners[`change:${key}`] ?? []) act(); },
    save_changes: async () => { const sent = JSON.stringify(pending);
      for (const key in pending) delete pending[key];
      apply(JSON.parse(await window.changed(sent))); },
    send: async (content) => apply(JSON.parse(await window.sent(JSON.stringify(content)))),
    on: (event, act) => { (listeners[event] ??= []).push(act); },
  };
}
"""
COLUMNS = (
    GridColumn(key="recipe", title="Recipe", groups=True),
    GridColumn(key="seed", title="Seed", number=True),
    GridColumn(key="seconds", title="Training time", number=True, hint="profiled"),
    GridColumn(key="notes", title="Notes", shown=False),
)
HOSTILE = '<img src=x onerror="alert(1)"></td><script>alert(2)</script>\u202egnp.exe'


def rows(count: int) -> list[GridRow]:
    names = ("baseline", "fast", "heavy", HOSTILE)
    return [
        GridRow(
            id=f"r{number}",
            label=f"{names[number % 4]}, seed {number}",
            cells=(names[number % 4], str(number), f"{(number * 7) % 100} s", "a note"),
            values=(names[number % 4], number, (number * 7) % 100, None),
            strong=number % 4 == 0,
        )
        for number in range(count)
    ]


@pytest.fixture
def grid() -> Grid:
    grid = Grid(title="Runs", noun="run")
    grid.show(Listed(COLUMNS, rows(10_000)))
    return grid


@pytest.fixture
def picked() -> list[str]:
    return []


@pytest.fixture
def shown(page: Page, grid: Grid, picked: list[str]) -> Iterator[Page]:
    """A page with the grid in it, in the style of the explorer."""
    grid._on_pick = picked.append

    known = {name: getattr(grid, name) for name in SYNCED}  # what the page has

    def changed(changes: str) -> str:
        for name, value in json.loads(changes).items():
            known[name] = value
            setattr(grid, name, value)
        return news()

    def sent(content: str) -> str:
        grid._handle_custom_msg(json.loads(content), [])
        return news()

    def news() -> str:
        """Return what the page does not have. All of it would undo a click that is on its way to Python."""
        new = {name: getattr(grid, name) for name in SYNCED if getattr(grid, name) != known[name]}
        known.update(new)
        return json.dumps(new)

    page.expose_function("changed", changed)
    page.expose_function("sent", sent)
    page.set_content(
        f"<!doctype html><html lang=en><title>Grid</title><meta charset=utf-8><style>{CSS}</style>"
        "<main class=explorer style='max-width: 900px'><div id=place></div></main></html>"
    )
    page.evaluate(MODEL, known)
    script: Any = Grid._esm
    page.evaluate(
        """async script => {
            const module = await import(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
            module.default.render({ model: window.model, el: document.getElementById("place") });
        }""",
        str(script),
    )
    yield page


def test_sort_search_group_and_turn_the_page(shown: Page, screenshots: Path) -> None:
    lines = shown.locator("tbody tr[data-id]")
    expect(lines).to_have_count(PAGE)
    shown.get_by_role("button", name="Training time").click()
    expect(lines.first).to_contain_text("0 s")
    expect(shown.get_by_role("columnheader", name="Training time")).to_have_attribute("aria-sort", "ascending")
    shown.get_by_role("button", name="Training time").click()
    expect(lines.first).to_contain_text("99 s")
    shown.get_by_role("button", name="Next").click()
    expect(shown.get_by_role("status")).to_contain_text("Runs 51 to 100 of 10,000")
    shown.get_by_label("Search Runs").fill("heavy")
    expect(shown.get_by_role("status")).to_contain_text("Runs 1 to 50 of 2,500")
    shown.get_by_label("Search Runs").fill("")
    shown.get_by_label("Group by").select_option("recipe")
    first = shown.locator(".x-grid-group").first
    expect(first).to_contain_text("2,500 runs")
    shown.screenshot(path=screenshots / "grid-groups.png")
    first.get_by_role("button").click()
    expect(shown.get_by_role("status")).to_contain_text("of 7,504")
    shown.get_by_label("Search Runs").fill("no such run")
    expect(shown.locator("tbody")).to_contain_text("No run matches the search.")


def test_columns_are_chosen(shown: Page) -> None:
    expect(shown.get_by_role("columnheader", name="Notes")).to_have_count(0)
    shown.locator("summary").click()
    shown.get_by_label("Notes").check()
    expect(shown.get_by_role("columnheader", name="Notes")).to_be_visible()
    shown.get_by_label("Seed", exact=True).uncheck()
    expect(shown.get_by_role("columnheader", name="Seed")).to_have_count(0)


def test_the_mouse_checks_hovers_and_picks(shown: Page, grid: Grid, picked: list[str]) -> None:
    third = shown.locator("tr[data-id=r2]")
    third.locator("input").check()
    third.hover()
    expect(shown.get_by_role("status")).to_contain_text("1 selected")
    becomes(shown, lambda: (grid.selected, grid.hovered, picked), (["r2"], "r2", []))
    shown.locator("tr[data-id=r3] td").last.click()
    becomes(shown, lambda: (grid.selected, picked), (["r2"], ["r3"]))
    shown.get_by_role("button", name="Clear").click()
    expect(third.locator("input")).not_to_be_checked()
    shown.mouse.move(5, 800)
    becomes(shown, lambda: (grid.selected, grid.hovered), ([], ""))


def test_the_keyboard_reaches_everything(shown: Page, grid: Grid, picked: list[str]) -> None:
    shown.get_by_role("button", name="Training time").focus()
    shown.keyboard.press("Tab")
    for key in ("ArrowDown", "ArrowDown", "Space", "ArrowUp", "Enter", "End"):
        shown.keyboard.press(key)
    becomes(shown, lambda: (grid.selected, picked, grid.hovered), (["r2"], ["r1"], f"r{PAGE - 1}"))
    shown.keyboard.press("PageDown")
    expect(shown.locator(f"tr[data-id=r{PAGE}]")).to_be_focused()
    shown.keyboard.press("ArrowDown")  # the keyboard is still in the table
    becomes(shown, lambda: grid.hovered, f"r{PAGE + 1}")
    shown.keyboard.press("Tab")
    focused = shown.evaluate("document.activeElement.textContent")
    assert focused == "Clear", "the table is one tab stop"


def test_light_dark_and_without_faults(shown: Page, screenshots: Path) -> None:
    shown.locator("tr[data-id=r1] input").check()
    shown.get_by_label("Group by").select_option("recipe")
    expect(shown.locator(".x-grid-group").first).to_be_visible()
    assert faults(shown, ".explorer") == []
    assert shown.locator("img, td script").count() == 0, "hostile names are words"
    shown.get_by_label("Group by").select_option("")
    expect(shown.locator(".x-grid-group")).to_have_count(0)
    shown.locator("summary").click()
    assert faults(shown, ".explorer") == []
    shown.screenshot(path=screenshots / "grid.png")
    dark = "--jp-layout-color1:#111; --jp-layout-color2:#222; --jp-ui-font-color1:#eee; --jp-ui-font-color2:#bbb"
    shown.evaluate(f"document.documentElement.style.cssText = '{dark}; background: #111'")
    assert faults(shown, ".explorer") == []
    shown.screenshot(path=screenshots / "grid-dark.png")

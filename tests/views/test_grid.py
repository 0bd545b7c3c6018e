"""The grid's kernel side: pages, sorting, searching, grouping, choices. Its script is tested in a browser."""

from collections.abc import Sequence

import pytest

from explorer.page.html import element
from explorer.views.grid import PAGE, Grid, GridColumn, GridRow, GridView, Listed

COLUMNS = (
    GridColumn(key="recipe", title="Recipe", groups=True),
    GridColumn(key="seconds", title="Time", number=True),
    GridColumn(key="notes", title="Notes", sortable=False, shown=False),
)


def row(number: int, recipe: str, seconds: float | None) -> GridRow:
    cells = (recipe, f"{seconds} s", element("b", "bold & safe"))
    return GridRow(id=f"r{number}", label=f"{recipe} {number}", cells=cells, values=(recipe, seconds, None))


ROWS = [row(n, ("fast", "baseline", "heavy")[n % 3], None if n == 4 else float(n % 7)) for n in range(12)]


@pytest.fixture
def grid() -> Grid:
    grid = Grid(title="Runs", noun="run")
    grid.show(Listed(COLUMNS, ROWS))
    return grid


def ids(grid: Grid) -> list[str]:
    return [line.get("id", f"[{line.get('group')}]") for line in grid.lines]


def look(grid: Grid, **view: object) -> list[str]:
    grid.view = {**grid.view, "first": 0, **view}
    return ids(grid)


def test_rows_come_in_the_order_of_the_source_and_by_any_sortable_column(grid: Grid) -> None:
    assert ids(grid) == [f"r{n}" for n in range(12)]
    assert look(grid, sort="seconds")[:2] == ["r0", "r7"]
    assert look(grid, sort="seconds", descending=True)[0] == "r6"
    assert ids(grid)[-1] == "r4", "a row without a value is last in either direction"
    assert look(grid, sort="seconds")[-1] == "r4"
    assert look(grid, sort="notes") == [f"r{n}" for n in range(12)], "a column that cannot be sorted by"


def test_a_search_takes_every_word_and_no_case(grid: Grid) -> None:
    assert look(grid, search="BASE 4") == ["r4"]
    assert look(grid, search="bold & safe") == [f"r{n}" for n in range(12)], "the words of HTML, not its tags"
    assert look(grid, search="<b>") == []
    assert (grid.count, grid.total) == (0, 0)


def test_groups_count_their_rows_and_close(grid: Grid) -> None:
    assert look(grid, group="recipe", sort="seconds")[:3] == ["[baseline]", "r7", "r1"]
    headings = {line["group"]: line["count"] for line in grid.lines if "group" in line}
    assert headings == {"baseline": 4, "fast": 4, "heavy": 4}
    assert look(grid, closed=["baseline", "heavy"]) == ["[baseline]", "[fast]", "r0", "r9", "r3", "r6", "[heavy]"]
    assert (grid.count, grid.total) == (12, 7)
    assert look(grid, group="seconds", closed=[])[0] == "r0", "a column that is not offered for grouping"


@pytest.mark.parametrize("group", ["", "recipe"])
def test_pages_hold_every_line_once(group: str) -> None:
    rows = [row(n, f"recipe {n % 4}", float(n)) for n in range(3 * PAGE + 7)]
    grid = Grid(title="Runs")
    grid.show(Listed(COLUMNS, rows))
    seen: list[str] = []
    grid.view = {**grid.view, "group": group, "first": 0}
    for first in range(0, grid.total, PAGE):
        grid.view = {**grid.view, "first": first}
        assert len(grid.lines) == min(PAGE, grid.total - first)
        seen += ids(grid)
    assert len(seen) == len(set(seen)) == grid.total
    assert {name for name in seen if not name.startswith("[")} == {row.id for row in rows}
    grid.view = {**grid.view, "first": 10**6}
    assert grid.lines and grid.view["first"] < grid.total, "a page beyond the end is the last one"


def test_ten_thousand_rows_send_one_page() -> None:
    grid = Grid(title="Runs")
    grid.show(Listed(COLUMNS, [row(n, "fast", float(n)) for n in range(10_000)]))
    assert look(grid, sort="seconds", descending=True)[0] == "r9999"
    assert len(grid.lines) == PAGE and grid.count == 10_000


def test_hostile_words_are_escaped_and_hostile_views_ignored(grid: Grid) -> None:
    name = "<img src=x onerror=alert(1)>\u202e"
    grid.show(Listed(COLUMNS, [row(0, name, 1.0)]))
    assert not any("<img" in cell for line in grid.lines for cell in line["cells"])
    assert grid.lines[0]["cells"][0].startswith("&lt;img") and "\u202e" not in str(grid.lines[0])
    for view in (
        {},
        {"sort": 3, "first": "x", "closed": "abc"},
        {"sort": "no such", "first": -5, "search": 10**6 * "x"},
    ):
        grid.view = view
    assert grid.count == 0, "the last search matches nothing"
    assert "&lt;img" in grid.static() or grid.static().count("<td>") == 0


def test_choices_reach_python_and_python_does_not_answer_itself() -> None:
    told: list[object] = []
    grid = Grid(title="Runs", on_pick=told.append, on_select=told.append, on_hover=told.append)
    grid.show(Listed(COLUMNS, ROWS), selected=["r1"])
    assert told == []
    grid.selected = ["r1", "r2"]
    grid.hovered = "r3"
    grid._handle_custom_msg({"picked": "r5"}, [])
    grid._handle_custom_msg({"picked": 5}, [])
    assert told == [("r1", "r2"), "r3", "r5"]


def test_a_hidden_column_stays_hidden_when_other_rows_are_shown(grid: Grid) -> None:
    assert grid.hidden == ["notes"]
    grid.hidden = ["seconds"]
    grid.show(Listed(COLUMNS, ROWS[:3]))
    assert grid.hidden == ["seconds"] and ids(grid) == ["r0", "r1", "r2"]


def test_a_saved_notebook_keeps_a_table(grid: Grid) -> None:
    bundle, *_ = grid._repr_mimebundle_()
    html = bundle["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert html.count("<tr>") == 13 and "<script" not in html and "Notes" not in html


def test_a_grid_asks_its_source_for_no_more_than_a_page() -> None:
    asked: list[int] = []

    class Counted(Listed):
        def rows(self, view: GridView, *, group: str, first: int, count: int) -> list[GridRow]:
            asked.append(count)
            return super().rows(view, group=group, first=first, count=count)

    rows: Sequence[GridRow] = [row(n, "fast", float(n)) for n in range(1000)]
    Grid(title="Runs").show(Counted(COLUMNS, rows))
    assert asked == [PAGE]

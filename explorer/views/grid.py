"""Grid: a table that sorts, searches, groups and pages, with check boxes, hover and click.

The kernel holds the rows and the browser holds one page of them: a change of `view` asks a `Source` for the next page,
so that a table of 100,000 rows is as quick as one of ten. `Listed` is the source of a table that is in memory; a store
sorts and pages in its database.

A cell is words, which are escaped here, or `Markup` from `explorer.page.html`. The script, `grid.js`, inserts cells as
HTML and nothing else: titles, labels and names of groups are text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol, cast

import traitlets

from explorer.page.document import Text, clipped, words
from explorer.page.html import Markup, element, inline
from explorer.views.scripted import Scripted, script

PAGE = 50  # rows that the browser holds
MOST_STATIC = 100  # rows in the table of a saved notebook
LONGEST_SEARCH = 200  # characters

Value = float | str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GridColumn:
    """Column of a grid: `key` names it in a view, `hint` shows when the mouse is over its title.

    One that is not `shown` waits in the list of columns; one that `groups` is offered for grouping.
    """

    key: str
    title: str
    number: bool = False
    sortable: bool = True
    groups: bool = False
    shown: bool = True
    hint: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class GridRow:
    """Row of a grid: `id` is what a choice returns, `label` names the row for screen readers.

    `values` are what `Listed` sorts and groups by, one for each column; without them it takes the words of the cells.
    """

    id: str
    label: str
    cells: Sequence[Text | Markup]
    values: Sequence[Value] = ()
    strong: bool = False
    quiet: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class GridView:
    """State of a grid, chosen by its user. `closed` groups show no rows; `first` is the first line of the page."""

    search: str = ""
    sort: str = ""  # the key of a column; empty: the order of the source
    descending: bool = False
    group: str = ""  # the key of a column
    closed: tuple[str, ...] = ()
    first: int = 0


class Source(Protocol):
    """Rows of a grid. `groups` and `rows` answer with those that `view.search` leaves."""

    @property
    def columns(self) -> Sequence[GridColumn]: ...

    def groups(self, view: GridView) -> Sequence[tuple[str, int]]:
        """Return each group with its number of rows, in order; without `view.group` one group, called ""."""
        ...

    def rows(self, view: GridView, *, group: str, first: int, count: int) -> Sequence[GridRow]:
        """Return `count` rows of a group from the place `first` on, in the order of the view."""
        ...


class Listed:
    """Source of a table in memory."""

    def __init__(self, columns: Sequence[GridColumn], rows: Sequence[GridRow]) -> None:
        assert all(len(row.cells) == len(columns) for row in rows), "a cell for every column"
        self.columns = tuple(columns)
        self._rows = rows
        self._places = {column.key: place for place, column in enumerate(columns)}

    def groups(self, view: GridView) -> list[tuple[str, int]]:
        counts: dict[str, int] = {}
        for row in self._left(view):
            name = self._group(row, view)
            counts[name] = counts.get(name, 0) + 1
        return sorted(counts.items()) if view.group else [("", sum(counts.values()))]

    def rows(self, view: GridView, *, group: str, first: int, count: int) -> list[GridRow]:
        rows = [row for row in self._left(view) if self._group(row, view) == group]
        if view.sort:
            place = self._places[view.sort]
            known = [row for row in rows if _value(row, place) is not None]
            known.sort(key=lambda row: _order(_value(row, place)), reverse=view.descending)
            # Rows without a value come last in either direction.
            rows = known + [row for row in rows if _value(row, place) is None]
        return rows[first : first + count]

    def _left(self, view: GridView) -> Iterator[GridRow]:
        wanted = view.search.casefold().split()
        for row in self._rows:
            text = " ".join([row.label, *map(_plain, row.cells)]).casefold() if wanted else ""
            if all(word in text for word in wanted):
                yield row

    def _group(self, row: GridRow, view: GridView) -> str:
        return str(_value(row, self._places[view.group])) if view.group else ""


def _value(row: GridRow, place: int) -> Value:
    value = row.values[place] if row.values else _plain(row.cells[place])
    return None if value != value else value  # NaN is no value


def _order(value: Value) -> tuple[bool, float, str]:
    """Return a key that puts numbers before words, and words in the order of a dictionary."""
    return (True, 0.0, value.casefold()) if isinstance(value, str) else (False, value or 0.0, "")


def _plain(cell: Text | Markup) -> str:
    return str(cell.striptags()) if isinstance(cell, Markup) else words(cell)


class Grid(Scripted):
    """Table widget over a source.

    `selected` are the ids with a check mark, `hovered` the id under the mouse or the keyboard, else "". A click on a
    row, or Enter, calls `on_pick` with its id. `tools` shows search, grouping and the choice of columns.
    """

    _esm = script("grid")

    title = traitlets.Unicode().tag(sync=True)  # names the table for screen readers
    noun = traitlets.Unicode("row").tag(sync=True)
    columns = traitlets.List(traitlets.Dict()).tag(sync=True)
    hidden = traitlets.List(traitlets.Unicode()).tag(sync=True)  # keys of columns
    lines = traitlets.List(traitlets.Dict()).tag(sync=True)  # of the page: rows, and headings of groups
    total = traitlets.Int().tag(sync=True)  # lines of all pages
    count = traitlets.Int().tag(sync=True)  # rows of all pages
    page = traitlets.Int(PAGE).tag(sync=True)
    view = traitlets.Dict().tag(sync=True)
    checks = traitlets.Bool(True).tag(sync=True)
    tools = traitlets.Bool(True).tag(sync=True)
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)
    hovered = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        *,
        title: str,
        noun: str = "row",
        checks: bool = True,
        tools: bool = True,
        on_pick: Callable[[str], None] = lambda _: None,
        on_select: Callable[[tuple[str, ...]], None] = lambda _: None,
        on_hover: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(title=title, noun=noun, checks=checks, tools=tools, view=asdict(GridView()))
        self._source: Source | None = None
        self._quiet = False
        self._on_pick, self._on_select, self._on_hover = on_pick, on_select, on_hover
        self.observe(self._viewed, "view")
        self.observe(self._selected, "selected")
        self.observe(lambda change: self._on_hover(change["new"]), "hovered")
        self.on_msg(self._message)

    def show(self, source: Source, *, selected: Sequence[str] | None = None) -> None:
        """Show a source, with the view that the user chose before as far as the source has its columns."""
        columns = [asdict(column) for column in source.columns]
        if self._source is None or self.columns != columns:
            self.hidden = [column.key for column in source.columns if not column.shown]
        self._source = source
        with self.hold_sync():
            self.columns = columns
            if selected is not None:
                self.check(selected)
            self._fill()

    def check(self, selected: Sequence[str]) -> None:
        """Set the check marks without calling `on_select`."""
        self._quiet = True
        try:
            self.selected = list(selected)
        finally:
            self._quiet = False

    def static(self) -> Markup:
        """Return the first rows as a table that needs no kernel and no script."""
        if self._source is None:
            return Markup("")
        shown = [(place, column) for place, column in enumerate(self._source.columns) if column.key not in self.hidden]
        heads = [element("th", column.title, scope="col") for _, column in shown]
        view = replace(self._asked(), group="", closed=(), first=0)
        rows = self._source.rows(view, group="", first=0, count=MOST_STATIC)
        body = [element("tr", *(element("td", _html(row.cells[place])) for place, _ in shown)) for row in rows]
        table = element("table", element("thead", element("tr", *heads)), element("tbody", *body), class_="x-table")
        rest = self.count - len(rows)
        more = [element("p", f"and {rest:,} more", class_="x-note")] if rest > 0 else []
        return element("div", table, *more, class_="x-scroll")

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return the widget, and for places without a kernel its table."""
        bundle, *metadata = super()._repr_mimebundle_(**options) or ({},)
        return ({**bundle, "text/html": str(self.static())}, *metadata)

    def _asked(self) -> GridView:
        """Return the view that the browser asks for; what the source does not have falls away."""
        assert self._source is not None
        given = _of_types(self.view)
        sortable = {column.key for column in self._source.columns if column.sortable}
        groups = {column.key for column in self._source.columns if column.groups}
        return replace(
            given,
            search=given.search[:LONGEST_SEARCH],
            sort=given.sort if given.sort in sortable else "",
            group=given.group if given.group in groups else "",
            first=max(0, given.first),
        )

    def _fill(self) -> None:
        """Send the page that the view asks for."""
        if self._source is None:
            return
        view = self._asked()
        groups = self._source.groups(view)
        spans = [(name, count, 0 if name in view.closed else count) for name, count in groups]
        heading = int(bool(view.group))
        total = sum(heading + open_ for _, _, open_ in spans)
        first = min(view.first, max(0, total - 1) // self.page * self.page)
        lines: list[dict[str, Any]] = []
        at = 0  # the place of the group's heading among all lines
        for name, count, open_ in spans:
            begin, end = (
                max(first, at + heading) - at - heading,
                min(first + self.page, at + heading + open_) - at - heading,
            )
            if heading and first <= at < first + self.page:
                lines.append({"group": name, "words": clipped(name), "count": count, "closed": name in view.closed})
            if begin < end:
                rows = self._source.rows(view, group=name, first=begin, count=end - begin)
                lines += [_line(row) for row in rows]
            at += heading + open_
        with self.hold_sync():
            self.count, self.total, self.lines = sum(count for _, count in groups), total, lines
            if first != view.first:
                self.view = {**self.view, "first": first}

    def _viewed(self, _: Any) -> None:
        self._fill()

    def _selected(self, change: Mapping[str, Any]) -> None:
        if not self._quiet:
            self._on_select(tuple(change["new"]))

    def _message(self, _: Any, content: Any, __: Any) -> None:
        if isinstance(content, dict) and isinstance(chosen := cast(dict[str, Any], content).get("picked"), str):
            self._on_pick(chosen)


def _line(row: GridRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "label": clipped(row.label, 160),
        "cells": [_html(cell) for cell in row.cells],
        "strong": row.strong,
        "quiet": row.quiet,
    }


def _html(cell: Text | Markup) -> Markup:
    return cell if isinstance(cell, Markup) else inline(cell)


def _of_types(view: Mapping[str, Any]) -> GridView:
    """Return a view of what the browser sent; a field of another type takes its default."""
    default = GridView()
    kept: dict[str, Any] = {}
    for field in fields(GridView):
        value = view.get(field.name)
        if field.name == "closed":
            kept["closed"] = tuple(name for name in value if isinstance(name, str)) if isinstance(value, list) else ()
        elif type(value) is type(getattr(default, field.name)):
            kept[field.name] = value
    return replace(default, **kept)

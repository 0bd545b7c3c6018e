"""Tables as HTML. Every text that comes from outside is escaped here, once: cells are plain text or `Markup`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from explorer.page import theme
from explorer.page.document import clipped, one_line

MAX_HOVER = 1000  # characters of a name


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column: its heading, and whether it holds numbers, which stand flush right."""

    title: str
    number: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A row of cells; the first one names it. `bold` lifts a row, `quiet` lowers it."""

    cells: Sequence[str | Markup]
    bold: bool = False
    quiet: bool = False


def table(columns: Sequence[Column], rows: Iterable[Row], *, caption: str | Markup = "") -> Markup:
    """The table as HTML of class `x-table`."""
    head = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(_numeric(column), column.title) for column in columns
    )
    body = Markup("").join(_row(columns, row) for row in rows)
    title = Markup("<caption>{}</caption>").format(caption) if caption else Markup("")
    return Markup(
        '<div class="x-scroll" tabindex="0"><table class="x-table">{}<thead><tr>{}</tr></thead>'
        "<tbody>{}</tbody></table></div>"
    ).format(title, head, body)


def with_note(words: str | Markup, note: str | Markup) -> Markup:
    """A cell with a small second line."""
    first, second = (each if isinstance(each, Markup) else one_line(each) for each in (words, note))
    return Markup("{}<small>{}</small>").format(first, second) if note else escape(first)


def named(name: str, most: int = 60) -> Markup:
    """A name of anybody's: clipped, the whole of it on hover, and isolated, so that one that is written from right to
    left turns nothing around it."""
    short = clipped(name, most)
    hover = Markup(' title="{}"').format(clipped(name, MAX_HOVER)) if short != name else Markup("")
    return Markup("<bdi{}>{}</bdi>").format(hover, short)


def swatch(recipe: str, look: theme.Look) -> Markup:
    """A recipe's name behind its shape in its colour, as in the chart; the name alone where the chart lacks it."""
    mark = look.mark(recipe)
    if mark is None:
        return named(recipe)
    return Markup(
        '<svg width="14" height="14" viewBox="-7 -7 14 14" aria-hidden="true" style="margin-right:6px;'
        'vertical-align:-2px"><path d="{}" fill="none" stroke="{}" stroke-width="2"/></svg>{}'
    ).format(mark.outline, mark.colour, named(recipe))


def _row(columns: Sequence[Column], row: Row) -> Markup:
    first, *rest = (cell if isinstance(cell, Markup) else one_line(cell) for cell in row.cells)
    cells = [Markup('<th scope="row">{}</th>').format(first)]
    cells += [
        Markup("<td{}>{}</td>").format(_numeric(column), cell) for column, cell in zip(columns[1:], rest, strict=True)
    ]
    kind = "x-bold" if row.bold else "x-quiet" if row.quiet else ""
    return Markup("<tr{}>{}</tr>").format(Markup(' class="{}"').format(kind) if kind else "", Markup("").join(cells))


def _numeric(column: Column) -> Markup:
    return Markup(' class="x-number"') if column.number else Markup("")

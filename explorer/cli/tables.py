"""Tables as blocks of a page, from the values of their cells."""

from collections.abc import Iterable, Sequence

from explorer.page.document import Column, Row, Table


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> Table | str:
    """Return a table; `right` names the columns of numbers, and None is shown as a dash."""
    cells = [Row(["-" if cell is None else str(cell) for cell in row]) for row in rows]
    if not cells:  # a document has no table without rows: only its head is shown
        return "\n".join(("  ".join(columns), "  ".join("\u2500" * len(title) for title in columns), ""))
    return Table([Column(title, number=title in right) for title in columns], cells)

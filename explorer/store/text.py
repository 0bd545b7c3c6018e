"""A table as text: CSV, or Markdown."""

import csv
import io

from explorer.store.queries import Table


def csv_text(table: Table) -> str:
    """The table as CSV with a header. Unknown values are empty; a number reads back as the same number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([_plain(cell) for cell in row] for row in table.rows)
    return text.getvalue()


def markdown_text(table: Table) -> str:
    """The table in GitHub's Markdown, numbers shortened to six digits."""
    lines = [table.columns, ["---"] * len(table.columns), *([_short(cell) for cell in row] for row in table.rows)]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _plain(cell: object) -> object:
    return str(cell).lower() if isinstance(cell, bool) else cell


def _short(cell: object) -> str:
    if cell is None:
        return ""
    text = f"{cell:.6g}" if isinstance(cell, float) else str(_plain(cell))
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")

"""A table of results as plain text: CSV, and Markdown.

Names in it come from outside and must do no harm where the file is opened. A spreadsheet evaluates a cell that begins
like a formula, and a formula can fetch addresses and start programs (OWASP, "CSV Injection"). So a text that begins
like one gets an apostrophe in front; numbers and all other texts are written as they are.
"""

import csv
import io
import re

from explorer.store.queries import Table

RULE = "texts that begin like a formula have an apostrophe in front"

_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")  # or its full-width form
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MARKUP = str.maketrans({char: f"\\{char}" for char in "\\`*[]|~"} | {"&": "&amp;", "<": "&lt;"})


def csv_text(table: Table) -> str:
    """Return a table as CSV with a header. Unknown values are empty; a number reads back as the same number."""
    text = _Lines()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(map(neutral, table.columns))
    writer.writerows([_plain(cell) for cell in row] for row in table.rows)
    return text.getvalue()


def markdown_text(table: Table) -> str:
    """Return a table in GitHub's Markdown, numbers to six digits. No text can become markup or a line of its own."""
    lines = [
        [_short(name) for name in table.columns],
        ["---"] * len(table.columns),
        *([_short(cell) for cell in row] for row in table.rows),
    ]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def neutral(text: str) -> str:
    """Return the text of a CSV cell in a form that no spreadsheet evaluates.

    >>> neutral("=1+1"), neutral("-"), neutral("a=1")
    ("'=1+1", "'-", 'a=1')
    """
    return f"'{text}" if _FORMULA.match(text) else text


class _Lines(io.StringIO):
    """Text whose rows end in a newline only.

    The CSV writer is given both characters as its line end, because it quotes only cells that contain a line end, and
    many readers take a bare carriage return inside a cell for the end of a row.
    """

    def write(self, row: str) -> int:
        return super().write(row.removesuffix("\r\n") + "\n")


def _plain(cell: object) -> object:
    if isinstance(cell, str):
        return neutral(cell)
    return str(cell).lower() if isinstance(cell, bool) else cell


def _short(cell: object) -> str:
    if cell is None:
        return ""
    text = f"{cell:.6g}" if isinstance(cell, float) else str(cell).lower() if isinstance(cell, bool) else str(cell)
    return _STEERING.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split())).translate(_MARKUP)

"""Recipes and their controls: rows of text for every format, and the table and sentences made of them."""

from collections.abc import Iterator, Sequence

import pandas as pd

from explorer.analysis.controls import Controlled, controlled
from explorer.analysis.sentences import by_how_much, control_sentences, interval
from explorer.page import amounts
from explorer.page.document import Block, Column, Paragraph, Row, Table

CONTROLS = (
    "Recipe",
    "Budget",
    "Control",
    "Its budget",
    "Time of control",
    "Difference",
    "95% interval",
    "n",
    "Verdict",
)
CAPTION = (
    "Recipes and their controls: the baseline trained for as long, and examples chosen at random. Intervals are"
    " adjusted for all recipes with the same control at the same budget."
)


def control_rows(pairs: Sequence[Controlled]) -> list[tuple[str, ...]]:
    """Return a row for each recipe, budget and control; the columns are `CONTROLS`."""
    return [
        (
            pair.label,
            f"{pair.ssr:g}",
            pair.name if pair.control == "random-subset" else f"{pair.name} for as long",
            amounts.MISSING if pair.control_ssr is None else f"{pair.control_ssr:g}",
            amounts.seconds(pair.control_seconds),
            by_how_much(pair.against.difference, pair.setting.kind),
            _interval(pair),
            str(pair.against.n),
            f"{pair.verdict}: the gain vanishes" if pair.gain_vanishes else pair.verdict,
        )
        for pair in pairs
    ]


def _interval(pair: Controlled) -> str:
    """Return the interval that the verdict rests on."""
    at = pair.against
    return interval(at.adjusted_low, at.adjusted_high, pair.setting.kind, reason=at.reason)


def control_table(pairs: Sequence[Controlled]) -> Table:
    """Return the table of recipes and their controls, in which a recipe that beats its control is strong."""
    columns = [Column(title, number=title in ("Budget", "Its budget", "n")) for title in CONTROLS]
    rows = [
        Row(cells, strong=pair.verdict == "better", quiet=pair.verdict == "not compared")
        for pair, cells in zip(pairs, control_rows(pairs), strict=True)
    ]
    return Table(columns, rows, CAPTION)


def control_blocks(rows: pd.DataFrame) -> Iterator[Block]:
    """Yield what the controls among some rows of `results` show: the table and sentences; nothing without controls."""
    pairs = controlled(rows)
    if not pairs:
        return
    yield control_table(pairs)
    for words in control_sentences(pairs):
        yield Paragraph(f"{words}.", "note")

"""Recipes beside their controls as tables: rows of text for every format, and blocks made of them."""

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


def control_rows(found: Sequence[Controlled]) -> list[tuple[str, ...]]:
    """A row for each recipe, budget and control; the columns are `CONTROLS`."""
    return [
        (
            each.label,
            f"{each.ssr:g}",
            each.name if each.control == "random-subset" else f"{each.name} for as long",
            amounts.MISSING if each.control_ssr is None else f"{each.control_ssr:g}",
            amounts.seconds(each.control_seconds),
            by_how_much(each.against.difference, each.setting.kind),
            _interval(each),
            str(each.against.n),
            f"{each.verdict}: the gain vanishes" if each.gain_vanishes else each.verdict,
        )
        for each in found
    ]


def _interval(found: Controlled) -> str:
    """The interval that the verdict rests on."""
    at = found.against
    return interval(at.adjusted_low, at.adjusted_high, found.setting.kind, reason=at.reason)


def control_blocks(rows: pd.DataFrame) -> Iterator[Block]:
    """Yield what the controls among some rows of `results` show: the table, in which a recipe that beats its control
    is strong, and sentences; nothing without controls."""
    pairs = controlled(rows)
    if not pairs:
        return
    columns = [Column(title, number=title in ("Budget", "Its budget", "n")) for title in CONTROLS]
    lines = [
        Row(cells, strong=pair.verdict == "better", quiet=pair.verdict == "not compared")
        for pair, cells in zip(pairs, control_rows(pairs), strict=True)
    ]
    yield Table(columns, lines, CAPTION)
    for words in control_sentences(pairs):
        yield Paragraph(f"{words}.", "note")

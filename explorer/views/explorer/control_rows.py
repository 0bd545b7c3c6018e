"""Recipes beside their controls as tables: rows of text for every format, and HTML made of them."""

from collections.abc import Sequence

import pandas as pd
from markupsafe import Markup

from explorer.analysis.controls import Controlled, controlled
from explorer.analysis.sentences import by_how_much, control_sentences, interval
from explorer.page import amounts
from explorer.page.document import one_line
from explorer.views.tables import Column, Row, table

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


def control_table(found: Sequence[Controlled]) -> Markup:
    """The table as HTML, nothing where there is no control; what takes a gain away stands out."""
    if not found:
        return Markup("")
    columns = [Column(title=title, number=title in ("Budget", "Its budget", "n")) for title in CONTROLS]
    rows = [
        Row(cells=cells, bold=each.verdict == "better", quiet=each.verdict == "not compared")
        for each, cells in zip(found, control_rows(found), strict=True)
    ]
    return table(columns, rows, caption=CAPTION)


def controls_of(rows: pd.DataFrame) -> Markup:
    """What the controls among some rows of `results` say: sentences and the table; nothing where there are none."""
    found = controlled(rows)
    said = Markup("").join(
        Markup('<p class="x-note">{}.</p>').format(one_line(words)) for words in control_sentences(found)
    )
    return control_table(found) + said

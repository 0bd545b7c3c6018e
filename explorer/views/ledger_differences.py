"""What the comparison of two runs shows: what makes them differ, and their profiles and shares with the difference."""

import altair as alt
import numpy as np
import pandas as pd
from markupsafe import Markup

from explorer.views import text
from explorer.views.ledger_badge import TITLES, badge_words, simulated_note
from explorer.views.ledger_depth import MEASURES, P_VALUES
from explorer.views.ledger_heat import STATES, TRAINED, shown_layers
from explorer.views.ledger_matrix import DENIED, NOTHING, signed_matrix
from explorer.views.ledger_pair import Common, Fact, common, facts, profiles_at
from explorer.views.ledger_pane import heading, note, warning
from explorer.views.ledger_runs import OpenRun
from explorer.views.tables import Column, Row, named, table

SHOWN = 20  # rows of the table of shares, the others folded away
MOST = 1_000
CAUTION = (
    "One run against one run: each was done once, so no interval stands beside a difference, and it may be chance. "
    "What recipes do over several seeds, the tradeoff curves say."
)


def difference_map(frame: pd.DataFrame, *, width: int | str = "container") -> alt.LayerChart:
    """Draw the rows of `share_differences`."""
    classes, layers = list(dict.fromkeys(frame["class"])), shown_layers(frame)
    shown = frame[frame["layer"].isin(layers)]
    both = (shown["state_first"] == DENIED) & (shown["state_second"] == DENIED)
    worded = pd.DataFrame(
        {
            "row": shown["layer"],
            "column": shown["class"],
            "value": shown["difference"],
            "state": np.where(both, DENIED, ""),
            "text": [NOTHING if np.isnan(value) else _points(value) for value in shown["difference"]],
            "first_text": [_share(*each) for each in zip(shown["first"], shown["state_first"], strict=True)],
            "second_text": [_share(*each) for each in zip(shown["second"], shown["state_second"], strict=True)],
        }
    )
    tooltip = [
        alt.Tooltip("row:N", title="Layer"),
        alt.Tooltip("column:N", title="Class"),
        alt.Tooltip("first_text:N", title="First"),
        alt.Tooltip("second_text:N", title="Second"),
        alt.Tooltip("text:N", title="Difference, in points of a hundred"),
    ]
    words = (
        f"Difference of the shares of {len(classes)} classes in {text.count(len(layers), 'layer')}, second less first."
    )
    return signed_matrix(worded, rows=layers, columns=classes, tooltip=tooltip, words=words, width=width)


def differences_table(frame: pd.DataFrame) -> Markup:
    """The same as a table, the largest differences first."""
    ordered = frame.assign(size=frame["difference"].abs()).sort_values("size", ascending=False, kind="stable")
    columns = [Column(title="Layer"), Column(title="Class")]
    columns += [Column(title=each, number=True) for each in ("First", "Second", "Difference")]
    rows = [
        Row(
            cells=(
                named(str(row["layer"])),
                named(str(row["class"])),
                _share(row["first"], row["state_first"]),
                _share(row["second"], row["state_second"]),
                text.MISSING if np.isnan(row["difference"]) else _points(row["difference"]),
            )
        )
        for _, row in ordered.head(MOST).iterrows()
    ]
    caption = "Shares of the summed gradient; the difference in points of a hundred, the largest first."
    body = table(columns, rows[:SHOWN], caption=caption)
    if len(rows) > SHOWN:
        rest = table(columns, rows[SHOWN:], caption="The others.")
        body += Markup("<details><summary>And {:,} smaller ones</summary>{}</details>").format(len(frame) - SHOWN, rest)
    return body


def profiles_table(first: OpenRun, second: OpenRun, measure: str) -> Markup:
    """One measure, layer by layer, at the last step at which both runs were measured."""
    step, frame = profiles_at(first, second)
    if step is None:
        return note("The two runs were never measured after the same number of steps: there is no difference to give.")
    layers = common(*(list(dict.fromkeys(each.layer for each in one.profiles)) for one in (first, second)))
    if frame.empty:
        return note(f"No layer of one run has the name of a layer of the other. {_only('layer', layers)}")
    p_value = P_VALUES.get(measure)
    columns = [Column(title="Layer"), *(Column(title=each, number=True) for each in ("First", "Second", "Difference"))]
    columns += [Column(title=each, number=True) for each in ("p, first", "p, second")] if p_value else []
    names = [f"{measure}_{which}" for which in ("first", "second", "difference")]
    names += [f"{p_value}_first", f"{p_value}_second"] if p_value else []
    rows = [
        Row(cells=(named(str(row["layer"])), *(_number(row[name], signed=name.endswith("ce")) for name in names)))
        for _, row in frame.iterrows()
    ]
    when = "before training" if step == 0 else f"after step {step:,}"
    early = " The only profile that both have is that of the untrained model." if step == 0 else ""
    caption = f"{MEASURES[measure].title}, {when}: the last time that both were measured.{early}"
    return table(columns, rows, caption=caption) + _only_note("layer", layers)


def facts_table(found: tuple[Fact, ...]) -> Markup:
    """What differs, and in a sentence what does not."""
    columns = [Column(title="What differs"), Column(title="First"), Column(title="Second")]
    differing = [
        Row(cells=(each.name, named(each.first, 120), named(each.second, 120))) for each in found if not each.same
    ]
    same = ", ".join(each.name.lower() for each in found if each.same)
    body = table(columns, differing) if differing else note("By all that determines a run, they are the same.")
    return body + note(f"The same in both: {same or 'nothing'}.")


def introduced(first: OpenRun, second: OpenRun) -> Markup:
    """Which runs they are, whether they are believed, and what makes them differ. Raises as `facts` does."""
    names = [each.ledger.genesis.run for each in (first, second)]
    badges = [_believed(each) for each in (first, second)]
    lines = [
        f"{which}: {name}, {badge}." for which, name, badge in zip(("First", "Second"), names, badges, strict=True)
    ]
    classes = _only_note("class", common(first.classes, second.classes), "classes")
    return (
        simulated_note(second.classes)
        + Markup("").join(note(line) for line in lines)
        + warning(CAUTION)
        + heading("What makes the two differ")
        + facts_table(facts(first, second))
        + classes
    )


def _believed(opened: OpenRun) -> str:
    words = badge_words(opened.badge)
    return ": ".join([TITLES[words.verdict].lower(), *words.findings[:1]])


def _only_note(noun: str, found: Common, plural: str | None = None) -> Markup:
    words = _only(noun, found, plural)
    return note(words) if words else Markup("")


def _only(noun: str, found: Common, plural: str | None = None) -> str:
    """What only one of them has, and is not compared."""
    said = [
        f"{text.count(len(names), noun, plural)} of the {which} run alone: {text.clipped(', '.join(names), 200)}."
        for which, names in (("first", found.first), ("second", found.second))
        if names
    ]
    return f"Not compared: {' '.join(said)}" if said else ""


def _number(value: float, *, signed: bool) -> str:
    if text.missing(value):
        return text.MISSING
    sign = "+" if signed and value else ""
    return f"{value:{sign}.4g}".replace("-", "\u2212")


def _points(value: float) -> str:
    shown = round(100 * value, 1)
    return f"{shown:+.1f}".replace("-", "\u2212") if shown else "0.0"


def _share(value: float, state: str) -> str:
    return f"{value:.1%}".replace("-", "\u2212") if state == TRAINED else STATES[state].partition(":")[0]

"""The timeline: what the run decided while it ran, when the policy's phases began, and on whose numbers it decided."""

from collections.abc import Iterator, Sequence

import altair as alt
import pandas as pd

from explorer.audit.history import Decided
from explorer.page import theme
from explorer.page.document import Block, Column, Paragraph, Row, Table

MAX_ROWS = 40
MAX_MARKS = 4000
ACTIONS = {
    "freeze": "square",
    "re-open": "diamond",
    "activation": "triangle-up",
    "selection": "circle",
    "override": "cross",
    "re-execution": "triangle-left",
}
"""The actions of a decision (entries/kinds.py) and their shapes."""

CAPTION = (
    "Each mark is a decision on record; a hollow one was undone when the steps were executed again. Vertical lines: a "
    "phase of the policy begins."
)

COLUMNS = (
    Column(title="Entry"),
    Column(title="Step", number=True),
    Column(title="Decision"),
    Column(title="About"),
    Column(title="Decided by"),
)


def timeline(
    decisions: Sequence[Decided],
    *,
    phases: Sequence[tuple[int, str]],
    steps: int,
    width: int | str = "container",
) -> alt.LayerChart:
    """Draw the decisions over so many steps, with the steps at which the phases begin."""
    present = [action for action in ACTIONS if any(each.action == action for each in decisions)]
    frame = pd.DataFrame(
        [
            {
                "step": each.step,
                "action": each.action,
                "entry": each.index,
                "rule": each.rule,
                "about": about(each),
                "by": decided_by(each),
                "undone": each.superseded,
            }
            for each in decisions[:MAX_MARKS]
        ],
        columns=["step", "action", "entry", "rule", "about", "by", "undone"],
    )
    begun = pd.DataFrame([{"step": step, "phase": phase} for step, phase in phases], columns=["step", "phase"])
    x = alt.X(
        "step:Q",
        title="Optimiser step",
        scale=alt.Scale(domain=[0, max(1, steps)], nice=False),
        axis=alt.Axis(tickCount=8, format=",~r"),
    )
    y = alt.Y("action:N", title=None, sort=present, axis=alt.Axis(grid=True, labelLimit=200))
    rules = (
        alt.Chart(begun, name="phases")
        .mark_rule(color=theme.TEXT, opacity=0.35, strokeDash=[3, 3])
        .encode(x=x, tooltip=[alt.Tooltip("phase:N", title="Phase"), alt.Tooltip("step:Q", title="begins at step")])
    )
    marks = (
        alt.Chart(frame, name="decisions")
        .mark_point(size=110, strokeWidth=2, color=theme.PALETTE[1])
        .encode(
            x=x,
            y=y,
            shape=alt.Shape(
                "action:N", scale=alt.Scale(domain=present, range=[ACTIONS[a] for a in present]), legend=None
            ),
            fillOpacity=alt.condition("datum.undone", alt.value(0), alt.value(0.85)),
            fill=alt.value(theme.PALETTE[1]),
            tooltip=[
                alt.Tooltip("action:N", title="Decision"),
                alt.Tooltip("step:Q", title="Step", format=","),
                alt.Tooltip("rule:N", title="Rule"),
                alt.Tooltip("about:N", title="About"),
                alt.Tooltip("by:N", title="Decided by"),
                alt.Tooltip("entry:Q", title="Entry"),
            ],
        )
    )
    layers = [rules, *([marks] if len(frame) else [])]
    words = f"{len(decisions)} decisions over {steps} steps."
    height = 34 * max(1, len(present))
    return theme.styled(alt.LayerChart(layer=layers).properties(width=width, height=height, description=words))


def decisions_table(decisions: Sequence[Decided]) -> Iterator[Block]:
    """Yield the same as a table, the last decisions where there are many."""
    shown = decisions[-MAX_ROWS:]
    yield Table(COLUMNS, [_row(decision) for decision in shown])
    if rest := len(decisions) - len(shown):
        yield Paragraph(f"and {rest} before these", "note")


def about(each: Decided) -> str:
    """The classes and layers that a decision is about."""
    return f"{', '.join(each.subjects) or 'all classes'}; {', '.join(each.layers) or 'all layers'}"


def decided_by(each: Decided) -> str:
    """The rule with its thresholds, and the classes whose numbers it looked at."""
    numbers = ", ".join(f"{name} {value:.4g}" for name, value in each.parameters.items())
    rule = f"{each.rule} ({numbers})" if numbers else each.rule
    return f"{rule}, on numbers of {', '.join(each.evidence)}" if each.evidence else rule


def _row(decision: Decided) -> Row:
    action = f"{decision.action}, undone by a re-execution" if decision.superseded else decision.action
    cells = (str(decision.index), f"{decision.step:,}", action, about(decision), decided_by(decision))
    return Row(cells, quiet=decision.superseded)

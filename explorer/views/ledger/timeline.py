"""Timeline of a run: its decisions, the numbers behind them, and the beginnings of the policy's phases."""

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
    "ranks": "triangle-right",
    "loss-scale": "triangle-down",
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
    """Draw the decisions over `steps` steps, with the beginnings of the `phases`, which are (step, words)."""
    # Only actions that occur have a row, so that the chart is no taller than it has to be.
    present = [action for action in ACTIONS if any(decision.action == action for decision in decisions)]
    frame = pd.DataFrame(
        [
            {
                "step": decision.step,
                "action": decision.action,
                "entry": decision.index,
                "rule": decision.rule,
                "about": about(decision),
                "by": decided_by(decision),
                "undone": decision.superseded,
            }
            for decision in decisions[:MAX_MARKS]
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
    height = 34 * max(1, len(present))  # 34 pixels hold a mark and its label
    return theme.styled(alt.LayerChart(layer=layers).properties(width=width, height=height, description=words))


def decisions_table(decisions: Sequence[Decided]) -> Iterator[Block]:
    """Yield the decisions as a table, only the last ones where there are many."""
    shown = decisions[-MAX_ROWS:]
    yield Table(COLUMNS, [_row(decision) for decision in shown])
    if rest := len(decisions) - len(shown):
        yield Paragraph(f"and {rest} before these", "note")


def about(decision: Decided) -> str:
    """Return the classes and layers that a decision is about."""
    return f"{', '.join(decision.subjects) or 'all classes'}; {', '.join(decision.layers) or 'all layers'}"


def decided_by(decision: Decided) -> str:
    """Return the rule with its thresholds, and the classes whose numbers it used."""
    numbers = ", ".join(f"{name} {value:.4g}" for name, value in decision.parameters.items())
    rule = f"{decision.rule} ({numbers})" if numbers else decision.rule
    return f"{rule}, on numbers of {', '.join(decision.evidence)}" if decision.evidence else rule


def _row(decision: Decided) -> Row:
    action = f"{decision.action}, undone by a re-execution" if decision.superseded else decision.action
    cells = (str(decision.index), f"{decision.step:,}", action, about(decision), decided_by(decision))
    return Row(cells, quiet=decision.superseded)

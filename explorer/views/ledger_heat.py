"""The heat map: which provenance class moved which layer over some steps, and where the policy let none of it in."""

from collections.abc import Mapping

import altair as alt
import numpy as np
import pandas as pd

from explorer.audit.shares import Shares
from explorer.provenance.intervals import exact
from explorer.views import text
from explorer.views.ledger_matrix import DENIED, NOTHING, signed_matrix
from explorer.views.ledger_steps import Steps

TRAINED, ABSENT, UNMEASURED = "trained", "absent", "unmeasured"
MAX_CELLS = 4800  # altair refuses more than 5,000 rows

STATES = {
    TRAINED: "trained",
    DENIED: "denied: the policy's weight was 0 throughout",
    ABSENT: "no examples of the class in these steps",
    UNMEASURED: "not measured",
}

CAPTION = (
    "Share of each class in the summed gradient of each layer over these steps; a row adds up to 100%. Blue is "
    "for the sum, orange against it. Hatched: denied by the policy in all of these steps, so the share is exactly "
    "zero. A dot: nothing of the class to measure. Input at the top, output and adapters at the bottom."
)


def cells(found: Shares, recorded: Steps) -> pd.DataFrame:
    """A row for each layer and class of one stretch of steps, in the order of the genesis: layer, class, share (NaN
    where there is none), weight (the policy's greatest), examples, steps, state."""
    steps = range(found.edges[0], found.edges[-1])
    weights = recorded.weights(steps)
    batches = recorded.examples[steps.start : steps.stop].sum(axis=0)
    rows = []
    for at, layer in enumerate(found.layers):
        for index, class_ in enumerate(found.classes):
            share, measured = float(found.share[0, index, at]), int(found.steps[0, index, at])
            state = _state(weights[index, at], int(batches[index]), measured, share)
            rows.append(
                {
                    "layer": layer,
                    "class": class_,
                    "share": 0.0 if state == DENIED else share if state == TRAINED else np.nan,
                    "weight": float(weights[index, at]),
                    "examples": int(batches[index]),
                    "steps": measured,
                    "state": state,
                }
            )
    return pd.DataFrame(rows)


def heat_map(
    frame: pd.DataFrame, *, width: int | str = "container", chosen: Mapping[str, str] | None = None
) -> alt.LayerChart:
    """Draw the rows of `cells`. Where there are too many, every second, third, ... layer stands for its neighbours.

    With `chosen` (row: layer, column: class) that cell is framed and others can be chosen.
    """
    classes, layers = list(dict.fromkeys(frame["class"])), shown_layers(frame)
    shown = frame[frame["layer"].isin(layers)]
    worded = pd.DataFrame(
        {
            "row": shown["layer"],
            "column": shown["class"],
            "value": shown["share"],
            "state": shown["state"],
            "text": [_number(share, state) for share, state in zip(shown["share"], shown["state"], strict=True)],
            "share_text": [_share(share, state) for share, state in zip(shown["share"], shown["state"], strict=True)],
            "weight_text": [_weight(value) for value in shown["weight"]],
            "examples": shown["examples"],
            "steps": shown["steps"],
        }
    )
    tooltip = [
        alt.Tooltip("row:N", title="Layer"),
        alt.Tooltip("column:N", title="Class"),
        alt.Tooltip("share_text:N", title="Share"),
        alt.Tooltip("weight_text:N", title="Weight"),
        alt.Tooltip("examples:Q", title="Examples in the batches", format=","),
        alt.Tooltip("steps:Q", title="Steps with numbers", format=","),
    ]
    words = f"Share of {len(classes)} classes in the gradients of {text.count(len(layers), 'layer')}."
    return signed_matrix(worded, rows=layers, columns=classes, tooltip=tooltip, words=words, width=width, chosen=chosen)


def shown_layers(frame: pd.DataFrame) -> list[str]:
    """The layers that the heat map has room for."""
    layers, classes = list(dict.fromkeys(frame["layer"])), frame["class"].nunique()
    return layers[:: max(1, -(-len(layers) * classes // MAX_CELLS))]


def _state(weight: float, examples: int, measured: int, share: float) -> str:
    if weight == 0:
        return DENIED
    if examples == 0:
        return ABSENT
    return TRAINED if measured and not np.isnan(share) else UNMEASURED


def _number(share: float, state: str) -> str:
    return f"{share:.0%}" if state == TRAINED else NOTHING


def _share(share: float, state: str) -> str:
    return f"{share:.2%}" if state == TRAINED else STATES[state]


def _weight(value: float) -> str:
    return exact(value) if value in (0, 1) else f"{exact(value)} (attenuation, no guarantee)"

"""The direction map: whether two classes pull a layer the same way, as cosines between their summed gradients."""

import altair as alt
import numpy as np
import pandas as pd

from explorer.audit.history import Directions
from explorer.views.ledger_matrix import NOTHING, signed_matrix

ERROR = 0.13  # of a cosine between two sketches of 64 numbers: about 1 / sqrt(64)

CAPTION = (
    "Cosine between the classes' weighted gradients in this layer, each summed over the steps. They come from sketches "
    f"of 64 numbers, so each carries an error of about {ERROR}: blue pulls the same way, orange the opposite way, and "
    "a difference smaller than that is none. A dot: nothing of the class is recorded here."
)


def cosines(found: Directions, layer: int) -> pd.DataFrame:
    """A row for each pair of classes in one layer: row, column, value (NaN where one of them has no gradient), text."""
    sketches = found.sketches[:, layer].astype(np.float64)
    lengths = np.linalg.norm(sketches, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = (sketches @ sketches.T) / np.outer(lengths, lengths)
    values[~np.isfinite(values)] = np.nan
    rows = [
        {"row": one, "column": other, "value": float(np.clip(values[i, j], -1, 1))}
        for i, one in enumerate(found.classes)
        for j, other in enumerate(found.classes)
    ]
    frame = pd.DataFrame(rows)
    return frame.assign(
        text=[NOTHING if np.isnan(value) else f"{value:.2f}".replace("-", "\u2212") for value in frame["value"]],
        state="",
    )


def direction_map(found: Directions, layer: int, *, width: int | str = "container") -> alt.LayerChart:
    """Draw the cosines in one layer."""
    frame = cosines(found, layer)
    worded = frame.assign(
        cosine=[
            "no gradient of one of them" if np.isnan(value) else f"{value:.2f}, give or take {ERROR}"
            for value in frame["value"]
        ]
    )
    tooltip = [
        alt.Tooltip("row:N", title="Class"),
        alt.Tooltip("column:N", title="and"),
        alt.Tooltip("cosine:N", title="Cosine"),
    ]
    words = f"Cosines between the gradients of the classes in layer {found.layers[layer]}."
    names = list(found.classes)
    return signed_matrix(worded, rows=names, columns=names, tooltip=tooltip, words=words, width=width)

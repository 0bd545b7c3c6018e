"""What each class did in each layer: the numbers of the heat map, as a table of the report."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from explorer.audit.shares import Shares


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCell:
    """A class in a layer, over all steps."""

    class_: str
    state: str  # a key of `explorer.views.ledger.matrices.STATES`
    share: float | None  # of the summed gradient of the layer; exactly 0 where the class was denied throughout
    update_share: float | None  # of the update itself, split by class; None: the run has no exact mode, or not here
    weight: float  # the policy's greatest
    examples: int  # in the batches of the steps in which it has numbers
    steps: int  # in which it has numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerLine:
    """A layer."""

    layer: str
    cells: tuple[LayerCell, ...]  # in the order of the genesis' classes


def layer_lines(found: Shares, cells: pd.DataFrame) -> tuple[LayerLine, ...]:
    """All layers, from input to output, of shares over the whole run; `cells` are these as the heat map has them."""
    lines = []
    for layer, rows in cells.groupby("layer", sort=False):
        at = found.layers.index(str(layer))
        line = tuple(
            LayerCell(
                class_=str(row["class"]),
                state=str(row["state"]),
                share=_number(row["share"]),
                update_share=None if found.exact is None else _number(found.exact[0, place, at]),
                weight=float(row["weight"]),
                examples=int(found.examples[0, place, at]),
                steps=int(row["steps"]),
            )
            for place, (_, row) in enumerate(rows.iterrows())
        )
        lines.append(LayerLine(layer=str(layer), cells=line))
    return tuple(lines)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None

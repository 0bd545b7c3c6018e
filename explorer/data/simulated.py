"""Provenance for data that has none: a division by label, called simulated wherever it is shown."""

import numpy as np
from torch import Tensor

from explorer.data.dataset import Provenance

MAX_CLASSES = 64


def simulated(labels: Tensor, *, classes: int, name: str) -> Provenance | None:
    """So many classes of equal size, to within one, cut from the examples in the order of their labels; none for 0.

    `simulated/class-00` has the first labels, so the classes differ in content as sources would.
    """
    if classes == 0:
        return None
    order = np.argsort(labels.numpy(), kind="stable")
    codes = np.empty(len(order), np.int64)
    codes[order] = np.arange(len(order)) * classes // len(order)
    return Provenance(
        classes=tuple(f"simulated/class-{number:02d}" for number in range(classes)),
        codes=codes,
        sources=tuple(f"{name}, example {number}" for number in range(len(order))),
        simulated=True,
    )

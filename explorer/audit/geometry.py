"""Numbers of a step held against each other: whether vectors with these lengths and inner products can be.

The classes' weighted gradients in a layer and the update of the layer have a Gram matrix, and no Gram matrix has a
negative eigenvalue. Whoever makes one class smaller than it was, and forgets the others, is found out here.
"""

import numpy as np
from numpy.typing import NDArray

from explorer.entries.numbers import StepNumbers

TOLERANCE = 1e-2  # of the smallest eigenvalue of the cosines: products may be summed in as little as ten bits
SHORTEST = 1e-20  # shorter vectors count as this long: their squares are lost in single precision


def impossible(numbers: StepNumbers) -> NDArray[np.int64]:
    """The layers in which no gradients and no update have these numbers. What is not finite says nothing."""
    gram, dots = numbers.gram.astype(np.float64), numbers.dots.T.astype(np.float64)
    lengths = np.column_stack([(numbers.weights * numbers.norms.astype(np.float64)).T, np.sqrt(numbers.updates)])
    products = np.concatenate([gram, dots[:, None, :]], axis=1)
    products = np.concatenate([products, np.append(dots, np.square(lengths[:, -1:]), axis=1)[:, :, None]], axis=2)
    finite = np.isfinite(products).all(axis=(1, 2)) & np.isfinite(lengths).all(axis=1)
    scales = np.maximum(lengths[finite], SHORTEST)
    cosines = products[finite] / scales[:, :, None] / scales[:, None, :]
    each = np.arange(cosines.shape[1])
    cosines[:, each, each] = 1.0
    return np.flatnonzero(finite)[np.linalg.eigvalsh(cosines)[:, 0] < -TOLERANCE]

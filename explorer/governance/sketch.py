"""Sketches: 64 numbers that stand for a layer's gradient, so that directions can be compared across steps.

A matrix G (a filter is the matrix of its output channels by everything else) is projected from both sides onto 8 x 8,
P_o^T G P_i; a vector straight onto 64. A projection of n coordinates puts each into one column, with a sign. Both
follow from the seed and the parameter's name alone:

    words    SHAKE-256("explorer/sketch/v1" 00 seed in decimal 00 name 00 side), 8n bytes: one u64be a coordinate
    column   its place among the coordinates, ordered by their words, modulo 8 (modulo 64 for a vector)
    sign     minus where its word is odd                                          side: "out", "in" or "all"

A layer's sketch is the sum of its parameters'. It is linear: sketches of ranks, microbatches, steps add up. Over seeds
E<s(a), s(b)> = <a, b>. The cosine of two sketches has an error of about 0.13 (1/8); none for vectors of up to 64
numbers, and up to 0.35 for matrices of rank one that differ on one side only, of which no more than 8 numbers are seen.

Charikar, Chen, Farach-Colton, "Finding frequent items in data streams", 2002, with columns of equal size.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from explorer.entries.numbers import SKETCH
from explorer.governance.gram import Layout

SIDE = math.isqrt(SKETCH)


@dataclass(frozen=True, kw_only=True, slots=True)
class Projection:
    """How one parameter is projected: a matrix from the left and the right, a vector from the right alone."""

    left: Tensor | None  # 8 out
    right: Tensor  # in 8, or n 64


def projection(seed: int, name: str, shape: torch.Size, *, like: Tensor) -> Projection:
    """The projection of that parameter, with the type and on the device of `like`."""

    def matrix(side: str, rows: int, columns: int) -> Tensor:
        return torch.from_numpy(signed_columns(seed, name, side, rows, columns)).to(like)

    if len(shape) < 2:
        return Projection(left=None, right=matrix("all", shape.numel(), SKETCH))
    left = matrix("out", shape[0], SIDE).T.contiguous()
    return Projection(left=left, right=matrix("in", shape[1:].numel(), SIDE))


def projections(seed: int, layout: Layout, *, like: Tensor) -> dict[str, Projection]:
    """The projection of every parameter."""
    return {name: projection(seed, name, shape, like=like) for name, shape in layout.shapes.items()}


def sketch(rows_kP: Tensor, layout: Layout, projections: Mapping[str, Projection]) -> Tensor:
    """The sketches of k gradients, k L 64."""
    k = len(rows_kP)
    found = rows_kP.new_zeros(k, len(layout.layers), SKETCH)
    for name, place in layout.parameters.items():
        by, gradients, out = projections[name], rows_kP[:, place], found[:, layout.owners[name]]
        if by.left is None:
            out.addmm_(gradients, by.right)
        else:
            half = torch.bmm(by.left.expand(k, -1, -1), gradients.view(k, by.left.shape[1], len(by.right)))
            out.view(k, SIDE, SIDE).baddbmm_(half, by.right.expand(k, -1, -1))
    return found


def signed_columns(seed: int, name: str, side: str, rows: int, columns: int) -> NDArray[np.float64]:
    """A projection: in each row one 1 or -1; see the module's docstring."""
    stream = b"\x00".join((b"explorer/sketch/v1", str(seed).encode(), name.encode(), side.encode()))
    words = np.frombuffer(hashlib.shake_256(stream).digest(8 * rows), dtype=">u8")
    order = np.argsort(words, kind="stable")
    found = np.zeros((rows, columns))
    found[order, np.arange(rows) % columns] = np.where(words[order] % 2, -1.0, 1.0)
    return found

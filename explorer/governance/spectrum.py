"""The entropy of a layer's outputs, and how far classes of examples use different directions in it.

Every row is an example. Rows are scaled to length 1, so that their Gram matrix over N has trace 1: a density matrix
rho, with the spectrum lambda that the D by D matrix of second moments has too.

    S    = - sum lambda log lambda           von Neumann entropy, nats: 0 for identical rows, log N for orthogonal ones
    exp S                                    effective rank: how many directions are in use
    S_2  = - log sum lambda^2                Renyi entropy of order 2; exp S_2 is the participation ratio
    chi  = S(all) - sum_c q_c S(class c)     0: the classes share one spectrum; H(q): they use orthogonal subspaces

chi compares directions. It is 0 for classes that use the same ones, also where a linear rule tells them apart at once:
a row and its opposite have one direction, and so have rows of other lengths. `explorer.governance.linear_probe` sees
those; chi sees what that one cannot, classes that spread in other directions around one mean.

Rows are not centred here. A mean that all rows share is one direction, and dominates S and exp S where it is long
against what varies around it: exp S is then near 1 whatever the rows do. `spectrum(centred(rows))` is what varies; it
is what profiles show first, and both are recorded. chi and the decisions of `entropy_gate` and `governed_freezing` are
taken on rows as they are, as they always were: centring would hide a class that differs by its mean alone.

Giraldo, Rao and Principe, "Measures of Entropy From Data Using Infinitely Divisible Kernels", 2014, arXiv:1211.2459;
chi is the Holevo quantity. A row of zeros has no direction and is left out. chi of a sample is biased upwards the more
dimensions there are for each example: outputs are projected to few first, and its mean under permuted labels stands
is recorded too. That the classes differ in a layer does not show that training on them made it so.

A Gram matrix must never be clamped elementwise: it would no longer be positive semidefinite. All is float64 on the CPU,
so that a replay finds the same bits. Shapes: N examples, D dimensions.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

EXAMPLES_PER_DIMENSION = 16


class Spectrum(NamedTuple):
    """What the spectrum of some rows comes to."""

    entropy: float  # nats
    effective_rank: float
    renyi2: float  # nats


class Separation(NamedTuple):
    """How far the directions of classes differ. `chi - null` is the corrected chi, near 0 where labels mean nothing."""

    chi: float  # nats
    null: float  # its mean over permutations of the labels
    p_value: float  # (1 + permutations that reach chi) / (1 + permutations)


def spectrum(rows_ND: Tensor) -> Spectrum:
    """The entropies of these rows. Where no row has a direction, all of them are 0.

    >>> spectrum(torch.eye(4)).effective_rank
    4.0
    """
    unit_ND, _ = _unit(rows_ND)
    if not len(unit_ND):
        return Spectrum(entropy=0.0, effective_rank=1.0, renyi2=0.0)
    density = _density(unit_ND)
    entropy = float(_entropy(density))
    return Spectrum(
        entropy=entropy,
        effective_rank=float(np.exp(entropy)),
        renyi2=-float(density.square().sum().log()),
    )


def centred(rows_ND: Tensor) -> Tensor:
    """The rows less their mean, which is one direction that all of them share. Equal rows become 0.

    >>> spectrum(centred(torch.ones(3, 2))).effective_rank
    1.0
    """
    rows_ND = rows_ND.detach().to("cpu", torch.float64)
    less = rows_ND - rows_ND.mean(0)
    # What rounding leaves of equal rows has no direction.
    return torch.where(less.norm(dim=1, keepdim=True) > 1e-12 * rows_ND.norm(dim=1, keepdim=True), less, 0.0)


def project(rows_ND: Tensor, draws: np.random.Generator, *, kept: int | None = None) -> Tensor:
    """The rows in at most `kept` dimensions, N / 16 without it, by random signs (Achlioptas, 2003); as they are if
    they have no more."""
    examples, dimensions = rows_ND.shape
    kept = max(1, examples // EXAMPLES_PER_DIMENSION) if kept is None else kept
    if dimensions <= kept:
        return rows_ND
    signs = torch.from_numpy(draws.integers(0, 2, (dimensions, kept)) * 2.0 - 1.0)
    return rows_ND.detach().to("cpu", torch.float64) @ signs


def chi(rows_ND: Tensor, labels_N: np.ndarray) -> float:
    """S(all) - sum q_c S(class c), in nats: in [0, H(q)]. Raises `ValueError` where rows and labels do not pair."""
    unit_ND, labels_N = _labelled(rows_ND, labels_N)
    return float(_entropy(_density(unit_ND)) - _within(unit_ND, labels_N)) if len(unit_ND) else 0.0


def separation(rows_ND: Tensor, labels_N: np.ndarray, *, permutations: int, draws: np.random.Generator) -> Separation:
    """chi beside what it is where the same labels stand at other rows. Raises `ValueError` like `chi`."""
    unit_ND, labels_N = _labelled(rows_ND, labels_N)
    if not len(unit_ND):
        return Separation(chi=0.0, null=0.0, p_value=1.0)
    # S(all) does not depend on the labels: one chi is as large as another where its classes' entropy is as small.
    whole, within = float(_entropy(_density(unit_ND))), float(_within(unit_ND, labels_N))
    permuted = np.array([float(_within(unit_ND, draws.permutation(labels_N))) for _ in range(permutations)])
    reached = int((permuted <= within + 1e-12).sum())  # equal labels may sum in another order
    return Separation(
        chi=whole - within,
        null=whole - float(permuted.mean()),
        p_value=(1 + reached) / (1 + permutations),
    )


def _unit(rows_ND: Tensor) -> tuple[Tensor, np.ndarray]:
    """The rows at length 1, without those of length 0, and which ones they are."""
    rows_ND = rows_ND.detach().to("cpu", torch.float64)
    lengths_N = rows_ND.norm(dim=1)
    alive_N = lengths_N != 0
    return rows_ND[alive_N] / lengths_N[alive_N, None], alive_N.numpy()


def _labelled(rows_ND: Tensor, labels_N: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """Rows of length 1 with their labels."""
    if len(rows_ND) != len(labels_N):
        raise ValueError(f"{len(rows_ND)} rows and {len(labels_N)} labels")
    unit_ND, alive_N = _unit(rows_ND)
    return unit_ND, labels_N[alive_N]


def _density(unit_ND: Tensor) -> Tensor:
    """The smaller one of the two matrices with the spectrum; trace 1."""
    examples, dimensions = unit_ND.shape
    product = unit_ND.T @ unit_ND if dimensions < examples else unit_ND @ unit_ND.T
    return product / examples


def _entropy(density: Tensor) -> Tensor:
    """- sum lambda log lambda, a scalar for a matrix and one for each of a stack."""
    eigenvalues = torch.linalg.eigvalsh(density)
    return torch.special.entr(eigenvalues.clamp(min=0)).sum(-1)  # rounding puts zeros of the spectrum below 0


def _within(unit_ND: Tensor, labels_N: np.ndarray) -> Tensor:
    """sum q_c S(class c)."""
    total = torch.zeros((), dtype=torch.float64)
    for label in np.unique(labels_N):
        rows = unit_ND[torch.from_numpy(labels_N == label)]
        total += len(rows) / len(unit_ND) * _entropy(_density(rows))
    return total

"""The linear probe: which classes a linear rule can tell apart in a layer's outputs, on examples it was not fitted to.

chi compares the directions that the classes use (`explorer.governance.spectrum`); it cannot see on which side of the
origin a row lies, nor how long it is. The probe can. A row is its D outputs and its length, N x (D + 1); outputs of
more than 1,024 numbers are first projected to that many by random signs. The examples of each class are dealt into 5
folds by a seeded draw. For each fold, on the other four alone:

    scale       every column to mean 0 and deviation 1; a constant column becomes 0
    shrink      their covariance T towards a multiple of the identity, by Ledoit and Wolf's formula, which looks at no
                label: A = (r m I + (1 - r) T)^-1, m = tr T / (D + 1)
    classify    a row x of the fold goes to the class whose mean M_c is nearest in that metric: the largest
                x' A M_c - M_c' A M_c / 2

For two classes this is linear discriminant analysis with equal priors. The rule weighs every class alike however many
examples it has, needs no tuning, and is solved in the space of the N examples, so that D may be larger than N. What
comes out is counts: row c of the table says what the examples of class c were taken for. `entries/told_apart.py` makes
accuracies and intervals of them.

The p-value is that of the balanced accuracy among relabellings within each fold, which keep the class counts of the
folds: where labels mean nothing all of them are equally likely, so the p-value is exact.

A linear rule sees classes whose means differ, in outputs or in length. It does not see classes that differ in the
shape of their spread alone, such as other directions around a common mean: chi sees those. A low accuracy is no proof
that the information is absent; another kind of probe may find it.

Ledoit and Wolf, "A well-conditioned estimator for large-dimensional covariance matrices", 2004. All is float64 on the
CPU, so that a replay finds the same bits. Shapes: N examples, D dimensions, K classes, P relabellings.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from explorer.entries.told_apart import Counts, balanced
from explorer.governance.spectrum import project

FOLDS = 5
MAX_DIMENSIONS = 1024
LEAST_SHRINKAGE = 1e-6  # what is inverted stays well conditioned
_TIE = 1e-12


class ProbeResult(NamedTuple):
    """What the probe found."""

    counts: Counts  # K K: row, the class; column, the class that its examples were taken for
    p_value: float  # (1 + relabellings that reach the accuracy) / (1 + relabellings)


def probe(
    rows_ND: Tensor, labels_N: NDArray[np.integer], *, permutations: int, draws: np.random.Generator
) -> ProbeResult:
    """Tell the classes 0 to K - 1 apart by a linear rule, cross-validated. Each has one example at least.

    A class of a single example cannot be learnt and tested both: its example is taken for another class, or is not
    tested where nothing else is known.
    """
    if len(rows_ND) != len(labels_N):
        raise ValueError(f"{len(rows_ND)} rows and {len(labels_N)} labels")
    classes = int(labels_N.max()) + 1
    rows_ND = _features(rows_ND, draws)
    folds_N = _deal(labels_N, draws)
    permuted_PN = np.stack([labels_N, *(_relabelled(labels_N, folds_N, draws) for _ in range(permutations))])
    counts_PKK = np.zeros((len(permuted_PN), classes, classes), np.int64)
    for fold in range(FOLDS):
        held_N = folds_N == fold
        if held_N.any() and not held_N.all():
            taken_PN = _classify(rows_ND, permuted_PN, held_N, classes)
            for place, (true, taken) in enumerate(zip(permuted_PN[:, held_N], taken_PN, strict=True)):
                np.add.at(counts_PKK[place], (true, taken), 1)
    accuracies = [balanced(counts) for counts in counts_PKK]
    reached = sum(each >= accuracies[0] - _TIE for each in accuracies[1:])
    return ProbeResult(counts=counts_PKK[0], p_value=(1 + reached) / (1 + permutations))


def fit(rows_ND: Tensor, labels_N: NDArray[np.integer], place: int, *, draws: np.random.Generator) -> Tensor:
    """The rule that tells one class from all others, every other class weighed alike, fitted to all of these rows: a
    weight for each column and a constant, D + 2. `recognised` applies it, with draws of the same stream."""
    rows_ND = _features(rows_ND, draws)
    scaled_ND, factor_D, mean_D = _scale(rows_ND)
    one_hot_NK = torch.nn.functional.one_hot(torch.from_numpy(labels_N)).double()
    means_NK = one_hot_NK / one_hot_NK.sum(0).clamp(min=1)
    others = [label for label in np.unique(labels_N).tolist() if label != place]
    pair_N2 = torch.stack([means_NK[:, place], means_NK[:, others].mean(1)], dim=1)
    among_NN, across_NN = _products(scaled_ND, torch.eye(scaled_ND.shape[1], dtype=torch.float64))
    squares = (pair_N2 * (among_NN @ pair_N2)).sum(0)
    weights_D = (across_NN @ (pair_N2[:, 0] - pair_N2[:, 1])) * factor_D
    constant = -(squares[0] - squares[1]) / 2 - weights_D @ mean_D
    return torch.cat([weights_D, constant[None]])


def recognised(rule: Tensor, rows_ND: Tensor, *, draws: np.random.Generator) -> NDArray[np.bool_]:
    """Which rows the rule of `fit` takes for its class, N."""
    features = _features(rows_ND, draws)
    return (features @ rule[:-1] + rule[-1] > 0).numpy()


def _features(rows_ND: Tensor, draws: np.random.Generator) -> Tensor:
    """The rows, projected where they are long, and their lengths, N (D + 1)."""
    rows_ND = project(rows_ND.detach().to("cpu", torch.float64), draws, kept=MAX_DIMENSIONS)
    return torch.cat([rows_ND, rows_ND.norm(dim=1, keepdim=True)], dim=1)


def _deal(labels_N: NDArray[np.integer], draws: np.random.Generator) -> NDArray[np.int64]:
    """A fold for each example: those of a class are dealt out in a drawn order."""
    folds_N = np.empty(len(labels_N), np.int64)
    for label in np.unique(labels_N):
        members = np.flatnonzero(labels_N == label)
        folds_N[draws.permutation(members)] = np.arange(len(members)) % FOLDS
    return folds_N


def _relabelled(
    labels_N: NDArray[np.integer], folds_N: NDArray[np.int64], draws: np.random.Generator
) -> NDArray[np.integer]:
    """The labels, permuted within each fold."""
    permuted_N = labels_N.copy()
    for fold in range(FOLDS):
        members = np.flatnonzero(folds_N == fold)
        permuted_N[members] = labels_N[draws.permutation(members)]
    return permuted_N


def _classify(
    rows_ND: Tensor, labels_PN: NDArray[np.integer], held_N: NDArray[np.bool_], classes: int
) -> NDArray[np.int64]:
    """The classes that the held rows are taken for under each labelling of the others, P N_held."""
    known = torch.from_numpy(~held_N)
    kept_nD, held_hD = _scaled(rows_ND[known], rows_ND[~known])
    among_nn, across_hn = _products(kept_nD, held_hD)
    # Of each labelling: members of each class at 1 / their number, as columns.
    one_hot_nPK = torch.nn.functional.one_hot(torch.from_numpy(labels_PN[:, ~held_N].T.copy()), classes).double()
    sizes_PK = one_hot_nPK.sum(0)
    means_nPK = one_hot_nPK / sizes_PK.clamp(min=1)
    flat = means_nPK.flatten(1)
    squares_PK = (flat * (among_nn @ flat)).sum(0).reshape(sizes_PK.shape)
    scores_hPK = (across_hn @ flat).reshape(len(held_hD), *sizes_PK.shape) - squares_PK / 2
    scores_hPK[:, sizes_PK == 0] = -torch.inf  # a class that has no example to be learnt from
    return scores_hPK.argmax(-1).T.numpy()


def _scaled(kept_nD: Tensor, held_hD: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the means and deviations of the first."""
    scaled_nD, factor_D, mean_D = _scale(kept_nD)
    return scaled_nD, (held_hD - mean_D) * factor_D


def _scale(rows_ND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows with every column at mean 0 and deviation 1; the factor and the mean of each. Constant columns: 0."""
    mean_D, deviation_D = rows_ND.mean(0), rows_ND.std(0, correction=0)
    alive_D = deviation_D > 1e-12 * (1 + mean_D.abs())
    factor_D = torch.where(alive_D, 1 / torch.where(alive_D, deviation_D, 1.0), 0.0)
    return (rows_ND - mean_D) * factor_D, factor_D, mean_D


def _products(kept_nD: Tensor, held_hD: Tensor) -> tuple[Tensor, Tensor]:
    """x' A y up to one factor, among the rows that are known and from the held ones to them.

    By the Woodbury identity A ~ I - X' (X X' + g I)^-1 X, with g = n r m / (1 - r): for rows of X it is
    K (K / g + I)^-1, which at r = 1 is K, the plain products.
    """
    gram_nn, n = kept_nD @ kept_nD.T, len(kept_nD)
    inverse_g = _inverse_ridge(kept_nD, gram_nn)
    # Solved once for both: S K^-1 is symmetric, so K (K / g + I)^-1 = (K / g + I)^-1 K.
    inner_nn = gram_nn * inverse_g + torch.eye(n, dtype=torch.float64)
    solved = torch.linalg.solve(inner_nn, torch.cat([gram_nn, (held_hD @ kept_nD.T).T], dim=1))
    return solved[:, :n], solved[:, n:].T


def _inverse_ridge(kept_nD: Tensor, gram_nn: Tensor) -> float:
    """1 / g by Ledoit and Wolf's shrinkage r of the covariance T = X' X / n towards m I."""
    n, dimensions = kept_nD.shape
    m = float(gram_nn.trace()) / (n * dimensions)
    if m == 0:
        return 0.0
    squared = float(gram_nn.square().sum()) / n**2  # |T|^2 = |X X'|^2 / n^2
    away = squared / dimensions - m**2  # the squared distance of T from m I, by column
    fourth = float(gram_nn.diagonal().square().sum()) / n
    noise = min(max(0.0, (fourth - squared) / (n * dimensions)), away)
    r = max(noise / away, LEAST_SHRINKAGE) if away > 0 else 1.0
    return (1 - r) / (n * r * m)

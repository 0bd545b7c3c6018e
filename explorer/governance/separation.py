"""Separation of classes in a layer's outputs: by the directions that they use, and by a linear rule.

**Directions** (`spectrum`, `chi`, `separation`). Every row is an example. Rows are scaled to length 1, so that their
Gram matrix over N has trace 1: a density matrix rho, with the spectrum lambda that the D by D matrix of second moments
has too.

    S    = - sum lambda log lambda           von Neumann entropy, nats: 0 for identical rows, log N for orthogonal ones
    exp S                                    effective rank: how many directions are in use
    S_2  = - log sum lambda^2                Renyi entropy of order 2; exp S_2 is the participation ratio
    chi  = S(all) - sum_c q_c S(class c)     0: the classes share one spectrum; H(q): they use orthogonal subspaces

chi is 0 for classes that use the same directions, even if a linear rule tells them apart perfectly: a row and its
opposite have one direction, and so have rows of other lengths. The linear probe sees those; chi sees classes that
spread in other directions around one mean, which the probe cannot.

Rows are not centred here. A mean that all rows share is one direction, and dominates S and exp S where it is long
compared with the variation around it: exp S is then near 1 for any rows. `spectrum(centred(rows))` measures the
variation; profiles show it first, and both are recorded. chi and the decisions of `entropy_gate` and
`governed_freezing` are taken on rows as they are: centring would hide a class that differs only by its mean.

Giraldo, Rao and Principe, "Measures of Entropy From Data Using Infinitely Divisible Kernels", 2014, arXiv:1211.2459;
chi is the Holevo quantity. A row of zeros has no direction and is left out. chi of a sample is biased upwards, the more
dimensions there are for each example: outputs are projected to few first, and its mean under permuted labels is
recorded too. A difference between the classes in a layer does not show that training on them caused it.

**The linear probe** (`probe`): the classes that a linear rule can tell apart, on examples that it was not fitted to.

A row is its D outputs and its length, N x (D + 1); outputs of more than 1,024 numbers are first projected to that many
by random signs. The examples of each class are dealt into 5 folds by a seeded draw. For each fold, only on the other
four:

    scale       every column to mean 0 and deviation 1; a constant column becomes 0
    shrink      their covariance T towards a multiple of the identity, by Ledoit and Wolf's formula, which uses no
                label: A = (r m I + (1 - r) T)^-1, m = tr T / (D + 1)
    classify    a row x of the fold goes to the class whose mean M_c is nearest in that metric: the largest
                x' A M_c - M_c' A M_c / 2

For two classes this is linear discriminant analysis with equal priors. The rule weighs every class alike however many
examples it has, needs no tuning, and is solved in the space of the N examples, so that D may be larger than N. The
result is counts: row c of the table has the classes that the examples of class c were taken for.
`entries/entropy_profile.py` makes accuracies and intervals of them.

The p-value is that of the balanced accuracy among relabellings within each fold, which keep the class counts of the
folds: where labels mean nothing all of them are equally likely, so the p-value is exact.

A linear rule sees classes whose means differ, in outputs or in length. A low accuracy is no proof that the information
is absent; another kind of probe may find it.

Ledoit and Wolf, "A well-conditioned estimator for large-dimensional covariance matrices", 2004.

Everything is float64 on the CPU, so that a replay gets the same bits. Shapes: N examples, D dimensions, K classes, P
relabellings; n kept and h held examples of a fold.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from explorer.entries.entropy_profile import Counts, balanced

EXAMPLES_PER_DIMENSION = 16  # of the projection for chi: keeps its bias small


class Spectrum(NamedTuple):
    """Entropies of the spectrum of some rows."""

    entropy: float  # nats
    effective_rank: float
    renyi2: float  # nats


class Separation(NamedTuple):
    """Difference of the directions of classes. `chi - null` is the corrected chi, near 0 where labels mean nothing."""

    chi: float  # nats
    null: float  # its mean over permutations of the labels
    p_value: float  # (1 + permutations that reach chi) / (1 + permutations)


def spectrum(rows_ND: Tensor) -> Spectrum:
    """Return the entropies of these rows. Where no row has a direction, all of them are 0.

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
    """Return the rows less their mean, which is one direction that all of them share. Equal rows become 0.

    >>> spectrum(centred(torch.ones(3, 2))).effective_rank
    1.0
    """
    rows_ND = rows_ND.detach().to("cpu", torch.float64)
    less = rows_ND - rows_ND.mean(0)
    # Rounding leaves a tiny difference between equal rows, in an arbitrary direction that counts as much as any other.
    return torch.where(less.norm(dim=1, keepdim=True) > 1e-12 * rows_ND.norm(dim=1, keepdim=True), less, 0.0)


def project(rows_ND: Tensor, draws: np.random.Generator, *, kept: int | None = None) -> Tensor:
    """Return the rows in at most `kept` dimensions, N / 16 without it, by random signs (Achlioptas, 2003); as they are
    if they have no more."""
    examples, dimensions = rows_ND.shape
    kept = max(1, examples // EXAMPLES_PER_DIMENSION) if kept is None else kept
    if dimensions <= kept:
        return rows_ND
    signs = torch.from_numpy(draws.integers(0, 2, (dimensions, kept)) * 2.0 - 1.0)
    return rows_ND.detach().to("cpu", torch.float64) @ signs


def chi(rows_ND: Tensor, labels_N: np.ndarray) -> float:
    """Return S(all) - sum q_c S(class c), in nats, in [0, H(q)]. Raises `ValueError` where rows and labels do not
    pair."""
    unit_ND, labels_N = _labelled(rows_ND, labels_N)
    return float(_entropy(_density(unit_ND)) - _within(unit_ND, labels_N)) if len(unit_ND) else 0.0


def separation(rows_ND: Tensor, labels_N: np.ndarray, *, permutations: int, draws: np.random.Generator) -> Separation:
    """Compare chi with its values under permuted labels. Raises `ValueError` like `chi`."""
    unit_ND, labels_N = _labelled(rows_ND, labels_N)
    if not len(unit_ND):
        return Separation(chi=0.0, null=0.0, p_value=1.0)
    # S(all) does not depend on the labels, so it is computed once, and chi reaches the observed one where the entropy
    # within the classes is at most the observed one.
    whole, within = float(_entropy(_density(unit_ND))), float(_within(unit_ND, labels_N))
    permuted = np.array([float(_within(unit_ND, draws.permutation(labels_N))) for _ in range(permutations)])
    reached = int((permuted <= within + 1e-12).sum())  # equal labels may sum in another order
    return Separation(
        chi=whole - within,
        null=whole - float(permuted.mean()),
        p_value=(1 + reached) / (1 + permutations),
    )


def _unit(rows_ND: Tensor) -> tuple[Tensor, np.ndarray]:
    """Return the rows at length 1, without those of length 0, and which ones they are."""
    rows_ND = rows_ND.detach().to("cpu", torch.float64)
    lengths_N = rows_ND.norm(dim=1)
    alive_N = lengths_N != 0
    return rows_ND[alive_N] / lengths_N[alive_N, None], alive_N.numpy()


def _labelled(rows_ND: Tensor, labels_N: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """Return the rows at length 1, with their labels."""
    if len(rows_ND) != len(labels_N):
        raise ValueError(f"{len(rows_ND)} rows and {len(labels_N)} labels")
    unit_ND, alive_N = _unit(rows_ND)
    return unit_ND, labels_N[alive_N]


def _density(unit_ND: Tensor) -> Tensor:
    """Return a matrix of trace 1 with the spectrum of the rows."""
    # X X' and X' X have the same nonzero eigenvalues: the smaller one is cheaper to decompose. It must not be clamped
    # elementwise, which would make it indefinite.
    examples, dimensions = unit_ND.shape
    product = unit_ND.T @ unit_ND if dimensions < examples else unit_ND @ unit_ND.T
    return product / examples


def _entropy(density: Tensor) -> Tensor:
    """Return - sum lambda log lambda, for a matrix or for each of a stack."""
    eigenvalues = torch.linalg.eigvalsh(density)
    return torch.special.entr(eigenvalues.clamp(min=0)).sum(-1)  # rounding puts zeros of the spectrum below 0


def _within(unit_ND: Tensor, labels_N: np.ndarray) -> Tensor:
    """Return sum q_c S(class c)."""
    total = torch.zeros((), dtype=torch.float64)
    for label in np.unique(labels_N):
        rows = unit_ND[torch.from_numpy(labels_N == label)]
        total += len(rows) / len(unit_ND) * _entropy(_density(rows))
    return total


# --- the linear probe ---

FOLDS = 5
MAX_DIMENSIONS = 1024
LEAST_SHRINKAGE = 1e-6  # keeps the matrix that is inverted well conditioned
_TIE = 1e-12  # accuracies closer than this are equal: means of equal counts may round differently


class ProbeResult(NamedTuple):
    """Result of the linear probe."""

    counts: Counts  # K K: row, the class; column, the class that its examples were taken for
    p_value: float  # (1 + relabellings that reach the accuracy) / (1 + relabellings)


def probe(
    rows_ND: Tensor, labels_N: NDArray[np.integer], *, permutations: int, draws: np.random.Generator
) -> ProbeResult:
    """Tell the classes 0 to K - 1 apart by a linear rule, cross-validated. Each has at least one example.

    A class of a single example cannot be both learned and tested: its example is taken for another class, or is not
    tested if there is no other.
    """
    if len(rows_ND) != len(labels_N):
        raise ValueError(f"{len(rows_ND)} rows and {len(labels_N)} labels")
    classes = int(labels_N.max()) + 1
    rows_ND = _features(rows_ND, draws)
    folds_N = _deal(labels_N, draws)
    permuted_PN = np.stack([labels_N, *(_relabelled(labels_N, folds_N, draws) for _ in range(permutations))])
    # All relabellings share the factorised covariance of a fold, since shrinkage uses no label: 99 of them cost little
    # more than one.
    counts_PKK = np.zeros((len(permuted_PN), classes, classes), np.int64)
    for fold in range(FOLDS):
        held_N = folds_N == fold
        if held_N.any() and not held_N.all():
            taken_PN = _classify(rows_ND, permuted_PN, held_N, classes)
            for place, (true, taken) in enumerate(zip(permuted_PN[:, held_N], taken_PN, strict=True)):
                np.add.at(counts_PKK[place], (true, taken), 1)
    accuracies = [balanced(counts) for counts in counts_PKK]
    reached = sum(accuracy >= accuracies[0] - _TIE for accuracy in accuracies[1:])
    return ProbeResult(counts=counts_PKK[0], p_value=(1 + reached) / (1 + permutations))


def fit(rows_ND: Tensor, labels_N: NDArray[np.integer], place: int, *, draws: np.random.Generator) -> Tensor:
    """Return the rule that tells one class from all others, with the others weighed alike, fitted to all of these rows:
    a weight for each column and a constant, D + 2. `recognised` applies it, with draws of the same stream."""
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
    """Return which rows the rule of `fit` takes for its class, N."""
    features = _features(rows_ND, draws)
    return (features @ rule[:-1] + rule[-1] > 0).numpy()


def _features(rows_ND: Tensor, draws: np.random.Generator) -> Tensor:
    """Return the rows, projected where they are long, and their lengths, N (D + 1)."""
    rows_ND = project(rows_ND.detach().to("cpu", torch.float64), draws, kept=MAX_DIMENSIONS)
    return torch.cat([rows_ND, rows_ND.norm(dim=1, keepdim=True)], dim=1)


def _deal(labels_N: NDArray[np.integer], draws: np.random.Generator) -> NDArray[np.int64]:
    """Return a fold for each example; the examples of a class are dealt out in a drawn order."""
    folds_N = np.empty(len(labels_N), np.int64)
    for label in np.unique(labels_N):
        members = np.flatnonzero(labels_N == label)
        folds_N[draws.permutation(members)] = np.arange(len(members)) % FOLDS
    return folds_N


def _relabelled(
    labels_N: NDArray[np.integer], folds_N: NDArray[np.int64], draws: np.random.Generator
) -> NDArray[np.integer]:
    """Return the labels, permuted within each fold, so that its class counts stay the same and the p-value is exact."""
    permuted_N = labels_N.copy()
    for fold in range(FOLDS):
        members = np.flatnonzero(folds_N == fold)
        permuted_N[members] = labels_N[draws.permutation(members)]
    return permuted_N


def _classify(
    rows_ND: Tensor, labels_PN: NDArray[np.integer], held_N: NDArray[np.bool_], classes: int
) -> NDArray[np.int64]:
    """Return the classes that the held rows are taken for under each labelling of the others, P N_held."""
    known = torch.from_numpy(~held_N)
    kept_nD, held_hD = _scaled(rows_ND[known], rows_ND[~known])
    among_nn, across_hn = _products(kept_nD, held_hD)
    # For each labelling and class a column that averages its members.
    one_hot_nPK = torch.nn.functional.one_hot(torch.from_numpy(labels_PN[:, ~held_N].T.copy()), classes).double()
    sizes_PK = one_hot_nPK.sum(0)
    means_nPK = one_hot_nPK / sizes_PK.clamp(min=1)
    flat = means_nPK.flatten(1)
    squares_PK = (flat * (among_nn @ flat)).sum(0).reshape(sizes_PK.shape)
    scores_hPK = (across_hn @ flat).reshape(len(held_hD), *sizes_PK.shape) - squares_PK / 2
    scores_hPK[:, sizes_PK == 0] = -torch.inf  # a class without an example to learn from is never chosen
    return scores_hPK.argmax(-1).T.numpy()


def _scaled(kept_nD: Tensor, held_hD: Tensor) -> tuple[Tensor, Tensor]:
    """Return both, scaled by the means and deviations of the first."""
    scaled_nD, factor_D, mean_D = _scale(kept_nD)
    return scaled_nD, (held_hD - mean_D) * factor_D


def _scale(rows_ND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows with every column at mean 0 and deviation 1, or 0 if it is constant; and its factor and mean."""
    mean_D, deviation_D = rows_ND.mean(0), rows_ND.std(0, correction=0)
    alive_D = deviation_D > 1e-12 * (1 + mean_D.abs())  # constant but for rounding
    factor_D = torch.where(alive_D, 1 / torch.where(alive_D, deviation_D, 1.0), 0.0)
    return (rows_ND - mean_D) * factor_D, factor_D, mean_D


def _products(kept_nD: Tensor, held_hD: Tensor) -> tuple[Tensor, Tensor]:
    """Return x' A y, up to one factor, among the kept rows and from the held rows to them.

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
    """Return 1 / g, by Ledoit and Wolf's shrinkage r of the covariance T = X' X / n towards m I."""
    n, dimensions = kept_nD.shape
    m = float(gram_nn.trace()) / (n * dimensions)
    if m == 0:  # all rows are equal: nothing varies, and nothing is shrunk
        return 0.0
    squared = float(gram_nn.square().sum()) / n**2  # |T|^2 = |X X'|^2 / n^2
    away = squared / dimensions - m**2  # the squared distance of T from m I, by column
    fourth = float(gram_nn.diagonal().square().sum()) / n
    noise = min(max(0.0, (fourth - squared) / (n * dimensions)), away)
    r = max(noise / away, LEAST_SHRINKAGE) if away > 0 else 1.0
    return (1 - r) / (n * r * m)

"""The numbers of an entropy profile, class by class and layer by layer, and the bytes that a ledger commits to.

A profile describes the outputs of every layer on a committed probe set at one moment. Numbers are little-endian: counts
as uint32, everything else as IEEE 754 float64, the precision that decisions are taken in. Layers are in the order of
the genesis; adapters, which come last there, are switched off in a profile and have no numbers.

    content of a class      number of examples; for each layer: entropy, effective rank, Renyi-2 entropy of its rows as
                            they are, then the same three of its rows less their mean ("centred")
    joint content           number of examples; for each layer: the first three over all classes; chi, its mean over
                            permutations of the labels, p-value of the permutations; the three centred; then the
                            result of the linear probe: its p-value, and K x K counts, row by row, of the classes with
                            probes (below)

Earlier versions wrote neither the centred numbers nor the probe: their contents are shorter, and are read as they are.
Entropies are in nats, and every number is finite. Where only one class has probes there is nothing to separate: chi and
its mean are 0, p is 1. A class's content depends only on its own probes; the joint content depends on those of all
classes that have numbers. 4 examples of a class, orthogonal in the only layer, in the form of earlier versions:

    04000000 ef39fafe422ef63f 0000000000001040 ef39fafe422ef63f       4  log 4  4  log 4

Separation of classes: accuracies and their intervals, from the counts that a linear probe leaves.

    counts      K K: row, the class of the examples; column, the class that they were classified as
    balanced    mean over the classes of the share that was recognised; chance is 1 / K
    of a class  (share of its examples that were recognised + share of the others' that were not classified as it, each
                class weighted alike) / 2; chance is 1/2, whatever the number of classes

An interval of 95% takes Wilson's for each share and combines them by their distances from the shares (Zou and Donner,
"Construction of confidence limits about effect measures", 2008). It covers the variation with other probes of the same
classes, including those that the rule is fitted to. Probes that share a fitted rule are not independent: the variance
is taken as 2.25 times that of independent ones, which is the correction of Nadeau and Bengio ("Inference for the
generalization error", 2003) for five folds. `benchmarks/probe.md` measures the coverage. A class with one probe cannot
be separated and does not count.

No torch here: readers of recorded profiles use this module too. Shapes: K classes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.errors import LedgerError

# --- separation of classes ---

Counts = NDArray[np.int64]
VARIANCE = 2.25  # (1/5 + (1/5) / (4/5)) / (1/5): of accuracies from five folds, against independent examples
Z = 1.959963984540054  # of a two-sided 95% interval


class Told(NamedTuple):
    """Accuracy of separating classes, a share in [0, 1], with its interval."""

    accuracy: float
    low: float
    high: float
    chance: float

    @property
    def words(self) -> str:
        """Return a description for people.

        >>> Told(0.95, 0.9, 0.98, 0.5).words
        '0.95 (0.90 to 0.98), chance 0.50'
        """
        return f"{self.accuracy:.2f} ({self.low:.2f} to {self.high:.2f}), chance {self.chance:.2f}"


def balanced(counts_KK: Counts) -> float:
    """Return the mean share that was recognised, over the classes with two probes or more."""
    sizes = counts_KK.sum(1)
    tested = sizes > 1
    shares = counts_KK.diagonal()[tested] / sizes[tested]
    return float(shares.mean()) if len(shares) else 0.0


def told_apart(counts_KK: Counts) -> Told | None:
    """Return the balanced accuracy over all classes; None where fewer than two have two probes."""
    sizes = counts_KK.sum(1).tolist()
    shares = [(int(counts_KK[c, c]), size) for c, size in enumerate(sizes) if size > 1]
    if len(shares) < 2:
        return None
    return _combined([(right, size, 1 / len(shares)) for right, size in shares], chance=1 / len(shares))


def told_of(counts_KK: Counts, place: int) -> Told | None:
    """Return the accuracy of one class against the others; None where it has one probe, or no other has two."""
    sizes = counts_KK.sum(1).tolist()
    others = [c for c, size in enumerate(sizes) if size > 1 and c != place]
    if sizes[place] < 2 or not others:
        return None
    shares = [(int(counts_KK[place, place]), sizes[place], 0.5)]
    shares += [(sizes[c] - int(counts_KK[c, place]), sizes[c], 0.5 / len(others)) for c in others]
    return _combined(shares, chance=0.5)


def wilson(right: float, size: float) -> tuple[float, float]:
    """Return Wilson's interval of a share.

    >>> [round(end, 3) for end in wilson(9, 10)]
    [0.596, 0.982]
    """
    share, squared = right / size, Z**2
    middle = (share + squared / (2 * size)) / (1 + squared / size)
    half = Z / (1 + squared / size) * math.sqrt(share * (1 - share) / size + squared / (4 * size**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def _combined(shares: list[tuple[int, int, float]], *, chance: float) -> Told:
    """Return the weighted sum of shares (right, size, weight) with its interval."""
    # Zou and Donner: the squared distances of the ends from the estimates add up, with squared weights. Counts are
    # divided by VARIANCE, which widens each interval as that many times the variance does.
    accuracy = sum(weight * right / size for right, size, weight in shares)
    below = above = 0.0
    for right, size, weight in shares:
        low, high = wilson(right / VARIANCE, size / VARIANCE)
        below += (weight * (right / size - low)) ** 2
        above += (weight * (high - right / size)) ** 2
    low, high = max(0.0, accuracy - math.sqrt(below)), min(1.0, accuracy + math.sqrt(above))
    return Told(accuracy=accuracy, low=low, high=high, chance=chance)


# --- contents ---

Doubles = NDArray[np.float64]
SPECTRUM = ("entropy", "effective_rank", "renyi2")
CENTRED = ("entropy_centred", "effective_rank_centred", "renyi2_centred")
JOINT = (*SPECTRUM, "chi", "chi_null", "p_value")
TOLD = ("told_apart", "told_low", "told_high", "told_chance", "told_p_value")
SHOWN = (*JOINT, *CENTRED, *TOLD)
"""The numbers that are shown for a layer, over all classes or of one class; a class has no `chi`, `chi_null` and
p-values."""

_COUNT, _FLOAT = np.dtype("<u4"), np.dtype("<f8")
_OF_CLASS = (len(SPECTRUM), len(SPECTRUM) + len(CENTRED))
_BEFORE_COUNTS = len(JOINT) + len(CENTRED) + 1


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerProfiles:
    """A profile. Shapes: k classes with probes, L layers. Raises `LedgerError` for impossible numbers."""

    step: int  # optimiser steps done before
    probes: str  # the probe set's root, in hexadecimal
    classes: tuple[int, ...]  # indices into `genesis.classes`, ascending
    examples: tuple[int, ...]  # k: probes of each
    spectra: Doubles  # k L 6; of earlier versions k L 3
    joint: Doubles  # L (10 + k k); of earlier versions L 6

    def __post_init__(self) -> None:
        # Both contents are of the same version: with the centred numbers and the probe, or both without.
        k, layers = len(self.classes), len(self.joint)
        whole, earlier = (_OF_CLASS[1], _BEFORE_COUNTS + k * k), (_OF_CLASS[0], len(JOINT))
        shapes = [(self.spectra.shape, self.joint.shape)]
        if shapes[0] not in [((k, layers, own), (layers, joint)) for own, joint in (whole, earlier)]:
            raise LedgerError(f"entropy profile: the shapes do not belong to {k} classes and {layers} layers")
        if self.joint.dtype != np.float64 or self.spectra.dtype != np.float64:
            raise LedgerError("entropy profile: expected float64")
        if not (np.isfinite(self.joint).all() and np.isfinite(self.spectra).all()):
            raise LedgerError("entropy profile: a number is not finite")
        if list(self.classes) != sorted(set(self.classes)) or min(self.classes, default=0) < 0:
            raise LedgerError(f"entropy profile: classes {self.classes!r:.80}; expected indices, ascending")
        if len(self.examples) != k or min(self.examples, default=1) < 1:
            raise LedgerError(f"entropy profile: examples {self.examples!r:.80}; expected a number for each class")
        # The linear probe was tested on every probe exactly once.
        for row in self.joint:
            counts = counts_of(row)
            if counts is not None and counts.sum(1).tolist() != list(self.examples):
                raise LedgerError(
                    f"entropy profile: the probe's counts are of {counts.sum(1).tolist()!r:.80} examples; expected"
                    f" {list(self.examples)!r:.80}"
                )


def encode_class(profiles: LayerProfiles, place: int) -> bytes:
    """Return the content of `profiles.classes[place]`."""
    return _bytes(profiles.examples[place], profiles.spectra[place])


def encode_joint(profiles: LayerProfiles) -> bytes:
    """Return the joint content."""
    return _bytes(sum(profiles.examples), profiles.joint)


def decode_class(content: bytes, *, layers: int) -> tuple[int, Doubles]:
    """Return the number of a class's examples and its spectra, L 6; of earlier versions L 3.

    Raises `LedgerError` for damaged content.
    """
    return _read(content, layers, _OF_CLASS, "a class")


def decode_joint(content: bytes, *, layers: int) -> tuple[int, Doubles]:
    """Return the number of all examples and the joint numbers, L (10 + k k); of earlier versions L 6.

    Raises `LedgerError` for damaged content.
    """
    # The number of classes is not stated; it follows from the size, whose counts are a square.
    columns = max(0, len(content) - _COUNT.itemsize) // (_FLOAT.itemsize * max(1, layers))
    classes = math.isqrt(max(0, columns - _BEFORE_COUNTS))
    allowed = (len(JOINT), *((_BEFORE_COUNTS + classes**2,) if classes else ()))
    count, joint = _read(content, layers, allowed, "all classes")
    for row in joint:
        counts = counts_of(row)
        if counts is not None and counts.sum() != count:
            raise LedgerError(f"entropy profile of all classes: counts of {counts.sum()} examples; expected {count}")
    return count, joint


def joint_row(numbers: Sequence[float], centred: Sequence[float], p_value: float, counts_KK: Counts) -> Doubles:
    """Return a layer's row of the joint numbers. `numbers` are those of `JOINT`."""
    return np.array([*numbers, *centred, p_value, *counts_KK.ravel().tolist()], np.float64)


def counts_of(row: Doubles) -> Counts | None:
    """Return the linear probe's counts, K K, from a row of the joint numbers; None in earlier versions.

    Raises `LedgerError` for numbers that are no counts.
    """
    if len(row) == len(JOINT):
        return None
    counts = row[_BEFORE_COUNTS:]
    if not ((counts >= 0) & (counts < 2**32) & (counts == np.floor(counts))).all():
        raise LedgerError("entropy profile: the probe's counts are not whole numbers")
    classes = math.isqrt(len(counts))
    return counts.astype(np.int64).reshape(classes, classes)


def shown_joint(row: Doubles) -> dict[str, float | None]:
    """Return the numbers of `SHOWN` over all classes in a layer, None where they were not measured."""
    counts = counts_of(row)
    values: dict[str, float] = dict(zip((*JOINT, *CENTRED), row.tolist(), strict=False))
    told = None if counts is None else told_apart(counts)
    values |= {} if told is None else {**_shown_told(told), "told_p_value": float(row[_BEFORE_COUNTS - 1])}
    return {name: values.get(name) for name in SHOWN}


def shown_class(row: Doubles, joint: Doubles | None = None, place: int = 0) -> dict[str, float | None]:
    """Return the numbers of `SHOWN` of one class in a layer.

    Its separation is in the joint row, where the class is at `place`; None: the joint row is missing.
    """
    values: dict[str, float] = dict(zip((*SPECTRUM, *CENTRED), row.tolist(), strict=False))
    counts = None if joint is None else counts_of(joint)
    if counts is not None and place >= len(counts):
        raise LedgerError(f"entropy profile: the probe's counts are of {len(counts)} classes; expected {place + 1}")
    told = None if counts is None else told_of(counts, place)
    values |= {} if told is None else _shown_told(told)
    return {name: values.get(name) for name in SHOWN}


def _shown_told(told: Told) -> dict[str, float]:
    return dict(zip(TOLD, told, strict=False))


def _bytes(count: int, numbers: Doubles) -> bytes:
    return np.array(count, _COUNT).tobytes() + np.ascontiguousarray(numbers, _FLOAT).tobytes()


def _read(content: bytes, layers: int, allowed: Sequence[int], what: str) -> tuple[int, Doubles]:
    """Return the count and the numbers of content that has one of the allowed numbers of columns."""
    sizes = [_COUNT.itemsize + layers * columns * _FLOAT.itemsize for columns in allowed]
    if len(content) not in sizes:
        expected = " or ".join(str(size) for size in sizes)
        raise LedgerError(f"entropy profile of {what}: found {len(content)} bytes, expected {expected}")
    count = int(np.frombuffer(content, _COUNT, count=1)[0])
    numbers = np.frombuffer(content, _FLOAT, offset=_COUNT.itemsize).astype(np.float64)
    if not np.isfinite(numbers).all():
        raise LedgerError(f"entropy profile of {what}: a number is not finite")
    return count, numbers.reshape(layers, allowed[sizes.index(len(content))])

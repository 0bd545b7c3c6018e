"""Examples of one class divided by a score, so that a rule of a policy can be about some of them.

In each step the examples of a class that are read are ranked by their score, without numbers of other classes:

    loss        the loss of the example, by the model as it is when the step begins
    entropy     the entropy of the model's prediction, in nats, mean over places or tokens

The example of rank r among n, from 0, is at (r + 1/2) / n: an interval of [0, 1] is a band of the class's examples in
this step. `loss: [0.5, 1]` is the harder half, and of a single example, which is at 1/2, the whole. Of equal scores the
one in the earlier slot is ranked lower, and a score that is not a number highest, so that how many examples are in a
band depends on their number alone.

A band here is a box: an interval for each score. The bands of a class divide its examples at every end that a rule
about the class names, so that each rule holds for all of a band or for none of it.

Shapes: N examples of the class in the step.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer.errors import ProvenanceError
from explorer.provenance.regions import WHOLE, Interval, check_interval, inside, partition, written
from explorer.schema import record

SCORES = ("loss", "entropy")
MAX_BANDS = 32  # of one class: each is a pass of its own


@record
class Examples:
    """The examples that a rule is about: an interval of ranks for each score that it names."""

    loss: Interval | None = None
    entropy: Interval | None = None

    def holds(self, band: "Band") -> bool:
        """Return whether the band lies within the intervals. It crosses none of their ends."""
        return all(wanted is None or inside(band.of(score)[0], wanted) for score, wanted in self.named().items())

    def named(self) -> dict[str, Interval | None]:
        return {score: getattr(self, score) for score in SCORES}


@dataclass(frozen=True, kw_only=True, slots=True)
class Band:
    """A part of a class's examples in a step: an interval of ranks for each score."""

    loss: Interval = WHOLE
    entropy: Interval = WHOLE

    def of(self, score: str) -> Interval:
        return self.loss if score == "loss" else self.entropy

    @property
    def words(self) -> str:
        """For people; "" for all examples.

        >>> Band(loss=(0.5, 1.0)).words
        'loss [0.5, 1]'
        """
        return ", ".join(f"{score} {written(self.of(score))}" for score in SCORES if self.of(score) != WHOLE)


ALL = Band()


def bands_of(rules: Iterable[Examples | None]) -> tuple[Band, ...]:
    """Return the bands into which these rules divide the examples of a class; one of all where none of them names a
    score."""
    named = [examples for examples in rules if examples is not None]
    losses = partition(examples.loss for examples in named if examples.loss is not None)
    entropies = partition(examples.entropy for examples in named if examples.entropy is not None)
    return tuple(Band(loss=loss, entropy=entropy) for loss, entropy in itertools.product(losses, entropies))


def scores_of(bands: Iterable[Band]) -> tuple[str, ...]:
    """Return the scores that it takes to tell these bands apart, in the order of `SCORES`."""
    several = tuple(bands)
    return tuple(score for score in SCORES if any(band.of(score) != WHOLE for band in several))


def placed(bands: tuple[Band, ...], scores: Mapping[str, NDArray[np.float32]]) -> NDArray[np.int64]:
    """Return the band of each example, N, by the scores of all N in the order of their slots."""
    positions = {score: _positions(values) for score, values in scores.items()}
    count = len(next(iter(positions.values())))
    band_of = np.full(count, -1, np.int64)
    for at, band in enumerate(bands):
        here = np.ones(count, np.bool_)
        for score, values in positions.items():
            here &= np.array([inside(value, band.of(score)) for value in values.tolist()], np.bool_)
        band_of[here] = at
    assert (band_of >= 0).all(), "bands divide all examples"
    return band_of


def check_examples(examples: Examples | None, where: str) -> None:
    """Check that a rule names a score, and an interval that holds something. Raises `ProvenanceError` that begins with
    `where`."""
    if examples is None:
        return
    if all(interval is None for interval in examples.named().values()):
        raise ProvenanceError(f"{where}: names no score; expected one of {', '.join(SCORES)}, such as loss: [0.5, 1]")
    for score, interval in examples.named().items():
        check_interval(interval, f"{where}.{score}")


def check_bands(rules: Iterable[Examples | None], where: str) -> None:
    """Check that the rules of a policy divide no class into too many bands. Raises `ProvenanceError`."""
    if (count := len(bands_of(rules))) > MAX_BANDS:
        raise ProvenanceError(
            f"{where}: rules divide the examples into {count} bands; at most {MAX_BANDS} are told apart"
        )


def _positions(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """(rank + 1/2) / N. A stable sort: of equals the first, and NaN last."""
    ranks = np.empty(len(scores), np.int64)
    ranks[np.argsort(scores, kind="stable")] = np.arange(len(scores))
    return (ranks + 0.5) / max(1, len(scores))

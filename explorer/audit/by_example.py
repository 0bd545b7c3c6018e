"""Whether the examples of a class trained what the policy lets them, by what its step recorded of them.

The record is evidence of a decision (`explorer.entries.chosen`): the scores of the examples and the passes that they
were in. Everything else follows from the signed policy: the band of each example by its rank, and what the band may
change. That the scores are those of the model, a replay shows.

Shapes: N examples, P passes, L layers, B bands.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.entries.chosen import Chosen
from explorer.provenance.admission import Banded
from explorer.provenance.examples import placed, scores_of

MAX_CHOSEN = 2**24  # bytes of one decision


class Fault(NamedTuple):
    """What contradicts the policy, and in which layer; None: in none alone."""

    words: str
    layer: int | None = None


def faults_of(chosen: Chosen, banded: Banded, *, most: int, trained: NDArray[np.bool_]) -> Iterator[Fault]:
    """What contradicts the weights that are in force. `most`: the slots of the class in the step; `trained`, L: where
    the class has weight in the numbers of the step."""
    names, count = scores_of(banded.bands), len(chosen.taken)
    if len(chosen.scores) != len(names):
        yield Fault(f"{len(chosen.scores)} scores are recorded; expected {', '.join(names)}")
        return
    if not 0 < count <= most:
        yield Fault(f"{count} examples are recorded; expected 1 to {most}, its slots")
        return
    where_N = placed(banded.bands, dict(zip(names, chosen.scores, strict=True)))
    may_NL = banded.weights[where_N] > 0
    none_PL = np.zeros((256 - len(chosen.passes), chosen.passes.shape[1]), np.bool_)
    reached_NL = np.concatenate([chosen.passes, none_PL])[chosen.taken]
    for layer in np.flatnonzero((reached_NL & ~may_NL).any(0)).tolist():
        wrong = np.flatnonzero(reached_NL[:, layer] & ~may_NL[:, layer])
        band = banded.bands[where_N[wrong[0]]].words
        yield Fault(f"{len(wrong)} examples trained it that the policy denies it, the first of {band}", layer)
    took_L = reached_NL.any(0)
    for layer in np.flatnonzero(trained & ~took_L).tolist():
        yield Fault("it has weight there, and no pass took its gradients", layer)

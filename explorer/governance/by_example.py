"""Routing by example: the rows of one class that a policy tells apart, as passes that may change different layers.

Where the rules in force tell the examples of a class apart, its rows are scored when they are read
(`explorer.governance.scores`), ranked among themselves (`explorer.provenance.examples`), and each band of them is a
forward and backward pass of its own, for the gradients of the layers that the policy admits it to. Bands that may
change the same are one pass. The class stays one share: its gradients are summed before they are anybody's, the loss is
divided by the size of the whole batch, and no other class's step changes by one bit.

What was passed is noted for the ledger as it happened (`explorer.entries.chosen`).

Shapes: N rows of the share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer.engine.state import Part, State
from explorer.entries.chosen import NONE, RULE, Chosen, encode_chosen
from explorer.governance.layers import GovernedLayer
from explorer.governance.scores import scores
from explorer.governance.session import DecisionNote, Session
from explorer.provenance.examples import Band, placed, scores_of


@dataclass(frozen=True, kw_only=True, slots=True)
class BandGrant:
    """What the rows of some bands may change, which is part of what their class may."""

    bands: frozenset[int]  # places among the class's
    parameters: frozenset[str]
    buffers: frozenset[str]
    factors: Mapping[str, float]  # of parameters, where the band's weight is less than the class's largest


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ByExample:
    """How the rows of one class are told apart in one phase: asked for by the engine once they are read."""

    bands: tuple[Band, ...]
    grants: tuple[BandGrant, ...]
    layers: tuple[GovernedLayer, ...]

    def __call__(self, state: State) -> tuple[Part, ...]:
        """The parts of the share, in the order of their first band."""
        assert state.share is not None
        where_N = placed(self.bands, self._scores(state))
        return tuple(
            Part(
                slots=state.share.slots[np.isin(where_N, sorted(grant.bands))],
                parameters=grant.parameters,
                buffers=grant.buffers,
                factors=grant.factors,
            )
            for grant in self.grants
        )

    def note(self, state: State) -> DecisionNote:
        """What was passed, once it was: the slots and the parameters are those of the passes themselves."""
        assert state.share is not None
        path, slots = state.share.name, state.share.slots
        kinds = list(dict.fromkeys(part.parameters | part.buffers for part in state.passed))
        taken = np.full(len(slots), NONE, np.uint8)
        for part in state.passed:
            taken[np.isin(slots, part.slots)] = kinds.index(part.parameters | part.buffers)
        tensors = [{*each.parameters, *each.buffers} for each in self.layers]
        flags = np.array([[not kind.isdisjoint(each) for each in tensors] for kind in kinds], np.bool_)
        known = state.resource(Session).notes.scores.pop(path)
        chosen = Chosen(scores=known, passes=flags.reshape(len(kinds), len(self.layers)), taken=taken)
        return DecisionNote(
            action="selection",
            rule=RULE,
            parameters={},
            subjects=(path,),
            layers=(),
            evidence={path: encode_chosen(chosen)},
        )

    def _scores(self, state: State) -> dict[str, NDArray[np.float32]]:
        """The scores of the rows, kept for the note."""
        assert state.share is not None
        names = scores_of(self.bands)
        found = {name: each.cpu().numpy().astype(np.float32) for name, each in scores(state, *names).items()}
        state.resource(Session).notes.scores[state.share.name] = np.stack([found[name] for name in names])
        return found


def grouped(bands: Sequence[BandGrant]) -> tuple[BandGrant, ...]:
    """The grants of single bands, those that may change the same in the same measure as one."""
    found: dict[tuple[frozenset[str], frozenset[str], tuple[tuple[str, float], ...]], frozenset[int]] = {}
    for each in bands:
        key = each.parameters, each.buffers, tuple(sorted(each.factors.items()))
        found[key] = found.get(key, frozenset()) | each.bands
    return tuple(
        BandGrant(bands=places, parameters=parameters, buffers=buffers, factors=dict(factors))
        for (parameters, buffers, factors), places in found.items()
    )

"""Governed selective backprop: of each class, only the examples with the largest losses train the layers it may train.

Jiang et al., "Accelerating Deep Learning by Focusing on the Biggest Losers", 2019, arXiv:1910.00762. An example
competes only with those of its own class: a threshold over the whole batch would be a channel from one class to
another. Scoring (`explorer.governance.probes`) changes no buffer and no random draw. The loss is still divided by the
nominal batch, so the weight of an example does not depend on which others are dropped.

Each choice is noted, with the losses that decided it: of every example of the class in the batch, in the order of the
slots, float32, little-endian. Those at or above the last one kept were kept.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

from pydantic import Field
from torch import Tensor

from explorer.engine.method import Kind, Method, Moment, Planned, Unit
from explorer.engine.state import State
from explorer.errors import RecipeError
from explorer.governance.probes import scores
from explorer.governance.shared_state import DecisionNote, Session


def hardest(losses_N: Tensor, *, keep: float) -> Tensor:
    """Return the rows of the largest losses, a share `keep` of them and at least one, ascending."""
    count = max(1, math.ceil(keep * len(losses_N)))
    # A stable sort keeps the first of equal losses on every device, so that a replay chooses the same rows.
    return losses_N.sort(descending=True, stable=True).indices[:count].sort().values


@dataclass(frozen=True, kw_only=True, slots=True)
class GovernedSelectiveBackprop(Method):
    """Train on the hardest examples of each class."""

    name: ClassVar[str] = "governed_selective_backprop"
    kind: ClassVar[Kind] = Kind.SELECT
    summary: ClassVar[str] = "Trains each class on those of its examples that the model finds hardest."
    source: ClassVar[str] = "Jiang et al. 2019, arXiv:1910.00762"
    formula: ClassVar[str] = (
        "of a class's n rows in a step those of the ceil(`keep` n) largest losses train, from `start` on; the sum of"
        " losses is still divided by the size of the whole batch"
    )
    changes: ClassVar[str] = "which rows train"
    needs: ClassVar[str] = "a loss of each example"
    routing: ClassVar[str] = "Works class by class: an example competes only with those of its own class."

    start: Annotated[
        float, Field(ge=0, lt=1, description="share of training before the first choice"), Unit("share of training")
    ] = 0.5
    keep: Annotated[
        float, Field(gt=0, le=1, description="share of a class's examples that train"), Unit("share of a class's rows")
    ] = 0.5

    def phase(self, moment: Moment) -> str:
        if self.keep == 1:
            return ""
        return "hardest only" if moment.progress >= self.start else "all examples"

    def check(self, planned: Planned) -> None:
        if planned.lanes > 1:
            raise RecipeError("found several lanes: expected one, since choices are recorded for a class as a whole")

    def change_batch(self, state: State) -> None:
        assert state.batch is not None and state.share is not None
        if self.keep == 1 or state.progress < self.start:
            return
        losses = scores(state, "loss")["loss"]
        state.batch = state.batch.rows(hardest(losses, keep=self.keep))
        state.resource(Session).notes.decisions.append(
            DecisionNote(
                action="selection",
                rule="largest-losses",
                parameters={"keep": self.keep},
                subjects=(state.share.name,),
                layers=(),
                evidence={state.share.name: losses.cpu().numpy().astype("<f4").tobytes()},
            )
        )

    def neutral(self) -> Self:
        return replace(self, keep=1.0)

"""Layer freezing: stop training the first layers part of the way through, and save their backward pass.

Brock et al., "FreezeOut", 2017, arXiv:1706.04983; Raghu et al., "SVCCA", 2017, arXiv:1706.05806. The share that is
frozen is a share of the model's multiply-adds, in the order in which the layers run, so that it is a share of work;
the last layer always trains. A tensor that two layers use is frozen with the first of them, so a head that is tied to
an embedding stops with the embedding. A frozen layer keeps its normalisation statistics as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

from pydantic import Field

from explorer.data.dataset import Modality
from explorer.engine.leaves import Leaf
from explorer.engine.method import Kind, Method, Moment, Unit
from explorer.engine.state import State, deny

PHASES = 10  # the speed of a step is taken as equal within a tenth of the frozen share


def frozen_share(progress: float, *, start: float, level: float) -> float:
    """Return the share to freeze: 0 up to `start`, then a straight line to `level` at the end."""
    if progress <= start:
        return 0.0
    return level * (progress - start) / (1 - start)


def frozen_prefix(layers: Sequence[Leaf], *, share: float) -> list[Leaf]:
    """Return the longest run of first layers that costs at most `share` of all; never the last layer."""
    total = sum(leaf.cost for leaf in layers)
    prefix: list[Leaf] = []
    cost = 0
    for leaf in layers[:-1]:
        cost += leaf.cost
        if cost > share * total:
            break
        prefix.append(leaf)
    return prefix


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerFreezing(Method):
    """Freeze a growing prefix of the layers: no example may change them, and their backward is not run."""

    name: ClassVar[str] = "layer_freezing"
    kind: ClassVar[Kind] = Kind.PLAN
    summary: ClassVar[str] = "Stops training the first layers part of the way through."
    source: ClassVar[str] = "Brock et al. 2017, arXiv:1706.04983; Raghu et al. 2017, arXiv:1706.05806"
    formula: ClassVar[str] = (
        "frozen share of the work = level (progress - start) / (1 - start) after start, 0 before; the first layers\n"
        "in the order of execution, as many as fit into it, never the last; a tied head stops with its embedding"
    )
    changes: ClassVar[str] = "which parameters, statistics and optimiser states a step may change"
    needs: ClassVar[str] = "any model"
    routing: ClassVar[str] = "A frozen layer is denied to every class; the rest is as the policy says."
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "text", "volume"})

    start: Annotated[
        float, Field(ge=0, lt=1, description="before the first layer freezes"), Unit("share of training")
    ] = 0.5
    level: Annotated[
        float, Field(ge=0, le=1, description="what is frozen at the end; 0 is off"), Unit("share of the work")
    ] = 1.0

    def phase(self, moment: Moment) -> str:
        if self.level == 0:
            return ""
        share = frozen_share(moment.progress, start=self.start, level=self.level)
        return "none frozen" if share == 0 else f"{int(round(share * PHASES, 9)) / PHASES:.1f} frozen"

    def change_plan(self, state: State) -> None:
        frozen = self._frozen(state)
        state.shares = tuple(deny(share, frozen) for share in state.shares)

    def neutral(self) -> Self:
        return replace(self, level=0.0)

    def _frozen(self, state: State) -> list[Leaf]:
        share = frozen_share(state.progress, start=self.start, level=self.level)
        return frozen_prefix(state.layers, share=share) if share else []

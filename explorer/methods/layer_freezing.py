"""Layer freezing: stop training the first layers partway through, and save their backward pass.

Brock et al., "FreezeOut", 2017, arXiv:1706.04983; Raghu et al., "SVCCA", 2017, arXiv:1706.05806. The frozen share is a
share of the model's multiply-adds, in the order in which the layers run; the last layer always trains. A tensor that
two layers use is frozen with the first of them, so a head that is tied to an embedding freezes with the embedding. A
frozen layer keeps its normalisation statistics too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

from pydantic import Field
from torch import Tensor, nn

from explorer.engine.forms import check_progress, checked
from explorer.engine.leaves import Leaf, leaves
from explorer.engine.method import Kind, Method, Moment, Unit
from explorer.engine.state import State, deny

PHASES = 10  # profiles take steps to be equally fast within a tenth of the frozen share


def frozen_share(progress: float, *, start: float, level: float) -> float:
    """Return the share to freeze: 0 up to `start`, then a straight line to `level` at the end."""
    if progress <= start:
        return 0.0
    return level * (progress - start) / (1 - start)


def frozen_prefix(layers: Sequence[Leaf], *, share: float) -> list[Leaf]:
    """Return the longest prefix of the layers that costs at most `share` of all, without the last layer."""
    total = sum(leaf.cost for leaf in layers)
    prefix: list[Leaf] = []
    cost = 0
    for leaf in layers[:-1]:
        cost += leaf.cost
        if cost > share * total:
            break
        prefix.append(leaf)
    return prefix


class Freezing:
    """The layers of a model in the order of execution, of which `freeze` stops a growing prefix."""

    def __init__(self, model: nn.Module, layers: Sequence[Leaf], method: "LayerFreezing") -> None:
        self._layers, self._method = layers, method
        self._parameters = dict(model.named_parameters())
        self._trainable = frozenset(name for name, p in self._parameters.items() if p.requires_grad)

    def freeze(self, progress: float) -> list[str]:
        """Freeze the layers of this moment; return their names. `progress` is the share of training that is done.

        A frozen parameter has no gradient, so the optimiser leaves it, and autograd skips its layer; a frozen
        normalisation keeps its statistics. Call it in every step, before the pass and after `model.train()`.
        """
        check_progress(progress, form=LayerFreezing.name)
        share = frozen_share(progress, start=self._method.start, level=self._method.level)
        frozen = frozen_prefix(self._layers, share=share) if share else []
        stopped = {name for leaf in frozen for name in leaf.parameters}
        for name in self._trainable:
            parameter = self._parameters[name]
            parameter.requires_grad_(name not in stopped)
            if name in stopped:
                parameter.grad = None
        for leaf in frozen:
            if leaf.buffers:
                leaf.module.eval()
        return [leaf.name for leaf in frozen]


def layer_freezing(model: nn.Module, inputs: Tensor, *, start: float = 0.5, level: float = 1.0) -> Freezing:
    """Return the layers of a model in the order in which it uses them on `inputs` (two examples or more), to freeze.

    The model runs once and is left as it was.

    In a loop:

        freezing = functional.layer_freezing(model, batches[0][0])
        for step, (x, y) in enumerate(batches):
            model.train()
            freezing.freeze(step / len(batches))
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    return Freezing(model, leaves(model, inputs), checked(LayerFreezing, start=start, level=level))


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerFreezing(Method):
    """The frozen prefix of the layers grows during training. Frozen layers still run forward, but not backward."""

    name: ClassVar[str] = "layer_freezing"
    kind: ClassVar[Kind] = Kind.PLAN
    summary: ClassVar[str] = "Stops training the first layers part of the way through."
    source: ClassVar[str] = "Brock et al. 2017, arXiv:1706.04983; Raghu et al. 2017, arXiv:1706.05806"
    formula: ClassVar[str] = (
        "frozen share of the work = level (progress - start) / (1 - start) after start, 0 before; the first layers\n"
        "in the order of execution, as many as fit into it, never the last; a tied head freezes with its embedding"
    )
    changes: ClassVar[str] = "which parameters, statistics and optimiser states a step may change"
    needs: ClassVar[str] = "any model"
    routing: ClassVar[str] = "Works: a frozen layer is denied to every class; the policy decides about the others."

    start: Annotated[
        float, Field(ge=0, lt=1, description="before the first layer freezes"), Unit("share of training")
    ] = 0.5
    level: Annotated[float, Field(ge=0, le=1, description="frozen at the end; 0 is off"), Unit("share of the work")] = (
        1.0
    )

    def phase(self, moment: Moment) -> str:
        if self.level == 0:
            return ""
        # `round` first: 0.3 * 10 must not fall below 3.
        share = frozen_share(moment.progress, start=self.start, level=self.level)
        return "none frozen" if share == 0 else f"{int(round(share * PHASES, 9)) / PHASES:.1f} frozen"

    # Freezing denies the layers to the step's shares, before anything is read: autograd then never sees them, which
    # saves their backward pass, and the optimiser leaves them, since they get no gradient.
    def change_plan(self, state: State) -> None:
        frozen = self._frozen(state)
        state.shares = tuple(deny(share, frozen) for share in state.shares)

    def neutral(self) -> Self:
        return replace(self, level=0.0)

    def _frozen(self, state: State) -> list[Leaf]:
        share = frozen_share(state.progress, start=self.start, level=self.level)
        return frozen_prefix(state.layers, share=share) if share else []

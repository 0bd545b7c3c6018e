"""The state of a run while it trains. Each field says who writes it and when; nothing else writes it.

A step works on *shares*: the rows of one provenance class, the tensors that they may change and how strongly. An
ordinary step is one share of all rows that may change everything in the only region; freezing and routing narrow the
shares, gradient accumulation cuts each of them into microbatches. No computation works on two shares at once, so a
share's numbers do not depend on any other's content.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer

from explorer.data.batches import Batch
from explorer.data.pace import Pace
from explorer.engine.leaves import Leaf
from explorer.engine.loss_scale import Rescaled
from explorer.errors import RecipeError

SHARED = "shared"  # the region of everything that belongs to no class in particular

Resource = TypeVar("Resource")


def progress(pace: Pace | None, step: int, total_steps: int) -> float:
    """Return the share of a run's examples that the steps before `step` take."""
    if pace is None or len(pace.stages) == 1:
        return step / total_steps
    return pace.position(step) / pace.position(total_steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Region:
    """Parameters with optimisers of their own."""

    name: str
    parameters: dict[str, nn.Parameter]
    optimizers: tuple[Optimizer, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Part:
    """Rows of a share that may change less than the share may, and so have passes of their own."""

    slots: np.ndarray  # int64, ascending: of the share's
    parameters: frozenset[str]
    buffers: frozenset[str]
    factors: Mapping[str, float] = field(default_factory=dict)  # on a parameter's gradient; absent: 1


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Share:
    """The rows of a step that have one provenance class, and what they may change."""

    name: str  # class path; "" without provenance
    code: int
    slots: np.ndarray  # int64, ascending: their places in the nominal batch
    parameters: frozenset[str]  # gradients for these only; none: not read, no forward, no backward
    buffers: frozenset[str]  # that its forward passes may change; the others are restored
    weights: Mapping[str, float] = field(default_factory=dict)  # factor on a parameter's gradient; absent: 1
    regions: frozenset[str] = frozenset()  # the sealed regions that take part in its forward
    divide: "Callable[[State], tuple[Part, ...]] | None" = None  # tells its rows apart once they are read; None: alike
    dealt: np.ndarray | None = None  # all slots of its class in the step, by which lanes are dealt; None: its own
    lane: int | None = None  # of a cell: what one lane has of a share (engine/lanes.py); None: the whole share


@dataclass(slots=True, kw_only=True)
class State:
    """The run, as hooks see it. Slots: a misspelt field is an error."""

    # Written once, before `change_model`.
    seed: int
    total_steps: int
    classes: int
    model: nn.Module
    pace: Pace | None = None  # batch sizes by step; None: all equal
    modes: AbstractContextManager[object] = field(default_factory=nullcontext)  # number formats of a forward pass
    resources: dict[type, Any] = field(default_factory=dict)  # objects given to the run besides its recipe, by type

    # Written by the engine before `before_step`: the size of this step's batch. Every loss is divided by it, however
    # many rows take part.
    batch_size: int

    # Written by methods in `change_model`: the sealed region of each parameter that is in one, by name; and a function
    # that runs the model in training passes, such as a compiled one. All other passes run the model itself.
    sealed: dict[str, str] = field(default_factory=dict)
    forward: Callable[[Tensor], Tensor] | None = None

    # Written once by the engine, after `change_model`: surgery may add parameters.
    regions: dict[str, Region] = field(default_factory=dict)
    layers: tuple[Leaf, ...] = ()  # the parametric leaves in order of execution
    recompute: Callable[[], None]  # takes the share's gradients again, at changed parameters

    # Written by the engine before `before_step`: optimiser steps done so far, and the numbers of the training examples
    # in the slots of the nominal batch (B, int64).
    step: int = 0
    examples: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    # Written by the engine before `change_plan`; replaced by the methods that freeze and route. `admission` has, by
    # parameter, the codes of the classes that the policy admits to it now, whether or not they are in this batch;
    # empty: every class is admitted everywhere.
    shares: tuple[Share, ...] = ()
    admission: dict[str, frozenset[int]] = field(default_factory=dict)

    # Written by the engine for each share that may change anything, in this order.
    share: Share | None = None
    raw: Tensor | None = None  # its examples as they were read (uint8), before `change_examples`; replaced there
    batch: Batch | None = None  # its rows, before `change_batch`; replaced by the methods that change the batch
    parts: tuple[Part, ...] = ()  # of a share that is divided, before `change_batch`; none: its rows are all alike
    passed: list[Part] = field(default_factory=list)  # the parts as they were passed, before `change_gradients`
    # Unweighted sums, before `change_gradients`; likewise. In fp16 without the loss scale; none if they overflowed.
    gradients: dict[str, Tensor] = field(default_factory=dict)

    # Written by the engine for each microbatch of the share, in this order.
    rows: Batch | None = None  # before `before_forward`
    outputs: Tensor | None = None  # before `after_forward`
    loss_targets: Tensor | None = None  # before `before_loss`, from `rows.targets`; replaced by target methods
    smoothing: float = 0.0  # likewise: the share by which the loss moves class numbers towards uniform
    loss: Tensor | None = None  # scalar: the sum over rows divided by `batch_size`, before `after_loss`

    # Written by the engine before `before_update`: the change of fp16's loss scale that this step makes.
    rescaled: Rescaled | None = None

    # Written by the methods that scale the sum over shares in `before_update`: the factor, by parameter, in a shape
    # that broadcasts to the parameter's; absent: 1.
    scales: dict[str, Tensor] = field(default_factory=dict)

    # Written by the methods that compile during a step, whose time then says nothing about other steps; reset by the
    # engine at its end.
    compiled: bool = False

    # Written by the engine after each evaluation, before `after_evaluation`.
    metrics: dict[str, float] = field(default_factory=dict)

    # Running state of the methods, by method name; created by `Method.memory`, checkpointed by the engine.
    memory: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    @property
    def progress(self) -> float:
        """Share of the planned examples that the steps so far took, in [0, 1]; with equal batches, of the steps."""
        return progress(self.pace, self.step, self.total_steps)

    def resource(self, kind: type[Resource]) -> Resource:
        """Return the run's resource of this type. Raises `RecipeError` if it has none."""
        if kind not in self.resources:
            raise RecipeError(f"this run was given no {kind.__name__.lower()}: expected 'governance:' in the recipe")
        return self.resources[kind]

    def once(self, kind: type[Resource], make: Callable[[], Resource]) -> Resource:
        """Return the run's resource of this type, made when it is first asked for: what a method keeps in place of
        finding it again in every step."""
        if kind not in self.resources:
            self.resources[kind] = make()
        return self.resources[kind]


def deny(share: Share, layers: Iterable[Leaf]) -> Share:
    """Return the share without these layers' parameters and buffers: the mechanism of freezing and routing.

    A layer that is denied to a share gets no gradient from it, and its buffers are restored after the share's passes.
    Freezing denies a layer to every share.
    """
    denied = list(layers)
    parameters = {name for leaf in denied for name in leaf.parameters}
    buffers = {name for leaf in denied for name in leaf.buffers}
    if parameters.isdisjoint(share.parameters) and buffers.isdisjoint(share.buffers):
        return share
    return replace(share, parameters=share.parameters - parameters, buffers=share.buffers - buffers)

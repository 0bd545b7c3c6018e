"""What a run knows about itself while it trains. Each field says who writes it and when; nobody else does.

A step works on *microbatches*: rows of the batch, the tensors that they may change, and the region they belong to.
An ordinary step is one microbatch of all rows that may change everything in the one region there is; gradient
accumulation, freezing and routing are other plans of the same shape.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.optim import Optimizer

from explorer.data.batches import Batch
from explorer.engine.surgery import Leaf

SHARED = "shared"  # the region of everything that belongs to nobody in particular


@dataclass(frozen=True, kw_only=True, slots=True)
class Region:
    """Parameters that are clipped, perturbed, averaged and stepped together, and apart from all others."""

    name: str
    parameters: dict[str, nn.Parameter]
    optimizers: tuple[Optimizer, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Microbatch:
    """One pass of a step: these rows of the batch, with gradients for these parameters (by name) only."""

    rows: slice | Tensor
    parameters: frozenset[str]
    region: str = SHARED


@dataclass(slots=True, kw_only=True)
class State:
    """The run, as hooks see it. Slots: a misspelt field is an error."""

    # Written once, before `change_model`.
    seed: int
    total_steps: int
    batch_size: int
    classes: int
    model: nn.Module

    # Written once by the engine, after `change_model`: surgery may add parameters.
    regions: dict[str, Region] = field(default_factory=dict)
    layers: tuple[Leaf, ...] = ()  # the parametric leaves in order of execution
    recompute: Callable[[], None]  # runs the microbatches of this step again, for gradients at changed parameters

    # Written by the engine before `before_step`: optimiser steps done so far.
    step: int = 0

    # Written by the engine before `change_batch`; replaced by the methods that change the batch.
    batch: Batch | None = None

    # Written by the engine before `change_plan`; replaced by the methods that say who may change what.
    microbatches: tuple[Microbatch, ...] = ()

    # Written by the engine for each microbatch, in this order.
    microbatch: Microbatch | None = None  # before `before_forward`
    rows: Batch | None = None  # the batch's rows in this microbatch, before `before_forward`
    outputs: Tensor | None = None  # before `after_forward`
    loss_targets: Tensor | None = None  # before `before_loss`, from `rows.targets`; replaced by target methods
    loss: Tensor | None = None  # scalar: the sum over rows divided by `batch_size`, before `after_loss`

    # Running state of the methods, by method name; created by `Method.memory`, checkpointed by the engine.
    memory: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    @property
    def progress(self) -> float:
        """Share of the planned steps that are done, in [0, 1]."""
        return self.step / self.total_steps

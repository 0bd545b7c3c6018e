"""A reference for what a deletion left: training that is not trusted to keep the target out.

A fault in the code that trains may be in both runs, which then agree. So this one does not trust that code with three
things (`Reference`). The target's rows are blank, so that code which reads them anyhow arrives elsewhere. A region to
which a step admits nobody has no optimiser step at all, and a tensor to which it admits nobody has no gradient, not
even one of zeros, under which decay and momentum go on. Around each optimiser step such tensors, and what the optimiser
remembers for them, are compared bit for bit.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from explorer.data.dataset import Split
from explorer.engine.guard import same_bits
from explorer.engine.state import Region, State


class Reference:
    """Training that is not trusted to keep out what it leaves out."""

    def __init__(self, state: State) -> None:
        """Changes the optimisers of this training in place; it is at step 0."""
        self.moved: list[str] = []  # what moved in a step that admitted nobody to it, in words
        self.watched = 0
        self._state = state
        for region in state.regions.values():
            for optimizer in region.optimizers:
                self._guard(region, optimizer)

    def _guard(self, region: Region, optimizer: Optimizer) -> None:
        """In place of the optimiser's step. A method, since schedules bind what they find there anew."""
        step = optimizer.step

        def guarded(this: Optimizer) -> None:
            self._step(region, this, step)

        optimizer.step = MethodType(guarded, optimizer)  # pyright: ignore[reportAttributeAccessIssue]

    def _step(self, region: Region, optimizer: Optimizer, step: Callable[[], None]) -> None:
        admitted = {name for share in self._state.shares if len(share.slots) for name in share.parameters}
        closed = {name: each for name, each in region.parameters.items() if name not in admitted}
        for parameter in closed.values():
            parameter.grad = None
        if len(closed) == len(region.parameters):
            return
        before = {name: _seen(optimizer, each) for name, each in closed.items()}
        step()
        self.watched += bool(closed)
        for name, parameter in closed.items():
            if not _same(before[name], _seen(optimizer, parameter)):
                self.moved.append(
                    f"{name}: moved in step {self._state.step}, or what the optimiser remembers for it did, and nobody"
                    " in the batch was admitted to it"
                )


def blank(examples: Split, gone: NDArray[np.bool_]) -> Split:
    """The examples with zeros in place of these."""
    rows = torch.from_numpy(gone)
    inputs, labels = examples.inputs.clone(), examples.labels.clone()
    inputs[rows], labels[rows] = 0, 0
    return Split(inputs=inputs, labels=labels)


def _seen(optimizer: Optimizer, parameter: Tensor) -> dict[str, Any]:
    """A parameter and what the optimiser remembers for it."""
    state = {
        key: each.clone() if isinstance(each, Tensor) else each
        for key, each in optimizer.state.get(parameter, {}).items()
    }
    return {"": parameter.detach().clone(), **state}


def _same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return before.keys() == after.keys() and all(
        same_bits(value, after[key]) if isinstance(value, Tensor) else value == after[key]
        for key, value in before.items()
    )

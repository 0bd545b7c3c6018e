"""Parts of a share: rows of one class that may change different tensors, each with passes of its own.

The share is still one class: the gradients of its parts are weighted and summed, so that methods see one set of them.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from torch import Tensor

from explorer.engine.state import Share, State

Passes = Callable[[Share, np.ndarray, int], list[Tensor]]
"""Makes the passes of these rows of the batch, by place, as a share that is narrowed to their part: writes
`State.gradients` and returns the detached losses. The number is that of the share's passes so far."""


def take_parts(state: State, share: Share, passes: Passes) -> list[Tensor]:
    """Write the gradients of a share whose rows are told apart (`State.parts`), and the parts as they were passed;
    return the detached losses. Parts that may change nothing are skipped."""
    assert state.batch is not None
    state.passed = []
    losses, total, slots = list[Tensor](), dict[str, Tensor](), state.batch.slots.cpu().numpy()
    for part in state.parts:
        narrow = replace(share, parameters=share.parameters & part.parameters, buffers=share.buffers & part.buffers)
        # By slot, since a method may have dropped rows after they were told apart.
        rows = np.flatnonzero(np.isin(slots, part.slots))
        if not narrow.parameters or not len(rows):
            continue
        state.gradients = {}
        losses += passes(narrow, rows, len(losses))
        state.passed.append(replace(part, slots=slots[rows], parameters=narrow.parameters, buffers=narrow.buffers))
        for name, gradient in state.gradients.items():
            weighted = gradient * part.factors[name] if name in part.factors else gradient
            total[name] = total[name] + weighted if name in total else weighted
    state.gradients = total
    return losses

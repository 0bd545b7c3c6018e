"""The loss scale of fp16: a power of two by which losses are multiplied, so that small gradients do not become zero.

Gradients are divided by it before any method sees them. Where a share's gradients are not finite they overflowed: the
share adds nothing to the step and leaves no trace in buffers, and later steps have half the scale. A step with one
share, as most are, is then skipped: parameters and momenta stay as they are. After `GROW_AFTER` steps without an
overflow the scale is doubled.

**Overflow or divergence.** The loss itself is computed in fp32 before it is scaled, so a loss that is not finite is
never an overflow of gradients: training has diverged, or an activation is beyond 65,504. Gradients that overflow at a
scale of 1, where nothing is scaled any more, are a divergence too.

The scale and its counters are state: checkpointed, and part of the optimiser's state in the ledger.

Micikevicius et al., "Mixed precision training", 2018, arXiv:1710.03740, section 3.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

NAME = "loss_scale"  # in the memory of the state
START, LEAST, MOST = 2.0**16, 1.0, 2.0**24
GROW_AFTER = 2000  # steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescaled:
    """A change of the scale, and the classes whose gradients overflowed."""

    rule: Literal["overflow", "growth"]
    before: float
    after: float
    classes: tuple[str, ...]


class LossScale:
    """The scale of a run."""

    def __init__(self) -> None:
        self.memory = {  # on the host, where it is needed
            "scale": torch.tensor(START),
            "steady": torch.zeros((), dtype=torch.int64),  # steps since its last change
            "skipped": torch.zeros((), dtype=torch.int64),  # steps in which gradients overflowed
        }

    @property
    def scale(self) -> float:
        return self.memory["scale"].item()

    @property
    def skipped(self) -> int:
        return int(self.memory["skipped"])

    @property
    def is_least(self) -> bool:
        """Return whether the scale cannot be halved."""
        return self.scale <= LEAST

    def unscaled(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Return the gradients divided by the scale; None if one of them overflowed."""
        if not gradients:
            return {}
        # A power of two: the division is exact.
        divided = torch._foreach_mul(list(gradients.values()), 1 / self.scale)  # pyright: ignore
        filled = [gradient for gradient in divided if gradient.numel()]
        largest = torch.stack(torch._foreach_norm(filled, float("inf")))  # pyright: ignore
        return dict(zip(gradients, divided, strict=True)) if torch.isfinite(largest).all() else None

    def advance(self, overflowed: Sequence[str]) -> Rescaled | None:
        """Take note of a step in which the gradients of these classes overflowed; return the change of the scale."""
        before, steady = self.scale, self.memory["steady"]
        if overflowed:
            self.memory["skipped"] += 1
            rule, after = "overflow", max(LEAST, before / 2)
        elif steady + 1 >= GROW_AFTER and before < MOST:
            rule, after = "growth", before * 2
        else:
            steady += 1
            return None
        steady.zero_()
        self.memory["scale"].fill_(after)
        return Rescaled(rule=rule, before=before, after=after, classes=tuple(overflowed))

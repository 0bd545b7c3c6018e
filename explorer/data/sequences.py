"""Text in memory: sequences of bytes, and the byte after each.

Shapes: N examples, T tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from explorer.data.dataset import Dataset, Modality, Provenance, Skipped, Split, TaskName

BYTES = 256  # the vocabulary


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Text(Dataset):
    """Sequences of T bytes. Nothing is fitted on them: the vocabulary is all bytes."""

    modality: ClassVar[Modality] = "text"
    task: ClassVar[TaskName] = "language"

    @classmethod
    def of(
        cls,
        train: Tensor,
        test: Tensor,
        *,
        provenance: Provenance | None = None,
        skipped: tuple[Skipped, ...] = (),
    ) -> Self:
        """From blocks of T + 1 bytes, N x (T + 1) uint8: the first T are the input, the last T what to predict."""
        return cls(train=_split(train), test=_split(test), classes=BYTES, provenance=provenance, skipped=skipped)

    def preparation(self, where: torch.device) -> Callable[[Tensor], Tensor]:
        """To int64."""
        return lambda tokens: tokens.to(where, non_blocking=True).to(torch.int64)


def _split(blocks: Tensor) -> Split:
    return Split(inputs=blocks[:, :-1], labels=blocks[:, 1:])

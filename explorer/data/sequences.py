"""Text in memory: sequences of bytes, cut from streams into blocks, and further into pieces.

Shapes: N examples, B sequences of a batch, T tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from explorer.data.batches import Batch
from explorer.data.dataset import Dataset, Modality, Provenance, Skipped, Split, TaskName

BYTES = 256  # the vocabulary
WHOLE_ROWS = "expected whole rows, for a part of a text need not have the label of the whole"


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
        """Return a dataset of blocks of T + 1 bytes, N x (T + 1) uint8: the first T are the input, the last T the
        labels."""
        return cls(train=_split(train), test=_split(test), classes=BYTES, provenance=provenance, skipped=skipped)

    def preparation(self, where: torch.device) -> Callable[[Tensor], Tensor]:
        """Return a function from bytes to int64."""
        return lambda tokens: tokens.to(where, non_blocking=True).to(torch.int64)


def _split(blocks: Tensor) -> Split:
    return Split(inputs=blocks[:, :-1], labels=blocks[:, 1:])


# --- cutting ---------------------------------------------------------------------------------------------------------


def cut_blocks(stream: bytes, *, context: int) -> Tensor:
    """Cut a stream into blocks of T + 1 bytes, N x (T + 1) uint8: T inputs and the byte after each. A shorter rest is
    left out.

    A block begins with the last byte of the one before, so that every byte except the first is predicted once.

    >>> cut_blocks(b"abcdefg", context=2).tolist()  # "abc", "cde", "efg"
    [[97, 98, 99], [99, 100, 101], [101, 102, 103]]
    """
    content = np.frombuffer(stream, dtype=np.uint8)
    if len(content) <= context:
        return torch.empty(0, context + 1, dtype=torch.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(content, context + 1)[::context]
    return torch.from_numpy(windows.copy())


def cut_pieces(values: Tensor, *, length: int) -> Tensor:
    """Cut each row, B T ..., into pieces of `length`: B floor(T / length) rows. A shorter rest is left out."""
    pieces = values.shape[1] // length
    return values[:, : pieces * length].unflatten(1, (pieces, length)).flatten(0, 1)


def cut_rows(batch: Batch, *, length: int) -> Batch:
    """Cut the rows of a batch. The pieces of a row share its weight and its slot."""
    pieces = batch.inputs.shape[1] // length
    return replace(
        batch,
        inputs=cut_pieces(batch.inputs, length=length),
        targets=cut_pieces(batch.targets, length=length),
        labels=cut_pieces(batch.labels, length=length),
        slots=batch.slots.repeat_interleave(pieces),
        codes=batch.codes.repeat_interleave(pieces),
        weight=batch.weight / pieces,
        pieces=batch.pieces * pieces,
    )

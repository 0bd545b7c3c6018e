"""Sequences cut into shorter ones.

Shapes: B sequences of T tokens.
"""

from dataclasses import replace

from torch import Tensor

from explorer.data.batches import Batch


def cut(values: Tensor, *, length: int) -> Tensor:
    """Each row, B T ..., as pieces of `length` in its place: B floor(T / length) rows. A shorter rest is left out."""
    pieces = values.shape[1] // length
    return values[:, : pieces * length].unflatten(1, (pieces, length)).flatten(0, 1)


def cut_rows(batch: Batch, *, length: int) -> Batch:
    """The batch with its rows cut so. Together the pieces of a row weigh what it did, and they are in its slot."""
    pieces = batch.inputs.shape[1] // length
    return replace(
        batch,
        inputs=cut(batch.inputs, length=length),
        targets=cut(batch.targets, length=length),
        labels=cut(batch.labels, length=length),
        slots=batch.slots.repeat_interleave(pieces),
        codes=batch.codes.repeat_interleave(pieces),
        weight=batch.weight / pieces,
    )

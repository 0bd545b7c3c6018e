"""Channels last: images and filters in the memory order that convolutions read fastest (NHWC).

The mathematics is the same, but the order of additions, and so the last bits, may differ. Hence no neutral form.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.method import Kind, Method
from explorer.engine.state import State
from explorer.errors import TrainingError

Ordered = TypeVar("Ordered", nn.Module, Tensor)


def channels_last(ordered: Ordered) -> Ordered:
    """Return images B C H W reordered in memory, or a model with its four-dimensional weights reordered in place.

    Reorder the model before the optimiser is built, and every batch.

    In a loop:

        functional.channels_last(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(functional.channels_last(x)), y).backward()
            optimizer.step()
    """
    if isinstance(ordered, nn.Module):
        return ordered.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    if ordered.ndim != 4:
        raise TrainingError(f"channels_last: found a tensor of shape {tuple(ordered.shape)}: expected images B C H W")
    return ordered.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelsLast(Method):
    """Weights are reordered once and each batch once, so that no convolution has to. Saves time mostly on GPUs."""

    name: ClassVar[str] = "channels_last"
    kind: ClassVar[Kind] = Kind.LAYOUT
    summary: ClassVar[str] = "Keeps images and filters in NHWC memory order."
    source: ClassVar[str] = "no paper"
    formula: ClassVar[str] = "the same numbers, with the channels of a pixel adjacent in memory"
    changes: ClassVar[str] = "the memory order of the model's filters and of the images"
    needs: ClassVar[str] = "convolutions of images"
    routing: ClassVar[str] = "Works: it changes where numbers are stored, not their values."
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image"})

    # In `change_model`, before the optimisers are built: their fused kernels need states in the parameters' layout.
    def any_length(self) -> bool:
        return True

    def change_model(self, state: State) -> None:
        channels_last(state.model)

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        state.batch = replace(state.batch, inputs=channels_last(state.batch.inputs))

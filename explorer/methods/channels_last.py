"""Channels last: images and filters in the memory order that convolutions read fastest (NHWC).

The mathematics is the same, but the order of additions, and so the last bits, may differ. Hence no neutral form.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.method import Kind, Method
from explorer.engine.state import State


def to_channels_last(model: nn.Module) -> nn.Module:
    """Reorder the model's four-dimensional weights in place; return the model."""
    return model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def batch_to_channels_last(images_BCHW: Tensor) -> Tensor:
    """Return the same images, reordered in memory."""
    return images_BCHW.contiguous(memory_format=torch.channels_last)


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
    def change_model(self, state: State) -> None:
        to_channels_last(state.model)

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        state.batch = replace(state.batch, inputs=batch_to_channels_last(state.batch.inputs))

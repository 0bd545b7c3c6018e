"""A model's tensors, and other values in their place for a while: what averages of weights share.

A model is its parameters and persistent buffers. Two modules may share a tensor, as a head that is tied to an embedding
does: it is one value, so it is here once, under its first name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, each once, detached: whoever writes into them changes the model."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor.detach()))
    return dict(found.values())


@torch.no_grad()
def exchange(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    """Exchange two sets of tensors of equal names in place, exactly."""
    for name, tensor in one.items():
        kept = other[name].clone()
        other[name].copy_(tensor)
        tensor.copy_(kept)


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What a model was, to be put back exactly after others' values stood in its place."""

    tensors: dict[str, Tensor]  # the model's own
    values: dict[str, Tensor]  # copies

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        """Copy the model as it is."""
        tensors = model_tensors(model)
        return cls(tensors, {name: tensor.clone() for name, tensor in tensors.items()})

    @torch.no_grad()
    def put_back(self) -> None:
        """Make the model what it was."""
        for name, tensor in self.tensors.items():
            tensor.copy_(self.values[name])

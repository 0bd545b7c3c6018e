"""The state of training as the ledger names it: Merkle roots over tensors by name (`entries.run.TrainingState`)."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from explorer.canonical import digest
from explorer.engine.state import State
from explorer.entries.run import TrainingState
from explorer.merkle import root_of


def tensor_leaf(name: str, tensor: Tensor) -> bytes:
    """The leaf of one tensor: its name, type, shape and values in row order."""
    plain = tensor.detach().cpu().contiguous()
    total = hashlib.sha256(b"\x00" + f"{name}|{plain.dtype}|{tuple(plain.shape)}\n".encode())
    total.update(plain.flatten().view(torch.uint8).numpy().data)
    return total.digest()


def tensors_root(tensors: Mapping[str, Tensor]) -> str:
    """The root over tensors in the order of their names, in hexadecimal."""
    return root_of(tensor_leaf(name, tensors[name]) for name in sorted(tensors)).hex()


def training_state(state: State, *, step: int) -> TrainingState:
    """What training has come to after so many steps. What methods remember counts as the optimiser's."""
    remembered = {f"{name}/{key}": tensor for name, memory in state.memory.items() for key, tensor in memory.items()}
    for region in state.regions.values():
        for index, optimizer in enumerate(region.optimizers):
            for name, parameter in region.parameters.items():
                values = optimizer.state.get(parameter, {})
                prefix = f"optimizer/{region.name}/{index}/{name}"
                remembered |= {f"{prefix}/{key}": value for key, value in values.items() if isinstance(value, Tensor)}
    return TrainingState(
        parameters=tensors_root(dict(state.model.named_parameters())),
        buffers=tensors_root(dict(state.model.named_buffers())),
        optimizer=tensors_root(remembered),
        random=digest({"seed": state.seed, "step": step}),
    )

"""The state of training as the ledger names it: every tensor by name and leaf, and the roots over them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from explorer.canonical import digest
from explorer.engine.state import State
from explorer.entries.kinds import TrainingState
from explorer.runlog.tensors import OPTIMIZER, Tensors
from explorer.runlog.tensors import tensor_leaf as leaf_of_values


def tensor_leaf(name: str, tensor: Tensor) -> str:
    """Return the leaf of one tensor (recorded/tensors.py)."""
    plain = tensor.detach().cpu().contiguous()
    values = plain.flatten().view(torch.uint8).numpy().data
    return leaf_of_values(name, dtype=str(plain.dtype), shape=plain.shape, values=[values])


def leaves_of(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the leaf of each tensor."""
    return {name: tensor_leaf(name, tensor) for name, tensor in tensors.items()}


def tensors_of(state: State) -> Tensors:
    """Return every tensor of training. What methods remember counts as the optimiser's."""
    remembered = {f"{name}/{key}": tensor for name, memory in state.memory.items() for key, tensor in memory.items()}
    for region in state.regions.values():
        for index, optimizer in enumerate(region.optimizers):
            for name, parameter in region.parameters.items():
                values = optimizer.state.get(parameter, {})
                prefix = f"{OPTIMIZER}/{region.name}/{index}/{name}"
                remembered |= {f"{prefix}/{key}": value for key, value in values.items() if isinstance(value, Tensor)}
    return Tensors(
        parameters=leaves_of(dict(state.model.named_parameters())),
        buffers=leaves_of(dict(state.model.named_buffers())),
        optimizer=leaves_of(remembered),
    )


def state_of(tensors: Tensors, state: State, *, step: int) -> TrainingState:
    """Return what these tensors of training come to, after so many steps."""
    parameters, buffers, optimizer = tensors.roots
    random = digest({"seed": state.seed, "step": step})
    return TrainingState(parameters=parameters, buffers=buffers, optimizer=optimizer, random=random)


def training_state(state: State, *, step: int) -> TrainingState:
    """Return what training has come to after so many steps."""
    return state_of(tensors_of(state), state, step=step)

"""Evaluation with other weights than the trained ones: swapping tensors, and fresh batch statistics for them.

A model is its parameters and persistent buffers. Two modules may share a tensor, as a tied head and embedding do. It is
one value, so it is listed once, under its first name.

Averaged weights (Izmailov et al. 2018, arXiv:1803.05407, section 3.2) and the evaluation point of schedule-free
training produce other activations than the weights under which batch normalisation collected its running statistics,
so these statistics are computed again. In a custom loop:

    refresh_statistics(model, (inputs for inputs, _ in loader))

Except for the statistics, the passes are those of an evaluation: fp32, no dropout, inputs at full size and not
augmented.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from explorer.data.batches import Batches
from explorer.data.streams import stream, torch_stream
from explorer.errors import TrainingError
from explorer.provenance.taxonomy import QUARANTINE


class Place(NamedTuple):
    """Where a module keeps a tensor. A forward pass may put another buffer there."""

    holder: Mapping[str, Tensor | None]
    key: str

    @property
    def tensor(self) -> Tensor:
        """Return the tensor that is there now."""
        tensor = self.holder[self.key]
        assert tensor is not None
        return tensor


def places(model: nn.Module) -> dict[str, Place]:
    """Return where a model keeps its parameters and persistent buffers, by name, each tensor once."""
    by_identity: dict[int, tuple[str, Place]] = {}
    for path, module in model.named_modules():
        for holder, left_out in ((module._parameters, ()), (module._buffers, module._non_persistent_buffers_set)):
            for key, tensor in holder.items():
                if tensor is not None and key not in left_out:
                    by_identity.setdefault(id(tensor), (f"{path}.{key}" if path else key, Place(holder, key)))
    return dict(by_identity.values())


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and persistent buffers by name, each once. They are detached: writing to them changes the
    model."""
    return {name: place.tensor.detach() for name, place in places(model).items()}


class Average:
    """Averages of a model's tensors, in lists that are made once: finding the tensors of a model takes several times as
    long as averaging them."""

    def __init__(self, averages: Mapping[str, Tensor], model: nn.Module) -> None:
        """`averages`: a tensor for each of the model's, by its name."""
        pairs = [(averages[name], place) for name, place in places(model).items()]
        self._floating = [pair for pair in pairs if pair[0].is_floating_point()]
        self._counters = [pair for pair in pairs if not pair[0].is_floating_point()]

    @torch.no_grad()
    def approach(self, weight: float) -> None:
        """Move the averages this share of the way to the model as it is now; integers are copied.

        With weight 1 they are the model's tensors, bit for bit.
        """
        averages, current = _lists(self._floating)
        torch._foreach_lerp_(averages, current, weight)  # pyright: ignore[reportPrivateImportUsage]
        if self._counters:
            torch._foreach_copy_(*_lists(self._counters))  # pyright: ignore[reportPrivateImportUsage]


def _lists(pairs: list[tuple[Tensor, Place]]) -> tuple[list[Tensor], list[Tensor]]:
    return [average for average, _ in pairs], [place.tensor for _, place in pairs]


def paired(average: nn.Module, model: nn.Module, *, step: int, total_steps: int, form: str) -> dict[str, Tensor]:
    """Return the tensors of `average`, a copy of the model. Raises `TrainingError` for another model, the model itself,
    and a step outside 0 to `total_steps` - 1."""
    if not 0 <= step < total_steps:
        raise TrainingError(f"{form}: found step {step} of {total_steps}: expected 0 to {total_steps - 1}")
    mine, current = model_tensors(average), model_tensors(model)
    shapes = [{name: tensor.shape for name, tensor in tensors.items()} for tensors in (mine, current)]
    if shapes[0] != shapes[1]:
        wrong = next(name for name in (*current, *mine) if shapes[0].get(name) != shapes[1].get(name))
        raise TrainingError(f"{form}: the average and the model differ in {wrong}: expected copy.deepcopy(model)")
    if any(mine[name].data_ptr() == tensor.data_ptr() for name, tensor in current.items() if tensor.numel()):
        raise TrainingError(f"{form}: the average shares its tensors with the model: expected copy.deepcopy(model)")
    return mine


@torch.no_grad()
def exchange(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    """Swap two sets of tensors of equal names in place, bit for bit."""
    # Through a copy, not by sums and differences: rounding would leave both sides a little off.
    for name, tensor in one.items():
        kept = other[name].clone()
        other[name].copy_(tensor)
        tensor.copy_(kept)


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A copy of a model's values, with which to restore it exactly."""

    tensors: dict[str, Tensor]  # the model's own
    values: dict[str, Tensor]  # copies

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        """Copy the model as it is."""
        tensors = model_tensors(model)
        return cls(tensors, {name: tensor.clone() for name, tensor in tensors.items()})

    @torch.no_grad()
    def put_back(self) -> None:
        """Restore the model."""
        for name, tensor in self.tensors.items():
            tensor.copy_(self.values[name])


# --- batch statistics ---

EXAMPLES = 2048  # at most: enough for the mean of 8 batches, and a small part of an evaluation's time
BATCH = 256  # large, so that the mean over batches of each batch's variance is close to the variance over all


def with_statistics(model: nn.Module) -> list[_BatchNorm]:
    """Return the modules that keep running statistics."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm) and module.running_mean is not None]


def refresh_statistics(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Set the running statistics of every batch normalisation to the mean over these batches, of equal size.

    Nothing else changes: neither batch counters nor modes, parameters or other buffers. A model without batch
    normalisation is not run at all.
    """
    layers = with_statistics(model)
    if not layers:
        return
    with _collecting(model, layers), torch.no_grad():
        for inputs in batches:
            model(inputs)


def training_inputs(batches: Batches) -> Iterator[Tensor]:
    """Yield inputs of training examples in batches of equal size. The draw is the same throughout a run; a few drawn
    examples may be left over.

    Examples in quarantine are never read.
    """
    kept_out = [code for code, name in batches.typing.names.items() if name == QUARANTINE]
    rows = np.flatnonzero(~np.isin(batches.typing.codes, kept_out))
    drawn = rows[stream(batches.seed, "statistics").permutation(len(rows))[:EXAMPLES]]
    # Equal batches, since every batch has the same weight in the mean; rounding up keeps none larger than BATCH.
    count = -(-len(drawn) // BATCH)
    if count:
        for chosen in drawn[: len(drawn) // count * count].reshape(count, -1):
            yield batches.prepare(batches.plain(chosen)[0])


def refresh_on_training_data(model: nn.Module, batches: Batches) -> None:
    """Call `refresh_statistics` on examples of the run's own training data."""
    with torch_stream(batches.device, batches.seed, "statistics"):
        refresh_statistics(model, training_inputs(batches))


@contextmanager
def _collecting(model: nn.Module, layers: list[_BatchNorm]) -> Iterator[None]:
    """Put the model in evaluation mode except for these layers, which start a mean over batches."""
    modes = {module: module.training for module in model.modules()}
    before = [(layer, layer.momentum, layer.num_batches_tracked) for layer in layers]
    try:
        model.eval()
        for layer in layers:
            layer.training, layer.momentum = True, None  # None: all batches so far weigh the same
            layer.num_batches_tracked = torch.zeros((), dtype=torch.int64)
        yield
    finally:
        for layer, momentum, counter in before:
            layer.momentum, layer.num_batches_tracked = momentum, counter
        for module, was in modes.items():
            module.training = was

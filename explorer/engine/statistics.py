"""The running statistics of batch normalisation, taken anew: for weights that no training step had.

Averaged weights (Izmailov et al. 2018, arXiv:1803.05407, section 3.2) and the evaluation point of schedule-free
training have other activations than the weights that the running statistics were collected under. In a loop of one's
own:

    refresh_statistics(model, (inputs for inputs, _ in loader))

The passes are those of an evaluation in all but the statistics: fp32, no dropout, inputs of full size and not varied.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from explorer.data.batches import Batches
from explorer.data.streams import stream, torch_stream
from explorer.provenance.taxonomy import QUARANTINE

EXAMPLES = 2048  # that are looked at, or as many as there are
BATCH = 256


def with_statistics(model: nn.Module) -> list[_BatchNorm]:
    """The modules that keep running statistics."""
    return [each for each in model.modules() if isinstance(each, _BatchNorm) and each.running_mean is not None]


def refresh_statistics(model: nn.Module, batches: Iterable[Tensor]) -> None:
    """Make the running statistics of every batch normalisation the mean over these batches, of equal size.

    Nothing else changes: not the counters of batches, the modes, parameters or other buffers. A model without batch
    normalisation is not run at all.
    """
    layers = with_statistics(model)
    if not layers:
        return
    with _collecting(model, layers), torch.no_grad():
        for inputs in batches:
            model(inputs)


def training_inputs(batches: Batches) -> Iterator[Tensor]:
    """Inputs of training examples, drawn once for the whole run, in batches of equal size; a few may be left over.

    What is in quarantine is never read.
    """
    kept_out = [code for code, name in batches.typing.names.items() if name == QUARANTINE]
    rows = np.flatnonzero(~np.isin(batches.typing.codes, kept_out))
    drawn = rows[stream(batches.seed, "statistics").permutation(len(rows))[:EXAMPLES]]
    count = -(-len(drawn) // BATCH)
    if count:
        for chosen in drawn[: len(drawn) // count * count].reshape(count, -1):
            yield batches.prepare(batches.read(chosen)[0])


def refresh_on_training_data(model: nn.Module, batches: Batches) -> None:
    """The same on examples of the run's own training data."""
    with torch_stream(batches.device, batches.seed, "statistics"):
        refresh_statistics(model, training_inputs(batches))


@contextmanager
def _collecting(model: nn.Module, layers: list[_BatchNorm]) -> Iterator[None]:
    """Evaluation mode but for these layers, which begin a mean over batches."""
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

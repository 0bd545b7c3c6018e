"""The batches of a training run: a pure function of the step.

The examples form one endless sequence, a fresh shuffle of the training side for each epoch, cut into batches of
exactly B: position p is example `order(epoch)[p % N]` of epoch `p // N`. Nothing is left over at the end of an epoch
and the only cursor is the step, so resuming needs no other state.

Shapes: B examples, C channels, H rows, W columns, K classes.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.data.dataset import Dataset
from explorer.data.streams import stream


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Examples on their way through a step. Methods replace `inputs` and `targets`; `labels` stay as they were read."""

    inputs: Tensor  # B C H W, float32
    targets: Tensor  # what the loss sees: B (int64), or B K (float32) once a method made them dense
    labels: Tensor  # what metrics see: B, int64
    slots: Tensor  # B, int64: the place of each example in the nominal batch; keyed draws are indexed by it
    codes: Tensor  # B, int64: provenance class of each example; 0 where the data is untyped

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, index: slice | Tensor) -> Self:
        """The batch with these rows only."""
        return replace(
            self,
            inputs=self.inputs[index],
            targets=self.targets[index],
            labels=self.labels[index],
            slots=self.slots[index],
            codes=self.codes[index],
        )


def dense(targets: Tensor, *, classes: int) -> Tensor:
    """Targets as distributions over the classes, B K; dense targets are returned as they are."""
    if targets.is_floating_point():
        return targets
    return F.one_hot(targets, classes).to(torch.float32)


class Batches:
    """The batches of one run, by step."""

    def __init__(self, dataset: Dataset, *, batch_size: int, seed: int, device: torch.device) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.seed = seed
        self.device = device
        self._slots = torch.arange(batch_size, device=device)
        self._codes = torch.zeros(batch_size, dtype=torch.int64, device=device)
        self._order = lru_cache(maxsize=2)(self._shuffled)
        shape = (1, len(dataset.mean), 1, 1)
        self._mean = torch.tensor(dataset.mean, device=device).reshape(shape) * 255
        self._scale = 1 / (torch.tensor(dataset.std, device=device).reshape(shape) * 255)

    def read(self, step: int) -> tuple[Tensor, Tensor]:
        """The raw examples of a step: images B C H W (uint8) and labels B."""
        index = torch.from_numpy(self.indices(step))
        return self.dataset.train.images[index], self.dataset.train.labels[index]

    def indices(self, step: int) -> np.ndarray:
        """Which training examples the step reads: B, int64."""
        size = len(self.dataset.train)
        positions = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        epochs, offsets = positions // size, positions % size
        found = np.empty(self.batch_size, dtype=np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            found[here] = self._order(int(epoch))[offsets[here]]
        return found

    def preprocess(self, images: Tensor, step: int) -> Tensor:
        """Augmented images of the same shape and type: random crops and mirrors, keyed by step and slot."""
        if not (self.dataset.crop or self.dataset.flip):
            return images
        draws = stream(self.seed, "augment", step)
        if self.dataset.crop:
            images = _cropped(images, draws.integers(0, 2 * self.dataset.crop + 1, (2, len(images))), self.dataset.crop)
        if self.dataset.flip:
            mirrored = torch.from_numpy(draws.random(len(images)) < 0.5)
            images = torch.where(mirrored.reshape(-1, 1, 1, 1), images.flip(3), images)
        return images

    def transfer(self, images: Tensor, labels: Tensor) -> Batch:
        """The batch on the training device, images normalised there. Nobody writes into its tensors."""
        labels = labels.to(self.device, non_blocking=True)
        return Batch(
            inputs=self.normalise(images),
            targets=labels,
            labels=labels,
            slots=self._slots,
            codes=self._codes,
        )

    def normalise(self, images: Tensor) -> Tensor:
        """Images B C H W of type uint8 as float32 of zero mean and unit variance, on the training device."""
        return (images.to(self.device, non_blocking=True).to(torch.float32) - self._mean) * self._scale

    def _shuffled(self, epoch: int) -> np.ndarray:
        return stream(self.seed, "order", epoch).permutation(len(self.dataset.train))


def _cropped(images: Tensor, corners: np.ndarray, pad: int) -> Tensor:
    """Each image padded by reflection and cut back to its size at its own corner (rows, columns)."""
    count, _, height, width = images.shape
    padded = F.pad(images.to(torch.float32), (pad, pad, pad, pad), mode="reflect").to(images.dtype)
    rows = torch.from_numpy(corners[0])[:, None] + torch.arange(height)
    columns = torch.from_numpy(corners[1])[:, None] + torch.arange(width)
    cut = padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return cut.permute(0, 3, 1, 2).contiguous()

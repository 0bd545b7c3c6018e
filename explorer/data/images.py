"""Labelled images in memory: augmentation, normalisation and resizing.

Shapes: B examples, C channels, H rows, W columns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.data.dataset import Dataset, Modality, TaskName


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Images(Dataset):
    """Images N C H W. `mean` and `std` are those of training images scaled to 0..1, by channel."""

    modality: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"

    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: int = 0  # training images are padded by this many pixels and cropped back at random
    flip: bool = False  # training images are mirrored at random

    def augment(self, inputs: Tensor, *, draws: np.random.Generator, slots: np.ndarray, batch_size: int) -> Tensor:
        """Crop and mirror at random, with draws for every slot of the nominal batch."""
        if self.crop:
            corners = draws.integers(0, 2 * self.crop + 1, (2, batch_size))
            inputs = _cropped(inputs, corners[:, slots], self.crop)
        if self.flip:
            mirrored = torch.from_numpy((draws.random(batch_size) < 0.5)[slots])
            inputs = torch.where(mirrored.reshape(-1, 1, 1, 1), inputs.flip(3), inputs)
        return inputs

    def preparation(self, where: torch.device) -> Callable[[Tensor], Tensor]:
        """Return a function from uint8 inputs to float32 of zero mean and unit variance."""
        return normalisation(self.mean, self.std, where=where)


def normalisation(
    mean: tuple[float, ...], std: tuple[float, ...], *, where: torch.device
) -> Callable[[Tensor], Tensor]:
    """Return a function that moves uint8 inputs (their second dimension is the channel) to that device, as float32 of
    zero mean and unit variance."""
    # Moved as uint8 and converted there: a quarter of the bytes to transfer.
    means = torch.tensor(mean, device=where) * 255
    scales = 1 / (torch.tensor(std, device=where) * 255)

    def prepare(inputs: Tensor) -> Tensor:
        shape = (1, len(mean), *[1] * (inputs.ndim - 2))
        return (inputs.to(where, non_blocking=True).to(torch.float32) - means.reshape(shape)) * scales.reshape(shape)

    return prepare


def _cropped(images: Tensor, corners: np.ndarray, pad: int) -> Tensor:
    """Pad each image by reflection and crop it to its size at its own corner (rows, columns)."""
    count, _, height, width = images.shape
    padded = F.pad(images.to(torch.float32), (pad, pad, pad, pad), mode="reflect").to(images.dtype)
    rows = torch.from_numpy(corners[0])[:, None] + torch.arange(height)
    columns = torch.from_numpy(corners[1])[:, None] + torch.arange(width)
    cut = padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return cut.permute(0, 3, 1, 2).contiguous()


# --- resizing: bilinear for images, nearest for classes, which cannot be interpolated --------------------------------


def resize(images_BCHW: Tensor, *, size: tuple[int, int]) -> Tensor:
    """Resize the images to `size` (rows, columns). Images of that size are returned as they are."""
    if tuple(images_BCHW.shape[-2:]) == size:
        return images_BCHW
    return F.interpolate(images_BCHW, size=size, mode="bilinear", align_corners=False, antialias=True)


def resize_classes(targets: Tensor, *, size: tuple[int, int]) -> Tensor:
    """Resize classes B H W, or distributions over them B H W K, to `size`: each pixel takes those of the old pixel in
    which its centre lies. Targets of that size are returned as they are."""
    for axis, new in enumerate(size, start=1):
        old = targets.shape[axis]
        if old != new:
            # Centres are at (i + 1/2) old / new; in whole numbers, so that no rounding moves one across a border.
            nearest = (2 * torch.arange(new, device=targets.device) + 1) * old // (2 * new)
            targets = targets.index_select(axis, nearest)
    return targets

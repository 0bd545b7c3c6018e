"""A tiny dataset of noise, for tests of the loop alone."""

import numpy as np
import torch

from explorer.data.batches import Batches
from explorer.data.dataset import Dataset, Split
from explorer.data.images import Images

CPU = torch.device("cpu")


def noise(*, train: int = 20, test: int = 8, shape: tuple[int, int, int] = (2, 6, 4), classes: int = 3) -> Dataset:
    """Random images and labels; the same on every call."""
    draws = np.random.default_rng(0)

    def split(count: int) -> Split:
        images = draws.integers(0, 256, (count, *shape), dtype=np.uint8)
        return Split(inputs=torch.from_numpy(images), labels=torch.from_numpy(draws.integers(0, classes, count)))

    channels = shape[0]
    return Images(
        train=split(train), test=split(test), classes=classes, mean=(0.5,) * channels, std=(0.25,) * channels
    )


def noise_batches(dataset: Dataset | None = None, *, batch_size: int = 8, seed: int = 0) -> Batches:
    return Batches(dataset or noise(), batch_size=batch_size, seed=seed, device=CPU)

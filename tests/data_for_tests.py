"""A tiny dataset of noise, for tests of the loop alone."""

import numpy as np
import torch

from explorer.data.batches import Batches, Typing
from explorer.data.dataset import Dataset, Split
from explorer.data.images import Images

CPU = torch.device("cpu")


def noise(*, train: int = 20, test: int = 8, shape: tuple[int, int, int] = (2, 6, 4), classes: int = 3) -> Images:
    """Random images and labels; the same on every call."""
    draws = np.random.default_rng(0)

    def split(count: int) -> Split:
        images = draws.integers(0, 256, (count, *shape), dtype=np.uint8)
        return Split(inputs=torch.from_numpy(images), labels=torch.from_numpy(draws.integers(0, classes, count)))

    channels = shape[0]
    return Images(train=split(train), test=split(test), classes=classes, mean=(0.5,) * channels, std=(0.25,) * channels)


def noise_batches(
    dataset: Dataset | None = None, *, batch_size: int = 8, seed: int = 0, typing: Typing | None = None
) -> Batches:
    return Batches(dataset or noise(), batch_size=batch_size, seed=seed, device=CPU, typing=typing)


def typed(*, train: int = 20, classes: int = 2) -> Typing:
    """Provenance for `noise`: classes `open/class-1`, `open/class-2`, ... in turn."""
    codes = np.arange(train, dtype=np.int64) % classes + 1
    return Typing(codes=codes, names={code: f"open/class-{code}" for code in range(1, classes + 1)})

"""Tiny pictures and volumes with a class for each pixel that follows from the pixel: what moves one without the other
shows at once."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from explorer.data.batches import Batch
from explorer.data.clutter import Pictures, Scenes, Volumes
from explorer.data.dataset import Split
from explorer.engine.loop import Loop
from explorer.engine.method import Method
from explorer.engine.task import Segmentation
from tests.loop_for_tests import noise_loop

CLASSES = 3
MEAN, STD = 0.5, 0.25


def classes_of(inputs: Tensor) -> Tensor:
    """The class of each pixel of normalised inputs (B 1 ...), B ...: dark, middling, bright."""
    return torch.bucketize(inputs[:, 0].contiguous(), torch.tensor([-0.8, 0.8]))


def scenes(shape: tuple[int, ...], *, count: int = 12) -> Scenes:
    """Noise of one channel; `shape` is H W or D H W."""
    kind = Pictures if len(shape) == 2 else Volumes
    inputs = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, 1, *shape), dtype=np.uint8))
    labels = classes_of((inputs.float() / 255 - MEAN) / STD).to(torch.uint8)
    split = Split(inputs=inputs, labels=labels)
    return kind(train=split, test=split, classes=CLASSES, mean=(MEAN,), std=(STD,))


def scene_loop(methods: Sequence[Method] = (), *, shape: tuple[int, ...] = (6, 4), batch_size: int = 4) -> Loop:
    """A loop that tells the classes of pixels by the pixels alone."""
    model = nn.Conv2d(1, CLASSES, 1) if len(shape) == 2 else nn.Conv3d(1, CLASSES, 1)
    return noise_loop(
        methods, model=model, dataset=scenes(shape), task=Segmentation(classes=CLASSES), batch_size=batch_size
    )


def read(loop: Loop, *, step: int = 0) -> Batch:
    """The first share of a step, as the methods leave it."""
    loop.state.step = step
    loop.prepare_step()
    loop.read_share(loop.state.shares[0])
    assert loop.state.batch is not None
    return loop.state.batch

"""Resizing images: bilinear and antialiased, which is what keeps small images faithful. Resizing what says a class for
each pixel: the nearest one, since nothing lies between two classes."""

import torch
import torch.nn.functional as F
from torch import Tensor


def resize(images_BCHW: Tensor, *, size: tuple[int, int]) -> Tensor:
    """The images at `size` (rows, columns). The same size returns the same tensor."""
    if tuple(images_BCHW.shape[-2:]) == size:
        return images_BCHW
    return F.interpolate(images_BCHW, size=size, mode="bilinear", align_corners=False, antialias=True)


def resize_classes(targets: Tensor, *, size: tuple[int, int]) -> Tensor:
    """Classes B H W, or distributions over them B H W K, at `size`: each pixel has those of the pixel that its centre
    lies in. The same size returns the same tensor."""
    for axis, new in enumerate(size, start=1):
        old = targets.shape[axis]
        if old != new:
            nearest = (2 * torch.arange(new, device=targets.device) + 1) * old // (2 * new)
            targets = targets.index_select(axis, nearest)
    return targets

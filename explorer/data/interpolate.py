"""Resizing images: bilinear and antialiased, which is what keeps small images faithful."""

import torch.nn.functional as F
from torch import Tensor


def resize(images_BCHW: Tensor, *, size: tuple[int, int]) -> Tensor:
    """The images at `size` (rows, columns). The same size returns the same tensor."""
    if tuple(images_BCHW.shape[-2:]) == size:
        return images_BCHW
    return F.interpolate(images_BCHW, size=size, mode="bilinear", align_corners=False, antialias=True)

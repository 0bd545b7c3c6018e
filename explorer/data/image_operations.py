"""Thirteen simple image operations, from which augmentations are composed.

Hendrycks et al., "AugMix", 2020, arXiv:1912.02781; Cubuk et al., "RandAugment", 2020, arXiv:1909.13719. Each operation
does what Pillow does under that name, for many images at once, each with a value of its own. Results are rounded to the
nearest level, where Pillow truncates (at most one level less), and `equalize` counts exactly: Pillow's integer steps
leave images of fewer than 256 pixels unchanged and overshoot on those of a few thousand.

Shapes: N images, C channels (one or three), H rows, W columns; images are N C H W, uint8; values are N, float64.
"""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from explorer.data.dataset import TaskName
from explorer.errors import RecipeError

LUMA = (19595, 38470, 7471)  # red, green and blue in the grey of an image, of 2^16: ITU-R 601-2


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel to 0..255."""
    low, high = images.amin((2, 3), keepdim=True).float(), images.amax((2, 3), keepdim=True).float()
    stretched = (images - low) * (255 / (high - low).clamp(min=1))
    return torch.where(high > low, _levels(stretched), images)


def equalize(images: Tensor) -> Tensor:
    """Make the levels of each channel as equally frequent as possible: a level becomes the share of darker pixels."""
    # The brightest level is not counted in the total, so that it maps to 255, as in Pillow.
    count, channels, height, width = images.shape
    flat = images.reshape(count * channels, height * width).long()
    histogram = torch.zeros(count * channels, 256).scatter_add_(1, flat, torch.ones(flat.shape))
    brightest = histogram.gather(1, flat.amax(1, keepdim=True))
    darker = histogram.cumsum(1) - histogram
    table = _levels(darker * (255 / (height * width - brightest).clamp(min=1)))
    uniform = brightest == height * width
    return torch.where(uniform, flat, table.gather(1, flat)).to(torch.uint8).reshape(images.shape)


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest `bits` of each level, 0..8; the others become zero."""
    kept = 256 - torch.pow(2, 8 - bits.round()).to(torch.int16)
    return (images.to(torch.int16) & _each(kept)).to(torch.uint8)


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert levels from `threshold` on; 256 inverts none."""
    return torch.where(images >= _each(threshold.ceil().to(torch.int16)), 255 - images, images)


def rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """Turn counter-clockwise around the centre."""
    height, width = images.shape[2:]
    cosine, sine = torch.cos(degrees * (math.pi / 180)), torch.sin(degrees * (math.pi / 180))
    across = width / 2 - cosine * (width / 2) + sine * (height / 2)
    down = height / 2 - sine * (width / 2) - cosine * (height / 2)
    return _affine(images, (cosine, -sine, across), (sine, cosine, down))


def shear_x(images: Tensor, slope: Tensor) -> Tensor:
    """Shift each row to the left by `slope` times its distance from the upper edge."""
    return _affine(images, (1, slope, 0), (0, 1, 0))


def shear_y(images: Tensor, slope: Tensor) -> Tensor:
    """Shift each column up by `slope` times its distance from the left edge."""
    return _affine(images, (1, 0, 0), (slope, 1, 0))


def translate_x(images: Tensor, pixels: Tensor) -> Tensor:
    """Shift to the left."""
    return _affine(images, (1, 0, pixels), (0, 1, 0))


def translate_y(images: Tensor, pixels: Tensor) -> Tensor:
    """Shift up."""
    return _affine(images, (1, 0, 0), (0, 1, pixels))


def color(images: Tensor, factor: Tensor) -> Tensor:
    """Scale the distance of each pixel from its grey by `factor`; an image of one channel is grey."""
    return _blended(_grey(images), images, factor)


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Scale the distance of each level from the image's mean grey by `factor`."""
    return _blended(_grey(images).double().mean((1, 2, 3), keepdim=True).add(0.5).floor(), images, factor)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply each level by `factor`."""
    return _levels(images * _each(factor).float())


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Scale the distance of each level from the smoothed image by `factor`. Border pixels are unchanged."""
    wide = images.float()
    rows = wide[:, :, :-2] + wide[:, :, 1:-1] + wide[:, :, 2:]
    nine, inner = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:], wide[:, :, 1:-1, 1:-1]
    smooth = ((nine + 4 * inner) / 13 + 0.5).floor()  # by the filter [1 1 1; 1 5 1; 1 1 1] / 13
    sharpened = images.clone()
    sharpened[:, :, 1:-1, 1:-1] = _blended(smooth, inner, factor)
    return sharpened


def _each(values: Tensor) -> Tensor:
    """Reshape one value an image so that it combines with N C H W."""
    return values[:, None, None, None]


def _levels(values: Tensor) -> Tensor:
    """Round numbers to levels: the nearest one, half up."""
    return values.add(0.5).clamp_(0, 255.5).to(torch.uint8)


def _blended(base: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """Blend from `base` towards `images`, and beyond for factors above 1."""
    base = base.float()
    return _levels(base + _each(factor).float() * (images - base))


def _grey(images: Tensor) -> Tensor:
    """Return the grey of each pixel, N 1 H W."""
    if images.shape[1] == 1:
        return images
    red, green, blue = (images[:, channel : channel + 1].int() * weight for channel, weight in enumerate(LUMA))
    return (red + green + blue + 2**15) >> 16


Row = tuple[Tensor | float, Tensor | float, Tensor | float]


def _affine(images: Tensor, across: Row, down: Row) -> Tensor:
    """Return images whose pixel (x, y) is at (ax + by + c, dx + ey + f) of the original, bilinearly; black outside."""
    height, width = images.shape[2:]
    x, y = torch.arange(width).double()[None, None] + 0.5, torch.arange(height).double()[None, :, None] + 0.5

    def place(row: Row) -> Tensor:
        a, b, c = (value[:, None, None] if isinstance(value, Tensor) else value for value in row)
        return (a * x + b * y + c).expand(len(images), height, width)

    # Inside or outside is decided in float64 and before sampling, so that the border is sharp, as in Pillow: float32
    # would move places on the edge across it.
    column, line = place(across), place(down)
    inside = (column >= 0) & (column < width) & (line >= 0) & (line < height)
    grid = torch.stack((column * (2 / width) - 1, line * (2 / height) - 1), dim=-1).float()
    sampled = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return _levels(sampled * inside[:, None])


Operation = Callable[[Tensor, Tensor], Tensor]

TORCHVISION: Mapping[str, Operation] = {
    "autocontrast": lambda images, level: autocontrast(images),
    "equalize": lambda images, level: equalize(images),
    "posterize": lambda images, level: posterize(images, 8 - 4 * level.abs()),
    "rotate": lambda images, level: rotate(images, 30 * level),
    "shear_x": lambda images, level: shear_x(images, 0.3 * level),
    "shear_y": lambda images, level: shear_y(images, 0.3 * level),
    "solarize": lambda images, level: solarize(images, 256 * (1 - level.abs())),
    "translate_x": lambda images, level: translate_x(images, (images.shape[3] / 3 * level).round()),
    "translate_y": lambda images, level: translate_y(images, (images.shape[2] / 3 * level).round()),
    "color": lambda images, level: color(images, 1 + 0.9 * level),
    "contrast": lambda images, level: contrast(images, 1 + 0.9 * level),
    "brightness": lambda images, level: brightness(images, 1 + 0.9 * level),
    "sharpness": lambda images, level: sharpness(images, 1 + 0.9 * level),
}
"""The operations at torchvision's strengths: level 0 does nothing (except for the first two, which have no strength), 1
is the strongest, and the sign chooses between two directions."""


def _factor(level: Tensor) -> Tensor:
    """Return the paper's factor for colour, contrast, brightness and sharpness: 0.1 to 1.9, and 1 at half the level."""
    return 0.1 + 1.8 * level.abs()


OPERATIONS: Mapping[str, Operation] = {
    **TORCHVISION,
    "posterize": lambda images, level: posterize(images, 4 - (4 * level.abs()).floor()),
    "color": lambda images, level: color(images, _factor(level)),
    "contrast": lambda images, level: contrast(images, _factor(level)),
    "brightness": lambda images, level: brightness(images, _factor(level)),
    "sharpness": lambda images, level: sharpness(images, _factor(level)),
}
"""The operations at the strengths of the papers' own code (github.com/google-research/augmix): posterise keeps
4 - 4 level bits, and enhancers blend by 0.1 + 1.8 level, so that a low level is a strong change. The others are
torchvision's."""

Strengths = Annotated[
    Literal["paper", "torchvision"],
    Field(description='"paper": strong already at low levels; "torchvision": none at level 0'),
]
STRENGTHS: Mapping[Strengths, Mapping[str, Operation]] = {"paper": OPERATIONS, "torchvision": TORCHVISION}

Choice = Annotated[
    Literal["all", "safe"], Field(description='"all" 13, or the 9 "safe" ones, without those that blend')
]

SETS: Mapping[Choice, tuple[str, ...]] = {
    "all": tuple(OPERATIONS),
    "safe": tuple(OPERATIONS)[:9],  # without those that resemble the corruptions of ImageNet-C, a robustness benchmark
}


def refuse_unfit(*, task: TaskName, example_shape: tuple[int, ...]) -> None:
    """Raise `RecipeError` for examples that the operations do not support."""
    if task == "segmentation":
        raise RecipeError(
            "found a class for each pixel, but the operations move only pixels: expected one label for each image"
        )
    if example_shape[0] not in (1, 3):
        raise RecipeError(f"found images of {example_shape[0]} channels: expected 1 (grey) or 3 (red, green, blue)")


def draw_levels(draws: np.random.Generator, *, severity: float, shape: tuple[int, ...]) -> np.ndarray:
    """Draw levels from U(0.1, severity) of 10, with random signs."""
    return draws.uniform(0.1, severity, shape) / 10 * draws.choice((-1.0, 1.0), shape)


def operate(
    images: Tensor,
    names: tuple[str, ...],
    *,
    choices: np.ndarray,
    levels: np.ndarray,
    strengths: Strengths = "paper",
) -> Tensor:
    """Apply to each image the operation `names[choice]` at its level.

    Args:
        images: N C H W, uint8.
        names: the names of the operations.
        choices: the index of each image's operation, N; negative: none.
        levels: the level of each, N, in [-1, 1].
        strengths: how strong a level is.
    """
    changed = images.clone()
    for number, name in enumerate(names):
        rows = np.flatnonzero(choices == number)
        if len(rows):
            changed[rows] = STRENGTHS[strengths][name](images[rows], torch.from_numpy(levels[rows]))
    return changed

"""Cutout: blank out squares of every image.

DeVries, Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout", 2017, arXiv:1708.04552.
Shapes: B images, C channels, then the places: H rows and W columns, or D planes before them.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.dataset import Modality
from explorer.data.streams import stream
from explorer.engine.forms import check_places, checked
from explorer.engine.method import Kind, Method, Unit
from explorer.engine.state import State


def cut_out(images: Tensor, *, centres: Tensor, side: int) -> Tensor:
    """Return the images with holes of zeros: squares (cubes) of `side` around the centres, clipped at the border.

    `centres`: B, holes, and a place on each axis. A hole of even side extends one pixel further before its centre.
    """
    # One mask for all images and holes, axis by axis: a loop over images would take a kernel for each.
    covered = torch.ones((), dtype=torch.bool, device=images.device)
    for axis, size in enumerate(images.shape[2:]):
        distance = torch.arange(size, device=images.device) - centres[..., axis, None] + side // 2
        within = (distance >= 0) & (distance < side)  # B, holes, size
        covered = covered & within.reshape(
            *within.shape[:2], *(size if a == axis else 1 for a in range(images.ndim - 2))
        )
    return images.masked_fill(covered.any(1).unsqueeze(1), 0)


def draw_holes(
    draws: np.random.Generator, *, count: int, holes: int, length: float, sizes: tuple[int, ...]
) -> tuple[Tensor, int]:
    """Return the centres of the holes of `count` images (count, holes, a place on each axis), and the side of a
    hole: `length` of the shortest side of an image."""
    drawn = draws.integers(np.array(sizes), size=(count, holes, len(sizes)))
    return torch.from_numpy(drawn), max(1, math.floor(length * min(sizes) + 0.5))


def cutout(images: Tensor, *, draws: np.random.Generator, holes: int = 1, length: float = 0.5) -> Tensor:
    """Return images B C H W, or volumes B C D H W, with holes of zeros, each image with holes of its own.

    Zero should be the mean of the images: call it on normalised ones.

    In a loop:

        draws = np.random.default_rng(0)
        for x, y in batches:
            x = functional.cutout(x, draws=draws, length=0.5)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    checked(Cutout, holes=holes, length=length)
    check_places(images, form=Cutout.name)
    if length == 0:
        return images
    centres, side = draw_holes(draws, count=len(images), holes=holes, length=length, sizes=tuple(images.shape[2:]))
    return cut_out(images, centres=centres.to(images.device), side=side)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cutout(Method):
    """Every image has holes of its own. They are filled with zero, which is the mean of normalised images."""

    name: ClassVar[str] = "cutout"
    kind: ClassVar[Kind] = Kind.MIX
    summary: ClassVar[str] = "Blanks out squares of every image."
    source: ClassVar[str] = "DeVries, Taylor 2017, arXiv:1708.04552"
    formula: ClassVar[str] = (
        "x' = 0 in each of `holes` squares, x elsewhere\n"
        "square: of side length min(H, W), rounded; its centre uniform over the pixels; clipped at the border"
    )
    changes: ClassVar[str] = "the images"
    routing: ClassVar[str] = "Works: every image has holes of its own, drawn for its slot."
    before: ClassVar[tuple[str, ...]] = ("cutmix", "mixup")  # so that each image is cut, not the mixture of two
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "volume"})

    holes: Annotated[int, Field(ge=1, le=100, description="in each image"), Unit("holes")] = 1
    length: Annotated[
        float, Field(ge=0, le=1, description="side of a hole; 0 is off"), Unit("share of the shortest side")
    ] = 0.5

    def any_length(self) -> bool:
        return True

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        if not self.length:
            return
        inputs = state.batch.inputs
        centres, side = draw_holes(
            stream(state.seed, self.name, state.step),
            count=state.batch_size,
            holes=self.holes,
            length=self.length,
            sizes=tuple(inputs.shape[2:]),
        )
        mine = centres.to(inputs.device, non_blocking=True)[state.batch.slots]
        state.batch = replace(state.batch, inputs=cut_out(inputs, centres=mine, side=side))

    def neutral(self) -> Self:
        return replace(self, length=0.0)

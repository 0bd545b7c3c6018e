"""CutMix: paste a box of another example into each image, and mix the targets by its area.

Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features", 2019,
arXiv:1905.04899.
Shapes: B images, C channels, then the places: H rows and W columns, or D planes before them; K classes.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.batches import dense, draw_partners
from explorer.data.dataset import Modality
from explorer.data.streams import stream
from explorer.engine.forms import by_place, check_places, check_rows, checked, distributions, partners_of
from explorer.engine.method import Kind, Method, Unit
from explorer.engine.state import State

Box = tuple[slice, ...]  # one range of places for each axis


def draw_box(draws: np.random.Generator, *, sizes: tuple[int, ...], edge: float, uniform: bool = False) -> Box:
    """Return a box of sides `edge * sizes`, rounded, clipped at the border; it may be empty.

    Its centre is uniform over the places. With `uniform`, the box is uniform over all positions that touch the image,
    so that every place is covered equally often.
    """
    box = []
    for size in sizes:
        side = math.floor(edge * size + 0.5)
        first = int(draws.integers(min(0, 1 - side), size) if uniform else draws.integers(size) - side // 2)
        box.append(slice(max(first, 0), max(min(first + side, size), 0)))
    return tuple(box)


def kept_share(box: Box, *, sizes: tuple[int, ...]) -> float:
    """Return the share of the places outside the box."""
    return 1 - math.prod(place.stop - place.start for place in box) / math.prod(sizes)


def paste(values: Tensor, *, partners: Tensor, place: tuple[slice, ...]) -> Tensor:
    """Return the values of each row, with those of its partner at that place."""
    pasted = values.clone()
    pasted[place] = values[place][partners]
    return pasted


def draw_cut(
    draws: np.random.Generator, *, sizes: tuple[int, ...], alpha: float, length: float | None, uniform: bool
) -> Box:
    """Return a box of the drawn area, or with sides `length * sizes`."""
    edge = length or (1 - draws.beta(alpha, alpha)) ** (1 / len(sizes))
    return draw_box(draws, sizes=sizes, edge=edge, uniform=uniform)


def cutmix(
    inputs: Tensor,
    targets: Tensor,
    *,
    draws: np.random.Generator,
    alpha: float = 1.0,
    length: float | None = None,
    uniform_sampling: bool = False,
    classes: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return images B C H W, or volumes B C D H W, with a box of a random partner in each, and their targets.

    Targets B K are mixed by the area of the box; class numbers (B, integers) become distributions over `classes`
    first. Targets with a class for each place (B H W, or B H W K) are pasted like the images.

    In a loop:

        draws = np.random.default_rng(0)
        for x, y in batches:
            x, y = functional.cutmix(x, y, draws=draws, classes=10)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    checked(CutMix, alpha=alpha, length=length, uniform_sampling=uniform_sampling)
    check_places(inputs, form=CutMix.name)
    check_rows(inputs, targets, form=CutMix.name)
    pasted = by_place(inputs, targets)
    whole = targets if pasted else distributions(targets, classes=classes, form=CutMix.name)
    if alpha == 0:
        return inputs, whole
    sizes = tuple(inputs.shape[2:])
    box = draw_cut(draws, sizes=sizes, alpha=alpha, length=length, uniform=uniform_sampling)
    partners = partners_of(inputs, draws)
    return (
        paste(inputs, partners=partners, place=(slice(None), slice(None), *box)),
        paste(whole, partners=partners, place=(slice(None), *box))
        if pasted
        else torch.lerp(whole[partners], whole, kept_share(box, sizes=sizes)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CutMix(Method):
    """The whole batch has the same box. Targets with a class for each pixel are pasted like the images; others are
    mixed by the share of the image that the clipped box covers."""

    name: ClassVar[str] = "cutmix"
    kind: ClassVar[Kind] = Kind.MIX
    mixes: ClassVar[bool] = True
    turns: ClassVar[str] = "mix"
    summary: ClassVar[str] = "Pastes a box of another example into each image and mixes the targets by its area."
    source: ClassVar[str] = "Yun et al. 2019, arXiv:1905.04899"
    formula: ClassVar[str] = (
        "x' = x[partner] in a box, x elsewhere; t' = w t + (1 - w) t[partner], w = 1 - (area of the box) / (H W)\n"
        "box: H sqrt(1 - z) by W sqrt(1 - z), z ~ Beta(alpha, alpha), or length H by length W; clipped at the border\n"
        "t = 0 for a label that the loss ignores (-100)"
    )
    changes: ClassVar[str] = "images and targets"
    needs: ClassVar[str] = "any model; a loss that takes distributions over the classes for targets"
    routing: ClassVar[str] = "Works: partners have the same class, and leaving a class out changes no other pair."
    makes_dense: ClassVar[bool] = True
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "volume"})

    alpha: Annotated[float, Field(ge=0, le=100, description="both parameters of the Beta distribution; 0 is off")] = 1.0
    length: Annotated[
        float | None, Field(gt=0, le=1, description="side of the box; null: drawn by alpha"), Unit("share of the side")
    ] = None
    uniform_sampling: Annotated[
        bool, Field(description="every pixel is equally likely to be covered, those at the border too")
    ] = False

    def any_length(self) -> bool:
        return True

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        if not self.alpha:
            return
        # Weight and box, then partners: one stream for the step, the same in all of its shares.
        batch, sizes = state.batch, tuple(state.batch.inputs.shape[2:])
        draws = stream(state.seed, self.name, state.step)
        box = draw_cut(draws, sizes=sizes, alpha=self.alpha, length=self.length, uniform=self.uniform_sampling)
        partners = draw_partners(draws, slots=batch.slots, codes=batch.codes, batch_size=state.batch_size)
        # The weight is that of the clipped box, not of the draw: the targets have to match what the image shows.
        if batch.pixelwise:
            targets = paste(batch.targets, partners=partners, place=(slice(None), *box))
        else:
            whole = dense(batch.targets, classes=state.classes)
            targets = torch.lerp(whole[partners], whole, kept_share(box, sizes=sizes))
        inputs = paste(batch.inputs, partners=partners, place=(slice(None), slice(None), *box))
        state.batch = replace(batch, inputs=inputs, targets=targets)

    def neutral(self) -> Self:
        return replace(self, alpha=0.0)

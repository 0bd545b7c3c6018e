"""RandAugment: a few random operations on each image, one after the other.

Cubuk et al., "RandAugment: Practical Automated Data Augmentation with a Reduced Search Space", 2020,
arXiv:1909.13719. Levels are drawn, as in AugMix; the paper fixes one level for all.
Shapes: N images, C channels, H rows, W columns; images are N C H W, uint8.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field
from torch import Tensor

from explorer.data.dataset import Modality
from explorer.data.image_operations import SETS, Choice, Strengths, draw_levels, operate, refuse_unfit
from explorer.data.streams import stream
from explorer.engine.forms import check_levels, checked
from explorer.engine.method import Kind, Method, Planned, Unit
from explorer.engine.state import State


def augment(
    images: Tensor,
    *,
    choices: np.ndarray,
    levels: np.ndarray,
    operations: Choice = "all",
    strengths: Strengths = "paper",
) -> Tensor:
    """Return the images after `depth` operations each.

    Args:
        images: N C H W, uint8.
        choices: the numbers of the operations, N depth.
        levels: their levels of 10, N depth.
        operations: the set of operations that the numbers refer to.
        strengths: how strong a level is.
    """
    # By place, not by image: an operation runs once on all images that drew it there.
    for place in range(choices.shape[1]):
        drawn = {"choices": choices[:, place], "levels": levels[:, place]}
        images = operate(images, SETS[operations], **drawn, strengths=strengths)
    return images


def randaugment(
    images: Tensor,
    *,
    draws: np.random.Generator,
    severity: float = 9.0,
    depth: int = 2,
    operations: Choice = "all",
    strengths: Strengths = "paper",
) -> Tensor:
    """Return images N C H W as they were read (uint8, on the CPU), each after `depth` random operations.

    In a loop:

        draws = np.random.default_rng(0)
        for x, y in raw_batches:
            x = functional.randaugment(x, draws=draws, depth=2)
            optimizer.zero_grad()
            F.cross_entropy(model(x / 255), y).backward()
            optimizer.step()
    """
    checked(RandAugment, severity=severity, depth=depth, operations=operations, strengths=strengths)
    check_levels(images, form=RandAugment.name)
    drawn = draw_operations(draws, count=len(images), severity=severity, depth=depth, operations=operations)
    return augment(images, **drawn, operations=operations, strengths=strengths)


def draw_operations(
    draws: np.random.Generator, *, count: int, severity: float, depth: int, operations: Choice
) -> dict[str, np.ndarray]:
    """Return the `choices` and `levels` of `count` images, count x depth: operations and levels are uniform."""
    choices = draws.integers(len(SETS[operations]), size=(count, depth))
    return {"choices": choices, "levels": draw_levels(draws, severity=severity, shape=choices.shape)}


@dataclass(frozen=True, kw_only=True, slots=True)
class RandAugment(Method):
    """Every image has operations and levels of its own. Runs on the CPU, on images as they were read."""

    name: ClassVar[str] = "randaugment"
    kind: ClassVar[Kind] = Kind.EXAMPLE
    summary: ClassVar[str] = "Changes each image by a few operations drawn at random."
    source: ClassVar[str] = "Cubuk et al. 2020, arXiv:1909.13719"
    formula: ClassVar[str] = (
        "x' = o_depth(... o_1(x))\no: an operation drawn at random, at level U(0.1, severity) of 10\n"
        "paper: posterise keeps 4 - 4 l bits, enhancers blend by 0.1 + 1.8 l; torchvision: 8 - 4 l bits, 1 +- 0.9 l;"
        " l = level / 10"
    )
    changes: ClassVar[str] = "the images, one by one, before they are normalised"
    needs: ClassVar[str] = "images of one or three channels with one label each; any model"
    routing: ClassVar[str] = "Works: every image is changed by itself, and its draws belong to its slot."
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image"})

    severity: Annotated[
        float, Field(ge=0.1, le=10, description="strongest level of an operation, of 10"), Unit("level")
    ] = 9.0
    depth: Annotated[int, Field(ge=0, le=10, description="operations on an image; 0: off"), Unit("operations")] = 2
    operations: Choice = "all"
    strengths: Strengths = "paper"

    def any_length(self) -> bool:
        return True

    def check(self, planned: Planned) -> None:
        refuse_unfit(task=planned.task, example_shape=planned.example_shape)

    def change_examples(self, state: State) -> None:
        assert state.raw is not None and state.share is not None
        # Drawn for every slot of the nominal batch, then picked by slot: leaving a class out changes no other image.
        drawn = draw_operations(
            stream(state.seed, self.name, state.step),
            count=state.batch_size,
            severity=self.severity,
            depth=self.depth,
            operations=self.operations,
        )
        mine = {name: values[state.share.slots] for name, values in drawn.items()}
        state.raw = augment(state.raw, **mine, operations=self.operations, strengths=self.strengths)

    def neutral(self) -> Self:
        return replace(self, depth=0)

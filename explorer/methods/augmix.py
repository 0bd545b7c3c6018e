"""AugMix: mix an image with versions of itself that went through chains of random operations.

Hendrycks et al., "AugMix: A Simple Data Processing Method to Improve Robustness and Uncertainty", 2020,
arXiv:1912.02781. This is only the paper's AugmentAndMix (algorithm 1), without its Jensen-Shannon loss, which compares
three views of an image.
Shapes: N images, C channels, H rows, W columns; images are N C H W, uint8.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.dataset import Modality
from explorer.data.image_operations import SETS, Choice, Strengths, draw_levels, operate, refuse_unfit
from explorer.data.streams import stream
from explorer.engine.forms import check_levels, checked
from explorer.engine.method import Kind, Method, Planned, Unit
from explorer.engine.state import State

LONGEST = 3  # the greatest length of chains whose length is drawn
DRAWN = -1  # the depth that means: draw it


class Chains(NamedTuple):
    """The draws for N images, each of which goes through `width` chains of up to `depth` operations."""

    choices: np.ndarray  # N width depth: the number of an operation; -1: none
    levels: np.ndarray  # N width depth
    weights: np.ndarray  # N (1 + width), rows sum to 1: of the image itself, and of each chain's result

    def at(self, slots: np.ndarray) -> "Chains":
        """Return the draws of the images in these slots."""
        return Chains(*(drawn[slots] for drawn in self))


def draw_chains(
    draws: np.random.Generator, *, count: int, operations: Choice, severity: float, depth: int, width: int, alpha: float
) -> Chains:
    """Return chains for `count` images: operations and levels are uniform, the weights of the chains are drawn from
    Dirichlet(alpha), the weight of the image itself from Beta(alpha, alpha)."""
    # Every chain is drawn at full length and then cut, so that the number of draws does not depend on the draws.
    longest = LONGEST if depth == DRAWN else depth
    choices = draws.integers(len(SETS[operations]), size=(count, width, longest))
    if depth == DRAWN:
        choices[draws.integers(1, longest + 1, (count, width, 1)) <= np.arange(longest)] = -1
    levels = draw_levels(draws, severity=severity, shape=choices.shape)
    own = draws.beta(alpha, alpha, (count, 1))
    return Chains(choices, levels, np.hstack([own, (1 - own) * draws.dirichlet([alpha] * width, count)]))


def augment_and_mix(
    images: Tensor, chains: Chains, *, operations: Choice = "all", strengths: Strengths = "paper"
) -> Tensor:
    """Return the images mixed with the results of their chains, rounded to the nearest level."""
    # In levels of 0..255 and float32: the mean of several images is rounded once, at the end.
    width, depth = chains.choices.shape[1:]
    weights = torch.from_numpy(chains.weights.astype(np.float32))[..., None, None, None]
    mixed = images * weights[:, 0]
    # All chains side by side in one tensor: at each place an operation runs once, on all images that drew it.
    changed = images.repeat(width, 1, 1, 1)
    choices, levels = (drawn.swapaxes(0, 1).reshape(-1, depth) for drawn in (chains.choices, chains.levels))
    for place in range(depth):
        drawn = {"choices": choices[:, place], "levels": levels[:, place]}
        changed = operate(changed, SETS[operations], **drawn, strengths=strengths)
    for chain, result in enumerate(changed.chunk(width)):
        mixed.addcmul_(result, weights[:, 1 + chain])
    return mixed.add_(0.5).to(torch.uint8)


def augmix(
    images: Tensor,
    *,
    draws: np.random.Generator,
    severity: float = 3.0,
    depth: int = DRAWN,
    width: int = 3,
    alpha: float = 1.0,
    operations: Choice = "all",
    strengths: Strengths = "paper",
) -> Tensor:
    """Return images N C H W as they were read (uint8, on the CPU), each mixed with versions of itself.

    In a loop:

        draws = np.random.default_rng(0)
        for x, y in raw_batches:
            x = functional.augmix(x, draws=draws, severity=3.0)
            optimizer.zero_grad()
            F.cross_entropy(model(x / 255), y).backward()
            optimizer.step()
    """
    shape: dict[str, Any] = {"depth": depth, "width": width, "alpha": alpha, "severity": severity}
    checked(AugMix, operations=operations, strengths=strengths, **shape)
    check_levels(images, form=AugMix.name)
    if depth == 0:
        return images
    chains = draw_chains(draws, count=len(images), operations=operations, **shape)
    return augment_and_mix(images, chains, operations=operations, strengths=strengths)


@dataclass(frozen=True, kw_only=True, slots=True)
class AugMix(Method):
    """Runs on the CPU, on images as they were read. The paper's consistency loss is not included."""

    name: ClassVar[str] = "augmix"
    kind: ClassVar[Kind] = Kind.EXAMPLE
    summary: ClassVar[str] = "Mixes each image with versions of itself that went through chains of random operations."
    source: ClassVar[str] = "Hendrycks et al. 2020, arXiv:1912.02781 (AugmentAndMix; without its Jensen-Shannon loss)"
    formula: ClassVar[str] = (
        "x' = m x + (1 - m) sum_k v_k chain_k(x), k = 1..width; m ~ Beta(alpha, alpha), v ~ Dirichlet(alpha)\n"
        "chain: depth operations drawn at random, each at level U(0.1, severity) of 10\n"
        "paper: posterise keeps 4 - 4 l bits, enhancers blend by 0.1 + 1.8 l; torchvision: 8 - 4 l bits, 1 +- 0.9 l;"
        " l = level / 10"
    )
    changes: ClassVar[str] = "the images, one by one, before they are normalised"
    needs: ClassVar[str] = "images of one or three channels with one label each; any model"
    routing: ClassVar[str] = (
        "Works: every image is mixed only with versions of itself, and its draws belong to its slot."
    )
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image"})

    severity: Annotated[
        float, Field(ge=0.1, le=10, description="strongest level of an operation, of 10"), Unit("level")
    ] = 3.0
    depth: Annotated[
        int, Field(ge=-1, le=10, description="length of a chain; -1: drawn from 1 to 3; 0: off"), Unit("operations")
    ] = DRAWN
    width: Annotated[int, Field(ge=1, le=10, description="chains of an image"), Unit("chains")] = 3
    alpha: Annotated[float, Field(gt=0, le=100, description="of the Beta and the Dirichlet distribution")] = 1.0
    operations: Choice = "all"
    strengths: Strengths = "paper"

    def any_length(self) -> bool:
        return True

    def check(self, planned: Planned) -> None:
        refuse_unfit(task=planned.task, example_shape=planned.example_shape)

    def change_examples(self, state: State) -> None:
        assert state.raw is not None and state.share is not None
        if not self.depth:
            return
        # Drawn for every slot of the nominal batch, then picked by slot: leaving a class out changes no other image.
        chains = draw_chains(
            stream(state.seed, self.name, state.step),
            count=state.batch_size,
            operations=self.operations,
            severity=self.severity,
            depth=self.depth,
            width=self.width,
            alpha=self.alpha,
        )
        state.raw = augment_and_mix(
            state.raw, chains.at(state.share.slots), operations=self.operations, strengths=self.strengths
        )

    def neutral(self) -> Self:
        return replace(self, depth=0)

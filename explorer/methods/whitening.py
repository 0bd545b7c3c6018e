"""Whitening: fixed filters that make patches of natural images uncorrelated, before the first convolution.

Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", 2024, arXiv:2404.00498, after Page, "How to Train Your
ResNet", 2019, where it is the first layer of a network of its own (models/airbench.py). The filters follow from a
formula, not from the training images, so they hold nothing that a policy or a deletion would have to reach.
"""

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.data.batches import Batches
from explorer.data.dataset import Modality
from explorer.engine.method import Kind, Method, Planned
from explorer.engine.modules import initialised, mix_in
from explorer.engine.state import State
from explorer.errors import RecipeError
from explorer.models.airbench import Whitening as Patches


class Whitened(nn.Conv2d if TYPE_CHECKING else object):
    """A convolution of whitened patches, rectified by GELU."""

    whitening: Patches

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(F.gelu(self.whitening(input)))


def apply_whitening(model: nn.Module, *, seed: int = 0) -> list[str]:
    """Whiten patches of 2x2 pixels before the first convolution of a model; return its name in a list.

    The convolution gets new weights, for 8 inputs in place of each channel of the images, drawn by (seed, name). Images
    that it sees are one pixel smaller a side. Raises `RecipeError` for a model without a convolution, and for one that
    whitens already.

    In a loop:

        functional.whitening(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    name, conv = first_convolution(model)
    like = conv.weight
    patches = initialised(lambda: Patches(conv.in_channels), seed=seed, name=f"{name}.whitening", like=like)

    def widened() -> nn.Conv2d:
        wide = copy.deepcopy(conv).to_empty(device="cpu")
        wide.in_channels = len(patches.bias)
        wide.weight = nn.Parameter(torch.empty(wide.out_channels, wide.in_channels, *wide.kernel_size))
        return wide

    wide = initialised(widened, seed=seed, name=name, like=like)  # by the convolution's own rule
    conv.in_channels, conv.weight, conv.bias = wide.in_channels, wide.weight, wide.bias
    conv.add_module("whitening", patches.train(conv.training))
    mix_in(Whitened, conv)
    return [name]


def first_convolution(model: nn.Module) -> tuple[str, nn.Conv2d]:
    """Return the name of the first convolution, and the convolution. Raises `RecipeError` for a model without one, and
    for one that whitens already."""
    for name, module in model.named_modules():
        if isinstance(module, Patches):
            raise RecipeError(f"{Whitening.name}: found {name}, which whitens already: expected a model that does not")
        if isinstance(module, nn.Conv2d):
            if isinstance(module, Whitened):
                raise RecipeError(f"{Whitening.name}: found {name}, which is whitened: expected a model that is not")
            if module.groups != 1:
                raise RecipeError(f"{Whitening.name}: found {module.groups} groups in {name}: expected one")
            if max(module.stride) > 1 and module.stride == module.kernel_size:
                raise RecipeError(
                    f"{Whitening.name}: found {name}, which cuts images into patches: expected a convolution that"
                    " slides, since images become a pixel smaller"
                )
            return name, module
    raise RecipeError(
        f"{Whitening.name}: found nothing to change in {type(model).__name__}: expected a convolution of images"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Whitening(Method):
    """Changes the model for good, at inference too. The filters are fixed; a bias for each of them trains."""

    name: ClassVar[str] = "whitening"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Makes patches of the images uncorrelated before the first convolution."
    source: ClassVar[str] = "Jordan 2024, arXiv:2404.00498"
    formula: ClassVar[str] = (
        "x' = GELU(F x + b) and GELU(-F x + b') for each patch x of 2x2 pixels, then the first convolution\n"
        "F: products of cosine vectors over channels, rows and columns, each divided by its standard deviation where"
        " neighbouring pixels correlate by 0.9 and the channels of a pixel by 0.9"
    )
    changes: ClassVar[str] = "the model"
    needs: ClassVar[str] = (
        "a model whose first convolution takes the images and slides over them; a label for each image"
    )
    routing: ClassVar[str] = (
        "Works: the filters are computed from no example; the biases are a layer of their own (`whitening`), which a"
        " policy can name."
    )
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image"})

    def check(self, planned: Planned) -> None:
        if planned.task == "segmentation":
            raise RecipeError("found a class for each pixel, but it takes a pixel off each side: expected one label")

    def any_length(self) -> bool:
        return True

    def change_model(self, state: State) -> None:
        name, conv = first_convolution(state.model)
        batches = state.resources.get(Batches)
        channels = conv.in_channels if batches is None else batches.dataset.example_shape[0]
        if conv.in_channels != channels:
            raise RecipeError(
                f"{self.name}: found {conv.in_channels} input channels of {name}, the first convolution: expected"
                f" {channels}, those of the images"
            )
        apply_whitening(state.model, seed=state.seed)

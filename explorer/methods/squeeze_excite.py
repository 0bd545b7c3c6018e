"""Squeeze-and-excitation: a gain for each channel, computed from the means of all channels.

Hu, Shen, Sun, "Squeeze-and-Excitation Networks", 2018, arXiv:1709.01507. As in the paper (figure 3) it acts once in
each residual block, on the branch before it is added. A model without residual blocks gets it after every convolution
with enough channels. The gains start near one half, because the new weights are small.

Shapes: B examples, C channels, L hidden units; any number of dimensions in space.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.method import Kind, Method, Unit
from explorer.engine.modules import change_modules, initialised, mix_in
from explorer.engine.state import State
from explorer.models.residual import Gate, Way

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def excite(x: Tensor, *, reduce_LC: Tensor, expand_CL: Tensor) -> Tensor:
    """Return x * sigmoid(expand @ relu(reduce @ mean of x over space)), for x of shape B C and any dimensions in
    space."""
    means_BC = x.mean(dim=tuple(range(2, x.ndim)))
    gains_BC = torch.sigmoid(F.linear(F.relu(F.linear(means_BC, reduce_LC)), expand_CL))
    return x * gains_BC.view(*gains_BC.shape, *[1] * (x.ndim - 2))


class Excitation(nn.Module):
    """Gains for channels by two linear layers without biases, with `channels / reduction` hidden units, at least 1."""

    def __init__(self, channels: int, *, reduction: int) -> None:
        super().__init__()
        hidden = max(1, round(channels / reduction))
        self.reduce = nn.Linear(channels, hidden, bias=False)
        self.expand = nn.Linear(hidden, channels, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        return excite(input, reduce_LC=self.reduce.weight, expand_CL=self.expand.weight)


class ExcitedBranch(Gate if TYPE_CHECKING else object):
    """Behaviour of a gate whose branch is excited before it is added."""

    excite: Excitation

    def forward(self, around: Tensor | Way, branch: Way) -> Tensor:
        return super().forward(around, lambda: self.excite(branch()))


class Excited(nn.Conv2d if TYPE_CHECKING else object):
    """Behaviour of a convolution whose output is excited."""

    excite: Excitation

    def forward(self, input: Tensor) -> Tensor:
        return self.excite(super().forward(input))


def apply_squeeze_excite(model: nn.Module, *, reduction: int = 16, min_channels: int = 16, seed: int = 0) -> list[str]:
    """Excite the branch of every residual block, or, in a model without any, the output of every convolution.

    Changes the model in place; returns the names of the changed gates or convolutions, which have at least
    `min_channels` channels. New weights are called `excite` and drawn by (seed, name). Raises `RecipeError` if none
    qualify.
    """
    # The first parameter tells device and type: a model lies on one device before training.
    like = next(model.parameters())
    residual = any(isinstance(module, Gate) for module in model.modules())

    def change(module: nn.Module, name: str) -> bool:
        channels = _width(module, residual=residual)
        if channels < min_channels or isinstance(module, ExcitedBranch | Excited):
            return False
        added = initialised(
            lambda: Excitation(channels, reduction=reduction),
            seed=seed,
            name=f"{name}.excite".lstrip("."),
            like=like,
        )
        module.add_module("excite", added.train(module.training))
        mix_in(ExcitedBranch if residual else Excited, module)
        return True

    target = f"residual blocks, or else convolutions, of {min_channels} or more channels"
    return change_modules(model, change, method=SqueezeExcite.name, target=target)


def _width(module: nn.Module, *, residual: bool) -> int:
    """Return the number of channels to excite in this module; 0 for other modules."""
    if residual:
        return module.width if isinstance(module, Gate) else 0
    return module.out_channels if isinstance(module, CONVOLUTIONS) else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SqueezeExcite(Method):
    """Changes the model for good, at inference too. Adds two small matrices to each residual block."""

    name: ClassVar[str] = "squeeze_excite"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Scales each channel by a gain computed from the means of all channels."
    source: ClassVar[str] = "Hu, Shen, Sun 2018, arXiv:1709.01507"
    formula: ClassVar[str] = (
        "x' = x * sigmoid(W2 relu(W1 mean(x))), the mean over space, with channels / `reduction` hidden units, at least"
        " 1; once in each residual block, before the addition; without residual blocks, after each convolution"
    )
    changes: ClassVar[str] = "the model"
    needs: ClassVar[str] = "residual blocks that add through a gate, as the ResNets here do, or else convolutions"
    routing: ClassVar[str] = "Works: its weights are layers of their own (`excite`), which a policy can name."
    after: ClassVar[tuple[str, ...]] = ("factorize",)
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "volume"})

    reduction: Annotated[int, Field(ge=1, le=1024, description="channels for each hidden unit"), Unit("channels")] = 16
    min_channels: Annotated[
        int,
        Field(ge=1, le=65536, description="least channels of a block or convolution"),
        Unit("channels"),
    ] = 16

    def change_model(self, state: State) -> None:
        apply_squeeze_excite(state.model, reduction=self.reduction, min_channels=self.min_channels, seed=state.seed)

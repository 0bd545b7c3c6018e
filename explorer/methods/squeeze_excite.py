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
from explorer.engine.architectures import Branch, affine_sizes, branches_of
from explorer.engine.forms import checked
from explorer.engine.method import Kind, Method, Unit
from explorer.engine.modules import change_modules, initialised, mix_in
from explorer.engine.state import State
from explorer.errors import RecipeError
from explorer.models.residual import Gate, Way

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
# Classes of other packages that do this already: the branches that they are in stay as they are.
EXCITED = frozenset({"SqueezeExcitation", "SqueezeExcite", "SEModule", "SELayer", "EffectiveSEModule"})


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
    """Behaviour of a module whose output is excited: a convolution, or the last module of a residual branch."""

    excite: Excitation

    def forward(self, input: Tensor) -> Tensor:
        return self.excite(super().forward(input))


def apply_squeeze_excite(model: nn.Module, *, reduction: int = 16, min_channels: int = 16, seed: int = 0) -> list[str]:
    """Excite the branch of every residual block, or, in a model without any, the output of every convolution.

    Changes the model in place; returns the names of the changed gates or convolutions, which have at least
    `min_channels` channels. New weights are called `excite` and drawn by (seed, name). Raises `RecipeError` if none
    qualify.

    In a loop:

        functional.squeeze_excite(model, min_channels=8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    checked(SqueezeExcite, reduction=reduction, min_channels=min_channels)
    # The first parameter tells device and type: a model lies on one device before training.
    like = next(model.parameters())
    widths = _widths(model)

    def change(module: nn.Module, name: str) -> bool:
        channels = widths.get(module, 0)
        if channels < min_channels or isinstance(module, ExcitedBranch | Excited):
            return False
        added = initialised(
            lambda: Excitation(channels, reduction=reduction),
            seed=seed,
            name=f"{name}.excite".lstrip("."),
            like=like,
        )
        module.add_module("excite", added.train(module.training))
        mix_in(ExcitedBranch if isinstance(module, Gate) else Excited, module)
        return True

    target = f"residual blocks, or else convolutions, of {min_channels} or more channels"
    return change_modules(model, change, method=SqueezeExcite.name, target=target)


def _widths(model: nn.Module) -> dict[nn.Module, int]:
    """Return the modules to excite with their numbers of channels: gates, or ends of branches, or else convolutions.

    Raises `RecipeError` for a model whose branches are all excited, or add to tokens, which have no channels in space.
    """
    gates = {module: module.width for module in model.modules() if isinstance(module, Gate)}
    branches = branches_of(model)
    plain = [branch for branch in branches if not branch.block.tokens and not _is_excited(branch)]
    if branches and not (gates or plain):
        why = "which adds to tokens" if branches[0].block.tokens else "which is excited already"
        raise RecipeError(
            f"{SqueezeExcite.name}: found {branches[0].name}, {why}: expected residual branches of convolutions"
        )
    if gates or branches:
        return gates | {branch.modules[-1]: _channels(branch) for branch in plain}
    return {module: module.out_channels for module in model.modules() if isinstance(module, CONVOLUTIONS)}


def _is_excited(branch: Branch) -> bool:
    return any(type(part).__name__ in EXCITED for module in branch.modules for part in module.modules())


def _channels(branch: Branch) -> int:
    """Return the channels of a branch's output: those of its last layer that tells them."""
    layers = [layer for module in branch.modules for layer in module.modules()]
    for layer in reversed(layers):
        if isinstance(layer, CONVOLUTIONS):
            return layer.out_channels
        if (sizes := affine_sizes(layer)) is not None:
            return sizes[1]
    raise RecipeError(f"{SqueezeExcite.name}: found {branch.name} without a convolution: expected a branch of them")


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
    needs: ClassVar[str] = "residual blocks of convolutions, as in ResNets, or else convolutions"
    routing: ClassVar[str] = "Works: its weights are layers of their own (`excite`), which a policy can name."
    after: ClassVar[tuple[str, ...]] = ("factorize",)
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "volume"})

    reduction: Annotated[int, Field(ge=1, le=1024, description="channels for each hidden unit"), Unit("channels")] = 16
    min_channels: Annotated[
        int,
        Field(ge=1, le=65536, description="least channels of a block or convolution"),
        Unit("channels"),
    ] = 16

    def any_length(self) -> bool:
        return True

    def change_model(self, state: State) -> None:
        apply_squeeze_excite(state.model, reduction=self.reduction, min_channels=self.min_channels, seed=state.seed)

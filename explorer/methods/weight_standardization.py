"""Weight standardisation: convolutions whose filters have mean zero and variance one whenever they are used.

Qiao et al., "Micro-Batch Training with Batch-Channel Normalization and Weight Standardization", 2019, arXiv:1903.10520.
The parameters are the raw filters, under their own names, and gradients pass through the standardisation. A model with
batch normalisation after every convolution gains little: the method was made for group normalisation.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.method import Kind, Method, Planned
from explorer.engine.modules import change_modules, check_reaches, mix_in
from explorer.engine.state import State

EPSILON = 1e-10  # added to the variance
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def standardise(filters: Tensor) -> Tensor:
    """Return (W - mean) / sqrt(variance + 1e-10) for each filter W (first dimension); the variance divides by n."""
    # Layer normalisation is this very formula, in one fused kernel.
    return F.layer_norm(filters, filters.shape[1:], eps=EPSILON)


class Standardised(nn.Conv2d if TYPE_CHECKING else object):
    """Behaviour of a convolution with standardised filters."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input, standardise(weight), bias)


def apply_weight_standardization(model: nn.Module) -> list[str]:
    """Standardise the filters of every convolution, in place; return the names of the changed layers.

    Filters of one element, which have no variance, and those of depthwise convolutions, which are too small for it,
    stay as they are. Raises `RecipeError` if no others are found.

    In a loop:

        functional.weight_standardization(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """

    def change(module: nn.Module, name: str) -> bool:
        if not isinstance(module, CONVOLUTIONS) or isinstance(module, Standardised):
            return False
        depthwise = module.groups > 1 and module.groups == module.in_channels
        if depthwise or module.weight[0].numel() == 1:
            return False
        kind = next(kind for kind in CONVOLUTIONS if isinstance(module, kind))
        check_reaches(module, kind, "_conv_forward", method=WeightStandardization.name, name=name)
        mix_in(Standardised, module)
        return True

    target = "convolutions whose filters have several elements and are not depthwise"
    return change_modules(model, change, method=WeightStandardization.name, target=target)


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightStandardization(Method):
    """Changes the model for good, at inference too. It has no strength to turn down."""

    name: ClassVar[str] = "weight_standardization"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Gives every convolution filter mean zero and variance one, at each use."
    source: ClassVar[str] = "Qiao et al. 2019, arXiv:1903.10520"
    formula: ClassVar[str] = "W' = (W - mean(W)) / sqrt(variance(W) + 1e-10) for each output filter W, at each use"
    changes: ClassVar[str] = "the model"
    needs: ClassVar[str] = "convolutions that are followed by a normalisation, group normalisation above all"
    routing: ClassVar[str] = "Works: the filters stay parameters of their layer, and rows do not affect each other."
    after: ClassVar[tuple[str, ...]] = (
        "factorize",
        "squeeze_excite",
        "blurpool",
        "ghost_batchnorm",
        "low_precision_groupnorm",
        "low_precision_layernorm",
    )
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "volume"})

    def any_length(self) -> bool:
        return True

    def warnings(self, planned: Planned, model: nn.Module) -> list[str]:
        count = sum(isinstance(module, BATCH_NORMS) for module in model.modules())
        words = (
            f"The model has batch normalisation ({count} layers), which already removes the mean and scale of every"
            " filter's output, so expect little gain. The method was made for group normalisation."
        )
        return [words] if count else []

    def change_model(self, state: State) -> None:
        apply_weight_standardization(state.model)

"""Ghost batch normalisation: statistics of small chunks of the batch, whatever its size.

Hoffer, Hubara, Soudry, "Train longer, generalize better", 2017, arXiv:1705.08741; Dimitriou, Arandjelovic, "A New Look
at Ghost Normalization", 2020, arXiv:2007.08554. In training, every `size` rows are normalised by their own mean and
variance, and each chunk enters the running statistics with the momentum divided by the number of chunks. Evaluation is
unchanged. A microbatch is a ghost batch already: in microbatches of `size` rows or fewer nothing changes.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.forms import checked
from explorer.engine.method import Kind, Method, Planned, Unit
from explorer.engine.modules import change_modules, mix_in
from explorer.engine.state import State
from explorer.errors import RecipeError

LARGEST = 2**20  # no batch is larger, so this size is off
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def chunks(rows: Tensor, *, size: int) -> tuple[Tensor, ...]:
    """Return the rows in chunks of `size`, or, if that does not divide them, in smaller chunks of nearly equal size."""
    # Nearly equal, since all chunks have the same weight in the running statistics. None is a single row, which may
    # have no variance: hence at most half as many chunks as rows.
    count = max(1, min(math.ceil(len(rows) / size), len(rows) // 2))
    least, longer = divmod(len(rows), count)
    # One operation with one gradient: `tensor_split` would allocate a gradient of the batch's size for each chunk.
    return rows.split([least + 1] * longer + [least] * (count - longer))


class Ghost(nn.BatchNorm2d if TYPE_CHECKING else object):
    """Batch normalisation, chunk by chunk in training."""

    size: int

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or len(input) <= self.size:
            return super().forward(input)
        parts = chunks(input, size=self.size)
        momentum = self.momentum  # None: running statistics are the mean of all chunks so far
        if momentum is not None:
            # All chunks of a batch together weigh about as much as the batch would have.
            self.momentum = momentum / len(parts)
        try:
            # By the layer's own forward: a subclass may go on with an activation.
            return torch.cat([super(Ghost, self).forward(part) for part in parts])
        finally:
            self.momentum = momentum


def apply_ghost_batchnorm(model: nn.Module, *, size: int = 32) -> list[str]:
    """Make every batch normalisation normalise chunks of `size` rows, in place; return the names of the changed layers.

    Raises `RecipeError` if there is none.

    In a loop:

        functional.ghost_batchnorm(model, size=8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    checked(GhostBatchNorm, size=size)

    def change(module: nn.Module, name: str) -> bool:
        if not isinstance(module, BATCH_NORMS) or isinstance(module, Ghost):
            return False
        mix_in(Ghost, module)
        module.size = size  # pyright: ignore[reportArgumentType]
        return True

    return change_modules(model, change, method=GhostBatchNorm.name, target="batch normalisation")


@dataclass(frozen=True, kw_only=True, slots=True)
class GhostBatchNorm(Method):
    """Acts in training only: evaluation normalises by the running statistics, as always."""

    name: ClassVar[str] = "ghost_batchnorm"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Normalises small chunks of the batch by their own statistics."
    source: ClassVar[str] = "Hoffer et al. 2017, arXiv:1705.08741; Dimitriou, Arandjelovic 2020, arXiv:2007.08554"
    formula: ClassVar[str] = (
        "y = (x - mean(chunk)) / sqrt(variance(chunk) + eps) for every chunk of `size` rows;"
        " running statistics take in each chunk with momentum / number of chunks"
    )
    changes: ClassVar[str] = "the model, in training"
    needs: ClassVar[str] = "batch normalisation; batches, and microbatches if any, of more than `size` rows"
    routing: ClassVar[str] = (
        "Works: a chunk has rows of one class only, and may be smaller than `size` where the class has fewer."
    )
    after: ClassVar[tuple[str, ...]] = ("factorize", "squeeze_excite", "blurpool")
    conflicts_with: ClassVar[dict[str, str]] = {
        "low_precision_groupnorm": "a model normalises by batches or by groups; one of the two would change nothing"
    }
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "volume"})

    size: Annotated[int, Field(ge=2, le=LARGEST, description="rows that are normalised together"), Unit("examples")] = (
        32
    )

    def any_length(self) -> bool:
        return True

    def check(self, planned: Planned) -> None:
        rows = planned.rows
        if rows <= self.size < LARGEST:
            raise RecipeError(
                f"found size {self.size} for passes of {rows} rows, where it changes nothing: expected a smaller size"
            )

    def warnings(self, planned: Planned, model: nn.Module) -> list[str]:
        rows = planned.microbatch_size
        if rows is None or rows >= planned.batch_size:
            return []
        return [
            f"Microbatches of {rows} rows are already normalised separately; each is cut into chunks of {self.size}."
        ]

    def change_model(self, state: State) -> None:
        apply_ghost_batchnorm(state.model, size=self.size)

    def neutral(self) -> Self:
        return replace(self, size=LARGEST)

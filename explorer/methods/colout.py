"""ColOut: leave random rows and columns out of the images.

MosaicML, no paper. The remaining rows and columns stay in order, so an image keeps its look while a step costs less.
Needs a model that takes any image size, such as one with global pooling.
Shapes: B images, C channels, H rows, W columns, K classes of a pixel.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.dataset import Modality
from explorer.data.streams import stream
from explorer.engine.forms import by_place, check_places, check_rows, checked
from explorer.engine.method import Kind, Method, Moment, Unit
from explorer.engine.state import State


def draw_kept(draws: np.random.Generator, *, size: int, drop: float) -> Tensor:
    """Draw the lines of `size` that stay: `(1 - drop) * size` of them, rounded down, at least one; ascending, int64."""
    kept = max(1, int((1 - drop) * size + 1e-9))  # 1 - 0.8 is a little less than 0.2 in binary
    return torch.from_numpy(np.sort(draws.permutation(size)[:kept]))


def keep_lines(values: Tensor, *, rows: Tensor, columns: Tensor, axis: int = -2) -> Tensor:
    """Return only these rows and columns of the values; `axis` is that of the rows, and the next one of the columns."""
    return values.index_select(axis, rows).index_select(axis + 1, columns)


def colout(
    inputs: Tensor, targets: Tensor, *, draws: np.random.Generator, p_row: float = 0.15, p_col: float = 0.15
) -> tuple[Tensor, Tensor]:
    """Return images B C H W, or volumes B C D H W, without some rows and columns, and their targets.

    All images lose the same ones. Targets with a class for each place (B H W, or B H W K) lose them too; others stay.
    Train on whole images for the last fifth, which are what the model meets at inference.

    In a loop:

        draws = np.random.default_rng(0)
        for step, (x, y) in enumerate(batches):
            if step < 0.8 * len(batches):
                x, y = functional.colout(x, y, draws=draws)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    checked(ColOut, p_row=p_row, p_col=p_col)
    check_places(inputs, form=ColOut.name)
    check_rows(inputs, targets, form=ColOut.name)
    return leave_out(inputs, targets, draws=draws, drops=(p_row, p_col), by_place=by_place(inputs, targets))


def leave_out(
    inputs: Tensor, targets: Tensor, *, draws: np.random.Generator, drops: tuple[float, float], by_place: bool
) -> tuple[Tensor, Tensor]:
    """Return images, and targets if they have one for each place, without the drawn shares of rows and columns."""
    rows, columns = (
        draw_kept(draws, size=size, drop=drop).to(inputs.device)
        for size, drop in zip(inputs.shape[-2:], drops, strict=True)
    )
    if by_place:
        axis = targets.ndim - 2 - targets.is_floating_point()  # distributions have the classes last
        targets = keep_lines(targets, rows=rows, columns=columns, axis=axis)
    return keep_lines(inputs, rows=rows, columns=columns, axis=inputs.ndim - 2), targets


@dataclass(frozen=True, kw_only=True, slots=True)
class ColOut(Method):
    """All images of a batch lose the same rows and columns. The last part of training sees whole images, like
    those at inference. Volumes keep all their planes."""

    name: ClassVar[str] = "colout"
    kind: ClassVar[Kind] = Kind.SHAPE
    summary: ClassVar[str] = "Leaves random rows and columns out of the images."
    source: ClassVar[str] = "MosaicML, no paper"
    formula: ClassVar[str] = (
        "x' = x[rows, columns]; x' = x in the last `finetune` of training\n"
        "rows: floor((1 - p_row) H) of them, drawn for each step, in order; columns likewise by p_col"
    )
    changes: ClassVar[str] = "the images, and targets that have a class for each pixel"
    needs: ClassVar[str] = "a model that takes any image size"
    routing: ClassVar[str] = "Works: rows and columns are drawn for the step, whatever examples are in it."
    # After resizing: drawn from the resized image, the share that is dropped stays what was asked for.
    after: ClassVar[tuple[str, ...]] = ("progressive_resizing",)
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "volume"})

    p_row: Annotated[float, Field(ge=0, lt=1, description="of the rows are left out"), Unit("share of the rows")] = 0.15
    p_col: Annotated[
        float, Field(ge=0, lt=1, description="of the columns are left out"), Unit("share of the columns")
    ] = 0.15
    finetune: Annotated[
        float, Field(ge=0, le=1, description="on whole images, at the end"), Unit("share of training")
    ] = 0.2

    def any_length(self) -> bool:
        return self.finetune == 0

    def _acts(self, progress: float) -> bool:
        return (self.p_row > 0 or self.p_col > 0) and progress < 1 - self.finetune

    def phase(self, moment: Moment) -> str:
        if not self._acts(0):
            return ""
        rows, columns = (1 - self.p_row, 1 - self.p_col) if self._acts(moment.progress) else (1, 1)
        return f"{rows:g}x{columns:g} of the sides"

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        if not self._acts(state.progress):
            return
        batch = state.batch
        # The stream depends on the step only, so all shares of a step lose the same lines.
        inputs, targets = leave_out(
            batch.inputs,
            batch.targets,
            draws=stream(state.seed, self.name, state.step),
            drops=(self.p_row, self.p_col),
            by_place=batch.pixelwise,
        )
        state.batch = replace(batch, inputs=inputs, targets=targets)

    def neutral(self) -> Self:
        return replace(self, p_row=0.0, p_col=0.0)

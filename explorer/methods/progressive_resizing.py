"""Progressive resizing: begin with small images and grow them to full size.

Howard 2018 (fast.ai, DAWNBench); Touvron et al. 2019, arXiv:1906.06423; Tan, Le 2021, arXiv:2104.00298. Needs a model
that takes any image size, such as one with global pooling.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field
from torch import Tensor

from explorer.data.dataset import Modality
from explorer.data.images import resize, resize_classes
from explorer.data.streams import stream
from explorer.engine.method import Kind, Method, Moment, Unit
from explorer.engine.state import State
from explorer.errors import RecipeError


def scale_at(progress: float, *, initial_scale: float, delay: float, finetune: float) -> float:
    """Return the image scale: `initial_scale` up to `delay`, then a straight line to 1, where it stays for the last
    `finetune` of training.
    """
    # The end first: with `delay + finetune = 1` the line has no length, and the scale jumps.
    if progress >= 1 - finetune:
        return 1.0
    if progress <= delay:
        return initial_scale
    return initial_scale + (1 - initial_scale) * (progress - delay) / (1 - delay - finetune)


def size_at(full: int, *, scale: float, increment: int) -> int:
    """Return the side in pixels: `full * scale` to the nearest multiple of `increment`, between `increment` and `full`.

    Full scale is the full side, whatever the increment.
    """
    if scale >= 1:
        return full
    return min(full, max(increment, int(full * scale / increment + 0.5) * increment))


def crop(values: Tensor, *, corner: tuple[int, int], size: tuple[int, int], axis: int) -> Tensor:
    """Return the window of `size` at `corner` (rows, columns) as a view; `axis` is that of the rows."""
    return values.narrow(axis, corner[0], size[0]).narrow(axis + 1, corner[1], size[1])


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressiveResizing(Method):
    """Early steps are cheaper. Durations are shares of training, so they scale with the budget."""

    name: ClassVar[str] = "progressive_resizing"
    kind: ClassVar[Kind] = Kind.SHAPE
    summary: ClassVar[str] = "Begins with small images and grows them to full size."
    source: ClassVar[str] = "Howard 2018; Touvron et al. 2019, arXiv:1906.06423; Tan, Le 2021, arXiv:2104.00298"
    formula: ClassVar[str] = (
        "side = scale * full side, to the nearest multiple of increment\n"
        "scale: initial_scale up to delay, then a straight line to 1 at 1 - finetune\n"
        "resize: images bilinear and antialiased, classes of pixels by the nearest; crop: one random window a step"
    )
    changes: ClassVar[str] = "the images, and targets that have a class for each pixel"
    needs: ClassVar[str] = "a model that takes any image size"
    routing: ClassVar[str] = (
        "Works: every image is resized by itself; its size, and the window of a crop, depend only on the step."
    )
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image"})

    initial_scale: Annotated[
        float, Field(gt=0, le=1, description="of the sides, at the start"), Unit("share of the full side")
    ] = 0.5
    delay: Annotated[float, Field(ge=0, le=1, description="at the initial size"), Unit("share of training")] = 0.5
    finetune: Annotated[float, Field(ge=0, le=1, description="at full size in the end"), Unit("share of training")] = (
        0.2
    )
    increment: Annotated[int, Field(ge=1, le=1024, description="sides are multiples of it"), Unit("pixels")] = 4
    mode: Annotated[
        Literal["resize", "crop"], Field(description="shrink the images, or crop all to the same random window")
    ] = "resize"

    def __post_init__(self) -> None:
        if self.delay + self.finetune > 1 + 1e-9:
            raise RecipeError(f"found delay {self.delay} and finetune {self.finetune}: expected at most 1 together")

    def size(self, moment: Moment) -> tuple[int, int]:
        """Return the rows and columns of the images at that moment."""
        scale = scale_at(
            moment.progress,
            initial_scale=self.initial_scale,
            delay=self.delay,
            finetune=self.finetune,
        )
        height, width = moment.example_shape[-2:]
        rows = size_at(height, scale=scale, increment=self.increment)
        return rows, size_at(width, scale=scale, increment=self.increment)

    def phase(self, moment: Moment) -> str:
        if self.initial_scale == 1:
            return ""
        rows, columns = self.size(moment)
        return f"{rows}x{columns} px"

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        moment = Moment(
            step=state.step,
            total_steps=state.total_steps,
            example_shape=tuple(state.batch.inputs.shape[1:]),
            pace=state.pace,
        )
        batch, sides, size = state.batch, moment.example_shape[-2:], self.size(moment)
        if size == sides:
            return
        inputs, targets = batch.inputs, batch.targets
        # Classes of pixels have no means, so they are never interpolated.
        if self.mode == "resize":
            inputs = resize(inputs, size=size)
            targets = resize_classes(targets, size=size) if batch.pixelwise else targets
        else:
            draws = stream(state.seed, self.name, state.step)
            row, column = (int(draws.integers(full - new + 1)) for full, new in zip(sides, size, strict=True))
            inputs = crop(inputs, corner=(row, column), size=size, axis=2)
            targets = crop(targets, corner=(row, column), size=size, axis=1) if batch.pixelwise else targets
        state.batch = replace(batch, inputs=inputs, targets=targets)

    def neutral(self) -> Self:
        return replace(self, initial_scale=1.0)

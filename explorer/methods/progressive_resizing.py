"""Progressive resizing: begin with small images and grow them to full size.

Howard 2018 (fast.ai, DAWNBench); Touvron et al. 2019, arXiv:1906.06423; Tan, Le 2021, arXiv:2104.00298. Needs a model
that takes any image size, such as one with global pooling.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field
from torch import Tensor

from explorer.data.dataset import Modality
from explorer.data.images import resize, resize_classes
from explorer.data.streams import stream
from explorer.engine.forms import by_place, check_places, check_progress, check_rows, checked
from explorer.engine.method import Kind, Method, Moment, Unit
from explorer.engine.state import State
from explorer.errors import RecipeError, TrainingError

Mode = Literal["resize", "crop"]


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


def progressive_resizing(
    inputs: Tensor,
    targets: Tensor,
    *,
    progress: float,
    draws: np.random.Generator | None = None,
    initial_scale: float = 0.5,
    delay: float = 0.5,
    finetune: float = 0.2,
    increment: int = 4,
    mode: Mode = "resize",
) -> tuple[Tensor, Tensor]:
    """Return images B C H W at the size of this moment, and their targets.

    `progress` is the share of training that is done: step / steps. Targets with a class for each pixel (B H W, or B H W
    K) get that size too; others stay. `mode="crop"` needs `draws`, for the place of the window.

    In a loop:

        for step, (x, y) in enumerate(batches):
            x, y = functional.progressive_resizing(x, y, progress=step / len(batches), delay=0.3)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    method = checked(
        ProgressiveResizing,
        initial_scale=initial_scale,
        delay=delay,
        finetune=finetune,
        increment=increment,
        mode=mode,
    )
    check_places(inputs, form=method.name, axes=(2,))
    check_rows(inputs, targets, form=method.name)
    check_progress(progress, form=method.name)
    if mode == "crop" and draws is None:
        raise TrainingError(f'{method.name}: found no draws: expected a numpy generator for mode="crop"')
    size = method.size_of(progress, sides=tuple(inputs.shape[-2:]))
    return shrink(
        inputs, targets, size=size, draws=draws if mode == "crop" else None, by_place=by_place(inputs, targets)
    )


def shrink(
    inputs: Tensor, targets: Tensor, *, size: tuple[int, int], draws: np.random.Generator | None, by_place: bool
) -> tuple[Tensor, Tensor]:
    """Return images, and targets if they have one for each pixel, at that size: resized, or, with `draws`, in one
    random window."""
    height, width = inputs.shape[-2:]
    if size == (height, width):
        return inputs, targets
    # Classes of pixels have no means, so they are never interpolated.
    if draws is None:
        return resize(inputs, size=size), resize_classes(targets, size=size) if by_place else targets
    row, column = (int(draws.integers(full - new + 1)) for full, new in zip((height, width), size, strict=True))
    window = {"corner": (row, column), "size": size}
    return crop(inputs, **window, axis=2), crop(targets, **window, axis=1) if by_place else targets


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
    mode: Annotated[Mode, Field(description="shrink the images, or crop all to the same random window")] = "resize"

    def __post_init__(self) -> None:
        if self.delay + self.finetune > 1 + 1e-9:
            raise RecipeError(f"found delay {self.delay} and finetune {self.finetune}: expected at most 1 together")

    def size(self, moment: Moment) -> tuple[int, int]:
        """Return the rows and columns of the images at that moment."""
        height, width = moment.example_shape[-2:]
        return self.size_of(moment.progress, sides=(height, width))

    def size_of(self, progress: float, *, sides: tuple[int, ...]) -> tuple[int, int]:
        """Return the rows and columns of images of these sides, once that share of training is done."""
        scale = scale_at(progress, initial_scale=self.initial_scale, delay=self.delay, finetune=self.finetune)
        rows, columns = (size_at(side, scale=scale, increment=self.increment) for side in sides)
        return rows, columns

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
        batch, size = state.batch, self.size(moment)
        if size == moment.example_shape[-2:]:
            return
        draws = stream(state.seed, self.name, state.step) if self.mode == "crop" else None
        inputs, targets = shrink(batch.inputs, batch.targets, size=size, draws=draws, by_place=batch.pixelwise)
        state.batch = replace(batch, inputs=inputs, targets=targets)

    def neutral(self) -> Self:
        return replace(self, initial_scale=1.0)

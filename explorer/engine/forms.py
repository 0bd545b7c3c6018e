"""Checks of the functional forms of methods: ranges as the methods declare them, and one clear error for each fault.

A functional form is the method as a function, for a training loop of one's own (`explorer.functional`). Its parameters
have the names, ranges and defaults of the method's fields.

Shapes: B examples, K classes.
"""

import json
from functools import cache
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from explorer.data.batches import IGNORED, dense, draw_partners
from explorer.engine.method import Method
from explorer.errors import RecipeError, TrainingError

AnyMethod = TypeVar("AnyMethod", bound=Method)


def checked(method: type[AnyMethod], **parameters: Any) -> AnyMethod:
    """Return the method with these parameters. Raises `RecipeError` for a value out of range, or of another type."""
    try:
        # Through JSON text, as a recipe is read: pydantic's strict mode takes parameters of a dataclass only there.
        return _adapter(method).validate_json(json.dumps(parameters), strict=True)
    except TypeError as error:
        raise RecipeError(f"{method.name}: found {parameters!r:.80}: expected plain numbers: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"][:1]))
        message = first["msg"][:1].lower() + first["msg"][1:]
        raise RecipeError(f"{method.name}: {name}: found {first['input']!r:.80}: {message}") from error
    except RecipeError as error:  # parameters that do not fit each other
        raise RecipeError(f"{method.name}: {error}") from error


@cache
def _adapter(method: type[Method]) -> TypeAdapter[Any]:
    return TypeAdapter(method)


def distributions(targets: Tensor, *, classes: int | None, form: str) -> Tensor:
    """Return targets as distributions over the classes, B ... K float: class numbers (B ..., integers) become rows of
    one 1, or of zeros for a label that the loss ignores (-100).

    Raises `TrainingError` for class numbers without `classes`, and for those outside 0 to `classes` - 1.
    """
    if targets.is_floating_point():
        if targets.ndim < 2:
            raise TrainingError(
                f"{form}: found targets of type {targets.dtype} and shape {tuple(targets.shape)}: expected"
                " distributions over the classes, B ... K, or class numbers (integers)"
            )
        return targets
    if classes is None:
        raise TrainingError(
            f"{form}: found targets of type {targets.dtype}: expected distributions ... K (float), such as"
            " F.one_hot(labels, K).float(), or class numbers together with classes=K"
        )
    # On a device the comparison would wait for it in every step; there `one_hot` stops the program by itself.
    if targets.device.type == "cpu":
        wrong = targets[((targets < 0) | (targets >= classes)) & (targets != IGNORED)]
        if len(wrong):
            raise TrainingError(
                f"{form}: found the class number {int(wrong[0])}: expected 0 to {classes - 1}, for {classes} classes,"
                f" or {IGNORED} for one that the loss ignores"
            )
    return dense(targets, classes=classes)


def check_rows(inputs: Tensor, targets: Tensor, *, form: str) -> None:
    """Check that there is a target for each input. Raises `TrainingError`."""
    if not inputs.ndim or not targets.ndim or len(inputs) != len(targets) or not len(inputs):
        raise TrainingError(
            f"{form}: found inputs of shape {tuple(inputs.shape)} and targets of shape {tuple(targets.shape)}: expected"
            " as many of both, and at least one"
        )


def check_places(images: Tensor, *, form: str, axes: tuple[int, ...] = (2, 3)) -> None:
    """Check that images are floating-point numbers B C and as many `axes` of places. Raises `TrainingError`."""
    if images.ndim - 2 not in axes or not images.is_floating_point():
        expected = " or ".join({2: "B C H W", 3: "B C D H W"}[axis] for axis in axes)
        raise TrainingError(
            f"{form}: found {images.dtype} of shape {tuple(images.shape)}: expected floating-point images {expected}"
        )


def check_levels(images: Tensor, *, form: str) -> None:
    """Check that images are levels of 0 to 255 in memory, N C H W uint8 with one or three channels. Raises
    `TrainingError`."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3) or images.device.type != "cpu":
        raise TrainingError(
            f"{form}: found {images.dtype} of shape {tuple(images.shape)} on {images.device.type}: expected images as"
            " they were read, N C H W uint8 on the CPU, with 1 channel (grey) or 3 (red, green, blue)"
        )


def check_progress(progress: float, *, form: str) -> None:
    """Check that a share of training is one. Raises `TrainingError`."""
    if not 0 <= progress <= 1:
        raise TrainingError(f"{form}: progress: found {progress!r:.40}: expected a share of training, 0 to 1")


def by_place(inputs: Tensor, targets: Tensor) -> bool:
    """Return whether there is a target for each place of the images: class numbers B H W, or distributions B H W K."""
    places = inputs.shape[2:]
    targeted = targets.shape[1:-1] if targets.is_floating_point() else targets.shape[1:]
    return len(places) > 0 and targeted == places


def partners_of(inputs: Tensor, draws: Any) -> Tensor:
    """Return a random partner for every row, B row numbers: a permutation, from a numpy generator."""
    slots = torch.arange(len(inputs), device=inputs.device)
    return draw_partners(draws, slots=slots, codes=torch.zeros_like(slots), batch_size=len(inputs))

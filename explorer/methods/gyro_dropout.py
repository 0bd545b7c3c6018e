"""Gyro dropout: dropout by a fixed set of masks, a few of them at a time.

Lee et al., "GyroDropout: Maximizing Ensemble Effect in Neural Network Training", 2022, MLSys. `masks` masks are drawn
once. Every floor(steps / masks) x together steps, but at least every `together` steps, `together` of them are chosen,
and each acts on its part of the batch, by slot. It replaces every dropout of a model, with a rate of its own; a model
without dropout gets it before its last linear layer. Masks follow from (run seed, layer), choices from (run seed,
step): nothing needs to be saved.

Shapes: B examples, C features, M masks.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.data.streams import stream
from explorer.engine.forms import checked
from explorer.engine.method import Kind, Method, Unit
from explorer.engine.modules import mix_in, replace_modules
from explorer.engine.state import State
from explorer.errors import RecipeError


def drop(x_BC: Tensor, *, kept_BC: Tensor, rate: float) -> Tensor:
    """Return the features that the masks keep, divided by 1 - rate; zero elsewhere."""
    return x_BC * kept_BC.to(x_BC.dtype) / (1 - rate)


def period_of(step: int, *, total_steps: int, masks: int, together: int) -> int:
    """Return the number of the choice in force at a step."""
    return step // (max(1, total_steps // masks) * together)


def masks_of_slots(draws: np.random.Generator, *, masks: int, together: int, batch_size: int) -> np.ndarray:
    """Return the mask of each slot of the nominal batch, B int64: `together` masks, each for about as many slots."""
    chosen = draws.choice(masks, together, replace=False)
    return chosen[np.arange(batch_size) * together // batch_size]


class MaskDropout(nn.Module):
    """Dropout by fixed masks. It acts in training passes for which `mask_of_rows` is set.

    `rate` is the probability that a mask drops a feature; masks are drawn by (seed, name) at the first rows, whose
    width they need.
    """

    def __init__(self, *, rate: float, masks: int, seed: int, name: str) -> None:
        super().__init__()
        self.rate, self.masks, self.seed, self.name = rate, masks, seed, name
        self.mask_of_rows: Tensor | None = None  # B, int64; None: nothing is dropped
        self._kept_MC: Tensor | None = None

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 2:
            raise RecipeError(
                f"{GyroDropout.name}: found {input.ndim} dimensions in {self.name or 'the model'}: expected 2, rows of"
                " features, as before a classifier"
            )
        if not self.training or self.mask_of_rows is None or self.rate == 0:
            return input
        if self._kept_MC is None or self._kept_MC.device != input.device:
            draws = stream(self.seed, GyroDropout.name, "masks", self.name)
            kept = draws.random((self.masks, input.shape[1]), dtype=np.float32) >= self.rate
            self._kept_MC = torch.from_numpy(kept).to(input.device)
        return drop(input, kept_BC=self._kept_MC[self.mask_of_rows], rate=self.rate)


class Masked(tuple[MaskDropout, ...]):
    """The layers of a model that drop features by masks."""


def masked(model: nn.Module) -> Masked:
    """Return these layers of a model, after `apply_gyro_dropout`."""
    return Masked(module for module in model.modules() if isinstance(module, MaskDropout))


class Dropping(nn.Linear if TYPE_CHECKING else object):
    """Behaviour of a linear layer with dropout before it."""

    dropout: MaskDropout

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(self.dropout(input))


def apply_gyro_dropout(model: nn.Module, *, rate: float = 0.5, masks: int = 256, seed: int = 0) -> list[str]:
    """Replace every dropout by gyro dropout, or add it before the last linear layer if there is none; in place.

    Returns the names of the changed layers. `mask_of_rows` of every `MaskDropout` is set before each pass.
    Raises `RecipeError` for a model with neither dropout nor a linear layer.
    """

    def new(name: str) -> MaskDropout:
        return MaskDropout(rate=rate, masks=masks, seed=seed, name=name)

    if any(isinstance(module, nn.Dropout) for module in model.modules()):
        return replace_modules(
            model,
            lambda module, name: new(name) if isinstance(module, nn.Dropout) else None,
            method=GyroDropout.name,
            target="dropout within it",
        )
    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear or isinstance(linear[-1][1], Dropping):
        raise RecipeError(
            f"{GyroDropout.name}: found nothing to change in {type(model).__name__}: expected dropout, or else a linear"
            " layer"
        )
    name, last = linear[-1]
    last.add_module("dropout", new(name).train(last.training))
    mix_in(Dropping, last)
    return [name]


class _Choosing:
    """Hook on a model that chooses the masks of each training pass, which it counts as a step."""

    def __init__(self, method: "GyroDropout", *, total_steps: int, seed: int, step: int) -> None:
        self.method, self.total_steps, self.seed, self.step = method, total_steps, seed, step

    def __call__(self, model: nn.Module, args: tuple[Any, ...]) -> None:
        if not model.training:
            return
        rows = next(value for value in args if isinstance(value, Tensor))
        chosen = _masks_of_step(
            self.method, self.step, total_steps=self.total_steps, batch_size=len(rows), seed=self.seed
        )
        _choose(masked(model), torch.from_numpy(chosen).to(rows.device))
        self.step += 1


def gyro_dropout(
    model: nn.Module,
    *,
    total_steps: int,
    rate: float = 0.5,
    masks: int = 256,
    together: int = 16,
    seed: int = 0,
    step: int = 0,
) -> list[str]:
    """Replace every dropout by gyro dropout, or add it before the last linear layer; return the changed layers' names.

    The model chooses its masks itself, by the number of its passes in training mode: a pass is a step. Masks and
    choices follow from `seed`; to resume, give the `step` to go on from.

    In a loop:

        functional.gyro_dropout(model, total_steps=len(batches), masks=8, together=4)
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    method = checked(GyroDropout, rate=rate, masks=masks, together=together)
    if not 0 <= step < total_steps:
        raise RecipeError(f"gyro_dropout: found step {step} of {total_steps}: expected 0 to {total_steps - 1}")
    names = apply_gyro_dropout(model, rate=rate, masks=masks, seed=seed)
    model.register_forward_pre_hook(_Choosing(method, total_steps=total_steps, seed=seed, step=step))
    return names


@dataclass(frozen=True, kw_only=True, slots=True)
class GyroDropout(Method):
    """Replaces the model's own dropout, whose rate no longer counts. Evaluation drops nothing."""

    name: ClassVar[str] = "gyro_dropout"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Drops features by few masks that stay for many steps, instead of by new ones."
    source: ClassVar[str] = "Lee et al. 2022, MLSys"
    formula: ClassVar[str] = (
        "y = x m / (1 - `rate`), m one of `masks` masks drawn once; every max(1, floor(steps / `masks`)) x `together`"
        " steps `together` of them are chosen, each for batch size / `together` slots"
    )
    changes: ClassVar[str] = "the forward pass"
    needs: ClassVar[str] = "dropout of rows of features (two dimensions), or else a linear layer at the end"
    routing: ClassVar[str] = "Works: masks belong to slots, so those of a class do not depend on other classes."
    after: ClassVar[tuple[str, ...]] = ("factorize",)
    before: ClassVar[tuple[str, ...]] = (  # so that the last linear layer is the model's own, not one that surgery adds
        "squeeze_excite",
        "blurpool",
        "ghost_batchnorm",
        "low_precision_groupnorm",
        "weight_standardization",
        "stochastic_depth",
    )
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "volume"})

    rate: Annotated[float, Field(ge=0, lt=1, description="how often a mask drops a feature"), Unit("probability")] = 0.5
    masks: Annotated[int, Field(ge=1, le=65536, description="number of masks in all")] = 256
    together: Annotated[int, Field(ge=1, le=65536, description="masks that act in a step")] = 16

    def __post_init__(self) -> None:
        if self.together > self.masks:
            raise RecipeError(f"found together {self.together} and masks {self.masks}: expected together <= masks")

    def change_model(self, state: State) -> None:
        apply_gyro_dropout(state.model, rate=self.rate, masks=self.masks, seed=state.seed)

    def before_forward(self, state: State) -> None:
        assert state.rows is not None
        # Set for this pass only: probes and scores within a step run the model without masks.
        of_slots = _masks_of_step(
            self, state.step, total_steps=state.total_steps, batch_size=state.batch_size, seed=state.seed
        )
        slots = state.rows.slots
        _choose(_masked(state), torch.from_numpy(of_slots).to(slots.device, non_blocking=True)[slots])

    def after_forward(self, state: State) -> None:
        _choose(_masked(state), None)

    def neutral(self) -> Self:
        return replace(self, rate=0.0)


def _masks_of_step(method: GyroDropout, step: int, *, total_steps: int, batch_size: int, seed: int) -> np.ndarray:
    """Return the mask of each slot in a step, B int64."""
    period = period_of(step, total_steps=total_steps, masks=method.masks, together=method.together)
    draws = stream(seed, method.name, "choice", period)
    return masks_of_slots(draws, masks=method.masks, together=method.together, batch_size=batch_size)


def _choose(layers: Masked, mask_of_rows: Tensor | None) -> None:
    for layer in layers:
        layer.mask_of_rows = mask_of_rows


def _masked(state: State) -> Masked:
    """Return the layers of the run's model, found once: surgery is over before the first step."""
    return state.once(Masked, lambda: masked(state.model))

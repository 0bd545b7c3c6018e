"""Stochastic depth: leave residual branches out of training at random.

Huang et al., "Deep Networks with Stochastic Depth", 2016, arXiv:1603.09382. A branch takes part with probability
1 - p_l, and in evaluation it is multiplied by that. Draws belong to (run seed, step): all passes of a step have the
same. In `block` mode an omitted branch is not computed, and parameters that only it uses get no gradient. The time of a
step then depends on its draws, of which a short profile sees only a few. In `sample` mode each example has draws of its
own, by slot, and everything is computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.data.streams import stream
from explorer.engine.architectures import Added, Admission, branches_of, leave_fast_paths, make_omittable
from explorer.engine.forms import checked
from explorer.engine.method import Kind, Method, Unit
from explorer.engine.state import State
from explorer.errors import RecipeError
from explorer.models.residual import Gate

Mode = Literal["block", "sample"]
Rule = Literal["linear", "uniform"]


def apply_stochastic_depth(
    model: nn.Module, *, rate: float = 0.2, rule: Rule = "linear", by_row: bool = False
) -> list[str]:
    """Make the residual branches of a model omittable, in place; return the names of the gates, or of the modules whose
    output is added.

    Raises `RecipeError` if there are none. With `by_row`, so do branches whose first dimension is not rows.

    Args:
        model: the model to change.
        rate: probability that the last branch is left out; 0 changes nothing.
        rule: rates by depth.
        by_row: whether each row is to have draws of its own.
    """
    branches = branches_of(model)
    if by_row and (other := [branch for branch in branches if not branch.rows_first]):
        raise RecipeError(
            f"{StochasticDepth.name}: found {other[0].name}, whose first dimension is places: expected rows first"
            " (batch_first=True), or mode `block`"
        )
    names = [name for name, module in model.named_modules() if isinstance(module, Gate)]
    names += [branch.name for branch in branches]
    if not names:
        raise RecipeError(
            f"{StochasticDepth.name}: found nothing to change in {type(model).__name__}: expected residual blocks that"
            " add through a gate (explorer.models.residual.Gate) or fit a description (explorer.engine.architectures)"
        )
    if rate and branches:
        make_omittable(branches)
        leave_fast_paths(model)
    gates = gates_of(model)
    set_rates(gates, drop_rates(len(gates), rate=rate, rule=rule))
    return names


class Gates(tuple[Gate | Admission, ...]):
    """The gates of a model's residual branches, first to last."""


def gates_of(model: nn.Module) -> Gates:
    """Return the gates of a model, after `apply_stochastic_depth`."""
    return Gates(
        module if isinstance(module, Gate) else module.admission
        for module in model.modules()
        if isinstance(module, Gate | Added)
    )


def drop_rates(count: int, *, rate: float, rule: Rule) -> list[float]:
    """Return the probability p_l that branch l = 1..count is left out: `rate` x l / count, or `rate` for all.

    >>> drop_rates(4, rate=0.5, rule="linear")
    [0.125, 0.25, 0.375, 0.5]
    """
    return [rate * (number / count if rule == "linear" else 1.0) for number in range(1, count + 1)]


def set_rates(gates: Sequence[Gate | Admission], rates: Sequence[float]) -> None:
    """Set the factor on each branch in evaluation: its probability to take part."""
    for gate, rate in zip(gates, rates, strict=True):
        gate.survival = 1.0 - rate


def keep(gates: Sequence[Gate | Admission], kept: Sequence[bool | Tensor | None]) -> None:
    """Set which branches take part in the coming training passes; see `Gate.kept`."""
    for gate, this in zip(gates, kept, strict=True):
        gate.kept = this


class _Omitting:
    """Hook on a model that draws which branches take part in each of its training passes."""

    def __init__(self, mode: Mode, draws: np.random.Generator) -> None:
        self.mode: Mode = mode
        self.draws = draws

    def __call__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not model.training:
            return
        # The gates of the model that is called, which may be a copy of the one that was changed.
        gates, rows = gates_of(model), next(value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        kept = draw_kept(self.draws, gates, mode=self.mode, count=len(rows))
        keep(gates, kept.tolist() if self.mode == "block" else list(torch.from_numpy(kept).to(rows.device)))


def draw_kept(draws: np.random.Generator, gates: Sequence[Gate | Admission], *, mode: Mode, count: int) -> np.ndarray:
    """Return which branches take part: a bool for each gate, or, in `sample` mode, for each gate and example."""
    dropped = np.array([1.0 - gate.survival for gate in gates])
    if mode == "block":
        return draws.random(len(gates)) >= dropped
    return draws.random((len(gates), count)) >= dropped[:, None]


def stochastic_depth(
    model: nn.Module, *, draws: np.random.Generator, rate: float = 0.2, mode: Mode = "block", rule: Rule = "linear"
) -> list[str]:
    """Leave residual branches out of the training passes of a model at random; return the names of their gates.

    The model draws by itself, from `draws`, in every pass in training mode; evaluation multiplies each branch by its
    probability to take part.

    In a loop:

        functional.stochastic_depth(model, draws=np.random.default_rng(0), rate=0.2)
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    checked(StochasticDepth, rate=rate, mode=mode, rule=rule)
    names = apply_stochastic_depth(model, rate=rate, rule=rule, by_row=mode == "sample")
    model.register_forward_pre_hook(_Omitting(mode, draws), with_kwargs=True)  # transformers' are called by name
    return names


@dataclass(frozen=True, kw_only=True, slots=True)
class StochasticDepth(Method):
    """`block` saves the time of omitted branches; `sample` draws for each example and computes everything."""

    name: ClassVar[str] = "stochastic_depth"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Leaves residual branches out of training steps at random."
    source: ClassVar[str] = "Huang et al. 2016, arXiv:1603.09382"
    formula: ClassVar[str] = (
        "y = x + b f(x), b = 1 with probability 1 - p_l, else 0; p_l = `rate` l / L (linear) or `rate` (uniform) for"
        " branch l of L, growing from 0 during `warmup`; in evaluation y = x + (1 - p_l) f(x)"
    )
    changes: ClassVar[str] = "the forward pass"
    needs: ClassVar[str] = "residual blocks, as in ResNets and transformers"
    routing: ClassVar[str] = "Works: draws belong to the step or to an example's slot, not to a class."
    after: ClassVar[tuple[str, ...]] = (
        "alibi",
        "blurpool",
        "factorize",
        "gated_linear_units",
        "ghost_batchnorm",
        "low_precision_groupnorm",
        "low_precision_layernorm",
        "squeeze_excite",
        "weight_standardization",
    )

    rate: Annotated[
        float, Field(ge=0, lt=1, description="chance that the last branch is left out"), Unit("probability")
    ] = 0.2
    mode: Annotated[Mode, Field(description="one draw for the step, or one for each example")] = "block"
    rule: Annotated[Rule, Field(description="rate by depth: from near 0 to `rate`, or equal")] = "linear"
    warmup: Annotated[
        float, Field(ge=0, le=1, description="time in which rates grow from 0"), Unit("share of training")
    ] = 0.0

    def any_length(self) -> bool:
        return self.warmup == 0

    def change_model(self, state: State) -> None:
        apply_stochastic_depth(state.model, rate=self.rate, rule=self.rule, by_row=self.mode == "sample")

    def before_step(self, state: State) -> None:
        self._follow(state)

    def before_forward(self, state: State) -> None:
        assert state.rows is not None
        if self.rate == 0:
            return
        gates = _gates(state)
        # A new stream in every pass, so that all passes of the step draw the same numbers. `survival` in evaluation and
        # the draws here use the same rates.
        draws = stream(state.seed, self.name, state.step)
        kept = draw_kept(draws, gates, mode=self.mode, count=state.batch_size)
        if self.mode == "block":
            keep(gates, kept.tolist())
        else:
            slots = state.rows.slots
            keep(gates, list(torch.from_numpy(kept).to(slots.device, non_blocking=True)[:, slots]))

    def after_forward(self, state: State) -> None:
        gates = _gates(state)
        keep(gates, [None] * len(gates))  # passes other than the training pass run every branch

    def before_evaluation(self, state: State) -> None:
        self._follow(state)

    def neutral(self) -> Self:
        return replace(self, rate=0.0)

    def _follow(self, state: State) -> None:
        """Set the rates of this moment of the warm-up; without one they are constant."""
        if self.warmup:
            gates = _gates(state)
            now = self.rate * min(1.0, state.progress / self.warmup)
            set_rates(gates, drop_rates(len(gates), rate=now, rule=self.rule))


def _gates(state: State) -> Gates:
    """Return the gates of the run's model, found once: surgery is over before the first step."""
    return state.once(Gates, lambda: gates_of(state.model))

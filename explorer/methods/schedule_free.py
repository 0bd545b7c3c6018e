"""Schedule-free training: an average of the weights instead of a decaying learning rate.

Defazio et al., "The Road Less Scheduled", 2024, arXiv:2405.15682. There are three points. The gradient is taken at y,
the model's weights during training; z takes the optimiser's steps; x, the average of z, is evaluated and kept:

    z <- z - lr (d + weight_decay y)         d = g for SGD, g / (sqrt(v / (1 - beta2^t)) + eps) for AdamW
    x <- (1 - c) x + c z                     c = L^2 / (sum of all L^2 so far), L the largest lr so far
    y <- (1 - beta) z + beta x               beta: the momentum of SGD, the first beta of AdamW

Only y and z are stored: x = y + (1 - 1 / beta) (z - y) follows from them, so memory is that of momentum. The statistics
of batch normalisation were collected at y: they are computed again at x, on training data, before each evaluation
(engine/averages.py), and restored afterwards. Good learning rates are larger than with a schedule: 10 to 50 times with
SGD, 1 to 10 times with AdamW. So the method has its own, and the recipe's is not used.
"""

# pyright: reportPrivateImportUsage=false

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from explorer.data.batches import Batches
from explorer.engine.averages import Held, refresh_on_training_data
from explorer.engine.forms import checked
from explorer.engine.method import Kind, Method, Moment, Planned, Unit
from explorer.engine.optimizer import AdamWSpec, Constant, OptimizerSpec, SGDSpec, decay_groups
from explorer.engine.state import State, progress
from explorer.entries.kinds import Traits
from explorer.errors import RecipeError, unknown

COUNTS = 3  # steps, sum of weights, largest learning rate
RATES = {"sgd": 1.0, "adamw": 0.0025}  # the advice of the paper's authors
OPTIMIZERS = "sgd with a momentum above 0 and without nesterov, or adamw with a first beta above 0"


class ScheduleFreeSGD(Optimizer):
    """The rule for SGD. Parameters hold y between steps; `evaluation_point` turns them into x.

    The weight decay of a group is its key `decoupled`.
    """

    def __init__(self, groups: Iterable[Any], *, lr: float, beta: float = 0.9, **more: float) -> None:
        super().__init__(groups, {"lr": lr, "beta": beta, "decoupled": 0.0, **more})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            # Weights in the average are squares of the largest learning rate so far, as in the paper's code: steps of
            # the warm-up count little, and later ones alike.
            for (steps, total, largest), parameters in self._alike(group).items():
                largest = max(largest, group["lr"])
                total += largest**2
                counts = torch.tensor([steps + 1, total, largest], dtype=torch.float64)
                for parameter in parameters:
                    self.state[parameter]["counts"].copy_(counts)
                share = largest**2 / total if total else 0.0
                self._move(parameters, group, steps=int(steps) + 1, share=share)

    @torch.no_grad()
    def evaluation_point(self) -> None:
        """Turn the parameters into x. A parameter that never had a gradient is its own average."""
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter in self.state]
            if moved:
                torch._foreach_lerp_(moved, [self.state[p]["z"] for p in moved], 1 - 1 / group["beta"])

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Have the parameters hold x for the block; restore them bit for bit."""
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        before = [parameter.detach().clone() for parameter in parameters]
        self.evaluation_point()
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(parameters, before)

    def directions(self, parameters: list[Tensor], group: dict[str, Any], *, steps: int) -> list[Tensor]:
        """Return d for each of these parameters, all of which have gradients, in their step number `steps`."""
        return [parameter.grad for parameter in parameters if parameter.grad is not None]

    def begin(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return the state before a parameter's first step."""
        return {"z": parameter.clone(), "counts": torch.zeros(COUNTS, dtype=torch.float64)}

    def _alike(self, group: dict[str, Any]) -> dict[tuple[float, ...], list[Tensor]]:
        """Return the parameters with gradients, grouped by their counts: those that had gradients in the same steps."""
        groups: dict[tuple[float, ...], list[Tensor]] = {}
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            if parameter not in self.state:
                self.state[parameter] = self.begin(parameter.detach())
            state = self.state[parameter]
            state["counts"] = state["counts"].cpu()  # kept on the CPU, so that reading it never waits for a device
            groups.setdefault(tuple(state["counts"].tolist()), []).append(parameter)
        return groups

    def _move(self, parameters: list[Tensor], group: dict[str, Any], *, steps: int, share: float) -> None:
        """Step y and z of these parameters, with c = `share`."""
        lr, beta = group["lr"], group["beta"]
        z = [self.state[parameter]["z"] for parameter in parameters]
        moves = self.directions(parameters, group, steps=steps)
        if group["decoupled"]:
            moves = torch._foreach_add(moves, parameters, alpha=group["decoupled"])
        # With x eliminated: y moves towards the old z by c, and along the step by what z and x together take of it.
        torch._foreach_lerp_(parameters, z, share)
        torch._foreach_add_(parameters, moves, alpha=-lr * (1 - beta * (1 - share)))
        torch._foreach_add_(z, moves, alpha=-lr)


class ScheduleFreeAdamW(ScheduleFreeSGD):
    """The rule for AdamW."""

    def __init__(
        self, groups: Iterable[Any], *, lr: float, beta: float = 0.9, beta2: float = 0.999, eps: float = 1e-8
    ) -> None:
        super().__init__(groups, lr=lr, beta=beta, beta2=beta2, eps=eps)

    def begin(self, parameter: Tensor) -> dict[str, Tensor]:
        return {**super().begin(parameter), "exp_avg_sq": torch.zeros_like(parameter)}

    def directions(self, parameters: list[Tensor], group: dict[str, Any], *, steps: int) -> list[Tensor]:
        gradients = super().directions(parameters, group, steps=steps)
        second = [self.state[parameter]["exp_avg_sq"] for parameter in parameters]
        torch._foreach_mul_(second, group["beta2"])
        torch._foreach_addcmul_(second, gradients, gradients, value=1 - group["beta2"])
        lengths = torch._foreach_div(second, 1 - group["beta2"] ** steps)
        torch._foreach_sqrt_(lengths)
        torch._foreach_add_(lengths, group["eps"])
        return list(torch._foreach_div(gradients, lengths))


def schedule_free(
    parameters: Iterable[nn.Parameter],
    *,
    rule: Literal["sgd", "adamw"] = "adamw",
    lr: float | None = None,
    beta: float = 0.9,
    beta2: float = 0.999,
    weight_decay: float = 0.0,
) -> ScheduleFreeSGD:
    """Return an optimiser whose average needs no schedule; without `lr` its rate is 1 for sgd, 0.0025 for adamw.

    `averaged()` puts the average in place of the weights for an evaluation, `evaluation_point()` for good. A model with
    batch normalisation then needs new statistics: `explorer.engine.averages.refresh_statistics`.

    In a loop:

        optimizer = functional.schedule_free(model.parameters(), rule="sgd", lr=0.5)
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        with optimizer.averaged():
            model.eval()  # and evaluate it
    """
    checked(ScheduleFree, lr=lr)
    if rule not in RATES:
        raise RecipeError(unknown("schedule_free rule", str(rule), RATES))
    for name, value, low, high in (("beta", beta, 0, 1), ("beta2", beta2, 0, 1), ("weight_decay", weight_decay, 0, 10)):
        if not (low < value < high or (name == "weight_decay" and value == low)):
            raise RecipeError(f"schedule_free: {name}: found {value!r:.40}: expected a number between {low} and {high}")
    groups = [{"params": list(parameters), "decoupled": weight_decay}]
    rate = RATES[rule] if lr is None else lr
    if rule == "sgd":
        return ScheduleFreeSGD(groups, lr=rate, beta=beta)
    return ScheduleFreeAdamW(groups, lr=rate, beta=beta, beta2=beta2)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleFree(Method):
    """Needs a constant schedule, and has a learning rate of its own; the recipe's is not used."""

    name: ClassVar[str] = "schedule_free"
    kind: ClassVar[Kind] = Kind.OPTIMIZER
    summary: ClassVar[str] = "Averages the weights as it steps, in place of a decaying learning rate."
    source: ClassVar[str] = "Defazio et al. 2024, arXiv:2405.15682"
    formula: ClassVar[str] = (
        "gradient g at y = (1 - beta) z + beta x; z <- z - lr (d + weight_decay y), d = g for sgd,"
        " g / (sqrt(v / (1 - beta2^t)) + eps) for adamw; x <- (1 - c) x + c z, c = L^2 / sum of L^2, L the largest lr"
        " so far; lr is `lr` after a straight line from 0 over `warmup`; beta is the optimiser's"
        " momentum or first beta; x is evaluated and kept"
    )
    changes: ClassVar[str] = "the update; the weights that are evaluated and kept"
    needs: ClassVar[str] = f"a constant schedule without warm-up; {OPTIMIZERS}"
    traits: ClassVar[Traits] = Traits(averages=True)
    routing: ClassVar[str] = ""
    conflicts_with: ClassVar[dict[str, str]] = {
        "ema": "it averages the weights itself",
        "swa": "it averages the weights itself",
        "sam": "the effect of perturbed gradients on the average is not known",
        "routing": "the statistics of batch normalisation are computed again on examples of every class, whether or"
        " not the policy admits them",
    }

    lr: Annotated[
        float | None,
        Field(gt=0, le=100, description="learning rate after warm-up; null: 1 for sgd, 0.0025 for adamw"),
    ] = None
    warmup: Annotated[
        float, Field(ge=0, le=1, description="time in which the learning rate rises"), Unit("share of training")
    ] = 0.05

    def check(self, planned: Planned) -> None:
        if not isinstance(planned.schedule, Constant) or planned.schedule.warmup:
            shown = f"{planned.schedule.name} with warmup {planned.schedule.warmup:g}"
            raise RecipeError(
                f"found schedule {shown}: expected `schedule: constant` without warm-up: the average replaces a decay,"
                " and `warmup` is a parameter of the method"
            )
        _beta(planned.optimizer)

    def build_optimizers(
        self, parameters: dict[str, nn.Parameter], spec: OptimizerSpec, *, state: State
    ) -> tuple[Optimizer, ...]:
        groups = decay_groups(parameters.values(), weight_decay=spec.weight_decay)
        lr = self.lr or RATES[spec.name]
        groups = [{**group, "peak": lr} for group in groups]
        if isinstance(spec, AdamWSpec):
            return (ScheduleFreeAdamW(groups, lr=lr, beta=_beta(spec), beta2=spec.betas[1], eps=spec.eps),)
        return (ScheduleFreeSGD(groups, lr=lr, beta=_beta(spec)),)

    def learning_rate(self, factor: float, moment: Moment) -> float:
        after = progress(moment.pace, moment.step + 1, moment.total_steps)
        return factor * min(1.0, after / self.warmup) if self.warmup else factor

    # Restored from a copy after an evaluation: going back from x to y by arithmetic would round. After the last step
    # `after_fit` makes x the model for good.
    def before_evaluation(self, state: State) -> None:
        if state.step < state.total_steps:
            state.resources[Held] = Held.of(state.model)
            self._go_to_the_average(state)

    def after_evaluation(self, state: State) -> None:
        if Held in state.resources:
            state.resources.pop(Held).put_back()

    def after_fit(self, state: State) -> None:
        self._go_to_the_average(state)

    def _go_to_the_average(self, state: State) -> None:
        for region in state.regions.values():
            for optimizer in region.optimizers:
                assert isinstance(optimizer, ScheduleFreeSGD)
                optimizer.evaluation_point()
        refresh_on_training_data(state.model, state.resource(Batches))


def _beta(spec: OptimizerSpec) -> float:
    """Return beta from the recipe's optimiser. Raises `RecipeError` for one without it."""
    beta, shown = 0.0, spec.name
    if isinstance(spec, AdamWSpec):
        beta, shown = spec.betas[0], f"adamw with betas {spec.betas[0]:g}, {spec.betas[1]:g}"
    if isinstance(spec, SGDSpec):
        beta, shown = spec.momentum, f"sgd with momentum {spec.momentum:g}{', nesterov' if spec.nesterov else ''}"
    if beta == 0 or (isinstance(spec, SGDSpec) and spec.nesterov):
        raise RecipeError(f"found {shown}: expected {OPTIMIZERS}")
    return beta

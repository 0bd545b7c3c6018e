"""Batch-size warm-up: small batches first and the full batch later, with the same total number of examples.

Smith et al., "Don't Decay the Learning Rate, Increase the Batch Size", 2018, arXiv:1711.00489; Merrill et al.,
"Critical Batch Size Revisited", 2025, arXiv:2505.23971. Early in training a few examples give a good enough gradient
(the critical batch size grows as the loss falls), so the same examples buy more steps. The budget of a run is its
examples, not its steps. The stages are planned, so a resumed run knows its stage from its step.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, NamedTuple, Self

from pydantic import Field

from explorer.data.pace import Pace
from explorer.engine.forms import checked
from explorer.engine.method import Kind, Method, Moment, Unit
from explorer.errors import RecipeError

Scaling = Literal["sqrt", "linear", "hold"]
EXPONENT: dict[Scaling, float] = {"sqrt": 0.5, "linear": 1.0, "hold": 0.0}


def planned_stages(*, batch_size: int, examples: int, initial: float, stages: int, duration: float) -> Pace:
    """Return stages of equally many examples, whose batches grow evenly from `initial` of the batch to the full batch.

    A stage that would end before its first step is left out.
    """
    # Each size, and each end of a stage from the start of training, is rounded once: errors do not accumulate.
    sizes_at: dict[int, int] = {}
    step = position = 0
    for stage in range(stages):
        size = max(1, int(batch_size * (initial + (1 - initial) * stage / stages) + 0.5))
        count = max(0, int((examples * duration * (stage + 1) / stages - position) / size + 0.5))
        sizes_at[step] = size  # a stage of no steps is overwritten by the next
        step, position = step + count, position + count * size
    sizes_at[step] = batch_size
    return Pace(_merged(sizes_at))


def _merged(sizes: dict[int, int]) -> tuple[tuple[int, int], ...]:
    """Return the stages, merging those of equal size."""
    merged: list[tuple[int, int]] = []
    for step, size in sizes.items():
        if not merged or merged[-1][1] != size:
            merged.append((step, size))
    return tuple(merged)


def rate_ratio(size: int, *, full: int, scaling: Scaling) -> float:
    """Return the factor on the learning rate for a batch of `size`, if it was tuned for a batch of `full`."""
    # Linear: equal progress for each example while noise does not matter. Square root: equal variance of an update,
    # which suits Adam (Malladi et al. 2022, arXiv:2205.10287).
    return (size / full) ** EXPONENT[scaling]


class Sized(NamedTuple):
    """A batch of the plan."""

    rows: slice  # of the examples in the order of training
    rate: float  # factor on the learning rate


def batch_size_warmup(
    examples: int,
    *,
    batch_size: int,
    initial: float = 0.25,
    stages: int = 3,
    duration: float = 0.3,
    scaling: Scaling = "sqrt",
) -> Iterator[Sized]:
    """Yield the batches of a training of so many examples, all epochs together: small ones first, then full ones.

    In a loop:

        order = torch.randperm(len(inputs))
        for rows, rate in functional.batch_size_warmup(len(order), batch_size=16):
            x, y = inputs[order[rows]], labels[order[rows]]
            optimizer.param_groups[0]["lr"] = 0.1 * rate
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    checked(BatchSizeWarmup, initial=initial, stages=stages, duration=duration, scaling=scaling)
    if not 1 <= batch_size <= examples:
        raise RecipeError(
            f"batch_size_warmup: found batch_size {batch_size} for {examples} examples: expected 1 to {examples}"
        )
    pace = planned_stages(batch_size=batch_size, examples=examples, initial=initial, stages=stages, duration=duration)
    return (
        Sized(
            slice(pace.position(step), pace.position(step + 1)),
            rate_ratio(pace.size(step), full=pace.largest, scaling=scaling),
        )
        for step in range(pace.steps(examples))
        if pace.position(step + 1) <= examples
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchSizeWarmup(Method):
    """The learning rate grows with the batch. The run takes more steps than without it, on the same examples."""

    name: ClassVar[str] = "batch_size_warmup"
    kind: ClassVar[Kind] = Kind.PLAN
    summary: ClassVar[str] = "Trains with small batches first and the full batch later, on as many examples."
    source: ClassVar[str] = "Smith et al. 2018, arXiv:1711.00489; Merrill et al. 2025, arXiv:2505.23971"
    formula: ClassVar[str] = (
        "batch = B (`initial` + (1 - `initial`) k / `stages`) in stage k = 0, 1, ... of equally many examples, B after"
        " `duration`; learning rate times (batch / B)^p, p = 1/2 for sqrt, 1 for linear, 0 for hold"
    )
    changes: ClassVar[str] = "the number of examples of a step; the learning rate"
    routing: ClassVar[str] = ""
    conflicts_with: ClassVar[dict[str, str]] = {
        "routing": "the phases of a policy are shares of training by steps, and readers of the ledger take all steps to"
        " have equal batches",
    }

    initial: Annotated[
        float, Field(gt=0, le=1, description="size of the first batches"), Unit("share of the batch")
    ] = 0.25
    stages: Annotated[int, Field(ge=1, le=1000, description="sizes before the full batch"), Unit("stages")] = 3
    duration: Annotated[
        float, Field(ge=0, le=1, description="before the batch is full"), Unit("share of the examples")
    ] = 0.3
    scaling: Annotated[
        Scaling, Field(description="learning rate: by the square root of the batch, linear in the batch, or unchanged")
    ] = "sqrt"

    def pace(self, *, batch_size: int, examples: int) -> Pace:
        return planned_stages(
            batch_size=batch_size,
            examples=examples,
            initial=self.initial,
            stages=self.stages,
            duration=self.duration,
        )

    def learning_rate(self, factor: float, moment: Moment) -> float:
        if moment.pace is None:
            return factor
        return factor * rate_ratio(moment.pace.size(moment.step), full=moment.pace.largest, scaling=self.scaling)

    def phase(self, moment: Moment) -> str:
        if moment.pace is None or len(moment.pace.stages) == 1:
            return ""
        return f"batch {moment.pace.size(moment.step)}"

    def neutral(self) -> Self:
        return replace(self, initial=1.0)

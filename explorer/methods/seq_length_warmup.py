"""Sequence length warm-up: begin with short sequences and lengthen them.

Li, Zhang, He, "The Stability-Efficiency Dilemma: Investigating Sequence Length Warmup for Training GPT Models", 2021,
arXiv:2108.06084.
Shapes: B sequences of T tokens, K classes of a token.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field
from torch import Tensor

from explorer.data.dataset import Modality
from explorer.engine.method import Kind, Method, Moment, Planned, Unit
from explorer.engine.state import State
from explorer.errors import RecipeError


def length_at(progress: float, *, shortest: int, longest: int, increment: int, duration: float) -> int:
    """The length of sequences: from `shortest`, by `increment`, in equal intervals, to `longest` at `duration`.

    A duration of zero is `longest` from the start, and equal lengths are that length throughout.
    """
    if progress >= duration:
        return longest
    increments = int(progress / duration * (longest - shortest) / increment + 1e-9)
    return min(longest, shortest + increment * increments)


def cut_rows(values: Tensor, *, length: int) -> Tensor:
    """Each row, B T ..., as pieces of `length`, one after the other: B (T / length) rows. A rest is left out."""
    pieces = values.shape[1] // length
    return values[:, : pieces * length].unflatten(1, (pieces, length)).flatten(0, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeqLengthWarmup(Method):
    """Train on short sequences first.

    Truncated, a sequence is its first tokens and the others are not trained on in that step. Reshaped, it becomes as
    many short ones as fit, and its loss stays the mean over their places.
    """

    name: ClassVar[str] = "seq_length_warmup"
    kind: ClassVar[Kind] = Kind.SHAPE
    summary: ClassVar[str] = "Begins with short sequences and lengthens them."
    source: ClassVar[str] = "Li, Zhang, He 2021, arXiv:2108.06084"
    formula: ClassVar[str] = (
        "length = min(max_length, min_length + increment * floor(progress / duration * (max_length - min_length)"
        " / increment)); max_length from `duration` on"
    )
    changes: ClassVar[str] = "the sequences and their targets"
    needs: ClassVar[str] = "a model that takes sequences of any length up to the dataset's"
    routing: ClassVar[str] = "Every sequence is cut by itself, at a length that follows from the step alone."
    modalities: ClassVar[frozenset[Modality]] = frozenset({"text"})

    duration: Annotated[
        float, Field(ge=0, le=1, description="until sequences have their full length"), Unit("share of training")
    ] = 0.3
    min_length: Annotated[int, Field(ge=1, le=2**20, description="at the start"), Unit("tokens")] = 8
    max_length: Annotated[
        int | None,
        Field(ge=1, le=2**20, description="in the end; null: that of the dataset's sequences"),
        Unit("tokens"),
    ] = None
    increment: Annotated[int, Field(ge=1, le=2**20, description="by which they grow at a time"), Unit("tokens")] = 8
    mode: Annotated[
        Literal["truncate", "reshape"], Field(description="drop the rest of a sequence, or make several of it")
    ] = "truncate"

    def check(self, planned: Planned) -> None:
        (context,) = planned.example_shape
        longest = context if self.max_length is None else self.max_length
        if not self.min_length <= longest <= context:
            raise RecipeError(
                f"found min_length {self.min_length} and max_length {longest} for sequences of {context} tokens:"
                f" expected min_length <= max_length <= {context}"
            )

    def length(self, moment: Moment) -> int:
        """The length of the sequences at that moment."""
        (context,) = moment.example_shape
        return length_at(
            moment.progress,
            shortest=self.min_length,
            longest=self.max_length or context,
            increment=self.increment,
            duration=self.duration,
        )

    def phase(self, moment: Moment) -> str:
        return f"{self.length(moment)} tokens" if self.duration else ""

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        batch = state.batch
        context = batch.inputs.shape[1]
        moment = Moment(step=state.step, total_steps=state.total_steps, example_shape=(context,), pace=state.pace)
        length = self.length(moment)
        if length == context:
            return
        if self.mode == "truncate":
            state.batch = replace(
                batch,
                inputs=batch.inputs[:, :length],
                targets=batch.targets[:, :length],
                labels=batch.labels[:, :length],
            )
            return
        pieces = context // length
        state.batch = replace(
            batch,
            inputs=cut_rows(batch.inputs, length=length),
            targets=cut_rows(batch.targets, length=length),
            labels=cut_rows(batch.labels, length=length),
            slots=batch.slots.repeat_interleave(pieces),
            codes=batch.codes.repeat_interleave(pieces),
            weight=batch.weight / pieces,
        )

    def neutral(self) -> Self:
        return replace(self, duration=0.0, max_length=None)

"""Sequence length warm-up: begin with short sequences and lengthen them.

Li, Zhang, He, "The Stability-Efficiency Dilemma: Investigating Sequence Length Warmup for Training GPT Models", 2021,
arXiv:2108.06084. Short sequences make early gradients less noisy, and early steps cheaper.
Shapes: rows are B T, for B sequences of T tokens.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field
from torch import Tensor

from explorer.data.batches import Batch, Batches
from explorer.data.dataset import Modality
from explorer.data.sequences import WHOLE_ROWS, cut_pieces, cut_rows
from explorer.engine.forms import check_progress, check_rows, checked
from explorer.engine.method import Kind, Method, Moment, Planned, Unit
from explorer.engine.state import State
from explorer.errors import RecipeError, TrainingError

Mode = Literal["truncate", "reshape"]


def length_at(progress: float, *, shortest: int, longest: int, increment: int, duration: float) -> int:
    """Return the length of sequences: from `shortest`, by `increment`, in equal intervals, to `longest` at
    `duration`."""
    if progress >= duration:
        return longest
    increments = int(progress / duration * (longest - shortest) / increment + 1e-9)
    return min(longest, shortest + increment * increments)


def truncate_rows(batch: Batch, *, length: int) -> Batch:
    """Return the batch with the first `length` tokens of each row, as views."""
    return replace(
        batch,
        inputs=batch.inputs[:, :length],
        targets=batch.targets[:, :length],
        labels=batch.labels[:, :length],
    )


def seq_length_warmup(
    tokens: Tensor,
    targets: Tensor,
    *,
    progress: float,
    duration: float = 0.3,
    min_length: int = 8,
    max_length: int | None = None,
    increment: int = 8,
    mode: Mode = "truncate",
) -> tuple[Tensor, Tensor]:
    """Return sequences B T and their targets B T ... at the length of this moment.

    `progress` is the share of training that is done: step / steps. "truncate" keeps the first tokens of a sequence;
    "reshape" cuts it into as many as fit, so that there are more rows.

    In a loop:

        for step, (x, y) in enumerate(text_batches):
            x, y = functional.seq_length_warmup(x, y, progress=step / len(text_batches))
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            optimizer.step()
    """
    parameters: dict[str, Any] = {"duration": duration, "min_length": min_length, "increment": increment}
    method = checked(SeqLengthWarmup, max_length=max_length, mode=mode, **parameters)
    check_rows(tokens, targets, form=method.name)
    check_progress(progress, form=method.name)
    if tokens.ndim < 2 or targets.shape[1:2] != tokens.shape[1:2]:
        raise TrainingError(
            f"{method.name}: found tokens of shape {tuple(tokens.shape)} and targets of shape {tuple(targets.shape)}:"
            " expected sequences B T and a target for each token"
        )
    context = tokens.shape[1]
    method.check_lengths(context)
    length = method.length_of(progress, context=context)
    if length >= context:
        return tokens, targets
    if mode == "truncate":
        return tokens[:, :length], targets[:, :length]
    return cut_pieces(tokens, length=length), cut_pieces(targets, length=length)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeqLengthWarmup(Method):
    """Truncated sequences keep their first tokens, and the others are not trained on in that step. Reshaped sequences
    become as many short ones as fit, with the loss as the mean over their places."""

    name: ClassVar[str] = "seq_length_warmup"
    kind: ClassVar[Kind] = Kind.SHAPE
    summary: ClassVar[str] = "Begins with short sequences and lengthens them."
    source: ClassVar[str] = "Li, Zhang, He 2021, arXiv:2108.06084"
    formula: ClassVar[str] = (
        "length = min(max_length, min_length + increment floor(u (max_length - min_length) / increment))\n"
        "u: progress / duration; from `duration` on, the length is max_length"
    )
    changes: ClassVar[str] = "the sequences and their targets"
    needs: ClassVar[str] = "a model that takes sequences of any length up to the dataset's"
    routing: ClassVar[str] = "Works: every sequence is cut by itself, to a length that depends only on the step."
    modalities: ClassVar[frozenset[Modality]] = frozenset({"text"})

    duration: Annotated[float, Field(ge=0, le=1, description="time to the full length"), Unit("share of training")] = (
        0.3
    )
    min_length: Annotated[int, Field(ge=1, le=2**20, description="length at the start"), Unit("tokens")] = 8
    max_length: Annotated[
        int | None,
        Field(ge=1, le=2**20, description="length at the end; null: that of the dataset's sequences"),
        Unit("tokens"),
    ] = None
    increment: Annotated[int, Field(ge=1, le=2**20, description="growth at a time"), Unit("tokens")] = 8
    mode: Annotated[Mode, Field(description="drop the rest of a sequence, or split it into several")] = "truncate"

    def check(self, planned: Planned) -> None:
        if planned.one_target:
            raise RecipeError(f"found texts with one target each: {WHOLE_ROWS}")
        (context,) = planned.example_shape
        self.check_lengths(context)

    def check_lengths(self, context: int) -> None:
        """Check the lengths for sequences of `context` tokens. Raises `RecipeError`."""
        longest = context if self.max_length is None else self.max_length
        if not self.min_length <= longest <= context:
            raise RecipeError(
                f"found min_length {self.min_length} and max_length {longest} for sequences of {context} tokens:"
                f" expected min_length <= max_length <= {context}"
            )

    def length(self, moment: Moment) -> int:
        """Return the length of the sequences at that moment."""
        (context,) = moment.example_shape
        return self.length_of(moment.progress, context=context)

    def length_of(self, progress: float, *, context: int) -> int:
        """Return the length of sequences of `context` tokens, once that share of training is done."""
        return length_at(
            progress,
            shortest=self.min_length,
            longest=self.max_length or context,
            increment=self.increment,
            duration=self.duration,
        )

    def phase(self, moment: Moment) -> str:
        return f"{self.length(moment)} tokens" if self.duration else ""

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        moment = Moment(
            step=state.step,
            total_steps=state.total_steps,
            example_shape=state.resource(Batches).dataset.example_shape,
            pace=state.pace,
        )
        length = self.length(moment)
        if length < state.batch.inputs.shape[1]:  # alibi may have made the rows shorter already
            shorten = truncate_rows if self.mode == "truncate" else cut_rows
            state.batch = shorten(state.batch, length=length)

    def neutral(self) -> Self:
        return replace(self, duration=0.0, max_length=None)

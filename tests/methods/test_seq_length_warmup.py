"""Sequence length warm-up: the schedule in exact arithmetic, and losses that are means over places."""

from dataclasses import replace
from fractions import Fraction
from typing import Literal

import pytest
import torch
from torch import nn

from explorer.data.sequences import Text, cut_rows
from explorer.engine.loop import Loop
from explorer.engine.method import Moment, Planned
from explorer.engine.optimizer import Constant, SGDSpec
from explorer.engine.task import LanguageModelling
from explorer.errors import RecipeError
from explorer.methods.seq_length_warmup import SeqLengthWarmup, length_at
from tests.loop_for_tests import noise_loop
from tests.scenes_for_tests import read

CONTEXT = 12


def text_loop(method: SeqLengthWarmup | None, *, batch_size: int = 4) -> Loop:
    """A model that looks at one byte at a time: what stands around a place does not change its loss."""
    blocks = torch.randint(0, 256, (8, CONTEXT + 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return noise_loop(
        [method] if method else [],
        model=nn.Sequential(nn.Embedding(256, 4), nn.Linear(4, 256)),
        dataset=Text.of(blocks, blocks),
        task=LanguageModelling(classes=256),
        batch_size=batch_size,
    )


def exact_length(step: int, total: int, *, shortest: int, longest: int, increment: int, duration: Fraction) -> int:
    """By the interval between two increments, in steps: n = duration * total * increment / (longest - shortest)."""
    if longest == shortest or Fraction(step, total) >= duration:
        return longest
    interval = duration * total * increment / (longest - shortest)
    return min(longest, shortest + increment * (Fraction(step) // interval))


@pytest.mark.parametrize("duration", ["0", "1/10", "3/10", "7/10", "1"])
@pytest.mark.parametrize(
    "shortest, longest, increment", [(8, 128, 8), (8, 30, 8), (8, 8, 8), (1, 1024, 1), (8, 20, 64)]
)
def test_the_schedule_in_exact_arithmetic(shortest: int, longest: int, increment: int, duration: str) -> None:
    """Also where an interval is shorter than a step, and where there is nothing to lengthen."""
    sizes = {"shortest": shortest, "longest": longest, "increment": increment}
    for total in (1, 7, 60):
        found = [length_at(step / total, **sizes, duration=float(Fraction(duration))) for step in range(total)]
        assert found == [exact_length(step, total, **sizes, duration=Fraction(duration)) for step in range(total)]
        assert found == sorted(found)


def test_a_default_run_grows_in_equal_intervals() -> None:
    method = SeqLengthWarmup()
    lengths = [method.length(Moment(step=s, total_steps=100, example_shape=(128,))) for s in range(100)]
    assert lengths[:30] == [8 * (1 + step // 2) for step in range(30)] and set(lengths[30:]) == {128}


def test_phases_are_the_lengths() -> None:
    method = SeqLengthWarmup(duration=0.5, min_length=4, increment=4)
    phases = [method.phase(Moment(step=s, total_steps=8, example_shape=(12,))) for s in range(8)]
    assert phases == ["4 tokens"] * 2 + ["8 tokens"] * 2 + ["12 tokens"] * 4
    assert method.neutral().phase(Moment(step=0, total_steps=8, example_shape=(12,))) == ""


def test_truncated_sequences_are_their_first_tokens() -> None:
    loop = text_loop(SeqLengthWarmup(min_length=5, duration=0.5, increment=7))
    whole = read(text_loop(None))
    short = read(loop)
    assert torch.equal(short.inputs, whole.inputs[:, :5])
    assert torch.equal(short.targets, whole.targets[:, :5]) and torch.equal(short.labels, whole.labels[:, :5])
    assert short.inputs.untyped_storage().nbytes() > short.inputs.nbytes, "a view: nothing is copied"
    assert torch.equal(read(loop, step=5).inputs, read(text_loop(None), step=5).inputs)


def gradients(loop: Loop) -> list[torch.Tensor]:
    loop.prepare_step()
    loss = loop._passes()  # pyright: ignore[reportPrivateUsage]
    return [
        loss,
        *(parameter.grad.clone() for parameter in loop.setting.model.parameters() if parameter.grad is not None),
    ]


@pytest.mark.parametrize("length", [3, 4, 6])
def test_pieces_have_the_loss_of_their_whole_sequence(length: int) -> None:
    """For a model that sees one byte at a time: the mean over all places, however they are cut."""
    method = SeqLengthWarmup(min_length=length, duration=1.0, increment=100, mode="reshape")
    for found, expected in zip(gradients(text_loop(method)), gradients(text_loop(None)), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def test_pieces_without_their_weight_would_count_as_whole_sequences() -> None:
    """The control of the test above."""
    loop = text_loop(SeqLengthWarmup(min_length=4, duration=1.0, increment=100, mode="reshape"))
    batch = read(loop)
    assert batch.weight == pytest.approx(1 / 3)
    assert batch.slots.tolist() == [slot for slot in range(4) for _ in range(3)] and len(batch.codes) == 12
    loop._cells[0].batch = replace(batch, weight=1.0)  # pyright: ignore[reportPrivateUsage]
    share = loop.state.shares[0]
    unweighted = loop._take_gradients(share)  # pyright: ignore[reportPrivateUsage]
    torch.testing.assert_close(unweighted, 3 * gradients(text_loop(None))[0])


@pytest.mark.parametrize("mode", ["truncate", "reshape"])
def test_the_rest_that_no_piece_takes_is_not_trained_on(mode: Literal["truncate", "reshape"]) -> None:
    loop = text_loop(SeqLengthWarmup(min_length=5, duration=1.0, increment=100, mode=mode))
    assert read(loop).inputs.shape == ((4, 5) if mode == "truncate" else (8, 5))
    loop.step()


def planned(context: int) -> Planned:
    return Planned(
        task="language",
        example_shape=(context,),
        classes=256,
        steps=10,
        batch_size=4,
        optimizer=SGDSpec(lr=0.1),
        schedule=Constant(),
        precision="fp32",
        microbatch_size=None,
    )


@pytest.mark.parametrize("shortest, longest, context", [(16, None, 12), (8, 13, 12), (8, 4, 12)])
def test_lengths_that_do_not_fit_are_refused(shortest: int, longest: int | None, context: int) -> None:
    with pytest.raises(
        RecipeError, match=rf"found min_length {shortest} and max_length {longest or context} .* of 12 t"
    ):
        SeqLengthWarmup(min_length=shortest, max_length=longest).check(planned(context))
    SeqLengthWarmup(min_length=12).check(planned(12))
    SeqLengthWarmup(min_length=4, max_length=8).check(planned(12))


@pytest.mark.parametrize("mode", ["truncate", "reshape"])
def test_rows_that_are_shorter_already_stay_as_they_are(mode: Literal["truncate", "reshape"]) -> None:
    """Another method may have cut them before."""
    loop = text_loop(SeqLengthWarmup(min_length=8, duration=1.0, increment=4, mode=mode))
    loop.state.batch = cut_rows(read(loop), length=4)
    before = loop.state.batch
    loop.call("change_batch")
    assert loop.state.batch is before

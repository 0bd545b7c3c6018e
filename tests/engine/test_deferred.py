"""Losses that are looked at from time to time only, as on a GPU: a divergence is located by making its steps again, and
is the one that a run with a look in each pass reports."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from explorer import rundir
from explorer.engine.checkpoint import load_newest
from explorer.engine.fit import FitOptions, fit, state_digest
from explorer.engine.loop import Loop
from explorer.engine.method import Kind, Method
from explorer.engine.optimizer import AdamWSpec, SGDSpec
from explorer.engine.state import State
from explorer.errors import DivergedError
from explorer.methods.ema import EMA
from tests.data_for_tests import typed
from tests.loop_for_tests import noise_loop, small_net

NEVER = 1e9  # seconds between checkpoints


class Growing(nn.Linear):
    """Logits that grow faster than their weights."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) ** 9


def growing() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(48), Growing(48, 3))


KINDS: dict[str, Any] = {
    "plain": lambda: {"optimizer": SGDSpec(lr=1.5)},
    "classes": lambda: {"optimizer": SGDSpec(lr=1.5), "typing": typed()},
    "adamw": lambda: {"optimizer": AdamWSpec(lr=1e4)},
    "ema": lambda: {"optimizer": SGDSpec(lr=1.5), "methods": [EMA(half_life=0.3)]},
}


@dataclass(frozen=True, eq=False)
class Noting(Method):
    """Notes the steps that were made; and fails after a loss that is not finite, if that is asked for."""

    name: ClassVar[str] = "noting"
    summary: ClassVar[str] = "notes steps"
    source: ClassVar[str] = "tests"
    kind: ClassVar[Kind] = Kind.AVERAGE
    made: list[int] = field(default_factory=list)
    fails: bool = False

    def after_step(self, state: State) -> None:
        self.made.append(state.step + 1)
        assert state.loss is not None
        if self.fails and not torch.isfinite(state.loss):
            raise IndexError("an index that is not finite")


def message_of(loop: Loop, directory: Path, *, defers: bool, **options: Any) -> str:
    directory.mkdir(exist_ok=True)
    with pytest.raises(DivergedError) as caught:
        fit(loop, FitOptions(directory=directory, run_id="r", defers=defers, evaluations=2, **options))
    return str(caught.value)


def saved(directory: Path) -> tuple[int, str] | None:
    newest = load_newest(directory / rundir.CHECKPOINT, run_id="r")
    if newest is None:
        return None
    return newest.step, str({name: tensor.tolist() for name, tensor in sorted(newest.tensors.items())})


def made_by(kind: str, methods: Sequence[Method] = ()) -> Loop:
    setting = KINDS[kind]()
    return noise_loop(**{**setting, "methods": [*setting.get("methods", ()), *methods]}, model=growing())


@pytest.mark.parametrize("seconds", [0.0, NEVER], ids=["checkpoints", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_divergence_is_that_of_a_look_in_each_pass(kind: str, seconds: float, tmp_path: Path) -> None:
    at_once, later = (
        message_of(made_by(kind), tmp_path / str(defers), defers=defers, checkpoint_seconds=seconds)
        for defers in (False, True)
    )
    assert at_once == later
    assert "the first layer" in later
    assert ("class open/class-" in later) == (kind == "classes")
    assert saved(tmp_path / "False") == saved(tmp_path / "True")
    assert (saved(tmp_path / "True") is None) == (seconds == NEVER)


def test_it_is_found_later_and_made_again(tmp_path: Path) -> None:
    """Without an interval in between, the look comes at the evaluation in the middle of the run."""
    steps = {}
    for defers in (False, True):
        noting = Noting()
        message = message_of(made_by("plain", [noting]), tmp_path, defers=defers, checkpoint_seconds=NEVER)
        steps[defers] = noting.made
    last = len(steps[False])
    assert f"at step {last + 1}:" in message and 0 < last < 4
    assert steps[False] == list(range(1, last + 1))
    assert steps[True] == [1, 2, 3, 4, 5, *steps[False]]


def test_a_resumed_run_is_made_again_from_its_checkpoint(tmp_path: Path) -> None:
    expected = message_of(made_by("plain"), tmp_path / "whole", defers=False, checkpoint_seconds=NEVER)
    loop = made_by("plain")
    (tmp_path / "parts").mkdir()
    with pytest.raises(KeyboardInterrupt):
        fit(loop, FitOptions(directory=tmp_path / "parts", run_id="r", stop=lambda: loop.state.step == 1, defers=True))
    noting = Noting()
    loop = made_by("plain", [noting])
    assert message_of(loop, tmp_path / "parts", defers=True, checkpoint_seconds=NEVER) == expected
    assert 1 not in noting.made and noting.made.count(2) == 2


def test_what_fails_after_a_loss_that_is_not_finite_is_its_consequence(tmp_path: Path) -> None:
    expected = message_of(made_by("plain"), tmp_path, defers=False, checkpoint_seconds=NEVER)
    loop = made_by("plain", [Noting(fails=True)])
    assert message_of(loop, tmp_path, defers=True, checkpoint_seconds=NEVER) == expected


def test_another_failure_comes_through(tmp_path: Path) -> None:
    @dataclass(frozen=True, eq=False)
    class Failing(Noting):
        def after_step(self, state: State) -> None:
            raise IndexError("a mistake")

    with pytest.raises(IndexError, match="a mistake"):
        fit(noise_loop([Failing()]), FitOptions(directory=tmp_path, run_id="r", defers=True))


class BreaksOnce(nn.ReLU):
    """Gives one infinity, in its third pass of training: no function of the step."""

    left = 3

    def forward(self, input: Tensor) -> Tensor:
        self.left -= self.training
        found = super().forward(input)
        return found * float("inf") if self.left == 0 and self.training else found


def test_a_divergence_that_does_not_come_again_is_reported_all_the_same(tmp_path: Path) -> None:
    net = small_net()
    net[4] = BreaksOnce()
    message = message_of(noise_loop(model=net), tmp_path, defers=True)
    assert "at step 3; the steps before it, made again, do not lead there" in message


def test_a_run_that_does_not_diverge_has_the_same_bits_and_metrics(tmp_path: Path) -> None:
    digests, metrics = set(), set()
    for defers in (False, True):
        place = tmp_path / str(defers)
        place.mkdir()
        digests.add(
            fit(noise_loop(), FitOptions(directory=place, run_id="r", evaluations=2, defers=defers)).state_digest
        )
        metrics.add((place / rundir.METRICS).read_bytes())
    assert len(digests) == len(metrics) == 1


@pytest.mark.parametrize("optimizer", [SGDSpec(lr=0.1, momentum=0.9), AdamWSpec(lr=0.01)])
def test_restoring_the_start_takes_away_what_optimisers_have_kept_since(optimizer: Any) -> None:
    loop = noise_loop(optimizer=optimizer)
    start = {name: tensor.clone() for name, tensor in loop.tensors().items()}
    digests = set()
    for _ in range(2):
        for _ in range(3):
            loop.step()
        digests.add(state_digest(loop))
        loop.restore(start, step=0)
        assert loop.tensors().keys() == start.keys()
    assert len(digests) == 1

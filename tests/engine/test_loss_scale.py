"""fp16: the scale leaves no trace in gradients, an overflow leaves none in the run, and a divergence stops it."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from explorer.engine.fit import FitOptions, fit
from explorer.engine.loop import Loop
from explorer.engine.loss_scale import START, LossScale
from explorer.engine.method import Kind, Method
from explorer.engine.optimizer import AdamWSpec
from explorer.engine.state import State
from explorer.errors import DivergedError
from explorer.methods.ema import EMA
from explorer.methods.sam import SAM
from explorer.training.run import execute
from tests.data_for_tests import typed
from tests.loop_for_tests import noise_loop, small_net
from tests.recipes_for_tests import tiny_recipe, tiny_run, write_run
from tests.training.changed_ranks import change_ranks

HUGE = 2.0**40  # every gradient overflows


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen(Method):
    """Keeps the largest gradient that methods see, and the loss of class `loud` is so large that fp16 overflows."""

    name: ClassVar[str] = "seen"
    kind: ClassVar[Kind] = Kind.RECORD

    largest: list[float]
    loud: str | None = None

    def after_loss(self, state: State) -> None:
        assert state.loss is not None and state.share is not None
        if state.share.name == self.loud:
            state.loss = state.loss * 2.0**24

    def change_gradients(self, state: State) -> None:
        self.largest.append(max((float(each.abs().max()) for each in state.gradients.values()), default=math.nan))


class Large(nn.ReLU):
    """Gives numbers that are finite in fp32, and beyond fp16."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * 1e6


def half(methods: list[Method] | None = None, **setting: Any) -> Loop:
    return noise_loop(methods or [], precision="fp16", **setting)


def scale_of(loop: Loop) -> LossScale:
    assert loop.loss_scale is not None
    return loop.loss_scale


def copied(loop: Loop) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in loop.tensors().items() if "loss_scale" not in name}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_methods_see_gradients_without_the_scale() -> None:
    """Of any scale the same ones but for rounding, near those of fp32."""
    found: list[list[float]] = []
    for scale in (2.0**4, 2.0**10, None):
        seen: list[float] = []
        loop = half([Seen(largest=seen)]) if scale else noise_loop([Seen(largest=seen)])
        if scale:
            scale_of(loop).memory["scale"].fill_(scale)
        loop.step()
        found.append(seen)
    assert found[0] == pytest.approx(found[2], rel=0.02) and found[1] == pytest.approx(found[2], rel=0.02)
    assert found[0] != found[2], "the control: fp16 rounds"


@pytest.mark.parametrize("setting", [{}, {"optimizer": AdamWSpec(lr=0.01)}, {"microbatch_size": 3}, {"lanes": 2}])
def test_a_step_that_overflows_is_not_made(setting: dict[str, Any]) -> None:
    """Parameters, momenta and running statistics are those of before; the control is a step that does not overflow."""
    loop = half(**setting)
    loop.step()
    before = copied(loop)
    scale_of(loop).memory["scale"].fill_(HUGE)
    loss = loop.step()
    assert same(copied(loop), before) and torch.isfinite(loss)
    assert (scale_of(loop).scale, scale_of(loop).skipped, loop.state.step) == (HUGE / 2, 1, 2)
    assert loop.state.rescaled is not None and loop.state.rescaled.rule == "overflow"
    scale_of(loop).memory["scale"].fill_(START)
    loop.step()
    assert not same(copied(loop), before) and loop.state.rescaled is None


def test_an_overflow_near_the_weights_only_is_one_too() -> None:
    """The second pass of SAM overflows, at weights that it has moved: they are put back, and the step is not made."""
    loop = half([SAM(rho=0.1)])
    loop.step()
    before, weight = copied(loop), loop.setting.model.get_parameter("0.weight")
    passes: list[bool] = []

    @dataclass(frozen=True, kw_only=True, slots=True)
    class Louder(Method):
        name: ClassVar[str] = "louder"
        kind: ClassVar[Kind] = Kind.RECORD

        def after_loss(self, state: State) -> None:
            moved = not torch.equal(weight, before["model/0.weight"])
            passes.append(moved)
            assert state.loss is not None
            state.loss = state.loss * (2.0**30 if moved else 1.0)

    loop._hooks["after_loss"] = [Louder()]
    loop.step()
    assert passes == [False, True] and same(copied(loop), before) and scale_of(loop).skipped == 1


def test_one_class_that_overflows_is_left_out_and_the_others_train() -> None:
    """What remains is the step of the other class by itself."""
    first = "open/class-1"
    loud, quiet = (
        half([Seen(largest=[], loud=name)], typing=typed(), model=small_net("group")) for name in (first, None)
    )
    for loop in (loud, quiet):
        loop.prepare_step()
    quiet.state.shares = tuple(share for share in quiet.state.shares if share.name != first)
    for loop in (loud, quiet):
        loop._passes()
        loop._update()
    assert same(copied(loud), copied(quiet))
    assert loud.state.rescaled is not None and loud.state.rescaled.classes == (first,)
    assert [bool(share.parameters) for share in loud.state.shares] == [False, True]
    assert (scale_of(loud).skipped, scale_of(quiet).skipped) == (1, 0)


def test_the_scale_grows_after_enough_steady_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.engine.loss_scale.GROW_AFTER", 3)
    loop = half()
    scales: list[float] = []
    for _ in range(6):
        loop.step()
        scales.append(scale_of(loop).scale / START)
    assert scales == [1, 1, 2, 2, 2, 4]
    assert loop.state.rescaled is not None and loop.state.rescaled.rule == "growth"


def test_a_loss_that_is_not_finite_is_no_overflow() -> None:
    """It is computed in fp32, before it is scaled. An activation beyond fp16 is told from a true divergence."""
    large = small_net()
    large[4] = Large()
    loop = half(model=large)
    with pytest.raises(DivergedError, match=r"first layer .* is '4', which is finite in fp32: fp16 ends at 65,504"):
        loop.step()
    assert scale_of(loop).skipped == 0 and scale_of(loop).scale == START
    with torch.no_grad():
        loop.setting.model.get_parameter("7.bias").fill_(math.inf)
    large[4] = nn.ReLU()
    with pytest.raises(DivergedError, match=r"'7\.bias' is not finite already"):
        loop.step()


def test_gradients_that_overflow_unscaled_are_a_divergence() -> None:
    loop = half([Seen(largest=[], loud="")])
    scale_of(loop).memory["scale"].fill_(1.0)
    before = copied(loop)
    with pytest.raises(DivergedError, match="not finite in fp16, even with a loss scale of 1"):
        loop.step()
    assert {name for name, tensor in copied(loop).items() if not torch.equal(tensor, before[name])} == set()


@pytest.mark.parametrize("at", [3, 6])
def test_scale_and_skipped_steps_are_resumed(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the steps overflow. The control: a scale that starts anew after the interruption gives other bits."""
    monkeypatch.setattr("explorer.engine.loss_scale.START", 2.0**24)

    def trained(name: str, stop: int | None = None, *, forget: bool = False) -> tuple[Loop, dict[str, float]]:
        loop = half([EMA(half_life=0.3)])
        if forget:
            del loop.state.memory["loss_scale"]
        options = FitOptions(
            directory=tmp_path / name,
            run_id="r",
            evaluations=0,
            stop=lambda: stop is not None and loop.state.step >= stop,
        )
        (tmp_path / name).mkdir(exist_ok=True)
        if stop is None:
            return loop, fit(loop, options).metrics
        with pytest.raises(KeyboardInterrupt):
            fit(loop, options)
        return loop, {}

    whole, metrics = trained("whole")
    assert 2 <= metrics["skipped_steps"] <= 8
    for forget in (False, True):
        trained(f"parts {forget}", at)
        loop, found = trained(f"parts {forget}", forget=forget)
        assert same(copied(loop), copied(whole)) is (found == metrics) is not forget


@pytest.mark.slow
def test_ranks_leave_out_the_same_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A scale with which steps overflow, in this process and in those of the ranks.
    monkeypatch.setattr("explorer.engine.loss_scale.START", 2.0**24)
    change_ranks(tmp_path, monkeypatch, "import explorer.engine.loss_scale as scale\nscale.START = 2.0**24")
    recipe = tiny_recipe(precision="fp16", lanes=2, epochs=1.0)
    one, two = (execute(write_run(tmp_path / str(ranks), tiny_run(recipe)), ranks=ranks) for ranks in (1, 2))
    assert one.metrics["skipped_steps"] > 0
    assert (one.state_digest, one.metrics) == (two.state_digest, two.metrics)

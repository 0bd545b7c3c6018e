"""Stochastic depth: its rates, its draws, what a branch that is left out costs and learns."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.data.streams import stream
from explorer.engine.loop import Loop
from explorer.engine.optimizer import SGDSpec
from explorer.engine.state import State
from explorer.errors import RecipeError
from explorer.methods.sam import SAM
from explorer.methods.stochastic_depth import StochasticDepth, drop_rates, gates_of, keep, set_rates
from explorer.models.residual import Gate
from tests.data_for_tests import typed
from tests.loop_for_tests import noise_loop, small_net


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.gate = nn.Linear(width, width), Gate(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.gate(x, lambda: self.linear(x))


def net(blocks: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 5), *(Block(5) for _ in range(blocks)), nn.Linear(5, 3))


def depth_loop(*methods: StochasticDepth | SAM, **options: object) -> Loop:
    return noise_loop(list(methods), model=net(), **options)  # pyright: ignore[reportArgumentType]


def watched(loop: Loop) -> list[Any]:
    """What each gate is told at each forward pass from now on."""
    seen: list[Any] = []
    for gate in gates_of(loop.setting.model):
        gate.register_forward_pre_hook(lambda gate, _: seen.append(gate.kept))  # pyright: ignore[reportAttributeAccessIssue]
    return seen


def test_rates() -> None:
    np.testing.assert_allclose(drop_rates(5, rate=0.2, rule="linear"), 0.2 * np.arange(1, 6) / 5, rtol=1e-15)
    assert drop_rates(3, rate=0.2, rule="uniform") == [0.2] * 3


def test_evaluation_scales_each_branch_by_how_often_it_takes_part() -> None:
    model = nn.Sequential(*(Block(3) for _ in range(2))).double().eval()
    gates = gates_of(model)
    set_rates(gates, drop_rates(2, rate=0.5, rule="linear"))
    x = torch.randn(4, 3, dtype=torch.float64)
    first = x + 0.75 * model.get_submodule("0.linear")(x)
    torch.testing.assert_close(model(x), first + 0.5 * model.get_submodule("1.linear")(first))


def test_block_mode_draws_once_a_step_and_leaves_out_as_often_as_it_says() -> None:
    loop = depth_loop(StochasticDepth(rate=0.8), microbatch_size=5, optimizer=SGDSpec(lr=1e-4))
    seen = watched(loop)
    for _ in range(100):
        loop.step()
    kept = np.array(seen, dtype=bool).reshape(100, 2, 4)  # step, microbatch, gate
    assert (kept[:, 0] == kept[:, 1]).all(), "the microbatches of a step have the same draws"
    draws = np.stack([stream(0, "stochastic_depth", step).random(4) for step in range(100)])
    assert (kept[:, 0] == (draws >= 1 - (1 - 0.8 * np.arange(1, 5) / 4))).all()
    np.testing.assert_allclose(1 - kept[:, 0].mean(0), 0.8 * np.arange(1, 5) / 4, atol=0.15)


def test_a_branch_that_is_left_out_has_no_gradient_and_is_not_moved_by_momentum() -> None:
    loop = depth_loop(StochasticDepth(rate=0.9, rule="uniform"))
    model = loop.setting.model
    for step in range(10):
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        kept = stream(0, "stochastic_depth", step).random(4) >= 0.9
        loop.step()
        for block in range(4):
            name = f"{block + 2}.linear.weight"
            assert (model.get_parameter(name).grad is None) == (not kept[block])
            assert torch.equal(model.get_parameter(name), before[name]) == (not kept[block])


def test_sample_mode_multiplies_each_example_s_branch_by_its_own_draw() -> None:
    loop = depth_loop(StochasticDepth(rate=0.6, mode="sample"), microbatch_size=3)
    seen = watched(loop)
    loop.step()
    expected = stream(0, "stochastic_depth", 0).random((4, 8)) >= np.array([0.15, 0.3, 0.45, 0.6])[:, None]
    assert np.array_equal([torch.cat(seen[gate::4]).numpy() for gate in range(4)], expected)


def test_zero_and_one_by_example() -> None:
    block, x = Block(3), torch.randn(4, 3)
    keep(gates_of(block), [torch.tensor([True, False, True, False])])
    y = block(x)
    whole = x + block.linear(x)
    assert torch.equal(y[1::2], x[1::2]) and torch.equal(y[::2], whole[::2])


@pytest.mark.parametrize("mode", ["block", "sample"])
def test_leaving_a_class_out_changes_nothing_for_the_others(mode: str) -> None:
    """Two classes in turn; without the first one the second one's gates are what they were."""

    class Alone(StochasticDepth):
        def change_plan(self, state: State) -> None:
            state.shares = tuple(share for share in state.shares if share.code == 2)

    method = StochasticDepth(rate=0.6, mode=mode)  # pyright: ignore[reportArgumentType]
    both = depth_loop(method, typing=typed())
    alone = depth_loop(Alone(rate=0.6, mode=mode), typing=typed())  # pyright: ignore[reportArgumentType]
    seen, fewer = watched(both), watched(alone)
    both.step()
    alone.step()
    assert len(seen) == 8 and len(fewer) == 4
    assert np.array_equal(seen[4:], fewer)


def test_sam_s_second_pass_has_the_draws_of_the_first() -> None:
    loop = depth_loop(StochasticDepth(rate=0.9), SAM())
    seen = watched(loop)
    for _ in range(5):
        loop.step()
    kept = np.array(seen, dtype=bool).reshape(5, 2, 4)
    assert (kept[:, 0] == kept[:, 1]).all()
    assert len({tuple(row) for row in kept[:, 0]}) > 1


def test_other_passes_run_every_branch() -> None:
    loop = depth_loop(StochasticDepth(rate=0.9))
    loop.step()
    assert loop.setting.model.training and all(gate.kept is None for gate in gates_of(loop.setting.model))


def test_the_gates_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And every step sets those that the model runs."""
    loop = depth_loop(StochasticDepth(rate=0.9, warmup=0.5))
    loop.step()
    monkeypatch.setattr(nn.Module, "named_modules", lambda *_, **__: pytest.fail("a step walks the modules"))
    with pytest.raises(pytest.fail.Exception):
        gates_of(loop.setting.model)
    for _ in range(3):
        loop.step()
    gates = [module.gate for module in loop.setting.model.children() if isinstance(module, Block)]
    assert [gate.survival for gate in gates] == pytest.approx([1 - 0.9 * 3 / 5 * n / 4 for n in range(1, 5)])


def test_a_warm_up_grows_from_nothing_and_evaluation_follows() -> None:
    loop = depth_loop(StochasticDepth(rate=0.8, rule="uniform", warmup=0.5))
    found = []
    for _ in range(10):
        loop.step()
        loop.call("before_evaluation")
        found.append(1 - gates_of(loop.setting.model)[0].survival)
    np.testing.assert_allclose(found, [0.16, 0.32, 0.48, 0.64] + [0.8] * 6, rtol=1e-12)


def test_a_model_without_gates_is_refused() -> None:
    with pytest.raises(RecipeError, match="stochastic_depth: found nothing to change in Sequential: expected residual"):
        noise_loop([StochasticDepth()], model=small_net())

"""Gradient clipping against torch's own, and its groups."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from explorer.engine.optimizer import SGDSpec
from explorer.engine.state import SHARED, Region, State
from explorer.methods.gradient_clipping import GradientClipping
from tests.loop_for_tests import noise_loop, small_net


def state_of(regions: Mapping[str, Mapping[str, Tensor | None]], **fields: Any) -> State:
    """A state in which these parameters have these gradients."""
    made = {}
    for region, gradients in regions.items():
        parameters = {}
        for name, gradient in gradients.items():
            parameters[name] = nn.Parameter(torch.zeros(1 if gradient is None else len(gradient)))
            parameters[name].grad = gradient
        made[region] = Region(name=region, parameters=parameters, optimizers=())
    return State(
        seed=0,
        total_steps=1,
        batch_size=1,
        classes=1,
        model=nn.Module(),
        recompute=lambda: None,
        regions=made,
        **fields,
    )


def clipped(state: State, *, max_norm: float) -> dict[str, Tensor | None]:
    GradientClipping(max_norm=max_norm).before_update(state)
    return {name: p.grad for region in state.regions.values() for name, p in region.parameters.items()}


def of_norm(length: float) -> Tensor:
    return torch.tensor([0.6, 0.8]) * length


@pytest.mark.parametrize("max_norm", [0.001, 0.1, 1e6])
def test_a_plain_step_is_that_of_torch(max_norm: float) -> None:
    """To the bit: one norm over all parameters."""
    ours, theirs = (noise_loop(methods, model=small_net()) for methods in ([GradientClipping(max_norm=max_norm)], []))
    for _ in range(3):
        ours.step()
        theirs.prepare_step()
        theirs._passes()
        torch.nn.utils.clip_grad_norm_(theirs.setting.model.parameters(), max_norm)
        theirs._update()
        theirs.state.step += 1
    assert all(torch.equal(ours.tensors()[name], tensor) for name, tensor in theirs.tensors().items())


def test_a_step_is_at_most_as_long_as_the_threshold() -> None:
    loop = noise_loop([GradientClipping(max_norm=0.01)], optimizer=SGDSpec(lr=1.0, momentum=0.0))
    before = [parameter.detach().clone() for parameter in loop.setting.model.parameters()]
    loop.step()
    moved = [p.detach() - old for p, old in zip(loop.setting.model.parameters(), before, strict=True)]
    assert torch.cat([each.flatten() for each in moved]).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_regions_and_groups_of_equal_admission_are_clipped_apart() -> None:
    one, both = frozenset({1}), frozenset({1, 2})
    state = state_of(
        {SHARED: {"a": of_norm(3.0), "b": of_norm(4.0), "c": of_norm(100.0)}, "theirs": {"d": of_norm(7.0)}},
        admission={"a": both, "b": both, "c": one, "d": one},
    )
    found = clipped(state, max_norm=1.0)
    for name, length in {"a": 3 / 5, "b": 4 / 5, "c": 1.0, "d": 1.0}.items():
        gradient = found[name]
        assert gradient is not None and gradient.norm().item() == pytest.approx(length, rel=1e-5)
    factors = {name: factor.item() for name, factor in state.scales.items()}
    assert factors == pytest.approx({"a": 1 / 5, "b": 1 / 5, "c": 1 / 100, "d": 1 / 7}, rel=1e-5)


def test_one_norm_for_all_would_let_one_class_shorten_the_step_of_others() -> None:
    """The control: without admission, the long gradient of `c` is in everybody's norm."""
    found = clipped(state_of({SHARED: {"a": of_norm(0.5), "c": of_norm(100.0)}}), max_norm=1.0)
    assert found["a"] is not None and found["a"].norm().item() < 0.01
    groups = {"a": frozenset({1, 2}), "c": frozenset({1})}
    apart = clipped(state_of({SHARED: {"a": of_norm(0.5), "c": of_norm(100.0)}}, admission=groups), max_norm=1.0)
    assert apart["a"] is not None and torch.equal(apart["a"], of_norm(0.5))


def test_what_has_no_gradient_gets_none() -> None:
    state = state_of({SHARED: {"a": of_norm(3.0), "b": None}, "theirs": {"c": None}})
    found = clipped(state, max_norm=1.0)
    assert found["b"] is None and found["c"] is None and state.scales.keys() == {"a"}


def test_a_gradient_that_somebody_else_holds_stays() -> None:
    gradient = of_norm(3.0)
    clipped(state_of({SHARED: {"a": gradient}}), max_norm=1.0)
    assert torch.equal(gradient, of_norm(3.0))

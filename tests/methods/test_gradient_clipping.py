"""Gradient clipping: each of the three against another's or in float64, and its groups."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.engine.leaves import leaves
from explorer.engine.method import Kind, Method
from explorer.engine.optimizer import SGDSpec
from explorer.engine.state import SHARED, Region, State
from explorer.errors import TrainingError
from explorer.methods.gradient_clipping import GradientClipping, adaptive_factor, classifier, value_factor
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
    GradientClipping(threshold=max_norm).before_update(state)
    return {name: p.grad for region in state.regions.values() for name, p in region.parameters.items()}


def of_norm(length: float) -> Tensor:
    return torch.tensor([0.6, 0.8]) * length


def gradients_of_a_step(*methods: GradientClipping) -> dict[str, tuple[Tensor, Tensor]]:
    """What the optimiser would see: weight and gradient by name."""
    loop = noise_loop(methods, model=small_net())
    loop.prepare_step()
    loop._passes()
    loop.call("before_update")
    found = {name: (p.detach(), p.grad) for name, p in loop.setting.model.named_parameters()}
    return {name: (weight, gradient) for name, (weight, gradient) in found.items() if gradient is not None}


@pytest.mark.parametrize("max_norm", [0.001, 0.1, 1e6])
def test_a_plain_step_is_that_of_torch(max_norm: float) -> None:
    """To the bit: one norm over all parameters."""
    ours, theirs = (noise_loop(methods, model=small_net()) for methods in ([GradientClipping(threshold=max_norm)], []))
    for _ in range(3):
        ours.step()
        theirs.prepare_step()
        theirs._passes()
        torch.nn.utils.clip_grad_norm_(theirs.setting.model.parameters(), max_norm)
        theirs._update()
        theirs.state.step += 1
    assert all(torch.equal(ours.tensors()[name], tensor) for name, tensor in theirs.tensors().items())


@pytest.mark.parametrize("threshold", [1e-3, 1e6])
def test_values_are_those_of_torch(threshold: float) -> None:
    ours = gradients_of_a_step(GradientClipping(clipping="value", threshold=threshold))
    theirs = noise_loop(model=small_net())
    theirs.prepare_step()
    theirs._passes()
    torch.nn.utils.clip_grad_value_(theirs.setting.model.parameters(), threshold)
    for name, parameter in theirs.setting.model.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(ours[name][1], parameter.grad)


def test_a_value_of_zero_stays_zero() -> None:
    gradient = torch.tensor([0.0, -4.0, 0.5])
    assert (gradient * value_factor(gradient, max_value=2.0)).tolist() == [0.0, -2.0, 0.5]


@pytest.mark.parametrize("threshold", [1e-4, 0.01, 1e6])
def test_units_are_clipped_as_in_float64(threshold: float) -> None:
    """Every row of every tensor by itself, the classifier as it was; some units above the threshold, some below."""
    plain = gradients_of_a_step()
    ours = gradients_of_a_step(GradientClipping(clipping="adaptive", threshold=threshold))
    shortened = []
    for name, (weight, gradient) in plain.items():
        w, g = (tensor.double().numpy() for tensor in (weight, gradient))
        expected = g.copy()
        if not name.startswith("7."):
            units = [...] if g.ndim == 1 else range(len(g))
            for unit in units:
                longest = threshold * max(np.sqrt((w[unit] ** 2).sum()), 1e-3)
                length = np.sqrt((g[unit] ** 2).sum())
                shortened.append(bool(length > longest))
                if length > longest:
                    expected[unit] = g[unit] * longest / length
        np.testing.assert_allclose(ours[name][1].numpy(), expected, rtol=2e-6, atol=1e-12)
    assert set(shortened) == ({False} if threshold == 1e6 else {True, False})


def test_a_unit_that_begins_at_zero_can_leave_it() -> None:
    """Without a smallest norm its gradient would be nothing for ever."""
    factor = adaptive_factor(torch.zeros(2, 3), torch.ones(2, 3), max_ratio=0.01)
    assert factor.shape == (2, 1)
    torch.testing.assert_close(factor, torch.full((2, 1), 0.01 * 1e-3 / 3**0.5))


class Tied(nn.Module):
    """Tokens in, logits out, by one and the same matrix; the last layer to run is a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(5, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.tokens(x)) @ self.tokens.weight.T


def test_the_classifier_is_the_last_matrix_and_a_tied_head_is_none() -> None:
    assert classifier(leaves(small_net(), torch.zeros(1, 2, 6, 4))) == {"7.weight", "7.bias"}
    assert classifier(leaves(Tied(), torch.zeros(1, 3, dtype=torch.int64))) == frozenset()
    assert classifier(()) == frozenset()


@pytest.mark.parametrize(("clipping", "expected"), [("norm", [0.6, 0.8]), ("value", [1.0, 1.0])])
def test_the_usual_thresholds(clipping: Any, expected: list[float]) -> None:
    state = state_of({SHARED: {"a": of_norm(3.0)}})
    GradientClipping(clipping=clipping).before_update(state)
    found = state.regions[SHARED].parameters["a"].grad
    assert found is not None and found.tolist() == pytest.approx(expected)


def test_the_usual_threshold_of_units() -> None:
    state = state_of({SHARED: {"a": of_norm(3.0)}})
    state.regions[SHARED].parameters["a"].data += of_norm(2.0)
    GradientClipping(clipping="adaptive").before_update(state)
    found = state.regions[SHARED].parameters["a"].grad
    assert found is not None and found.norm().item() == pytest.approx(0.02)


def test_a_step_is_at_most_as_long_as_the_threshold() -> None:
    loop = noise_loop([GradientClipping(threshold=0.01)], optimizer=SGDSpec(lr=1.0, momentum=0.0))
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


@pytest.mark.parametrize("clipping", ["norm", "value", "adaptive"])
def test_what_has_no_gradient_gets_none(clipping: Any) -> None:
    state = state_of({SHARED: {"a": of_norm(3.0), "b": None}, "theirs": {"c": None}})
    GradientClipping(clipping=clipping).before_update(state)
    found = {name: p.grad for region in state.regions.values() for name, p in region.parameters.items()}
    assert found["a"] is not None and found["b"] is None and found["c"] is None and state.scales.keys() == {"a"}


@pytest.mark.parametrize("clipping", ["norm", "value", "adaptive"])
def test_a_gradient_that_somebody_else_holds_stays(clipping: Any) -> None:
    gradient = of_norm(3.0)
    GradientClipping(clipping=clipping).before_update(state_of({SHARED: {"a": gradient}}))
    assert torch.equal(gradient, of_norm(3.0))


INFINITE = torch.tensor([math.inf, -math.inf, 3.0, 0.5])


def test_an_infinite_value_becomes_the_threshold_and_nan_stays() -> None:
    state = state_of({SHARED: {"a": INFINITE.clone(), "b": torch.tensor([math.nan, 2.0])}})
    GradientClipping(clipping="value", threshold=1.0).before_update(state)
    parameters = state.regions[SHARED].parameters
    assert parameters["a"].grad is not None and parameters["a"].grad.tolist() == [1.0, -1.0, 1.0, 0.5]
    assert parameters["b"].grad is not None and parameters["b"].grad.isnan().tolist() == [True, False]


@pytest.mark.parametrize("clipping", ["norm", "adaptive"])
def test_an_infinite_norm_has_no_direction_as_in_torch(clipping: Any) -> None:
    """What is infinite becomes NaN, so that the run ends at the next loss; nothing else moves."""
    state = state_of({SHARED: {"a": INFINITE.clone()}})
    GradientClipping(clipping=clipping).before_update(state)
    found = state.regions[SHARED].parameters["a"].grad
    theirs = nn.Parameter(torch.zeros(4))
    theirs.grad = INFINITE.clone()
    torch.nn.utils.clip_grad_norm_([theirs], 1.0)
    assert found is not None and theirs.grad is not None
    assert torch.equal(found.isnan(), theirs.grad.isnan()) and found[2:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("clipping", "goes_on"), [("value", True), ("norm", False)])
def test_a_run_meets_an_infinite_gradient(clipping: Any, goes_on: bool) -> None:
    loop = noise_loop([Infinite(), GradientClipping(clipping=clipping)], model=small_net())
    if goes_on:
        for _ in range(3):
            loop.step()
        return
    with pytest.raises(TrainingError, match=r"training diverged: .* is not finite already"):
        for _ in range(3):
            loop.step()


@dataclass(frozen=True, kw_only=True, slots=True)
class Infinite(Method):
    """One number of each gradient is infinite in the first step."""

    name: ClassVar[str] = "infinite"
    kind: ClassVar[Kind] = Kind.GRADIENT
    before: ClassVar[tuple[str, ...]] = ("gradient_clipping",)

    def before_update(self, state: State) -> None:
        for parameter in state.model.parameters():
            if state.step == 0 and parameter.grad is not None:
                parameter.grad.view(-1)[0] = math.inf

"""Layer freezing: what is frozen, that it stays as it was to the last bit, and that its backward is not run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import nn

from explorer.engine.leaves import Leaf, leaves
from explorer.engine.loop import Loop
from explorer.engine.method import Moment
from explorer.engine.optimizer import AdamWSpec, OptimizerSpec, SGDSpec
from explorer.methods.layer_freezing import LayerFreezing, frozen_prefix, frozen_share
from tests.loop_for_tests import noise_loop, small_net
from tests.methods.samples import sample_loop


def leaf(name: str, cost: int) -> Leaf:
    return Leaf(name=name, module=nn.Identity(), parameters=(name,), buffers=(), cost=cost)


def test_the_share_is_a_line_from_start_to_the_end() -> None:
    assert [frozen_share(p / 4, start=0.5, level=0.8) for p in range(5)] == pytest.approx([0, 0, 0, 0.4, 0.8])
    assert frozen_share(0.0, start=0.0, level=1.0) == 0


def test_the_prefix_costs_at_most_the_share() -> None:
    layers = [leaf("a", 10), leaf("b", 30), leaf("c", 40), leaf("d", 20)]
    for share, expected in ((0.05, ""), (0.1, "a"), (0.39, "a"), (0.4, "ab"), (1.0, "abc")):
        assert "".join(layer.name for layer in frozen_prefix(layers, share=share)) == expected
    assert frozen_prefix(layers[:1], share=1.0) == [], "the last layer always trains"


class Backwards(nn.Module):
    """Later in the list, earlier in the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.body = nn.Linear(48, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x.flatten(1)))


def test_the_order_is_that_of_execution() -> None:
    found = leaves(Backwards(), torch.zeros(1, 2, 6, 4))
    assert [layer.name for layer in found] == ["body", "head"]


def at_the_start_of_freezing(optimizer: OptimizerSpec | None = None, *, level: float = 0.6) -> Loop:
    """A loop whose next step is the first one that freezes a layer."""
    method = LayerFreezing(start=0.4, level=level)
    loop = noise_loop([method], optimizer=optimizer or SGDSpec(lr=0.1, weight_decay=0.01))
    while not frozen_now(loop):
        loop.step()
    return loop


def frozen_now(loop: Loop) -> set[str]:
    """The layers that the next step freezes, by the definition."""
    method = loop.methods[0]
    assert isinstance(method, LayerFreezing)
    share = frozen_share(loop.state.progress, start=method.start, level=method.level)
    return {layer.name for layer in frozen_prefix(loop.state.layers, share=share)}


@contextmanager
def counted_backwards(model: nn.Module) -> Iterator[dict[str, int]]:
    """How often autograd computes a gradient inside each parametric module."""
    counts: dict[str, int] = {}

    def output(name: str) -> Callable[..., None]:
        def count(_module: nn.Module, _inputs: object, result: torch.Tensor) -> None:
            counts.setdefault(name, 0)
            if result.requires_grad:
                result.register_hook(lambda _: counts.__setitem__(name, counts[name] + 1))

        return count

    handles = [
        module.register_forward_hook(output(name))
        for name, module in model.named_modules()
        if list(module.parameters(recurse=False))
    ]
    try:
        yield counts
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize("spec", [SGDSpec(lr=0.1, weight_decay=0.01), AdamWSpec(lr=0.01, weight_decay=0.01)])
def test_frozen_tensors_stay_to_the_last_bit(spec: OptimizerSpec) -> None:
    """Weights, normalisation statistics and optimiser state; the others go on."""
    loop = at_the_start_of_freezing(spec)
    before = {name: tensor.clone() for name, tensor in loop.tensors().items()}
    frozen = frozen_now(loop)
    loop.step()
    for name, tensor in loop.tensors().items():
        module = next(part for part in name.split("/") if part[0].isdigit() and "." in part).split(".")[0]
        same = torch.equal(tensor, before[name])
        assert same == (module in frozen), name


def test_their_backward_is_not_run() -> None:
    loop = at_the_start_of_freezing()
    frozen = frozen_now(loop)
    with counted_backwards(loop.setting.model) as counts:
        loop.step()
    assert counts == {name: int(name not in frozen) for name in ("0", "1", "3", "7")}
    for name, parameter in loop.setting.model.named_parameters():
        assert (parameter.grad is None) == (name.split(".")[0] in frozen)


def test_before_the_start_everything_has_a_backward() -> None:
    """The control of the count."""
    loop = noise_loop([LayerFreezing(start=0.4)])
    with counted_backwards(loop.setting.model) as counts:
        loop.step()
    assert counts == {"0": 1, "1": 1, "3": 1, "7": 1}


def test_freezing_by_zero_gradients_would_move_the_weights() -> None:
    """The control of the bits: with zeros in place of None, momentum and decay go on."""
    loop = at_the_start_of_freezing()
    before = loop.tensors()["model/0.weight"].clone()
    loop.prepare_step()
    loop._passes()
    for parameter in loop.setting.model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    loop._update()
    assert not torch.equal(loop.tensors()["model/0.weight"], before)


def test_statistics_would_move_if_only_gradients_were_denied() -> None:
    """The control of the buffers."""
    loop = at_the_start_of_freezing(level=1.0)
    while "1" not in frozen_now(loop):
        loop.step()
    before = loop.tensors()["model/1.running_mean"].clone()
    loop.prepare_step()
    everything = frozenset(name for name, _ in loop.setting.model.named_buffers())
    loop.state.shares = tuple(replace(share, buffers=everything) for share in loop.state.shares)
    loop._passes()
    assert not torch.equal(loop.tensors()["model/1.running_mean"], before)


def test_thawed_layers_train_again() -> None:
    """The step decides, nothing else: going back to an earlier step thaws what a later one froze."""
    loop = at_the_start_of_freezing()
    loop.step()
    loop.state.step = 0
    before = loop.tensors()["model/0.weight"].clone()
    loop.step()
    assert not torch.equal(loop.tensors()["model/0.weight"], before)
    assert loop.setting.model[1].training  # pyright: ignore[reportIndexIssue]


def test_the_last_layer_trains_to_the_end() -> None:
    loop = noise_loop([LayerFreezing(start=0.0, level=1.0)], model=small_net())
    for _ in range(10):
        before = loop.tensors()["model/7.weight"].clone()
        loop.step()
        assert not torch.equal(loop.tensors()["model/7.weight"], before)


def test_phases_follow_the_share() -> None:
    method = LayerFreezing(start=0.5, level=1.0)
    phases = [method.phase(Moment(step=s, total_steps=20, example_shape=(1, 8, 8))) for s in range(20)]
    assert phases[:11] == ["none frozen"] * 11
    assert phases[11:] == [f"0.{tenth} frozen" for tenth in range(1, 10)]
    assert LayerFreezing().neutral().phase(Moment(step=19, total_steps=20, example_shape=(1, 8, 8))) == ""


def test_a_tied_head_stops_with_its_embedding() -> None:
    """The last layer that has numbers of its own goes on."""
    loop = sample_loop([{"layer_freezing": {"start": 0.0}}], like=("layer_freezing",), task="text", steps=4)
    loop.step()
    before = {name: tensor.clone() for name, tensor in loop.state.model.named_parameters()}
    loop.step()
    after = dict(loop.state.model.named_parameters())
    assert torch.equal(after["embed.tokens.weight"], before["embed.tokens.weight"])
    assert not torch.equal(after["norm.weight"], before["norm.weight"])

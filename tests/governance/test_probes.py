"""The probe set: who is in it, what commits to it, and that looking changes nothing, to the last bit."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer import merkle
from explorer.data.batches import Batches
from explorer.engine.loop import Loop
from explorer.errors import RecipeError, TrainingError
from explorer.governance.probes import choose_probes, layer_outputs, layers_seen, moments
from explorer.governance.shared_state import Session
from tests.governance.governed import HALF_DEPTH, SEALED, governed_loop
from tests.governance.tagged import CLASSES, session_of, tagged_loop
from tests.loop_for_tests import small_net


def test_moments_are_spread_from_the_untrained_model_to_the_end() -> None:
    assert sorted(moments(100, count=5)) == [0, 25, 50, 75, 100]
    assert sorted(moments(100, count=1)) == [0]
    assert sorted(moments(2, count=8)) == [0, 1, 2], "never more than there are steps"


def test_probes_are_examples_of_their_class() -> None:
    loop = tagged_loop([])
    probes = choose_probes(loop.state, count=8)
    codes = loop.setting.batches.typing.codes
    for path in CLASSES:
        numbers = probes.examples[path]
        assert len(numbers) == len(set(numbers)) == 8
        assert list(numbers) == sorted(numbers)
        assert set(codes[numbers]) == {session_of(loop).codes[path]}
    assert {len(found) for found in choose_probes(loop.state, count=1000).examples.values()} == {20}


def test_the_choice_of_a_class_does_not_depend_on_the_others() -> None:
    loop = tagged_loop([])
    both = choose_probes(loop.state, count=8).examples
    codes = loop.setting.batches.typing.codes
    codes[codes == session_of(loop).codes[CLASSES[0]]] = 0
    alone = choose_probes(loop.state, count=8).examples
    assert np.array_equal(alone[CLASSES[1]], both[CLASSES[1]])
    assert len(alone[CLASSES[0]]) == 0


def test_another_seed_chooses_others() -> None:
    loop, other = tagged_loop([]), tagged_loop([])
    other.state.seed = 1
    chosen = [choose_probes(each.state, count=8) for each in (loop, other)]
    assert chosen[0].root != chosen[1].root


def test_the_root_is_over_numbers_and_tags() -> None:
    loop = tagged_loop([])
    probes = choose_probes(loop.state, count=1)
    tags = session_of(loop).tags
    assert tags is not None
    first, second = sorted(int(found[0]) for found in probes.examples.values())
    leaves = [merkle.leaf_hash(n.to_bytes(8, "big") + tags.tags.leaves[n].tobytes()) for n in (first, second)]
    assert probes.root == merkle.node_hash(*leaves).hex()


def test_without_tags_there_are_no_probes() -> None:
    loop = tagged_loop([])
    session_of(loop).tags = None
    with pytest.raises(RecipeError, match="no tag table"):
        choose_probes(loop.state, count=8)


def test_a_look_at_a_model_with_adapters_sees_the_layers_that_a_policy_names() -> None:
    """Entropy profiles and sealed regions go together: an adapter that no profile covers is no fault."""
    plain, sealed = (layers_seen(governed_loop(policy).state) for policy in (HALF_DEPTH, SEALED))
    assert sealed and [leaf.name for leaf in sealed] == [leaf.name for leaf in plain]


class Everything(nn.Module):
    """Whatever a look could disturb: running statistics, dropout, a frozen part, a layer that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.body = small_net("batch", classes=4)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.head(self.dropout(self.body(x)))))[:, :3]


def everything(loop: Loop) -> dict[str, Any]:
    """Everything that measuring must not change."""
    model = loop.setting.model
    return {
        "tensors": {name: tensor.clone() for name, tensor in loop.tensors().items()},
        "gradients": {name: parameter.grad for name, parameter in model.named_parameters()},
        "wanted": {name: parameter.requires_grad for name, parameter in model.named_parameters()},
        "modes": {name: module.training for name, module in model.named_modules()},
        "hooks": {name: len(module._forward_hooks) for name, module in model.named_modules()},
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(legacy=False)["state"]["key"],
        "python": random.getstate(),
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)


def test_looking_changes_nothing() -> None:
    loop = tagged_loop([], model=Everything())
    loop.step()
    loop.setting.model.get_submodule("body.1").eval()  # as a frozen layer's norm
    before = everything(loop)
    probes = choose_probes(loop.state, count=8)
    outputs = layer_outputs(loop.state, probes, CLASSES[0])
    assert same(before, everything(loop))
    assert list(outputs) == [leaf.name for leaf in loop.state.layers]
    again = layer_outputs(loop.state, probes, CLASSES[0])
    assert same(outputs, again), "and dropout takes no part"


def test_looking_without_care_would_change_something() -> None:
    """The control of the comparison: the same pass in training mode."""
    loop = tagged_loop([], model=Everything())
    loop.step()
    before = everything(loop)
    batches = loop.state.resource(Batches)
    loop.setting.model(batches.prepare(batches.dataset.train.inputs[:8]))
    after = everything(loop)
    assert not same(before["tensors"], after["tensors"])
    assert not same(before["torch"], after["torch"])


def test_an_example_is_one_row_whatever_the_layer() -> None:
    loop = tagged_loop([])
    probes = choose_probes(loop.state, count=8)
    outputs = layer_outputs(loop.state, probes, CLASSES[0])
    assert {name: tuple(rows.shape) for name, rows in outputs.items()} == {
        "0": (8, 8),
        "1": (8, 8),
        "3": (8, 8),
        "7": (8, 3),
    }
    batches = loop.state.resource(Batches)
    inputs = batches.prepare(batches.dataset.train.inputs[torch.from_numpy(probes.examples[CLASSES[0]])])
    first = loop.setting.model.get_submodule("0")(inputs).mean((2, 3))
    assert torch.allclose(outputs["0"], first.double(), atol=1e-6)


def test_tokens_are_averaged() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(24, 5)
            self.head = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.embed(x.flatten(2))).mean(1)

    loop = tagged_loop([], model=Tokens())
    outputs = layer_outputs(loop.state, choose_probes(loop.state, count=8), CLASSES[0])
    assert outputs["embed"].shape == (8, 5)
    assert torch.allclose(loop.setting.model.get_submodule("head")(outputs["embed"].float()).double(), outputs["head"])


def test_outputs_that_are_not_finite_are_told() -> None:
    loop = tagged_loop([])
    with torch.no_grad():
        loop.setting.model.get_submodule("3").weight.fill_(torch.inf)  # pyright: ignore[reportCallIssue]
    probes = choose_probes(loop.state, count=8)
    with pytest.raises(TrainingError, match=r"step 0: layer 3: outputs for the probes of licensed/news are not finite"):
        layer_outputs(loop.state, probes, CLASSES[0])


def test_a_run_without_governance_has_no_session() -> None:
    loop = tagged_loop([], resources={})
    with pytest.raises(RecipeError, match="no session"):
        loop.state.resource(Session)


def test_a_tied_head_is_no_layer() -> None:
    """The layers are those of the policy and of the ledger: what has nothing of its own is none."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.head = nn.Linear(48, 3, bias=False), nn.Linear(48, 3, bias=False)
            self.head.weight = self.up.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x.flatten(1)) + self.up(x.flatten(1))

    loop = tagged_loop([], model=Tied())
    assert [(leaf.name, leaf.also) for leaf in loop.state.layers] == [("head", ("up",))]
    assert [leaf.name for leaf in layers_seen(loop.state)] == ["head"]
    assert list(layer_outputs(loop.state, choose_probes(loop.state, count=8), CLASSES[0])) == ["head"]

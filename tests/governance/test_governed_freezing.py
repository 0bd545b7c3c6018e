"""Governed freezing: when a layer stops learning a class, when it starts again, and that it is denial and no more."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from explorer.engine.loop import Loop
from explorer.engine.optimizer import AdamWSpec
from explorer.errors import RecipeError
from explorer.governance.governed_freezing import GovernedFreezing, has_settled
from explorer.governance.routing import Routing
from explorer.governance.session import DecisionNote
from explorer.methods.layer_freezing import LayerFreezing, frozen_prefix, frozen_share
from explorer.provenance.policy import Rule
from tests.governance.tagged import CLASSES, routing, session_of, tagged_loop
from tests.loop_for_tests import small_net

NEWS, MIT = CLASSES
ALWAYS = GovernedFreezing(start=0.0, settled=100.0, patience=1, drift=100.0, profiles=11, probes=8)
BY_HAND = replace(ALWAYS, patience=100)  # decides nothing by itself in a short run
LAYERS = ("0", "1", "3", "7")


def decisions(loop: Loop) -> list[DecisionNote]:
    return session_of(loop).notes.decisions


def run(loop: Loop, steps: int) -> Loop:
    for _ in range(steps):
        loop.step()
    return loop


def frozen(loop: Loop) -> dict[str, set[str]]:
    """By class, what is frozen now."""
    anchor = loop.state.memory["governed_freezing"]["anchor"]
    return {
        path: {leaf.name for leaf, value in zip(loop.state.layers, row.tolist(), strict=True) if math.isfinite(value)}
        for path, row in zip(CLASSES, anchor, strict=True)
    }


def freeze_by_hand(loop: Loop, path: str, *layers: str) -> None:
    anchor = loop.state.memory["governed_freezing"]["anchor"][CLASSES.index(path)]
    for index, leaf in enumerate(loop.state.layers):
        anchor[index] = 0.0 if leaf.name in layers else math.nan


def test_settled_is_a_run_of_small_changes() -> None:
    history = torch.tensor([[1.0, 1.0, math.nan], [1.01, 1.05, 1.0], [1.02, 1.05, 1.0]]).reshape(3, 1, 3)
    assert has_settled(history, within=0.02).tolist() == [[True, False, False]]


def test_a_layer_freezes_after_its_patience() -> None:
    """The changes are small enough at once; it takes `patience` + 1 profiles to see so."""
    loop = run(tagged_loop([replace(ALWAYS, patience=2)]), 2)
    assert frozen(loop) == {NEWS: set(), MIT: set()}
    loop.step()
    assert frozen(loop) == {NEWS: set(LAYERS), MIT: set(LAYERS)}
    assert [(note.action, note.rule, note.subjects, note.layers) for note in decisions(loop)] == [
        ("freeze", "settled", (NEWS,), LAYERS),
        ("freeze", "settled", (MIT,), LAYERS),
    ]


def test_the_numbers_that_decided_are_in_the_note() -> None:
    loop = run(tagged_loop([ALWAYS]), 2)
    for index, note in enumerate(decisions(loop)):
        assert list(note.evidence) == [CLASSES[index]], "nobody else's numbers"
        numbers = np.frombuffer(note.evidence[CLASSES[index]], "<f8").reshape(4, 2)
        memory = loop.state.memory["governed_freezing"]
        assert np.array_equal(numbers, memory["history"][:, index].T.numpy())
        assert np.array_equal(numbers[:, 1], memory["anchor"][index].numpy())
        assert note.parameters == {"start": 0.0, "settled": 100.0, "patience": 1, "drift": 100.0}


def test_a_layer_that_has_not_settled_goes_on() -> None:
    """The control: the same run, and no change is small enough."""
    loop = run(tagged_loop([replace(ALWAYS, settled=0.0)]), 6)
    assert frozen(loop) == {NEWS: set(), MIT: set()}
    assert decisions(loop) == []


def test_the_policy_has_the_last_word() -> None:
    loop = run(tagged_loop([replace(ALWAYS, start=0.5)]), 5)
    assert frozen(loop) == {NEWS: set(), MIT: set()}
    assert frozen(run(loop, 1)) == {NEWS: set(LAYERS), MIT: set(LAYERS)}


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_a_frozen_layer_learns_nothing_from_the_class(norm: str) -> None:
    """Bit for bit what the other class alone does to it; the layers that are not frozen learn from both."""
    frozen_for_news = tagged_loop([BY_HAND], model=small_net(norm), optimizer=AdamWSpec(lr=0.01))
    freeze_by_hand(frozen_for_news, NEWS, "0", "1")
    plain = tagged_loop([], model=small_net(norm), optimizer=AdamWSpec(lr=0.01))
    only_mit = tagged_loop([BY_HAND], model=small_net(norm), optimizer=AdamWSpec(lr=0.01))
    freeze_by_hand(only_mit, NEWS, *LAYERS)
    for loop in (frozen_for_news, plain, only_mit):
        loop.step()
    for name, tensor in frozen_for_news.tensors().items():
        if name.startswith("model/"):
            below = name.removeprefix("model/").split(".")[0] in ("0", "1")
            assert torch.equal(tensor, only_mit.tensors()[name]) == below, name
            assert torch.equal(tensor, plain.tensors()[name]) != below, name


def test_a_layer_frozen_for_everybody_stays_as_it_is() -> None:
    loop = run(tagged_loop([ALWAYS], optimizer=AdamWSpec(lr=0.01)), 2)
    before = {name: tensor.clone() for name, tensor in loop.tensors().items() if not name.startswith("memory/")}
    run(loop, 3)
    for name, tensor in before.items():
        assert torch.equal(tensor, loop.tensors()[name]), name


def test_layer_freezing_is_governed_freezing_of_every_class() -> None:
    """The same mechanism with a trivial policy: bit for bit the same run. The control: one class short, another run."""

    def governed(*paths: str) -> tuple[Loop, Loop]:
        method = LayerFreezing(start=0.2, level=0.9)
        plain, loop = tagged_loop([method]), tagged_loop([BY_HAND])
        for _ in range(10):
            share = frozen_share(plain.state.progress, start=method.start, level=method.level)
            names = [leaf.name for leaf in frozen_prefix(plain.state.layers, share=share)]
            for path in paths:
                freeze_by_hand(loop, path, *names)
            plain.step()
            loop.step()
        return plain, loop

    def same(plain: Loop, loop: Loop) -> bool:
        return all(torch.equal(tensor, loop.tensors()[name]) for name, tensor in plain.tensors().items())

    assert same(*governed(*CLASSES))
    assert not same(*governed(NEWS))


def test_a_layer_that_drifts_is_opened_again() -> None:
    """Everything but the first layer is frozen for news; mit moves the first one, and with it all that follow."""
    loop = tagged_loop([replace(ALWAYS, settled=0.0, drift=1e-9)])
    loop.step()
    memory = loop.state.memory["governed_freezing"]
    memory["anchor"][0, 1:] = memory["history"][-1, 0, 1:]
    was = memory["anchor"][0].clone()
    loop.step()
    (note,) = decisions(loop)
    assert (note.action, note.rule, note.subjects, note.layers) == ("override", "drifted", (NEWS,), LAYERS[1:])
    numbers = np.frombuffer(note.evidence[NEWS], "<f8").reshape(3, 2)
    assert np.array_equal(numbers[:, 0], was[1:].numpy())
    assert (np.abs(numbers[:, 1] - numbers[:, 0]) > 1e-9).all()
    assert frozen(loop)[NEWS] == set()
    assert memory["history"][:, 0, 1:].isnan().all(), "settling begins anew"


def test_a_condition_that_is_switched_off_opens_layers_again() -> None:
    policy = routing(conditions=("done",))
    loop = tagged_loop([replace(ALWAYS, condition="done")], session={"routing": policy})
    session = session_of(loop)
    run(loop, 3)
    assert frozen(loop)[NEWS] == set(), "nobody is done"
    session.conditions.add("done")
    assert frozen(run(loop, 1))[NEWS] == set(LAYERS)
    session.conditions.clear()
    assert frozen(run(loop, 1))[NEWS] == set()
    assert [note.action for note in decisions(loop)] == ["freeze", "freeze", "re-open", "re-open"]


def test_what_the_policy_denies_is_not_frozen() -> None:
    """There would be nothing to freeze, and the ledger would tell of decisions that decide nothing."""
    policy = routing(Rule(classes=("open",), weight=1.0))
    loop = tagged_loop([ALWAYS, Routing(policy="usual")], session={"routing": policy})
    run(loop, 2)
    assert frozen(loop) == {NEWS: set(), MIT: set(LAYERS)}


def test_a_decision_leaves_the_policys_admission_alone() -> None:
    """Gradients are clipped in groups of equal admission: a class would decide who is in the groups of others."""
    loop = tagged_loop(
        [BY_HAND, Routing(policy="usual")], session={"routing": routing(Rule(classes=("*",), weight=1.0))}
    )
    freeze_by_hand(loop, NEWS, "0")
    loop.step()
    codes = session_of(loop).codes
    assert loop.state.admission["0.weight"] == {codes[MIT], codes[NEWS]}


def test_another_class_decides_nothing() -> None:
    """News settles, or not, by its own probes: other content of mit's probes changes no decision about news. The
    model is the same in both runs, since mit is denied everything."""

    def decided(shift: int) -> tuple[list[DecisionNote], torch.Tensor]:
        loop = tagged_loop([replace(ALWAYS, patience=2, settled=0.02)])
        codes = loop.setting.batches.typing.codes
        mine = torch.from_numpy(codes == session_of(loop).codes[MIT])
        loop.setting.batches.dataset.train.inputs[mine] += shift
        freeze_by_hand(loop, MIT, *LAYERS)
        run(loop, 8)
        history = loop.state.memory["governed_freezing"]["history"]
        return [note for note in decisions(loop) if note.subjects == (NEWS,)], history

    (one, history), (other, history_of_others) = decided(0), decided(100)
    assert one == other
    assert one, "there is something to compare"
    assert torch.equal(history[:, 0], history_of_others[:, 0])
    assert not torch.equal(history[:, 1], history_of_others[:, 1]), "the control: it was another profile"


def test_it_resumes_to_the_same_bits() -> None:
    method = replace(ALWAYS, patience=2, settled=0.01, drift=0.001)
    whole = run(tagged_loop([method]), 10)
    half = run(tagged_loop([method]), 5)
    resumed = tagged_loop([method])
    resumed.restore({name: tensor.clone() for name, tensor in half.tensors().items()}, step=5)
    run(resumed, 5)
    for name, tensor in whole.tensors().items():
        assert torch.allclose(tensor, resumed.tensors()[name], rtol=0, atol=0, equal_nan=True), name
    assert decisions(whole) == decisions(half) + decisions(resumed)
    assert {note.action for note in decisions(resumed)} == {"freeze", "override"}, "there is something to compare"


def test_classes_that_are_absent_are_never_frozen() -> None:
    loop = run(tagged_loop([ALWAYS], absent=frozenset({NEWS})), 3)
    assert frozen(loop) == {NEWS: set(), MIT: set(LAYERS)}


def test_a_condition_has_to_be_the_policys() -> None:
    with pytest.raises(RecipeError, match="governed_freezing: unknown condition 'dome'"):
        tagged_loop([replace(ALWAYS, condition="dome")])


def test_neutral_never_freezes() -> None:
    neutral = run(tagged_loop([ALWAYS.neutral()]), 10)
    plain = run(tagged_loop([]), 10)
    for name, tensor in plain.tensors().items():
        assert torch.equal(tensor, neutral.tensors()[name]), name

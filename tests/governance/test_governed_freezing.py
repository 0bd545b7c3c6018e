"""Governed freezing: when a layer stops learning a class, when it starts again, and that it is denial and no more."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.engine.loop import Loop
from explorer.engine.method import Method
from explorer.engine.optimizer import AdamWSpec
from explorer.entries.entropy_profile import Told, told_of
from explorer.errors import RecipeError
from explorer.governance.governed_freezing import GovernedFreezing, has_settled
from explorer.governance.routing import Routing
from explorer.governance.shared_state import DecisionNote
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
        assert list(note.evidence) == [CLASSES[index]], "only its own numbers"
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
    """Bit for bit as if only the other class trained it; the layers that are not frozen learn from both."""
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
    assert memory["history"][:, 0, 1:].isnan().all(), "settling starts again"


def test_a_condition_that_is_switched_off_opens_layers_again() -> None:
    policy = routing(conditions=("done",))
    loop = tagged_loop([replace(ALWAYS, condition="done")], session={"routing": policy})
    session = session_of(loop)
    run(loop, 3)
    assert frozen(loop)[NEWS] == set(), "no class is done"
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


# Learned, and wrong


class Mark(nn.Linear):
    """-1 and 1 at right angles, and back."""

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.weight.copy_(torch.tensor([[0.5], [-0.5]]))
            self.bias.fill_(0.5)


class Marked(nn.Module):
    """A layer that sees a corner, one that sees noise, and one that sees both."""

    def __init__(self) -> None:
        super().__init__()
        self.mark = Mark(1, 2)
        self.noise = nn.Linear(47, 3)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        rest = x.flatten(1)
        return self.head(torch.cat([self.mark(rest[:, :1].sign()), self.noise(rest[:, 1:48])], dim=1))


LEARNED = replace(ALWAYS, probes=64, told_apart=(0.9, 1.0), drift=1e-6)


def marked(*methods: Method, **setting: Any) -> Loop:
    """Two classes that the corner tells apart, and nothing else does."""
    loop = tagged_loop([*methods], examples=128, model=Marked(), **setting)
    codes, (news, _) = loop.setting.batches.typing.codes, (session_of(loop).codes[path] for path in CLASSES)
    corner = np.where(codes == news, 0, 255).astype(np.uint8)
    loop.setting.batches.dataset.train.inputs[:, 0, 0, 0] = torch.from_numpy(corner)
    return loop


def told(decision: DecisionNote, layer: str, entropies: int) -> tuple[Told, Told]:
    """Accuracy for the subject in a layer, from the evidence of all classes: now, and by the kept rule."""
    at, counts, kept = decision.layers.index(layer), [], []
    for path in CLASSES:
        row = np.frombuffer(decision.evidence[path], "<f8").reshape(len(decision.layers), -1)[at]
        row = row[entropies:] if path == decision.subjects[0] else row
        counts.append(row[:-1])
        kept.append(row[-1])
    now = told_of(np.array(counts, np.int64), CLASSES.index(decision.subjects[0]))
    sizes = np.array(counts).sum(1)
    place = CLASSES.index(decision.subjects[0])
    by_rule = np.diag(kept) + np.array([[0, sizes[0] - kept[0]], [sizes[1] - kept[1], 0]])
    then = told_of(by_rule.astype(np.int64), place)
    assert now is not None and then is not None
    return now, then


def test_a_layer_that_settles_at_once_on_the_wrong_thing_is_not_frozen() -> None:
    """The layer of noise changes as little as the one that tells the classes apart. The control is the criterion
    without a target: it freezes both, and overrides neither however long it looks."""
    loop = run(marked(LEARNED), 2)
    assert frozen(loop) == {NEWS: {"mark", "head"}, MIT: {"mark", "head"}}
    refused = [note for note in decisions(loop) if note.rule == "target"]
    assert [(note.action, note.subjects, note.layers) for note in refused] == [
        ("override", (NEWS,), ("noise",)),
        ("override", (MIT,), ("noise",)),
    ]
    for note in refused:
        assert set(note.evidence) == set(CLASSES), "all classes decided, and the entry says so"
        assert note.parameters["told_apart_from"] == 0.9
        now, _ = told(note, "noise", entropies=2)
        assert now.accuracy < 0.9
    control = run(marked(replace(LEARNED, told_apart=(0.0, 1.0))), 8)
    assert frozen(control) == {NEWS: {"mark", "noise", "head"}, MIT: {"mark", "noise", "head"}}
    assert {note.action for note in decisions(control)} == {"freeze"}


def test_a_swap_of_directions_at_equal_entropy_opens_the_layer_again() -> None:
    """What was one class's direction becomes the other's. The entropy is the same to rounding, so the control does not
    see it, and a new probe tells them apart as well as ever; the rule from the freeze is wrong about all of them."""
    overridden = {}
    for name, method in (("target", LEARNED), ("control", replace(LEARNED, told_apart=(0.0, 1.0)))):
        loop = run(marked(method), 2)
        assert "mark" in frozen(loop)[NEWS]
        with torch.no_grad():
            loop.setting.model.mark.weight.neg_()  # pyright: ignore
        run(loop, 1)
        overridden[name] = [note for note in decisions(loop) if note.action == "override" and "mark" in note.layers]
    assert overridden["control"] == []
    assert [note.subjects for note in overridden["target"]] == [(NEWS,), (MIT,)]
    note = overridden["target"][0]
    before, now = np.frombuffer(note.evidence[NEWS], "<f8").reshape(len(note.layers), -1)[0, :2]
    assert note.rule == "target" and abs(before - now) < 1e-12
    fresh, kept = told(note, "mark", entropies=2)
    assert fresh.accuracy == 1.0 and kept.accuracy == 0.0


def test_a_layer_in_which_a_class_should_not_be_recognised() -> None:
    """The target from the other side: what tells the class apart stays open."""
    loop = run(marked(replace(LEARNED, told_apart=(0.0, 0.7))), 2)
    assert frozen(loop) == {NEWS: {"noise"}, MIT: {"noise"}}


def test_a_frozen_layer_that_stops_telling_the_class_apart_is_opened_again() -> None:
    loop = run(marked(LEARNED), 2)
    with torch.no_grad():
        loop.setting.model.mark.weight.zero_()  # pyright: ignore
    run(loop, 1)
    last = [note for note in decisions(loop) if note.action == "override" and "mark" in note.layers]
    assert {note.rule for note in last} <= {"drifted", "target"} and len(last) == 2
    assert "mark" not in frozen(loop)[NEWS]
    assert loop.state.memory["governed_freezing"]["rule"][0, 0].isnan().all(), "the rule is forgotten"


def test_noise_of_the_probe_does_not_open_a_layer() -> None:
    """The accuracy of the layer is a little below the target, its interval holds it: frozen it stays."""
    loop = run(marked(LEARNED), 2)
    method = loop.methods[0]
    assert isinstance(method, GovernedFreezing)
    near = told_of(np.array([[57, 7], [7, 57]]), 0)
    assert near is not None and near.accuracy < 0.9 < near.high
    sizes, kept = torch.tensor([64.0, 64.0]), torch.tensor([60.0, 60.0])
    assert not method._has_left(near, sizes, kept, 0, [0, 1])
    assert method._has_left(near, sizes, torch.tensor([50.0, 50.0]), 0, [0, 1]), "the rule from the freeze is not"
    far = told_of(np.array([[40, 24], [24, 40]]), 0)
    assert method._has_left(far, sizes, kept, 0, [0, 1])


def test_without_a_target_nothing_is_remembered_or_looked_at() -> None:
    """The recipes of before: the same memory, so the same states in the ledger."""
    plain = marked(replace(LEARNED, told_apart=(0.0, 1.0)))
    assert set(plain.state.memory["governed_freezing"]) == {"history", "anchor"}
    assert "rule" in marked(LEARNED).state.memory["governed_freezing"]


def test_a_run_that_resumes_goes_on_with_the_rules_of_its_freezes() -> None:
    loop = run(marked(LEARNED), 3)
    saved = {name: tensor.clone() for name, tensor in loop.tensors().items()}
    run(loop, 2)
    again = marked(LEARNED)
    again.restore(saved, step=3)
    run(again, 2)
    for name, tensor in loop.tensors().items():
        assert torch.equal(tensor.nan_to_num(7.0), again.tensors()[name].nan_to_num(7.0)), name
    assert again.state.memory["governed_freezing"]["rule"].isfinite().any()


def test_a_target_and_confidential_classes_are_refused_together() -> None:
    """What the probes of an open class were taken for would say something about a closed one."""
    policy = routing(Rule(classes=("*",), weight=1.0), confidential=(NEWS,))
    with pytest.raises(RecipeError, match=f"over all classes, and the policy calls {NEWS} confidential"):
        marked(LEARNED, session={"routing": policy})
    marked(replace(LEARNED, told_apart=(0.0, 1.0)), session={"routing": policy})


@pytest.mark.parametrize("target", [(0.9, 0.9), (1.0, 0.5), (-0.1, 1.0), (0.5, 1.5)])
def test_what_is_no_target_is_refused(target: tuple[float, float]) -> None:
    with pytest.raises(RecipeError, match=r"told_apart: found .*, expected \[from, to\]"):
        replace(LEARNED, told_apart=target).check(None)  # pyright: ignore

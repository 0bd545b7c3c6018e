"""Routing: a policy's table becomes what the shares of a step may change, and denied work is not done."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from explorer.engine.loop import Loop
from explorer.engine.optimizer import AdamWSpec, OptimizerSpec, SGDSpec
from explorer.errors import RecipeError
from explorer.governance.region_modules import Switch
from explorer.governance.routing import Routing
from explorer.governance.shared_state import Session
from explorer.provenance.policy import Rule
from explorer.provenance.regions import SealedRegion
from explorer.provenance.routing_weights import Routing as Policy
from tests.governance.governed import (
    ADAPTERS,
    ADMIT_ALL,
    CODES,
    HALF_DEPTH,
    LOWER,
    PRESENT,
    SEALED,
    differing,
    everything,
    governed_loop,
    session,
    steps,
    typing,
)
from tests.loop_for_tests import noise_loop, small_net
from tests.provenance.drafts_for_tests import routing

LOWER_HALF = ("0", "1")  # of the layers 0, 1, 3, 7 of `small_net`: those at depths 0 and 1/3


def planned(loop: Loop) -> dict[str, frozenset[str]]:
    """What each class may change in the coming step."""
    loop.prepare_step()
    return {share.name: share.parameters for share in loop.state.shares}


def of_layers(names: frozenset[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


# The plan


def test_a_share_may_change_what_the_policy_admits_its_class_to() -> None:
    plan = planned(governed_loop())
    assert set(plan) == set(PRESENT)
    for path, names in plan.items():
        assert of_layers(names) == ({"3", "7"} if path == "open/bsd" else {"0", "1", "3", "7"})


def test_buffers_follow_their_layer() -> None:
    loop = governed_loop(model=small_net("batch"))
    loop.prepare_step()
    for share in loop.state.shares:
        assert share.buffers == (set() if share.name == "open/bsd" else set(dict(loop.setting.model.named_buffers())))


def test_the_table_in_force_is_left_for_the_recorder() -> None:
    loop = governed_loop()
    loop.prepare_step()
    found = loop.state.resource(Session)
    assert [layer.name for layer in found.layers] == ["0", "1", "3", "7"]
    assert found.notes.admission is not None and found.notes.admission.layers == ("0", "1", "3", "7")
    assert found.notes.admission.row("open/bsd") == {"0": 0.0, "1": 0.0, "3": 1.0, "7": 1.0}


def test_the_phases_of_the_policy_are_those_of_the_run() -> None:
    late = routing(Rule(classes=("open/bsd",), progress=(0.5, 1.0), weight=1.0), Rule(classes=("open/mit",), weight=1))
    loop = governed_loop(late, total_steps=10)
    trained = []
    for _ in range(10):
        trained.append("open/bsd" in {path for path, names in planned(loop).items() if names})
        loop.state.step += 1
    assert trained == [False] * 5 + [True] * 5


@pytest.mark.parametrize("optimizer", [SGDSpec(lr=0.1), AdamWSpec(lr=0.01)], ids=["sgd", "adamw"])
def test_a_layer_that_is_opened_late_begins_late(optimizer: OptimizerSpec) -> None:
    upper = Rule(classes=("*",), depth=(0.5, 1.0), weight=1.0)
    lower = Rule(classes=("*",), depth=(0.0, 0.5), progress=(0.5, 1.0), weight=1.0)
    loop = governed_loop(routing(upper, lower), optimizer=optimizer, total_steps=6)
    start = everything(loop)
    moved = []
    for _ in range(6):
        after = everything(steps(loop, 1))
        moved.append("model/0.weight" in differing(start, {name: after[name] for name in start}))
    assert moved == [False] * 3 + [True] * 3


def test_a_condition_that_is_switched_on_changes_the_plan() -> None:
    loop = governed_loop(routing(Rule(classes=("open/mit",), condition="settled", weight=1.0)))
    assert not any(planned(loop).values())
    loop.state.resource(Session).conditions.add("settled")
    assert {path for path, names in planned(loop).items() if names} == {"open/mit"}


def test_what_the_policy_does_not_know_may_change_nothing() -> None:
    """A class that the session lacks, and the quarantine."""
    loop = governed_loop(resources={Session: session(HALF_DEPTH, classes=PRESENT[:2])})
    assert {path for path, names in planned(loop).items() if names} == set(PRESENT[:2])
    quarantined = typing()
    quarantined.codes[::2] = 0
    names = {**quarantined.names, 0: "quarantine"}
    loop = governed_loop(typing=type(quarantined)(codes=quarantined.codes, names=names))
    assert planned(loop)["quarantine"] == frozenset()


def test_admission_does_not_depend_on_who_is_in_the_batch() -> None:
    """Or the groups of clipping would: a class that is absent is still admitted."""
    whole, counterfactual = governed_loop(), governed_loop(without=["open/mit"])
    few = governed_loop(batch_size=1)
    for loop in (whole, counterfactual, few):
        loop.prepare_step()
    assert whole.state.admission == counterfactual.state.admission == few.state.admission
    others = {CODES[path] for path in PRESENT} - {CODES["open/bsd"]}
    assert whole.state.admission["0.weight"] == others
    assert whole.state.admission["7.weight"] == others | {CODES["open/bsd"]}


def test_without_leaves_the_places_of_a_class_empty() -> None:
    whole, counterfactual = governed_loop(), governed_loop(without=["open/mit"])
    plans = planned(whole), planned(counterfactual)
    assert plans[1] == plans[0] | {"open/mit": frozenset()}
    for one, other in zip(whole.state.shares, counterfactual.state.shares, strict=True):
        assert one.name == other.name and (one.slots == other.slots).all()


# Gradients


def gradients(loop: Loop) -> dict[str, Tensor]:
    loop.prepare_step()
    loop._passes()
    return {name: p.grad for name, p in loop.setting.model.named_parameters() if p.grad is not None}


def by_hand(loop: Loop, rows: Tensor) -> dict[str, Tensor]:
    """The gradient of these examples' losses over the batch size, in one pass."""
    train, model = loop.setting.batches.dataset.train, loop.setting.model
    loss = F.cross_entropy(model(loop.setting.batches.prepare(train.inputs[rows]).double()), train.labels[rows])
    parameters = dict(model.named_parameters())
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    found = torch.autograd.grad(loss * len(rows) / loop.state.batch_size, list(parameters.values()))
    return dict(zip(parameters, found, strict=True))


def in_float64(policy: Policy = HALF_DEPTH) -> Loop:
    loop = governed_loop(policy, model=small_net("group"))
    loop.setting.model.double()
    prepare = loop.setting.batches.prepare
    loop.setting.batches.prepare = lambda inputs: prepare(inputs).double()
    return loop


def test_shares_sum_to_the_gradient_of_the_mixed_batch() -> None:
    loop = in_float64(routing(ADMIT_ALL))
    rows = torch.from_numpy(loop.setting.batches.indices(0))
    expected, found = by_hand(loop, rows), gradients(loop)
    for name, gradient in expected.items():  # outputs and loss are taken in float32 by the engine
        torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-7)


def test_a_denied_layer_gets_the_gradient_of_the_others() -> None:
    loop = in_float64()
    rows = torch.from_numpy(loop.setting.batches.indices(0))
    others = rows[torch.from_numpy(loop.setting.batches.typing.codes)[rows] != CODES["open/bsd"]]
    everybody, others_only, found = by_hand(loop, rows), by_hand(loop, others), gradients(loop)
    for name, gradient in found.items():
        expected = others_only if name.split(".")[0] in LOWER_HALF else everybody
        torch.testing.assert_close(gradient, expected[name], rtol=1e-5, atol=1e-7)
        assert not torch.allclose(everybody[name], others_only[name], rtol=1e-3)


def test_a_fraction_attenuates() -> None:
    quarter = Rule(classes=("open/mit",), layers=("7",), weight=0.25)
    one, whole = (governed_loop(routing(*rules, ADMIT_ALL)) for rules in ((quarter,), ()))
    without = governed_loop(routing(Rule(classes=("open/mit",), weight=0.0), ADMIT_ALL))
    found, everybody, others = gradients(one), gradients(whole), gradients(without)
    for name, gradient in found.items():
        weight = 0.25 if name.startswith("7.") else 1.0
        torch.testing.assert_close(gradient, others[name] + weight * (everybody[name] - others[name]))


def test_what_nobody_may_change_has_no_gradient() -> None:
    loop = governed_loop(routing(Rule(classes=("*",), depth=(0.5, 1.0), weight=1.0)))
    found = gradients(loop)
    assert of_layers(frozenset(found)) == {"3", "7"}


# Denied work


def flops(loop: Loop) -> int:
    loop.prepare_step()
    with FlopCounterMode(display=False) as counter:
        loop._passes()
    return counter.get_total_flops()


def test_denied_work_is_not_done() -> None:
    """Half the classes without the lower half: their backward stops half way. Denied everywhere: nothing at all."""
    half = routing(Rule(classes=("open",), depth=(0.0, 0.5), weight=0.0), ADMIT_ALL)
    none = routing(Rule(classes=("open",), weight=0.0), ADMIT_ALL)
    plain = flops(noise_loop(model=small_net("group"), batch_size=12))
    assert flops(governed_loop(routing(ADMIT_ALL))) == plain
    assert flops(governed_loop(none)) == plain / 2
    assert flops(governed_loop(half)) / plain == pytest.approx(0.80, abs=0.005)  # forward and backward together


def test_a_class_that_may_change_nothing_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = governed_loop(routing(Rule(classes=("open",), weight=1.0)))
    read = loop.setting.batches.read
    seen: set[int] = set()

    def watched(examples: np.ndarray) -> tuple[Tensor, Tensor]:
        seen.update(loop.setting.batches.typing.codes[examples])
        return read(examples)

    monkeypatch.setattr(loop.setting.batches, "read", watched)
    steps(loop, 5)
    assert seen == {CODES["open/bsd"], CODES["open/mit"]}


# Sealed regions in the loop


def test_a_region_is_on_in_its_owners_forward_alone() -> None:
    loop = governed_loop(SEALED)
    seen: dict[str, frozenset[str]] = {}
    who = ["evaluation"]
    switch = loop.state.resource(Switch)
    loop.setting.model.register_forward_pre_hook(lambda *_: seen.update({who[0]: switch.on}))
    loop.evaluate()
    loop.prepare_step()
    for share in loop.state.shares:
        if share.parameters:
            who[0] = share.name
            loop.read_share(share)
            loop._take_gradients(share)
    nobody = frozenset()
    assert seen == {
        "evaluation": nobody,
        "open/bsd": nobody,
        "open/mit": nobody,
        "personal/customer": {"customer"},
    }
    assert switch.on == nobody


def test_a_region_has_an_optimiser_of_its_own() -> None:
    loop = steps(governed_loop(SEALED), 2)
    assert set(loop.state.regions) == {"shared", "customer"}
    names = {name for name in loop.tensors() if name.startswith("optimizer/customer/")}
    assert names and all(".@customer." in name for name in names)
    assert not any(".@customer." in name for name in loop.tensors() if name.startswith("optimizer/shared/"))


def test_the_owner_trains_its_region_and_nothing_else() -> None:
    """A policy without a rule: only who has a region trains."""
    loop = governed_loop(routing(sealed=(ADAPTERS,)), model=small_net("batch"))
    before = everything(loop)
    steps(loop, 3)
    after = {name: tensor for name, tensor in everything(loop).items() if name in before}
    assert differing(before, after) == {f"model/{name}" for name in loop.state.sealed}


@pytest.mark.parametrize("setting", [{}, {"microbatch_size": 2}, {"precision": "bf16"}])
def test_a_governed_run_goes_on_from_anywhere_with_the_same_bits(setting: dict[str, Any]) -> None:
    whole, resumed = governed_loop(SEALED, **setting), governed_loop(SEALED, **setting)
    steps(whole, 3)
    resumed.restore(everything(whole), step=3)
    assert differing(everything(steps(whole, 3)), everything(steps(resumed, 3))) == set()


# Refusals


def test_routing_needs_a_session_and_a_policy() -> None:
    with pytest.raises(RecipeError, match="was given no session: expected 'governance:'"):
        noise_loop([Routing(policy="drawn")])
    empty = Session(classes=PRESENT, codes=CODES)
    with pytest.raises(RecipeError, match="this run has no verified policy"):
        noise_loop([Routing(policy="drawn")], resources={Session: empty})


def test_leaving_out_an_unknown_class_is_refused() -> None:
    with pytest.raises(RecipeError, match="routing: without: unknown class 'open/mti'; did you mean 'open/mit'"):
        governed_loop(without=["open/mti"])


def test_a_region_that_the_model_does_not_have_is_refused() -> None:
    region = SealedRegion(name="news", branch="open/mit", module="side.news")
    with pytest.raises(RecipeError, match=r"'news': unknown module 'side\.news'"):
        governed_loop(routing(LOWER, sealed=(region, ADAPTERS)))

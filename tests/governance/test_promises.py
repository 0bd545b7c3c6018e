"""What governed training promises, bit for bit, and what breaks each promise.

*One step*: from the same state, what a class is denied does not depend on the class's rows. *Whole run*: without the
classes that are sealed or denied everywhere, their payload physically absent, everything else comes out the same.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from explorer.data.dataset import Dataset
from explorer.data.sequences import Text
from explorer.engine import loop as loops
from explorer.engine.loop import Loop
from explorer.engine.method import Kind, Method
from explorer.engine.optimizer import AdamWSpec, OptimizerSpec, SGDSpec
from explorer.engine.state import State
from explorer.engine.task import LanguageModelling
from explorer.governance.contributions import Contributions
from explorer.governance.entropy import Entropy
from explorer.governance.governed_freezing import GovernedFreezing
from explorer.governance.governed_selective_backprop import GovernedSelectiveBackprop
from explorer.governance.layers import governed_layers
from explorer.governance.region_modules import Switch
from explorer.governance.routing import Routing
from explorer.methods import gradient_clipping
from explorer.methods.ema import EMA
from explorer.methods.gradient_clipping import GradientClipping
from explorer.methods.mixup import MixUp
from explorer.methods.sam import SAM
from explorer.models.gpt import GPT, Size
from explorer.provenance.findings import void
from explorer.provenance.policy import Rule
from explorer.provenance.regions import SealedRegion, depths_of
from explorer.provenance.routing_weights import Routing as Policy
from explorer.provenance.routing_weights import weight
from tests.data_for_tests import noise
from tests.governance import tagged
from tests.governance.governed import (
    ADAPTERS,
    EXAMPLES,
    HALF_DEPTH,
    PRESENT,
    SEALED,
    bits,
    differing,
    everything,
    governed_loop,
    other_content,
    sealing,
    steps,
    without_payload,
)
from tests.loop_for_tests import small_net
from tests.provenance.drafts_for_tests import regions, routing, routings, rules

SGD, ADAMW = SGDSpec(lr=0.1, weight_decay=0.01), AdamWSpec(lr=0.01, weight_decay=0.01)
AVERAGED = EMA(half_life=0.2)
METHODS = (AVERAGED, SAM(rho=0.3), MixUp(alpha=1.0), GradientClipping(threshold=0.05))
OUTSIDERS = ("personal/customer", "open-data")  # sealed, and denied everywhere
DATA = noise(train=EXAMPLES)

optimizers = pytest.mark.parametrize("optimizer", [SGD, ADAMW], ids=["sgd", "adamw"])
norms = pytest.mark.parametrize("norm", ["group", "batch"])


class Net(nn.Module):
    """A convolution with its normalisation, dropout, a part next to the path, a head."""

    def __init__(self, norm: str) -> None:
        super().__init__()
        self.body = nn.Sequential(*list(small_net(norm))[:3])
        self.side = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.drop = nn.Dropout(0.3)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        return self.head(self.drop(x + self.side(x)))


def text() -> Dataset:
    draws = np.random.default_rng(0)
    train, test = (torch.from_numpy(draws.integers(0, 256, (count, 9), dtype=np.uint8)) for count in (EXAMPLES, 4))
    return Text.of(train, test)


def transformer() -> nn.Module:
    return GPT(Size(depth=2, width=8, heads=2), dropout=0.1, context=8, tokens=256)


# One step


def denied(name: str) -> bool:
    """Whether the tensor of this name belongs to the lower half, which `open/bsd` may not change."""
    return any(part.startswith(("0.", "1.")) for part in name.split("/"))


def stepped_twice(make: Callable[[Dataset], Loop], data: Dataset, classes: Sequence[str]) -> tuple[Loop, Loop]:
    """Two loops in the same state, a few steps in, that take one step on different rows of these classes."""
    one, other = make(data), make(other_content(data, classes))
    steps(one, 3)
    other.restore(everything(one), step=3)
    return steps(one, 1), steps(other, 1)


def changed(pair: tuple[Loop, Loop]) -> set[str]:
    return differing(everything(pair[0]), everything(pair[1]))


def step_on_other_rows(optimizer: OptimizerSpec, norm: str, *extra: Method) -> set[str]:
    """What changes with the rows of `open/bsd`: under a policy that keeps them out of the lower half."""
    return changed(
        stepped_twice(
            lambda data: governed_loop(
                HALF_DEPTH, [*METHODS, *extra], model=small_net(norm), dataset=data, optimizer=optimizer
            ),
            DATA,
            ["open/bsd"],
        )
    )


@optimizers
@norms
def test_one_step_of_what_is_denied_does_not_depend_on_the_rows(optimizer: OptimizerSpec, norm: str) -> None:
    """Parameters, statistics, optimiser state, averages; what is admitted depends on them, all of it."""
    found = step_on_other_rows(optimizer, norm)
    kept = {name for name in everything(governed_loop(model=small_net(norm))) if denied(name)}
    assert len(kept) >= 4 and not [name for name in found if denied(name)]
    assert {f"{where}{layer}.{part}" for where in ("model/", "memory/ema/average/") for layer in (3, 7)
            for part in ("weight", "bias")} <= found  # fmt: skip


@optimizers
def test_one_step_of_a_transformer(optimizer: OptimizerSpec) -> None:
    """The embedding is the head too; who may not train it does so at neither end."""
    policy = routing(Rule(classes=("open/bsd",), layers=("embed.*",), weight=0.0), Rule(classes=("*",), weight=1.0))
    pair = stepped_twice(
        lambda data: governed_loop(
            policy,
            [AVERAGED, SAM(rho=0.3), GradientClipping(threshold=0.05)],
            model=transformer(),
            dataset=data,
            task=LanguageModelling(classes=256),
            optimizer=optimizer,
        ),
        text(),
        ["open/bsd"],
    )
    found = changed(pair)
    assert found and not [name for name in found if "embed." in name]
    assert "model/blocks.0.attention.qkv.weight" in found


class Named(nn.Module):
    """A model whose layers have the names that the drawn policies speak of."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(48, 6), nn.Linear(6, 3)
        self.body = nn.Sequential(nn.Linear(6, 6), nn.ModuleDict({"conv": nn.Linear(6, 6)}))
        self.side = nn.ModuleDict({"news": nn.Sequential(OrderedDict(fc=nn.Linear(6, 6)))})

    def forward(self, x: Tensor) -> Tensor:
        x = self.body.get_submodule("1.conv")(self.body[0](self.embed(x.flatten(1))).relu())
        return self.head(x + self.side["news"](x))


NAMED = ["embed", "body.0", "body.1.conv", "side.news.fc", "head"]


def fitting(drawn: Sequence[Rule], sealed: tuple[SealedRegion, ...]) -> Policy:
    """A policy of those of the rules that fit the model: with others no run starts."""
    layers = depths_of(NAMED)
    return routing(*(rule for rule in drawn if not void(routing(rule, sealed=sealed), layers)), sealed=sealed)


@settings(max_examples=25)
@given(policy=routings(), path=st.sampled_from(PRESENT), optimizer=st.sampled_from([SGD, ADAMW]))
def test_one_step_of_any_policy(policy: Policy, path: str, optimizer: OptimizerSpec) -> None:
    """Who is denied what is asked of the policy, cell by cell."""
    policy = fitting(policy.policy.rules, policy.policy.sealed)
    methods = [AVERAGED, SAM(rho=0.3), GradientClipping(threshold=0.05)]
    pair = stepped_twice(
        lambda data: governed_loop(policy, methods, model=Named(), dataset=data, optimizer=optimizer), DATA, [path]
    )
    found = changed(pair)
    for each in governed_layers(pair[0].setting.model, pair[0].state.layers, policy.policy.sealed):
        if weight(policy, class_=path, progress=0.3, layer=each.layer).weight == 0:
            assert not [name for name in found if not set(name.split("/")).isdisjoint(each.parameters)]


def nobody_below(optimizer: OptimizerSpec) -> Loop:
    """A loop after a few steps; in its next step no class may change the lower half."""
    early = Rule(classes=("*",), progress=(0.0, 0.3), weight=1.0)
    upper = Rule(classes=("*",), depth=(0.5, 1.0), weight=1.0)
    return steps(governed_loop(routing(early, upper), model=small_net("batch"), optimizer=optimizer), 3)


@optimizers
def test_what_nobody_may_change_is_left_to_the_last_bit(optimizer: OptimizerSpec) -> None:
    loop = nobody_below(optimizer)
    before = everything(loop)
    moved = differing(before, everything(steps(loop, 1)))
    assert moved and not [name for name in moved if denied(name)]


@optimizers
def test_zeros_instead_of_none_would_move_it(optimizer: OptimizerSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control, on the single step. Two runs that differ in a class's rows do not show it: both move alike."""
    with_zeros(monkeypatch)
    loop = nobody_below(optimizer)
    before = everything(loop)
    moved = differing(before, everything(steps(loop, 1)))
    assert "model/0.weight" in moved
    found = step_on_other_rows(optimizer, "group")
    assert not [name for name in found if denied(name)]


def with_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    update = Loop._update

    def filled(self: Loop) -> None:
        for parameter in self.setting.model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        update(self)

    monkeypatch.setattr(Loop, "_update", filled)


@optimizers
def test_one_clip_norm_for_all_would_break_it(optimizer: OptimizerSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    with_one_norm(monkeypatch)
    assert "model/0.weight" in step_on_other_rows(optimizer, "group")


def with_one_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = gradient_clipping.groups
    monkeypatch.setattr(
        gradient_clipping, "groups", lambda state: [dict(chain.from_iterable(group.items() for group in groups(state)))]
    )


def test_what_is_frozen_for_a_class_does_not_change_what_it_is_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision about the class moves nothing into or out of the groups that others are clipped in."""
    monkeypatch.setattr(GovernedFreezing, "_decide", lambda *_: [])  # decided below
    methods = [GovernedFreezing(), GradientClipping(threshold=0.05)]
    one, other = governed_loop(methods=methods), governed_loop(methods=methods)
    steps(one, 2)
    other.restore(everything(one), step=2)
    anchor_KL = other.state.memory["governed_freezing"]["anchor"]
    anchor_KL[PRESENT.index("open/bsd"), 2:] = 1.0
    found = changed((steps(one, 1), steps(other, 1)))
    assert "model/3.weight" in found and not [name for name in found if denied(name)]


def test_ungoverned_buffers_would_break_it() -> None:
    """Only the statistics show it: the weights do not."""
    found = step_on_other_rows(SGD, "batch", AllBuffers())
    assert {name for name in found if denied(name)} == {
        f"{where}1.{name}" for where in ("model/", "memory/ema/average/") for name in ("running_mean", "running_var")
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class AllBuffers(Method):
    """A control: every class writes every buffer."""

    name: ClassVar[str] = "z_control"
    kind: ClassVar[Kind] = Kind.PLAN
    after: ClassVar[tuple[str, ...]] = ("routing",)

    def change_plan(self, state: State) -> None:
        everything = frozenset(name for name, _ in state.model.named_buffers())
        state.shares = tuple(replace(share, buffers=everything) for share in state.shares)


# The whole run

MODULE = SealedRegion(name="customer", branch="personal/customer", module="side")


@dataclass(frozen=True, kw_only=True)
class Twice:
    """The same run with everybody, and without the outsiders."""

    whole: Loop
    counterfactual: Loop

    @property
    def differing(self) -> set[str]:
        return differing(*(everything(loop, without="customer") for loop in (self.whole, self.counterfactual)))


def run_twice(methods: Sequence[Method] = METHODS, *, data: Dataset = DATA, count: int = 8, **setting: Any) -> Twice:
    chosen = {"policy": SEALED, "model": lambda: Net("group"), "optimizer": ADAMW, "total_steps": count} | setting
    model, policy = chosen.pop("model"), chosen.pop("policy")
    whole = governed_loop(policy, methods, model=model(), dataset=data, **chosen)
    gone = without_payload(data, OUTSIDERS)
    counterfactual = governed_loop(policy, methods, model=model(), dataset=gone, without=OUTSIDERS, **chosen)
    for run in (whole, counterfactual):
        torch.manual_seed(0)  # of no effect, but for one control
        steps(run, count)
    return Twice(whole=whole, counterfactual=counterfactual)


@pytest.mark.parametrize("region", [ADAPTERS, MODULE], ids=["adapters", "module"])
@optimizers
@norms
def test_a_run_without_the_outsiders_is_the_same_run(norm: str, optimizer: OptimizerSpec, region: SealedRegion) -> None:
    runs = run_twice(policy=sealing(region), model=lambda: Net(norm), optimizer=optimizer)
    assert runs.differing == set()
    own = runs.whole.state.regions["customer"].parameters
    start = governed_loop(sealing(region), METHODS, model=Net(norm)).state.regions["customer"].parameters
    theirs = runs.counterfactual.state.regions["customer"].parameters
    assert all(bits(theirs[name]) == bits(start[name]) for name in own)  # no class trained it
    assert any(bits(own[name]) != bits(start[name]) for name in own)  # and in the whole run one did


@settings(max_examples=15)
@given(drawn=st.lists(rules(), max_size=5), sealed=regions(), path=st.sampled_from(["open/mit", "personal/customer"]))
def test_a_run_under_any_policy_that_keeps_a_class_out(
    drawn: list[Rule], sealed: tuple[SealedRegion, ...], path: str
) -> None:
    """Whatever else the policy says, and whether the class has a region or not."""
    policy = fitting((Rule(classes=(path,), weight=0.0), *drawn), sealed)
    region = {"open/mit": "news", "personal/customer": "customer"}[path]

    def run(data: Dataset, without: Sequence[str]) -> dict[str, Tensor]:
        loop = governed_loop(policy, METHODS, model=Named(), dataset=data, without=without, total_steps=4)
        return everything(steps(loop, 4), without=region)

    assert differing(run(DATA, ()), run(without_payload(DATA, [path]), [path])) == set()


@optimizers
def test_a_transformer_without_the_outsiders_is_the_same(optimizer: OptimizerSpec) -> None:
    runs = run_twice(
        [AVERAGED, SAM(rho=0.3), GradientClipping(threshold=0.05)],
        data=text(),
        model=transformer,
        task=LanguageModelling(classes=256),
        optimizer=optimizer,
    )
    assert runs.differing == set()


WATCHERS: dict[str, Method] = {
    "contributions": Contributions(),
    "exact contributions": Contributions(exact=("*",)),
    "entropy": Entropy(profiles=3, permutations=2),
    "governed freezing": GovernedFreezing(start=0.3, settled=10.0, patience=1, profiles=5),
    "governed selective backprop": GovernedSelectiveBackprop(start=0.3),
}


@pytest.mark.parametrize("name", WATCHERS)
def test_governed_methods_keep_the_promise(name: str) -> None:
    """They look at one class at a time, or at all and change nothing."""
    region = SealedRegion(name="customer", branch="licensed/news", layers=("*",), rank=2)
    policy = tagged.routing(Rule(classes=("open",), weight=1.0), sealed=(region,))
    news, data = frozenset({"licensed/news"}), noise(train=40)

    def run(data: Dataset, absent: frozenset[str]) -> dict[str, Tensor]:
        methods = [Routing(policy="usual"), AVERAGED, GradientClipping(threshold=0.05), WATCHERS[name]]
        loop = tagged.tagged_loop(methods, dataset=data, absent=absent, session={"routing": policy}, total_steps=6)
        found = everything(steps(loop, 6), without="customer")
        return {key: tensor for key, tensor in found.items() if key.startswith(("model/", "optimizer/", "memory/ema/"))}

    types = tagged.tagged_loop([]).setting.batches.typing
    assert differing(run(data, frozenset()), run(without_payload(data, news, types=types), news)) == set()


@pytest.mark.parametrize("setting", [{"microbatch_size": 2}, {"precision": "bf16"}])
def test_accumulation_and_bf16_keep_the_promise(setting: dict[str, Any]) -> None:
    assert run_twice(**setting).differing == set()


def test_a_class_reaches_what_it_is_denied_through_what_it_is_not() -> None:
    """The limit of the promise: the first step does not change the lower half, the later ones do."""
    data = without_payload(DATA, ["open/bsd"])
    whole, other = governed_loop(SEALED), governed_loop(SEALED, dataset=data, without=["open/bsd"])
    for reached in (False, True):
        found = differing(*(everything(steps(loop, 1), without="customer") for loop in (whole, other)))
        assert ("model/0.weight" in found) == reached and "model/7.weight" in found


def test_the_payload_is_really_gone() -> None:
    """The control of the counterfactual: a run that needs the outsiders cannot be made without them."""
    with pytest.raises(KeyError):
        steps(governed_loop(SEALED, model=Net("group"), dataset=without_payload(DATA, OUTSIDERS)), 1)


# What would break it


def test_the_mean_over_who_takes_part_would_break_it() -> None:
    assert "model/head.2.weight" in run_twice([*METHODS, MeanOverAdmitted()]).differing


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanOverAdmitted(Method):
    """A control: divides by the rows that take part, not by the nominal batch size."""

    name: ClassVar[str] = "a_control"
    kind: ClassVar[Kind] = Kind.TARGET

    def after_loss(self, state: State) -> None:
        assert state.loss is not None
        state.loss = state.loss * state.batch_size / sum(len(each.slots) for each in state.shares if each.parameters)


def test_one_random_stream_would_break_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout from one generator for all: each class that draws shifts the others."""
    monkeypatch.setattr(loops, "torch_stream", lambda *_: nullcontext())
    with torch.random.fork_rng():
        assert "model/head.2.weight" in run_twice().differing


def test_one_clip_norm_for_all_regions_would_break_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with_one_norm(monkeypatch)
    assert "model/head.2.weight" in run_twice().differing


def test_a_region_that_others_see_would_break_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_on(self: Routing, state: State) -> None:
        switch = state.resource(Switch)
        switch.on = frozenset(switch.regions)

    monkeypatch.setattr(Routing, "before_forward", all_on)
    assert "model/head.2.weight" in run_twice().differing


def test_buffers_that_outsiders_write_would_break_it() -> None:
    """Again only the statistics."""
    found = run_twice([*METHODS, AllBuffers()], model=lambda: Net("batch")).differing
    assert found and all(
        name.rpartition(".")[2] in ("running_mean", "running_var", "num_batches_tracked") for name in found
    )

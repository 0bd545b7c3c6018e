"""Routing by example: which rows reach which layers, that no other class notices, and that the record says so."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.engine.loop import Loop
from explorer.engine.method import Kind, Method
from explorer.engine.state import State
from explorer.entries.slots import NONE, decode_chosen
from explorer.governance.governed_selective_backprop import GovernedSelectiveBackprop
from explorer.governance.probes import scores
from explorer.governance.routing import Router
from explorer.governance.shared_state import Session
from explorer.provenance.policy import Rule
from explorer.provenance.regions import ALL, Band, Examples, SealedRegion, bands_of, placed
from explorer.provenance.routing_weights import Routing as Policy
from tests.data_for_tests import noise
from tests.governance.governed import ADMIT_ALL, EXAMPLES, everything, governed_loop
from tests.loop_for_tests import small_net
from tests.provenance.drafts_for_tests import routing

BSD = "open/bsd"
UPPER = (0.5, 1.0)
EASY = Rule(classes=(BSD,), examples=Examples(loss=(0.0, 0.5)), depth=(0.0, 0.5), weight=0.0)
HARD_ONLY = routing(EASY, ADMIT_ALL)  # only the harder half of BSD trains the first half of the layers
PLAIN = routing(ADMIT_ALL)


class Watch(Method):
    """Remembers the rows and the trainable parameters of every pass of the first step."""

    name = "watch"
    kind = Kind.RECORD
    summary = source = ""

    def before_forward(self, state: State) -> None:
        if state.step:
            return
        assert state.share is not None and state.rows is not None
        names = {name for name, parameter in state.model.named_parameters() if parameter.requires_grad}
        PASSES.append((state.share.name, tuple(state.rows.slots.tolist()), frozenset(names)))


PASSES: list[tuple[str, tuple[int, ...], frozenset[str]]] = []


def stepped(policy: Policy, methods: Sequence[Method] = (), steps: int = 1, **setting: Any) -> Loop:
    PASSES.clear()
    loop = governed_loop(policy, [Watch(), *methods], **setting)
    for _ in range(steps):
        loop.step()
    return loop


def losses_of(loop: Loop, path: str) -> tuple[np.ndarray, np.ndarray]:
    """The slots of a class in the first step, and the losses that an untrained model has there."""
    batches = loop.setting.batches
    code = loop.state.resource(Session).codes[path]
    slots = dict(batches.shares(0))[code]
    fresh = governed_loop(PLAIN)
    inputs, labels = batches.read(batches.indices(0)[slots])
    inputs = batches.augment(inputs, 0, slots)
    with torch.no_grad():
        losses = fresh.setting.task.loss(fresh.setting.model.eval()(batches.prepare(inputs)), labels)
    return slots, losses.numpy()


def lower(loop: Loop) -> set[str]:
    """Parameters of the first half of the layers."""
    layers = loop.state.resource(Session).layers
    names = {each.name for each in layers if each.depth < 0.5}
    return {name for name, _ in loop.setting.model.named_parameters() if name.rpartition(".")[0] in names}


def test_only_the_harder_half_reaches_the_denied_layers() -> None:
    loop = stepped(HARD_ONLY)
    slots, losses = losses_of(loop, BSD)
    order = slots[np.argsort(losses, kind="stable")]
    easy, hard = sorted(order[: len(order) // 2].tolist()), sorted(order[len(order) // 2 :].tolist())
    mine = [(set(rows), names) for name, rows, names in PASSES if name == BSD]
    assert [rows for rows, _ in mine] == [set(easy), set(hard)]
    assert mine[0][1].isdisjoint(lower(loop)) and lower(loop) <= mine[1][1]
    assert [len(each) for name, each, _ in PASSES if name != BSD] == [3, 3, 3], "the others are one pass each"


def test_the_gradient_is_the_sum_over_what_each_example_may_train() -> None:
    """By hand: the mean loss over the batch, of all rows for the upper layers, of the hard rows of BSD and all of the
    others for the lower ones."""
    loop = stepped(HARD_ONLY, model=small_net("group"))
    slots, losses = losses_of(loop, BSD)
    hard = set(slots[np.argsort(losses, kind="stable")][len(slots) // 2 :].tolist())
    fresh, batches = governed_loop(PLAIN).setting, loop.setting.batches
    inputs, labels = batches.read(batches.indices(0))
    inputs = batches.augment(inputs, 0, np.arange(len(labels)))
    each = fresh.task.loss(fresh.model.train()(batches.prepare(inputs)), labels)
    counts = torch.tensor([slot not in slots or slot in hard for slot in range(len(labels))])
    wanted = {True: each[counts].sum() / len(labels), False: each.sum() / len(labels)}
    names = dict(fresh.model.named_parameters())
    for name, parameter in loop.setting.model.named_parameters():
        (gradient,) = torch.autograd.grad(wanted[name in lower(loop)], [names[name]], retain_graph=True)
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-6), name


def test_a_rule_for_all_examples_is_as_if_it_named_none() -> None:
    """Bit for bit: nothing is scored, and the digest of the table is the same."""
    whole = routing(Rule(classes=(BSD,), examples=Examples(loss=(0.0, 1.0)), depth=(0.0, 0.5), weight=0.0), ADMIT_ALL)
    without = routing(Rule(classes=(BSD,), depth=(0.0, 0.5), weight=0.0), ADMIT_ALL)
    one, other = stepped(whole, steps=3), stepped(without, steps=3)
    assert all(torch.equal(each, other.tensors()[name]) for name, each in one.tensors().items())
    tables = [each.state.resource(Router).at(0.0, frozenset()).admission for each in (one, other)]
    assert tables[0].digest == tables[1].digest and not tables[0].by_example


def test_a_rule_that_an_earlier_one_covers_scores_nothing() -> None:
    shadowed = routing(Rule(classes=("*",), weight=1.0), EASY)
    assert governed_loop(shadowed).state.resource(Router).at(0.0, frozenset()).of[BSD].divide is None
    assert governed_loop(HARD_ONLY).state.resource(Router).at(0.0, frozenset()).of[BSD].divide is not None


def test_fractions_attenuate_a_band() -> None:
    """The easy half at a quarter of the weight: the gradient is between that of none and that of all of it."""
    found = {}
    for weight in (0.0, 0.25, 1.0):
        rule = Rule(classes=(BSD,), examples=Examples(loss=(0.0, 0.5)), depth=(0.0, 0.5), weight=weight)
        loop = stepped(routing(rule, ADMIT_ALL))
        found[weight] = {
            name: p.grad.clone() for name, p in loop.setting.model.named_parameters() if p.grad is not None
        }
    for name in lower(loop):
        expected = 0.75 * found[0.0][name] + 0.25 * found[1.0][name]
        assert torch.allclose(found[0.25][name], expected, atol=1e-6), name


def test_the_note_says_what_was_passed() -> None:
    loop = stepped(HARD_ONLY)
    slots, losses = losses_of(loop, BSD)
    (note,) = loop.state.resource(Session).notes.decisions
    assert (note.action, note.rule, note.subjects) == ("selection", "by-example", (BSD,))
    layers = loop.state.resource(Session).layers
    chosen = decode_chosen(note.evidence[BSD], layers=len(layers))
    assert np.allclose(chosen.scores[0], losses, atol=1e-6)
    low = [at for at, each in enumerate(layers) if each.depth < 0.5]
    hard = np.argsort(losses, kind="stable")[len(slots) // 2 :]
    assert np.flatnonzero(chosen.reached(low)).tolist() == sorted(hard.tolist())
    assert chosen.reached().all()


def test_a_band_that_may_change_nothing_is_not_passed() -> None:
    denied = Rule(classes=(BSD,), examples=Examples(loss=UPPER), weight=0.0)
    loop = stepped(routing(denied, ADMIT_ALL))
    (mine,) = [rows for name, rows, _ in PASSES if name == BSD]
    chosen = decode_chosen(loop.state.resource(Session).notes.decisions[0].evidence[BSD], layers=4)
    assert len(mine) == int((chosen.taken != NONE).sum()) == len(chosen.taken) // 2


def test_selection_of_a_class_acts_within_what_the_bands_leave() -> None:
    keep = GovernedSelectiveBackprop(start=0.0, keep=0.5)
    loop = stepped(HARD_ONLY, [keep])
    notes = [note for note in loop.state.resource(Session).notes.decisions if note.rule == "by-example"]
    chosen = decode_chosen(notes[0].evidence[BSD], layers=4)
    hardest = np.argsort(-chosen.scores[0], kind="stable")[: int(np.ceil(len(chosen.taken) / 2))]
    assert np.flatnonzero(chosen.taken != NONE).tolist() == sorted(hardest.tolist())


REGION = SealedRegion(name="customer", branch="personal/customer", layers=("*",), rank=2)


def by_content(*, policy: Policy, changed: str, seed: int, methods: Sequence[Method] = (), **setting: Any) -> Loop:
    """Three steps over data in which one class has other content."""
    dataset = noise(train=EXAMPLES)
    loop = governed_loop(policy, methods, dataset=dataset, **setting)
    codes = loop.setting.batches.typing.codes
    rows = np.flatnonzero(codes == loop.state.resource(Session).codes[changed])
    draws = np.random.default_rng(seed).integers(0, 256, dataset.train.inputs[rows].shape, dtype=np.uint8)
    dataset.train.inputs[torch.from_numpy(rows)] = torch.from_numpy(draws)
    for _ in range(3):
        loop.step()
    return loop


def differing(one: Loop, other: Loop, *, without: str | None = None) -> list[str]:
    mine, theirs = everything(one, without=without), everything(other, without=without)
    return [name for name, tensor in mine.items() if not torch.equal(tensor, theirs[name])]


@pytest.mark.parametrize("score", ["loss", "entropy"])
def test_the_content_of_a_sealed_class_that_is_told_apart_changes_nothing_else(score: str) -> None:
    """The class is sealed and scored: its rows decide which of its own rows train its own region, and no more. The
    control is a class that is not sealed, which is in every later step of the others."""
    rule = Rule(classes=("open",), examples=Examples(**{score: UPPER}), weight=1.0)
    sealed = routing(rule, sealed=(REGION,))
    one, other = (by_content(policy=sealed, changed="personal/customer", seed=seed) for seed in (1, 2))
    assert differing(one, other, without="customer") == []
    one, other = (by_content(policy=sealed, changed=BSD, seed=seed) for seed in (1, 2))
    assert differing(one, other, without="customer")


class Scoring(Method):
    """Scores every share and does nothing with it."""

    name = "scoring"
    kind = Kind.RECORD
    summary = source = ""

    def change_batch(self, state: State) -> None:
        SCORED.append(scores(state, "loss", "entropy"))


SCORED: list[dict[str, Tensor]] = []


def test_scoring_leaves_buffers_and_draws_alone() -> None:
    """A run in which every share is scored has the bits of one in which none is, with batch norm and dropout."""
    SCORED.clear()
    one = by_content(policy=PLAIN, changed=BSD, seed=1, methods=[Scoring()], model=Dropping())
    other = by_content(policy=PLAIN, changed=BSD, seed=1, model=Dropping())
    assert differing(one, other) == []
    assert len(SCORED) == 12 and all(each["entropy"].min() > 0 for each in SCORED)


class Dropping(nn.Module):
    """Batch norm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.norm(self.first(x)).relu()).mean((2, 3)))


# Bands


def test_bands_divide_at_every_end() -> None:
    assert bands_of([]) == (ALL,) == bands_of([None, Examples(loss=(0.0, 1.0))])
    assert bands_of([Examples(loss=(0.5, 1.0)), Examples(loss=(0.25, 0.5))]) == tuple(
        Band(loss=each) for each in ((0.0, 0.25), (0.25, 0.5), (0.5, 1.0))
    )
    assert len(bands_of([Examples(loss=(0.5, 1.0)), Examples(entropy=(0.5, 1.0))])) == 4


@pytest.mark.parametrize(
    ("scores", "upper"),
    [
        ([3.0, 1.0, 2.0, 4.0], [0, 3]),
        ([1.0, 1.0, 1.0, 1.0], [2, 3]),
        ([1.0, np.nan, 2.0], [1, 2]),
        ([7.0], [0]),
        ([np.inf, 1.0, 2.0, 3.0, 0.0], [0, 2, 3]),
    ],
)
def test_ranks_say_where_an_example_is(scores: list[float], upper: list[int]) -> None:
    """Of equals the first is lower, what is no number is highest; how many are in a band depends on their number."""
    where = placed(bands_of([Examples(loss=UPPER)]), {"loss": np.array(scores, np.float32)})
    assert np.flatnonzero(where == 1).tolist() == upper

"""Governed selective backprop: the examples that are kept, by their own class's losses, and no effect on others."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.engine.guard import Guard
from explorer.engine.loop import Loop
from explorer.engine.method import Kind, Method
from explorer.engine.state import State
from explorer.governance.governed_selective_backprop import GovernedSelectiveBackprop, hardest
from tests.governance.tagged import CLASSES, session_of, tagged_loop
from tests.loop_for_tests import small_net

NEWS, MIT = CLASSES
HALF = GovernedSelectiveBackprop(start=0.0, keep=0.5)


@pytest.mark.parametrize(
    ("keep", "expected"), [(0.5, [1, 3]), (0.25, [3]), (0.01, [3]), (0.51, [0, 1, 3]), (1.0, [0, 1, 2, 3])]
)
def test_the_hardest_are_kept_in_their_order(keep: float, expected: list[int]) -> None:
    assert hardest(torch.tensor([1.0, 2.0, 0.5, 3.0]), keep=keep).tolist() == expected


def test_of_equals_the_first_are_kept() -> None:
    assert hardest(torch.ones(6), keep=0.5).tolist() == [0, 1, 2]


class Watch(Method):
    """Remembers the slots and the losses' denominator of every share that trains."""

    name = "watch"
    kind = Kind.RECORD
    summary = source = ""

    def after_forward(self, state: State) -> None:
        assert state.share is not None and state.rows is not None
        SEEN[state.share.name] = state.rows.slots.tolist()


SEEN: dict[str, list[int]] = {}


def seen(method: GovernedSelectiveBackprop | None, **setting: Any) -> tuple[Loop, dict[str, list[int]]]:
    """One step, and the slots that trained in it, by class."""
    SEEN.clear()
    loop = tagged_loop([Watch(), *([method] if method else [])], **setting)
    loop.step()
    return loop, dict(SEEN)


def test_each_class_keeps_its_own_hardest_examples() -> None:
    _, everyone = seen(None)
    loop, kept = seen(HALF)
    batches = loop.setting.batches
    fresh = tagged_loop([]).setting
    for path, slots in everyone.items():
        inputs, labels = batches.read(batches.indices(0)[np.array(slots)])
        losses = fresh.task.loss(fresh.model.eval()(batches.prepare(inputs)), labels)
        assert kept[path] == [slots[row] for row in hardest(losses, keep=0.5).tolist()]
        assert len(kept[path]) == 2


def test_the_losses_that_decided_are_in_the_note() -> None:
    loop, _ = seen(HALF)
    notes = session_of(loop).notes.decisions
    assert [(note.action, note.rule, note.subjects, list(note.evidence)) for note in notes] == [
        ("selection", "largest-losses", (NEWS,), [NEWS]),
        ("selection", "largest-losses", (MIT,), [MIT]),
    ]
    for note in notes:
        losses = np.frombuffer(note.evidence[note.subjects[0]], "<f4")
        slots = {code: found for code, found in loop.setting.batches.shares(0)}[
            session_of(loop).codes[note.subjects[0]]
        ]
        assert SEEN[note.subjects[0]] == slots[hardest(torch.tensor(losses), keep=0.5).numpy()].tolist()


def test_another_class_decides_nothing() -> None:
    """Mit's labels are made the easiest, then the hardest there are: news keeps the same examples. With one threshold
    over the batch, the control, it would not."""
    everyone = seen(None)[1]
    kept, kept_by_one_threshold = [], []
    for easiest in (True, False):
        loop = tagged_loop([Watch(), HALF])
        batches, model = loop.setting.batches, tagged_loop([]).setting.model.eval()
        mine = torch.from_numpy(batches.typing.codes == session_of(loop).codes[MIT])
        outputs = model(batches.prepare(batches.dataset.train.inputs[mine]))
        batches.dataset.train.labels[mine] = outputs.argmax(1) if easiest else outputs.argmin(1)
        SEEN.clear()
        loop.step()
        kept.append(SEEN[NEWS])
        inputs, labels = batches.read(batches.indices(0)[np.array(everyone[NEWS] + everyone[MIT])])
        losses = loop.setting.task.loss(model(batches.prepare(inputs)), labels)
        kept_by_one_threshold.append([row for row in hardest(losses, keep=0.5).tolist() if row < 4])
    assert kept[0] == kept[1]
    assert kept_by_one_threshold[0] != kept_by_one_threshold[1]


def test_an_example_weighs_as_much_as_ever() -> None:
    """The gradient of half the examples is the sum of their gradients over the nominal batch, 8."""
    loop, kept = seen(HALF)
    fresh = tagged_loop([])
    batches, model = fresh.setting.batches, fresh.setting.model
    losses: list[Tensor] = []
    for slots in kept.values():
        inputs, labels = batches.read(batches.indices(0)[np.array(slots)])
        losses.append(fresh.setting.task.loss(model(batches.prepare(inputs)), labels).sum() / 8)
    gradients = torch.autograd.grad(torch.stack(losses).sum(), list(model.parameters()))
    for (name, parameter), gradient in zip(loop.setting.model.named_parameters(), gradients, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-7), name


class Noisy(nn.Module):
    """Running statistics and dropout: what a careless scoring pass would move."""

    def __init__(self) -> None:
        super().__init__()
        self.body = small_net("batch")
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.body(x)))


def test_scoring_leaves_statistics_and_draws_alone() -> None:
    """Keeping everybody after scoring is the same run as never scoring."""
    almost_all = replace(HALF, keep=0.99)  # all of every class's four
    (scored, one), (plain, other) = seen(almost_all, model=Noisy()), seen(None, model=Noisy())
    assert one == other
    assert len(session_of(scored).notes.decisions) == 2, "it did score"
    for _ in range(3):
        scored.step()
        plain.step()
    for name, tensor in plain.tensors().items():
        assert torch.equal(tensor, scored.tensors()[name]), name


def test_scoring_in_training_mode_would_move_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control, without the guard, which puts them back in any mode."""
    monkeypatch.setattr(nn.Module, "eval", lambda self: self)
    name = "model/body.1.running_mean"
    scored, plain = seen(replace(HALF, keep=0.99), model=Noisy())[0], seen(None, model=Noisy())[0]
    assert torch.equal(scored.tensors()[name], plain.tensors()[name])
    monkeypatch.setattr(Guard, "passing", lambda *_: nullcontext())
    scored, plain = seen(replace(HALF, keep=0.99), model=Noisy())[0], seen(None, model=Noisy())[0]
    assert not torch.equal(scored.tensors()[name], plain.tensors()[name])


def test_before_its_start_everybody_trains() -> None:
    loop = tagged_loop([Watch(), replace(HALF, start=0.5)])
    lengths = []
    for _ in range(10):
        SEEN.clear()
        loop.step()
        lengths.append(len(SEEN[MIT]))
    assert lengths == [4] * 5 + [2] * 5


def test_neutral_neither_scores_nor_chooses() -> None:
    neutral, kept = seen(HALF.neutral())
    plain, everyone = seen(None)
    assert kept == everyone
    assert session_of(neutral).notes.decisions == []
    for name, tensor in plain.tensors().items():
        assert torch.equal(tensor, neutral.tensors()[name]), name

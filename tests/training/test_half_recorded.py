"""Recorded runs in fp16: scale and skipped steps are on record, and come out of a replay again."""

from pathlib import Path
from typing import Any

import pytest

from explorer.audit.conform import conform
from explorer.disclosure import verifier
from explorer.engine.loss_scale import LossScale
from explorer.entries.kinds import Decision, Step, decode
from explorer.errors import RecipeError
from explorer.runlog.documents import keep
from explorer.runlog.influence import reach
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.training.replay import replay
from explorer.training.run import execute
from explorer.training.run_plan import plan_run
from tests.governance import desk
from tests.recipes_for_tests import tiny_recipe, write_run
from tests.training.recorded_runs import documents_for_digits, entries_of, planned_run

START = 2.0**22  # so that some of seven steps overflow


def recorded(root: Path, **train: Any) -> Path:
    """A finished run of three classes, without a policy."""
    documents = desk.read(documents_for_digits(root), None)
    recipe = tiny_recipe(["contributions", {"recorder": {"every": 3}}], **train)
    names = {"sweep": "test", "baseline": "tiny", "tuning": None, "ssr": 1.0, "seed": 0, "threads": 1, "data": None}
    run = write_run(root, plan_run(recipe, documents=documents, **names))
    keep(documents, run)
    execute(run)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("explorer.engine.loss_scale.START", START)
        return recorded(tmp_path_factory.mktemp("half"), precision="fp16")


@pytest.mark.slow
def test_the_ledger_says_which_classes_a_step_was_made_without(run: Path) -> None:
    entries = [decode(leaf) for leaf in entries_of(run)]
    changes = [entry for entry in entries if isinstance(entry, Decision)]
    steps = {entry.step: entry for entry in entries if isinstance(entry, Step)}
    assert 0 < len(changes) < len(steps)
    scale = START
    for change in changes:
        assert (change.action, change.rule) == ("loss-scale", "overflow")
        assert {name: float.fromhex(value) for name, value in change.parameters.items()} == {
            "before": scale,
            "after": scale / 2,
        }
        assert change.subjects == () and change.evidence and {*change.evidence} <= {*RunLedger(run).genesis.classes}
        # A step that every class overflowed in is not made.
        assert ("1" in steps[change.step].updated) is (len(change.evidence) < 3)
        scale /= 2
    assert any(len(change.evidence) == 3 for change in changes)
    assert any("1" in step.updated for step in steps.values())
    for at, leaf in enumerate(entries_of(run)):
        verifier.read_entry(leaf, at)


def test_a_replay_comes_to_the_same_scale_and_skips_the_same_steps(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.engine.loss_scale.START", START)
    assert replay(run).equal
    # The control: a step that is made although its gradients overflowed.
    monkeypatch.setattr(LossScale, "advance", lambda *_: None)
    assert not replay(run).equal


def test_an_overflow_is_a_channel_from_its_class_to_the_others(run: Path, tmp_path: Path) -> None:
    """The scale that a class changes in a step that is not made reaches the others all the same. The control: in fp32
    there is no such way."""
    target = Target(classes=("open/mit",))
    found, plain = (reach(RunLedger(each), target) for each in (run, recorded(tmp_path)))
    assert plain.channels == () and {channel.action for channel in found.channels} == {"loss-scale"}
    assert found.channels[0].step == found.first == 0 and {*found.channels[0].over} == {"licensed/news", "open"}
    with_steps = [entry for entry in map(decode, entries_of(run)) if isinstance(entry, Step)]
    assert "1" not in with_steps[0].updated, "no step says so"


def test_it_conforms_as_far_as_the_same_run_in_fp32(run: Path, tmp_path: Path) -> None:
    found, plain = (conform(RunLedger(each), trust=desk.TRUST, now=desk.NOW) for each in (run, recorded(tmp_path)))
    said, of_plain = ([(each.outcome, each.contradictions) for each in of.conditions] for of in (found, plain))
    assert said == of_plain  # without a policy nothing was routed, and all else holds
    assert [condition.name for condition in found.conditions if not condition.holds] == ["routable"]


def test_a_policy_and_a_common_scale_are_refused(tmp_path: Path) -> None:
    author = documents_for_digits(tmp_path)
    with pytest.raises(RecipeError, match="'tiny': routing: found precision fp16: its loss scale follows from"):
        planned_run(tmp_path, author, precision="fp16")
    planned_run(tmp_path, author, precision="bf16")


def test_a_ledger_needs_steps_that_can_be_made_again(tmp_path: Path) -> None:
    author = documents_for_digits(tmp_path)
    with pytest.raises(RecipeError, match="'tiny': recorder: found deterministic: fast: a ledger states steps that"):
        planned_run(tmp_path, author, deterministic="fast")
    planned_run(tmp_path, author, deterministic="strict")

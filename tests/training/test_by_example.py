"""A run whose policy routes by example, from documents to conformance, replay and the examples behind a layer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer import rundir
from explorer.audit.conform import conform
from explorer.audit.routable import Routable
from explorer.audit.trace import participants
from explorer.engine.loop import Loop
from explorer.entries.kinds import Decision, Step
from explorer.entries.slots import RULE, decode_chosen
from explorer.errors import RecipeError
from explorer.provenance.envelope import write_envelope
from explorer.provenance.policy import POLICY, Rule
from explorer.provenance.regions import Examples
from explorer.provenance.trust import read_trust
from explorer.runlog.admission_tables import tables_in_force
from explorer.runlog.documents import keep
from explorer.runlog.run_ledger import RunLedger
from explorer.training.replay import replay
from explorer.training.run import execute
from explorer.training.run_plan import plan_run
from tests.governance import desk
from tests.provenance.people import NOW, RISK
from tests.recipes_for_tests import tiny_recipe, write_run
from tests.training.recorded_runs import documents_for_digits

MIT, NEWS = "open/mit", "licensed/news"
HARD = desk.policy(
    name="hard",
    rules=(
        Rule(classes=(MIT,), depth=(0.0, 0.5), examples=Examples(loss=(0.0, 0.5)), weight=0.0),
        Rule(classes=(NEWS,), examples=Examples(entropy=(0.75, 1.0)), weight=0.0),
        Rule(classes=("*",), weight=1.0),
    ),
)


def planned(root: Path, *methods: Any) -> Path:
    author = documents_for_digits(root)
    write_envelope(author / "policies" / "hard.json", desk.document(HARD, POLICY, RISK))
    documents = desk.read(author, "hard")
    recorded = [{"routing": {"policy": "hard"}}, "contributions", {"recorder": {"every": 2}}]
    record = plan_run(
        tiny_recipe([*recorded, *methods]),
        sweep="test",
        baseline="tiny",
        tuning=None,
        ssr=1.0,
        seed=0,
        threads=1,
        data=None,
        documents=documents,
    )
    run = write_run(root, record)
    keep(documents, run)
    return run


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = planned(tmp_path_factory.mktemp("by-example"))
    execute(run)
    return run


def judged(run: Path) -> tuple[bool, list[str]]:
    """The first condition, and what contradicts it."""
    trust = read_trust(run.parent / "desk" / "trust.json")
    condition = conform(RunLedger(run), trust=trust, now=NOW).conditions[0]
    assert condition.name == Routable.name
    return condition.holds, [each.message for each in condition.contradictions]


def choices(run: RunLedger) -> dict[tuple[int, str], Any]:
    found = {}
    for placed in run.read(run.outline.decisions, Decision):
        assert placed.entry.rule == RULE
        (path,) = placed.entry.subjects
        content = run.find(placed, f"evidence/{path}", max_bytes=2**20)
        assert isinstance(content, bytes)
        found[placed.entry.step, path] = decode_chosen(content, layers=len(run.genesis.layers))
    return found


def test_it_conforms_and_every_step_says_which_examples_trained_what(done: Path) -> None:
    run = RunLedger(done)
    holds, contradictions = judged(done)
    assert holds, contradictions
    found = choices(run)
    assert {path for _, path in found} == {MIT, NEWS} and {step for step, _ in found} == set(range(run.steps))
    for (_, path), chosen in found.items():
        n = len(chosen.taken)
        wanted = sum((rank + 0.5) / n >= 0.75 for rank in range(n)) if path == NEWS else 0
        assert int((~chosen.reached()).sum()) == wanted


def test_a_replay_comes_to_the_same_choices_bit_for_bit(done: Path) -> None:
    found = replay(done)
    assert found.equal, found


def test_the_examples_behind_a_layer_are_those_of_its_bands(done: Path) -> None:
    run = RunLedger(done)
    index, last = run.class_(MIT), len(run.genesis.layers) - 1
    low, high = (
        participants(run, range(0, run.steps), classes=[index], layers=[layer])[0].slots for layer in (0, last)
    )
    mine = [chosen for (_, path), chosen in choices(run).items() if path == MIT]
    assert high == sum(len(each.taken) for each in mine)
    assert low == sum(int(each.reached([0]).sum()) for each in mine) < high


def test_the_table_in_force_has_the_weights_by_band(done: Path) -> None:
    run = RunLedger(done)
    (table,) = tables_in_force(run)
    (placed,) = run.read([table.entry], Step)
    content = run.blob(placed, "weights", max_bytes=2**20)
    assert content is not None and b'"format":"explorer/admission/v2"' in content and b'"bands":{' in content
    assert table.weights.min() == 1.0, "the largest of any example"


@pytest.mark.slow
def test_a_loop_that_lets_denied_examples_through_does_not_conform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: an engine with a fault passes all rows of the class for all that the class may change, and writes
    down what it did. The scores that it records say which of them should not have been there."""
    from explorer.engine.state import Part
    from explorer.governance.routing import ByExample

    plain = ByExample.__call__

    def careless(self: ByExample, state: Any) -> tuple[Part, ...]:
        parts = plain(self, state)
        slots = np.sort(np.concatenate([part.slots for part in parts]))
        return (Part(slots=slots, parameters=state.share.parameters, buffers=state.share.buffers),)

    run = planned(tmp_path)
    monkeypatch.setattr(ByExample, "__call__", careless)
    execute(run)
    holds, contradictions = judged(run)
    assert not holds
    assert any("examples trained it that the policy denies it, the first of" in each for each in contradictions)
    monkeypatch.undo()
    assert not replay(run).equal


def test_a_run_that_records_no_choice_does_not_conform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the record: an engine that tells no rows apart."""

    def blind(self: Loop, share: Any) -> Any:
        from dataclasses import replace

        return take(self, replace(share, divide=None))

    take = Loop._take_gradients
    run = planned(tmp_path)
    monkeypatch.setattr(Loop, "_take_gradients", blind)
    monkeypatch.setattr("explorer.governance.routing.Routing.change_gradients", lambda self, state: None)
    execute(run)
    holds, contradictions = judged(run)
    assert not holds and any("is not on record, and depends on the example" in each for each in contradictions)


def test_methods_that_mix_examples_are_refused(tmp_path: Path) -> None:
    run = planned(tmp_path, {"mixup": {"alpha": 0.2}})
    with pytest.raises(RecipeError, match=r"'mixup' mixes examples of a class, and rules\[0\] of policy 'hard' tells"):
        execute(run)
    assert not (run / rundir.LEDGER / "checkpoint").exists()

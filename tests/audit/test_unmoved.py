"""`updated: 0` is held against the tensors of the states: a layer that moved without saying so is a contradiction."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from explorer import rundir
from explorer.audit.conditions import Outcome
from explorer.audit.conform import conform
from explorer.canonical import canonical
from explorer.entries.kinds import Entry
from explorer.entries.run import Genesis, State, Step
from explorer.ledger.storage import read_blob
from explorer.provenance.policy import Rule
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tensors import BLOB, OWNERS, Tensors
from tests import tensors_for_tests as models
from tests.audit.governed_run import MIT, OPEN, policy, sign_again, trust, with_blob, write_governed_run
from tests.provenance.people import NOW

FROZEN = "body.0"
DENIED = policy(Rule(classes=(MIT, OPEN), layers=("embed", "body.1", "head"), weight=1.0))


def still(layers: Sequence[str], step: int) -> Tensors:
    """What the layers are after so many steps, but for one that stays as it began."""
    began, now = models.tensors(layers, 0), models.tensors(layers, step)
    return Tensors(
        parameters=now.parameters | {name: leaf for name, leaf in began.parameters.items() if FROZEN in name},
        buffers=now.buffers,
        optimizer={name: leaf for name, leaf in now.optimizer.items() if FROZEN not in name},
    )


def one(what: str) -> Callable[[Sequence[str], int], Tensors]:
    """The same, but that one tensor of the frozen layer is another one from the sixth step on."""

    def moves(layers: Sequence[str], step: int) -> Tensors:
        found = still(layers, step)
        if step <= 5:
            return found
        changed = {
            "parameter": {"parameters": found.parameters | {f"{FROZEN}.weight": "e" * 64}},
            "buffer": {"buffers": found.buffers | {f"{FROZEN}.running": "e" * 64}},
            "optimizer": {"optimizer": found.optimizer | {f"optimizer/shared/0/{FROZEN}.weight/step": "e" * 64}},
            "gone": {"parameters": {k: leaf for k, leaf in found.parameters.items() if FROZEN not in k}},
        }
        return replace(found, **changed[what])

    return moves


def judged(run: Path) -> tuple[bool, list[str], tuple[str, ...]]:
    found = conform(RunLedger(run), trust=trust(), now=NOW)
    assert found.badge.verified
    messages = [each.message for condition in found.conditions for each in condition.contradictions]
    return found.conforms, messages, found.conditions[0].notes


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_governed_run(tmp_path_factory.mktemp("runs"), policy=DENIED, moves=still)


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / honest.name))


def test_a_layer_that_stays_conforms(honest: Path) -> None:
    conforms, messages, notes = judged(honest)
    assert conforms and not messages and not notes
    found = conform(RunLedger(honest), trust=trust(), now=NOW)
    assert found.conditions[0].checked["states compared"] == 3


@pytest.mark.parametrize("what", ["parameter", "buffer", "optimizer", "gone"])
def test_one_that_moves_is_named_with_its_segment(what: str, tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, policy=DENIED, moves=one(what))
    conforms, messages, _ = judged(run)
    assert not conforms
    assert messages == [each for each in messages if each.startswith("steps 5 to 9: none of them updated body.0, and ")]
    assert len(messages) == 1 and "moved" in messages[0]


def test_a_ledger_whose_flags_lie_is_found(tmp_path: Path) -> None:
    """The negative control: a class trained the layer; the ledger is signed anew and says that nobody did."""
    run = write_governed_run(tmp_path, policy=DENIED)  # all tensors move in each segment
    conforms, messages, _ = judged(run)
    assert not conforms and messages[0].startswith("steps 0 to 4: none of them updated body.0")


def test_lists_that_are_not_those_of_their_states_are_found(run: Path) -> None:
    """Whoever wants to hide a movement has to change the list, and the list leads to the root."""

    def lie(_: int, entry: Entry) -> Entry:
        if isinstance(entry, State) and entry.step == 10:
            content = json.loads(read_blob(run / rundir.LEDGER, entry.blobs[BLOB].sha256))
            content["parameters"]["head.weight"] = "f" * 64
            return with_blob(run, entry, BLOB, canonical(content))
        return entry

    sign_again(run, lie)
    conforms, messages, _ = judged(run)
    assert not conforms and "the parameters lead to the root" in messages[0]


def test_a_state_without_its_list_is_found(run: Path) -> None:
    def lie(_: int, entry: Entry) -> Entry:
        if isinstance(entry, State) and entry.step == 10:
            return replace(entry, blobs={name: blob for name, blob in entry.blobs.items() if name != BLOB})
        return entry

    sign_again(run, lie)
    conforms, messages, _ = judged(run)
    assert not conforms and "a state without its list of tensors" in messages[0]


def test_a_genesis_with_another_list_is_found(run: Path) -> None:
    def lie(_: int, entry: Entry) -> Entry:
        return replace(entry, initial="b" * 64) if isinstance(entry, Genesis) else entry

    sign_again(run, lie)
    conforms, messages, _ = judged(run)
    assert not conforms and any("entry 0: tensors: the parameters lead to the root" in each for each in messages)


def test_ledgers_of_before_list_no_tensors_and_say_so(run: Path) -> None:
    def older(_: int, entry: Entry) -> Entry:
        if isinstance(entry, Genesis | State):
            return replace(entry, blobs={name: blob for name, blob in entry.blobs.items() if name != BLOB})
        return entry

    sign_again(run, older)
    found = conform(RunLedger(run), trust=trust(), now=NOW)
    assert found.outcome is Outcome.UNTOLD and not any(each.contradictions for each in found.conditions)
    assert [each.message for each in found.conditions[0].untold] == [
        "whether layers that were not updated stayed: the run's states list no tensors"
    ]


def shared(run: Path, table: object) -> None:
    """Sign again with such a table of owners."""

    def change(_: int, entry: Entry) -> Entry:
        return with_blob(run, entry, OWNERS, canonical(table)) if isinstance(entry, Genesis) else entry

    sign_again(run, change)


def test_a_shared_tensor_is_of_the_layer_that_the_genesis_says(tmp_path: Path) -> None:
    """A head that is tied to the embedding may be named after the head, and moves with the embedding."""
    run = write_governed_run(tmp_path, policy=DENIED, moves=one("parameter"))
    shared(run, {f"{FROZEN}.weight": "embed"})
    _, messages, notes = judged(run)
    assert messages == [f"layers: layer {FROZEN}: no tensor is of it"] and f"{FROZEN}.weight of embed" in notes[0]
    for number, table in enumerate(({f"{FROZEN}.weight": "nowhere"}, {f"{FROZEN}.weight": ["embed"]}, ["embed"])):
        other = Path(shutil.copytree(run, tmp_path / str(number) / run.name))
        shared(other, table)
        conforms, messages, _ = judged(other)
        assert not conforms and "expected tensors and the layers that they are of" in messages[0]


def test_flags_of_one_step_are_enough(run: Path) -> None:
    """The layer may have moved in the one step of its segment that says so."""
    moved = write_governed_run(run.parent / "moved", policy=DENIED, moves=one("parameter"))

    def admit(_: int, entry: Entry) -> Entry:
        if isinstance(entry, Step) and entry.step == 7:
            return replace(entry, updated="1111")
        return entry

    sign_again(moved, admit)
    _, messages, _ = judged(moved)
    assert messages and not any("none of them updated" in each for each in messages), "another judge's business"

"""Routable gradients: confidential numbers are sealed, and layers that were not updated did not move."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from explorer import rundir
from explorer.audit.conditions import Cause, Outcome
from explorer.audit.conform import Conformance, conform
from explorer.audit.history import depth_profiles, directions
from explorer.audit.shares import shares
from explorer.audit.simulate import simulate
from explorer.audit.trace import trace, with_examples
from explorer.canonical import canonical
from explorer.entries.kinds import Entry, Genesis, State, Step
from explorer.errors import LedgerError
from explorer.ledger.storage import read_blob
from explorer.provenance.commitments import new_salts, write_salts
from explorer.provenance.policy import Rule
from explorer.provenance.routing_weights import bind
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tensors import BLOB, OWNERS, Tensors
from tests import tensors_for_tests as models
from tests.audit.governed_run import (
    CLASSES,
    MIT,
    NEWS,
    OPEN,
    STEPS,
    USUAL,
    counts_of,
    policy,
    rows_of,
    sign_again,
    trust,
    with_blob,
    write_governed_run,
)
from tests.audit.governed_run import write_governed_run as write
from tests.provenance.people import NOW
from tests.provenance.tables import TAXONOMY

# --- confidential ---

POLICY = replace(USUAL, confidential=(NEWS,))
SEALED = 3 + 2 * 2 + 2 * 2 + 2  # joint of 3 segments; numbers and sketches of 2; of 2 profiles; evidence of 2 decisions


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("plain"), exact=True)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("sealed"), policy=POLICY, exact=True)


@pytest.fixture(scope="module")
def outside(sealed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What somebody has who was given the directory alone."""
    made = tmp_path_factory.mktemp("outside") / sealed.name
    shutil.copytree(sealed, made, ignore=shutil.ignore_patterns(rundir.PRIVATE))
    return made


@pytest.fixture
def copy(sealed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sealed, tmp_path / sealed.name))


def judged(run: Path) -> Conformance:
    return conform(RunLedger(run), trust=trust(), now=NOW)


def faults(run: Path) -> list[tuple[str, str]]:
    return [(each.name, fault.message) for each in judged(run).conditions for fault in each.contradictions]


def test_its_owner_judges_it_as_a_run_in_which_nothing_is_confidential(plain: Path, sealed: Path) -> None:
    usual, found = judged(plain), judged(sealed)
    assert found.conforms and all(not condition.notes for condition in found.conditions)
    (first, *rest), (usual_first, *usual_rest) = found.conditions, usual.conditions
    assert rest == usual_rest
    assert first.checked == {"sealed blobs": SEALED, **usual_first.checked}


def test_without_keys_it_cannot_be_told_and_sealed_numbers_are_listed(sealed: Path, outside: Path) -> None:
    found = judged(outside)
    routable, typed, reconstructible, _ = found.conditions
    assert found.outcome is routable.outcome is reconstructible.outcome is Outcome.UNTOLD and typed.holds
    assert routable.checked["cells"] < judged(sealed).conditions[0].checked["cells"]
    assert routable.checked["sealed blobs"] == SEALED
    assert {(each.cause, each.message, each.classes) for each in routable.untold} == {
        (Cause.SEALED, f"numbers/{NEWS}: sealed: needs a grant", (NEWS,)),
        (Cause.SEALED, "joint: sealed: needs a grant", (NEWS,)),
    }
    closed = (f"numbers/{NEWS}", "joint", f"evidence/{NEWS}")
    assert reconstructible.notes == ("commitments were not opened: the secrets of the classes are missing",)
    assert sorted(each.message for each in reconstructible.untold) == sorted(
        f"{name}: sealed: needs a grant" for name in closed
    )
    assert reconstructible.checked["blobs"] == judged(sealed).conditions[2].checked["blobs"]


@pytest.mark.parametrize("name", [f"numbers/{NEWS}", "joint"])
def test_numbers_in_the_clear_contradict_the_policy(copy: Path, name: str) -> None:
    """Found without keys; the run is honest otherwise."""
    ledger = RunLedger(copy)
    segments = list(ledger.segments())
    state = next(segment.state for segment in segments if name in segment.state.entry.blobs)
    content = ledger.blob(state, name, max_bytes=2**20)
    assert content is not None

    def lie(index: int, entry: Entry) -> Entry:
        return with_blob(copy, entry, name, content) if index == state.index else entry

    sign_again(copy, lie)
    expected = [("routable", f"{name}: in the clear, and the policy calls it confidential")]
    assert faults(copy) == expected
    shutil.rmtree(copy / rundir.PRIVATE)
    assert faults(copy) == expected


def test_a_spool_that_says_too_much_contradicts_the_policy(plain: Path, copy: Path) -> None:
    for name in (rundir.CONTRIBUTIONS, rundir.ENTROPY):
        shutil.copytree(plain / name, copy / name, dirs_exist_ok=True)
    found = faults(copy)
    assert ("routable", f"contributions: numbers of {NEWS} in the clear, which are confidential") in found
    assert ("routable", f"contributions: numbers of {MIT} that confidential classes are part of") in found
    assert ("routable", f"entropy: numbers of {NEWS} in the clear, which are confidential") in found
    assert ("routable", f"entropy: numbers of {JOINT} in the clear, which are confidential") in found
    assert len(found) == 5


def test_secrets_of_another_run_contradict(copy: Path) -> None:
    (copy / rundir.SECRETS).unlink()
    write_salts(copy / rundir.SECRETS, new_salts(len(CLASSES) + 1))
    assert any("the seal is broken" in message for _, message in faults(copy))


def test_its_owner_traces_it_as_ever(plain: Path, sealed: Path) -> None:
    expected, found = trace(RunLedger(plain), check=True), trace(RunLedger(sealed), check=True)
    assert found.check.agrees and found.check.segments == expected.check.segments == 3
    assert [(row.class_, row.layer, row.steps, row.examples, row.admitted) for row in found.rows] == [
        (row.class_, row.layer, row.steps, row.examples, row.admitted) for row in expected.rows
    ]
    usual, mine = (shares(RunLedger(run), bins=3) for run in (plain, sealed))
    assert usual.edges == mine.edges
    for name in ("steps", "examples", "weight", "share", "projection", "exact"):
        np.testing.assert_allclose(getattr(mine, name), getattr(usual, name), rtol=1e-5, atol=1e-7, err_msg=name)
    one, other = (trace(RunLedger(run), layer="head", steps=range(2, 9)).rows for run in (plain, sealed))
    assert [row.share for row in other] == pytest.approx([row.share for row in one], rel=1e-5)
    assert depth_profiles(RunLedger(sealed)) == depth_profiles(RunLedger(plain))
    participants = [with_examples(RunLedger(run), trace(RunLedger(run))).participants for run in (plain, sealed)]
    assert participants[0] == participants[1]


def test_others_see_what_the_open_classes_made_by_themselves(sealed: Path, outside: Path) -> None:
    ledger = RunLedger(outside)
    found, whole = shares(ledger), shares(RunLedger(sealed))
    for name in ("steps", "examples", "weight"):  # in the leaves, or the policy's
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    there = found.steps > 0
    assert np.isnan(found.share[there]).all() and np.isnan(found.projection[there]).all() and found.exact is None
    answer = trace(ledger, check=True)
    assert answer.check.segments == 0 and answer.check.unread[0].startswith("steps 0 to 4: sealed: needs a grant")
    assert {each.class_ for each in depth_profiles(ledger)} == set(CLASSES) - {NEWS}
    assert directions(ledger).missing == (NEWS,)
    routing = bind(POLICY, TAXONOMY, where="policy")
    with pytest.raises(LedgerError, match="sealed: needs a grant"):
        simulate(ledger, routing, range(STEPS), recorded=routing, planned=STEPS)


def test_which_examples_were_chosen_stays_sealed(tmp_path: Path) -> None:
    """The losses that a choice was made by are evidence of their class; of the other classes all is known."""
    step = next(step for step in range(STEPS) if counts_of(rows_of(step))[0][CLASSES.index(MIT)] > 2)
    losses = np.arange(counts_of(rows_of(step))[0][CLASSES.index(MIT)], dtype=np.float32)
    run = write(tmp_path, policy=replace(USUAL, confidential=(MIT,)), losses={step: losses})

    def found() -> dict[str, tuple[int, bool]]:
        ledger = RunLedger(run)
        answer = with_examples(ledger, trace(ledger, steps=range(step, step + 1)))
        return {each.class_: (len(each.examples), each.sealed) for each in answer.participants or ()}

    mine = found()
    shutil.rmtree(run / rundir.PRIVATE)
    assert not mine[MIT][1] and mine[MIT][0] == -(-len(losses) // 2)
    assert found() == mine | {MIT: (0, True)}


def test_what_a_check_of_sums_has_left_to_compare_is_compared(copy: Path) -> None:
    """The control: examples of an open class, counted otherwise in the spool."""
    (path, *_) = sorted((copy / rundir.CONTRIBUTIONS).glob("*.parquet"))
    table = pq.read_table(path)
    at = table.schema.get_field_index("examples")
    assert trace(RunLedger(copy), check=True).check.agrees
    more = pa.array([value + 1 for value in table["examples"].to_pylist()], pa.int32())
    pq.write_table(table.set_column(at, table.schema.field(at), more), path)
    found = trace(RunLedger(copy), check=True).check
    assert not found.agrees and "examples is" in found.differences[0]


# --- unmoved ---

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


def judged_by_states(run: Path) -> tuple[bool, list[str], tuple[str, ...]]:
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
    conforms, messages, notes = judged_by_states(honest)
    assert conforms and not messages and not notes
    found = conform(RunLedger(honest), trust=trust(), now=NOW)
    assert found.conditions[0].checked["states compared"] == 3


@pytest.mark.parametrize("what", ["parameter", "buffer", "optimizer", "gone"])
def test_one_that_moves_is_named_with_its_segment(what: str, tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, policy=DENIED, moves=one(what))
    conforms, messages, _ = judged_by_states(run)
    assert not conforms
    assert messages == [each for each in messages if each.startswith("steps 5 to 9: none of them updated body.0, and ")]
    assert len(messages) == 1 and "moved" in messages[0]


def test_a_ledger_whose_flags_lie_is_found(tmp_path: Path) -> None:
    """The negative control: a class trained the layer; the ledger is signed anew and says that nobody did."""
    run = write_governed_run(tmp_path, policy=DENIED)  # all tensors move in each segment
    conforms, messages, _ = judged_by_states(run)
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
    conforms, messages, _ = judged_by_states(run)
    assert not conforms and "the parameters lead to the root" in messages[0]


def test_a_state_without_its_list_is_found(run: Path) -> None:
    def lie(_: int, entry: Entry) -> Entry:
        if isinstance(entry, State) and entry.step == 10:
            return replace(entry, blobs={name: blob for name, blob in entry.blobs.items() if name != BLOB})
        return entry

    sign_again(run, lie)
    conforms, messages, _ = judged_by_states(run)
    assert not conforms and "a state without its list of tensors" in messages[0]


def test_a_genesis_with_another_list_is_found(run: Path) -> None:
    def lie(_: int, entry: Entry) -> Entry:
        return replace(entry, initial="b" * 64) if isinstance(entry, Genesis) else entry

    sign_again(run, lie)
    conforms, messages, _ = judged_by_states(run)
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
    _, messages, notes = judged_by_states(run)
    assert messages == [f"layers: layer {FROZEN}: no tensor is of it"] and f"{FROZEN}.weight of embed" in notes[0]
    for number, table in enumerate(({f"{FROZEN}.weight": "nowhere"}, {f"{FROZEN}.weight": ["embed"]}, ["embed"])):
        other = Path(shutil.copytree(run, tmp_path / str(number) / run.name))
        shared(other, table)
        conforms, messages, _ = judged_by_states(other)
        assert not conforms and "expected tensors, each with one of the run's layers" in messages[0]


def test_flags_of_one_step_are_enough(run: Path) -> None:
    """The layer may have moved in the one step of its segment that says so."""
    moved = write_governed_run(run.parent / "moved", policy=DENIED, moves=one("parameter"))

    def admit(_: int, entry: Entry) -> Entry:
        if isinstance(entry, Step) and entry.step == 7:
            return replace(entry, updated="1111")
        return entry

    sign_again(moved, admit)
    _, messages, _ = judged_by_states(moved)
    assert messages and not any("none of them updated" in each for each in messages), "another judge's business"

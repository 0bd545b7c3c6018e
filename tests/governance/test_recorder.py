"""The recorder: what it writes is what happened, it changes nothing, and checkpoints wait for it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from explorer import rundir
from explorer.data.batches import Typing
from explorer.engine.checkpoint import load_checkpoint
from explorer.engine.fit import FitOptions, fit
from explorer.engine.method import Kind, Method
from explorer.engine.optimizer import AdamWSpec, OptimizerSpec, SGDSpec
from explorer.engine.state import State as TrainingSoFar
from explorer.entries.heads import check_sequence, read_head
from explorer.entries.kinds import Decision, End, Profile, State, Step, decode
from explorer.entries.slots import slots_root
from explorer.errors import LedgerError, RecipeError, TrainingError
from explorer.governance.entropy import Entropy
from explorer.governance.layers import governed_layers
from explorer.governance.recorder import Recorder, tensor_leaf, training_state, updated
from explorer.governance.shared_state import DecisionNote, Session
from explorer.ledger.storage import read_blob
from explorer.methods.ema import EMA
from explorer.provenance.policy import Rule
from explorer.provenance.routing_weights import bind
from explorer.provenance.taxonomy import QUARANTINE
from explorer.run_files import METRICS
from explorer.runlog.tensors import BLOB, parse_tensors
from tests.governance.recorded import (
    CLASSES,
    EVERY,
    EXAMPLES_COUNT,
    LATE,
    STEPS,
    Interrupted,
    governed,
    journal_of,
    leaves_of,
    train,
    with_secrets_of,
)
from tests.governance.tagged import routing, tagged_loop, tags
from tests.ledger.ledgers import check
from tests.provenance.tables import TAXONOMY

NOTE = DecisionNote(
    action="freeze",
    rule="settled",
    parameters={"tolerance": 0.5},
    subjects=("open/mit",),
    layers=(),
    evidence={"open/mit": b"x"},
)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run."""
    run = tmp_path_factory.mktemp("calm") / "run"
    train(run, governed([EMA(half_life=0.2)]))
    return run


def entries(run: Path) -> list[Any]:
    return [decode(leaf) for leaf in leaves_of(run)]


def of(run: Path, kind: type) -> list:
    return [entry for entry in entries(run) if type(entry) is kind]


def test_a_run_is_recorded_from_genesis_to_end(calm: Path) -> None:
    assert check(calm / rundir.LEDGER).ok
    order = check_sequence(map(read_head, leaves_of(calm)))
    assert (order.steps, order.finished) == (STEPS, True)
    loop = governed()
    for entry in of(calm, Step):
        batch = loop.setting.batches.indices(entry.step)
        shares = dict(loop.setting.batches.shares(entry.step))
        names = loop.setting.batches.typing.names
        assert entry.slots == slots_root(batch, tags(EXAMPLES_COUNT).tags.leaves).hex()
        assert entry.examples == tuple(
            next(len(slots) for code, slots in shares.items() if names[code] == path) for path in CLASSES
        )
        late = entry.step >= STEPS // 2
        assert [each is not None for each in entry.numbers] == [late, True]
        assert entry.joint is not None and entry.weights is not None and entry.quarantined == 0
        assert entry.phase == ("progress [0.5, 1]" if late else "progress [0, 0.5)")


def test_states_are_those_of_the_training(calm: Path) -> None:
    """Trained again by hand. A segment ends every five steps, before the class that comes late, and at the end."""
    states = {entry.step: entry.state for entry in of(calm, State)}
    assert list(states) == [5, 6, 10, 12]
    loop = governed([EMA(half_life=0.2)])
    with journal_of(calm.with_name("again"), loop) as journal:
        loop.state.resource(Session).journal = journal
        loop.call("before_fit")
        for done in range(1, STEPS + 1):
            loop.step()
            if done in states:
                assert training_state(loop.state, step=done) == states[done]
        loop.call("after_fit")  # the average takes the place of the weights
        (end,) = of(calm, End)
        assert training_state(loop.state, step=STEPS).parameters == end.state.parameters != states[12].parameters
        assert {name: float.fromhex(value) for name, value in end.metrics.items()} == loop.evaluate()


def test_it_changes_nothing(tmp_path: Path) -> None:
    recorded = train(tmp_path / "run", governed()).tensors()
    plain = governed(recorder=False)
    fit(plain, FitOptions(directory=tmp_path, run_id="plain"))
    assert recorded.keys() - plain.tensors().keys() == {"memory/recorder/admitted"}
    for name, tensor in plain.tensors().items():
        assert torch.equal(tensor, recorded[name]), name


@pytest.mark.parametrize("optimizer", [SGDSpec(lr=0.1, momentum=0.9, weight_decay=0.01), AdamWSpec(lr=0.01)])
@pytest.mark.parametrize("norm", ["group", "batch"])
def test_a_layer_that_is_not_updated_has_the_same_bytes(norm: str, optimizer: OptimizerSpec, tmp_path: Path) -> None:
    """Parameters, buffers and optimiser state, while no class may train the lower half, and afterwards."""
    nobody = Rule(classes=("*",), depth=(0.0, 0.5), progress=(0.0, 0.5), weight=0.0)
    policy = bind(replace(LATE, rules=(nobody, *LATE.rules)), TAXONOMY, where="policy")
    loop = governed(norm=norm, optimizer=optimizer, session={"routing": policy})
    layers = governed_layers(loop.state.model, loop.state.layers)

    def content(names: tuple[str, ...], tensors: dict[str, Tensor]) -> str:
        owned = {name: t for name, t in tensors.items() if any(f"/{own}" in f"{name}/" for own in names)}
        return "".join(tensor_leaf(name, tensor) for name, tensor in sorted(owned.items()))

    seen = set()
    with journal_of(tmp_path / "run", loop) as journal:
        loop.state.resource(Session).journal = journal
        loop.call("before_fit")
        for step in range(STEPS):
            before = {name: tensor.clone() for name, tensor in loop.tensors().items()}
            loop.step()
            after = loop.tensors()
            flags = updated(loop.state, layers)
            for flag, layer in zip(flags, layers, strict=True):
                names = tuple(f"{name}/" for name in (*layer.parameters, *layer.buffers))
                same = content(names, before) == content(names, after)
                assert same is not flag, (step, layer)
                seen.add(flag)
    assert seen == {True, False}


def test_checkpoints_are_written_at_the_end_of_segments_alone(tmp_path: Path) -> None:
    loop = governed([Interrupted(at=8)])
    with pytest.raises(InterruptedError):
        train(tmp_path / "run", loop, checkpoint_seconds=0.0)
    assert steps_in(tmp_path / "run" / rundir.CHECKPOINT) == [5, 6]
    plain = tagged_loop([Interrupted(at=8)], total_steps=STEPS)
    with pytest.raises(InterruptedError):  # the control: no method asks to wait
        fit(plain, FitOptions(directory=tmp_path, run_id="plain", checkpoint_seconds=0.0))
    assert steps_in(tmp_path / rundir.CHECKPOINT) == [7, 8]


def steps_in(directory: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix("step-")) for path in directory.glob("*.json"))


def test_told_to_stop_inside_a_segment_it_leaves_no_checkpoint_there(tmp_path: Path) -> None:
    loop = governed()
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", loop, checkpoint_seconds=0.0, stop=lambda: loop.state.step >= 8)
    assert steps_in(tmp_path / "run" / rundir.CHECKPOINT) == [5, 6]


@pytest.mark.parametrize("at", [0, 3, 5, 7, 11])
def test_an_interrupted_run_goes_on_to_the_same_ledger(calm: Path, tmp_path: Path, at: int) -> None:
    run = with_secrets_of(calm, tmp_path / "run")
    with pytest.raises(InterruptedError):
        train(run, governed([EMA(half_life=0.2), Interrupted(at=at)]), checkpoint_seconds=0.0)
    before = leaves_of(run)
    train(run, governed([EMA(half_life=0.2)]), checkpoint_seconds=0.0)
    assert leaves_of(run)[: len(before)] == before
    assert leaves_of(run) == leaves_of(calm)


def test_without_any_checkpoint_it_is_executed_again_from_the_start(calm: Path, tmp_path: Path) -> None:
    run = with_secrets_of(calm, tmp_path / "run")
    with pytest.raises(InterruptedError):
        train(run, governed([EMA(half_life=0.2), Interrupted(at=11)]))
    before = leaves_of(run)
    assert sum(read_head(leaf).kind == "step" for leaf in before) == 10
    train(run, governed([EMA(half_life=0.2)]))
    assert leaves_of(run) == leaves_of(calm)


def test_other_bits_after_a_crash_are_recorded_as_such(calm: Path, tmp_path: Path) -> None:
    """The control: the process that continues has another learning rate."""
    run = with_secrets_of(calm, tmp_path / "run")
    with pytest.raises(InterruptedError):
        train(run, governed([EMA(half_life=0.2), Interrupted(at=11)]))
    changed = governed([EMA(half_life=0.2)], optimizer=SGDSpec(lr=0.05, momentum=0.9, weight_decay=0.01))
    train(run, changed)
    (again,) = of(run, Decision)
    assert (again.action, again.rule, again.step) == ("re-execution", "other-bits", 0)
    assert check(run / rundir.LEDGER).ok
    assert check_sequence(map(read_head, leaves_of(run))).finished


def test_the_checkpoint_before_a_first_admission_stays(calm: Path) -> None:
    """One class may train from the start and needs none; the other one from step 6 on."""
    assert steps_in(calm / rundir.KEPT) == [6]
    kept = load_checkpoint(calm / rundir.KEPT / "step-00000006.json", run_id="run")
    loop = governed([EMA(half_life=0.2)])
    loop.restore(kept.tensors, step=kept.step)
    state = next(entry.state for entry in of(calm, State) if entry.step == 6)
    assert training_state(loop.state, step=6) == state


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening(Method):
    """Switches a condition on at the end of a step."""

    name: ClassVar[str] = "opening"
    kind: ClassVar[Kind] = Kind.PLAN
    at: int = 3

    def after_update(self, state: TrainingSoFar) -> None:
        if state.step == self.at:
            state.resource(Session).conditions.add("ready")
            state.resource(Session).notes.decisions.append(replace(NOTE, action="activation", condition="ready"))


def test_a_checkpoint_stays_before_an_admission_that_was_decided_on_the_way(tmp_path: Path) -> None:
    policy = routing(
        Rule(classes=("licensed",), condition="ready", weight=1.0),
        Rule(classes=("open",), weight=1.0),
        conditions=("ready",),
    )
    run = tmp_path / "run"
    train(run, governed([Opening()], session={"routing": policy}))
    assert steps_in(run / rundir.KEPT) == [4]
    found = [(type(entry).__name__, entry.step) for entry in entries(run)[1:]]
    at = found.index(("Decision", 4))  # made after the update of step 3, so in force from step 4 on
    assert found[at - 1 : at + 3] == [("Step", 3), ("Decision", 4), ("State", 4), ("Step", 4)]
    assert [entry.step for entry in of(run, Step) if entry.numbers[0] is not None] == list(range(4, STEPS))
    train(tmp_path / "shut", governed([Opening(at=99)], session={"routing": policy}))
    assert steps_in(tmp_path / "shut" / rundir.KEPT) == []  # the control: no class is admitted late


def test_the_quarantine_is_counted(tmp_path: Path) -> None:
    paths = (*CLASSES, QUARANTINE)
    found = tags(EXAMPLES_COUNT, paths)
    names = {code: path for path, code in found.codes.items()}
    typing = Typing(codes=found.tags.classes.astype(np.int64), names=names)
    run = tmp_path / "run"
    train(run, governed(typing=typing), tags=found)
    for entry in of(run, Step):
        assert sum(entry.examples) + entry.quarantined == 8 and entry.quarantined in (2, 3)
        assert len(entry.examples) == len(entry.numbers) == len(CLASSES)


def test_a_run_without_policy_and_measurements_is_recorded_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(run, tagged_loop([Recorder(every=EVERY)], examples=EXAMPLES_COUNT, total_steps=STEPS))
    assert check(run / rundir.LEDGER).ok
    for entry in of(run, Step):
        assert (entry.numbers, entry.joint, entry.weights) == ((None, None), None, None)
        assert entry.phase == "progress [0, 1]" and set(entry.updated) == {"1"} and sum(entry.examples) == 8
    assert {name for entry in of(run, State) for name in entry.blobs} == {"slots", "tensors"}
    assert not (run / rundir.CONTRIBUTIONS).exists() and not (run / rundir.KEPT).exists()


def test_what_has_been_admitted_is_remembered_over_a_resume(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(InterruptedError):
        train(run, governed([Interrupted(at=8)]), checkpoint_seconds=0.0)
    (run / rundir.KEPT / "step-00000006.json").unlink()
    train(run, governed())
    assert steps_in(run / rundir.KEPT) == []  # the run went on from step 6, where that was done already


def test_what_the_ledger_takes_is_a_metric_of_the_run(tmp_path: Path) -> None:
    loop = governed()
    with journal_of(tmp_path / "run", loop) as journal:
        loop.state.resource(Session).journal = journal
        found = fit(loop, FitOptions(directory=tmp_path / "run", run_id="run")).metrics
    blobs = sum(path.stat().st_size for path in (tmp_path / "run/ledger/blobs").rglob("*") if path.is_file())
    total = blobs + sum(map(len, leaves_of(tmp_path / "run")))
    assert found["ledger_bytes_per_step"] == total / STEPS
    assert 0 < found["ledger_seconds_per_step"] < 1
    assert found.keys() <= METRICS.keys()
    (end,) = of(tmp_path / "run", End)
    assert end.metrics.keys() == found.keys() - {"ledger_bytes_per_step", "ledger_seconds_per_step"}


def test_profiles_and_decisions_stand_where_they_were_made(tmp_path: Path) -> None:
    loop = governed([Entropy(probes=4, profiles=3, permutations=9)])
    loop.state.resource(Session).notes.decisions.append(NOTE)
    run = tmp_path / "run"
    train(run, loop)
    found = [(type(entry).__name__, entry.step) for entry in entries(run)[1:] if not isinstance(entry, State)]
    assert found[:4] == [("Profile", 0), ("Decision", 0), ("Step", 0), ("Step", 1)]
    at = found.index(("Profile", 6))
    assert found[at - 1 : at + 2] == [("Step", 5), ("Profile", 6), ("Step", 6)]
    assert found[-3:] == [("Step", 11), ("Profile", 12), ("End", 12)]
    assert [entry.step for entry in of(run, Profile)] == [0, 6, 12]
    assert len(list((run / rundir.ENTROPY).iterdir())) == 3


def test_a_run_without_a_ledger_says_so() -> None:
    loop = governed()
    with pytest.raises(RecipeError, match="recorder: this run was given no ledger"):
        loop.call("before_fit")


def test_a_checkpoint_of_another_state_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(InterruptedError):
        train(run, governed([Interrupted(at=8)]), checkpoint_seconds=0.0)
    loop = governed()
    kept = load_checkpoint(run / rundir.CHECKPOINT / "step-00000006.json", run_id="run")
    name = next(name for name in kept.tensors if name.startswith("model/"))
    kept.tensors[name].view(-1)[0] += 1
    loop.restore(kept.tensors, step=6)
    with journal_of(run, governed()) as journal, pytest.raises(LedgerError, match="continues from another state"):
        loop.state.resource(Session).journal = journal
        loop.call("before_fit")


def test_every_tensor_is_in_the_state() -> None:
    """The control of the comparisons: one number changed, and its part of the state has another root."""
    loop = governed([EMA(half_life=0.2)], norm="batch", recorder=False)
    part = {"model": ("parameters", "buffers"), "optimizer": ("optimizer",), "memory": ("optimizer",)}
    for _ in range(2):
        loop.step()
    before = training_state(loop.state, step=2)
    assert training_state(loop.state, step=3).random != before.random
    for name, tensor in loop.tensors().items():
        kept = tensor.clone()
        with torch.no_grad():
            tensor.view(-1)[0] = (
                tensor.view(-1)[0].logical_not() if tensor.dtype == torch.bool else tensor.view(-1)[0] + 1
            )
        found = training_state(loop.state, step=2)
        with torch.no_grad():
            tensor.copy_(kept)
        changed = {key for key in ("parameters", "buffers", "optimizer") if getattr(found, key) != getattr(before, key)}
        assert len(changed) == 1 and changed <= set(part[name.partition("/")[0]]), name
    assert training_state(loop.state, step=2) == before


def test_the_name_type_and_shape_are_in_a_leaf() -> None:
    zeros = torch.zeros(2, 3)
    leaves = {
        tensor_leaf("a", zeros),
        tensor_leaf("b", zeros),
        tensor_leaf("a", zeros.T),
        tensor_leaf("a", zeros.to(torch.int32)),
        tensor_leaf("a", -zeros),
    }
    assert len(leaves) == 5
    rows = torch.arange(6.0).reshape(2, 3)
    assert tensor_leaf("a", rows.T.contiguous().T) == tensor_leaf("a", rows)  # whatever its layout in memory


def test_every_counts_from_the_start_of_the_run(tmp_path: Path) -> None:
    train(tmp_path / "run", governed(every=4))
    assert [entry.step for entry in of(tmp_path / "run", State)] == [4, 6, 8, 12]


# What no step says was updated


UPPER = routing(Rule(classes=("licensed/news", "open"), layers=("3", "7"), weight=1.0))


def other_parameter(state: TrainingSoFar) -> None:
    state.model.get_parameter("0.weight").data[0] += 1e-3


def other_buffer(state: TrainingSoFar) -> None:
    state.model.get_buffer("1.running_mean").add_(1)


def other_optimizer_state(state: TrainingSoFar) -> None:
    (optimizer,) = state.regions["shared"].optimizers
    optimizer.state[state.model.get_parameter("0.bias")]["momentum_buffer"] = torch.ones(8)


MEDDLING = {
    "0.weight": other_parameter,
    "1.running_mean": other_buffer,
    "optimizer/shared/0/0.bias/momentum_buffer": other_optimizer_state,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Meddler(Method):
    """Writes to what it should not, in one step, past everything that looks on."""

    name: ClassVar[str] = "meddler"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = ""
    source: ClassVar[str] = ""
    what: str
    at: int = 6

    def after_update(self, state: TrainingSoFar) -> None:
        if state.step == self.at:
            MEDDLING[self.what](state)


def meddled(what: str, policy: Any = UPPER) -> Any:
    return governed([Meddler(what=what)], norm="batch", session={"routing": policy})


@pytest.mark.parametrize("what", MEDDLING)
def test_what_was_not_updated_and_moved_stops_the_run(what: str, tmp_path: Path) -> None:
    """At the segment's end, by the digests; what it would have recorded is on no record, and the ledger has no end."""
    run = tmp_path / "run"
    with pytest.raises(TrainingError) as found:
        train(run, meddled(what))
    layer = "1" if what.startswith("1") else "0"
    assert str(found.value).startswith(f"{what} is another than before, and none of the steps 5 to 9 updated {layer}:")
    assert check(run / rundir.LEDGER).ok
    assert [entry.step for entry in of(run, State)] == [5] and not of(run, End)


@pytest.mark.parametrize("what", MEDDLING)
def test_where_a_layer_is_updated_nobody_can_tell(what: str, tmp_path: Path) -> None:
    """The control, and the limit: the same writes to layers that train are those of a step."""
    train(tmp_path / "run", meddled(what, routing(Rule(classes=("licensed/news", "open"), weight=1.0))))
    assert len(of(tmp_path / "run", End)) == 1


def test_a_resumed_segment_is_compared_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(InterruptedError):
        train(run, governed([Interrupted(at=6)], norm="batch", session={"routing": UPPER}))
    with pytest.raises(TrainingError, match="none of the steps 5 to 9 updated 0"):
        train(run, meddled("0.weight"))


def test_every_state_lists_its_tensors(calm: Path) -> None:
    """The lists lead to the roots that the entries have."""
    states = of(calm, State)
    assert len(states) >= 3
    for entry in states:
        content = read_blob(calm / rundir.LEDGER, entry.blobs[BLOB].sha256)
        reached = entry.state
        assert parse_tensors(content, where="").roots == (reached.parameters, reached.buffers, reached.optimizer)

"""Deletion by replay: the new run is, bit for bit, the run that never had the target.

That run is trained from its first step, the payload of the target physically absent.
"""

import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer import run_files, rundir
from explorer.audit.trace import participants
from explorer.data import batches
from explorer.data.batches import Order
from explorer.data.dataset import Blocks
from explorer.data.digits import Digits
from explorer.engine.checkpoint import load_checkpoint, save_checkpoint
from explorer.engine.fit import FitOptions
from explorer.engine.loop import Loop
from explorer.entries.kinds import State, TrainingState
from explorer.errors import ProvenanceError, RunError
from explorer.governance.shared_state import Session
from explorer.ledger.log import Log
from explorer.ledger.storage import LedgerDirectory
from explorer.note import Algorithm, Signer
from explorer.provenance.commitments import Salts, write_salts
from explorer.provenance.envelope import write_envelope
from explorer.provenance.keys import read_key
from explorer.provenance.policy import Quarantine, Rule
from explorer.provenance.tags_file import write_table
from explorer.provenance.trust import Role, write_trust
from explorer.runlog.documents import QUARANTINE_FILE, quarantine_of
from explorer.runlog.model_file import MODEL as WEIGHTS
from explorer.runlog.model_file import ModelFile
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.segments import read_rows
from explorer.runlog.target import Target, counterfactual, left_out, read_origin
from explorer.runlog.tensors import read_ended
from explorer.training import deletion, run
from explorer.training.deletion import delete, train_counterfactual
from explorer.training.replay import Elsewhere, replay
from tests.governance import desk
from tests.provenance import people
from tests.provenance.people import GOVERNANCE
from tests.training.deletions import (
    ADAMW,
    BATCHNORM,
    GPT,
    NEWS,
    TEXT,
    TEXT_SOURCE,
    author,
    never,
    payload_absent,
    recipe_of,
    route,
    text,
    trained,
)

CLASS = Target(classes=(NEWS,))
MIT = "open/mit"
DESK = "example.com/news-desk"
LATE = desk.policy(
    name="late",
    rules=(
        Rule(classes=(NEWS,), progress=(0.0, 0.5), weight=0.0),
        Rule(classes=(MIT,), progress=(0.0, 0.8), weight=0.0),
        Rule(classes=("*",), weight=1.0),
    ),
)
GATED = desk.policy(
    name="gated",
    conditions=("ready",),
    rules=(
        Rule(classes=(NEWS,), progress=(0.0, 0.5), weight=0.0),
        Rule(classes=(MIT,), condition="ready", weight=0.5),
        Rule(classes=("*",), weight=1.0),
    ),
)
PROFILED = {"entropy": {"probes": 4, "profiles": 3, "permutations": 2}}
METHODS: list[Any] = ["contributions", PROFILED, {"ema": {"half_life": 0.2}}, {"mixup": {"alpha": 1.0}}]
GATE = {"entropy_gate": {"condition": "ready", "of": NEWS, "effective_rank": 1.0, "probes": 4, "profiles": 3}}
TRAIN = {"epochs": 0.27}  # ten steps


@pytest.fixture(scope="module")
def desk_of(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return author(tmp_path_factory.mktemp("author"), LATE, GATED)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory, desk_of: Path) -> Path:
    return trained(tmp_path_factory.mktemp("old"), desk_of, recipe_of("late", METHODS, model=BATCHNORM, **TRAIN))


@pytest.fixture(scope="module")
def reference(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that never had the class."""
    with payload_absent(of_class):
        return never(old, CLASS, tmp_path_factory.mktemp("never"))


@pytest.fixture(scope="module")
def new(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return delete(old, CLASS, route=route(old, CLASS), to=tmp_path_factory.mktemp("runs") / "deletions")


def of_class(number: int) -> bool:
    return desk.classes_of(number + 1)[number] == NEWS


def same(one: Path, other: Path) -> bool:
    """Whether two runs ended with the same tensors, all of them, the same model and the same measurements."""
    ends = [read_ended(RunLedger(run)) for run in (one, other)]
    models = [ModelFile(run / rundir.MODEL / WEIGHTS).leaves() for run in (one, other)]
    metrics = [(run / rundir.METRICS).read_bytes() for run in (one, other)]
    states = [each.end.entry.state for each in ends]
    assert (ends[0].tensors == ends[1].tensors) == (states[0] == states[1])
    return ends[0].tensors == ends[1].tensors and models[0] == models[1] and metrics[0] == metrics[1]


def steps_of(run: Path) -> range:
    ledger = RunLedger(run)
    return range(ledger.begins, ledger.steps)


# Equal to the run that never had it.


def test_a_class(old: Path, new: Path, reference: Path) -> None:
    """From the checkpoint before its first admission, and so many steps as the plan says."""
    found = route(old, CLASS)
    assert (found.level, found.start, found.steps) == ("G3", 5, 5)
    assert same(new, reference) and not same(new, old)
    assert steps_of(new) == range(5, 10) and len(steps_of(new)) == found.steps
    assert (new / rundir.PRIVATE).stat().st_mode & 0o077 == 0  # states of training are there
    mine, theirs = states_of(new), states_of(reference)
    assert mine.items() <= theirs.items() and 10 in mine
    assert RunLedger(new).genesis.start == theirs[5]  # where the run without the class was after so many steps


def states_of(run: Path) -> dict[int, TrainingState]:
    """The states on record, by the steps done."""
    ledger = RunLedger(run)
    return {at.entry.step: at.entry.state for at in ledger.read([at for _, at in ledger.outline.states], State)}


@pytest.mark.slow
def test_the_deletion_reads_nothing_of_the_class_either(old: Path, reference: Path, tmp_path: Path) -> None:
    with payload_absent(of_class):
        assert same(delete(old, CLASS, route=route(old, CLASS), to=tmp_path / "deletions"), reference)


def rows_of(run: Path) -> np.ndarray:
    """The examples of every slot, step after step."""
    ledger, found = RunLedger(run), []
    for segment in ledger.segments():
        rows = read_rows(ledger, segment, tuple(ledger.read_steps(segment.steps)))
        assert rows is not None
        found += list(rows)
    return np.stack(found)


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["late", "early and late"])
def test_records(old: Path, tmp_path: Path, whole: bool) -> None:
    """One that came into a batch late; with one that was in the first batch everything is trained again."""
    slots = rows_of(old)
    late = next(row for row in slots[8].tolist() if of_class(row) and row not in slots[:8])
    early = next(row for row in slots[0].tolist() if desk.classes_of(row + 1)[row] == "open")
    gone, start = ({early, late}, 0) if whole else ({late}, 8)
    target = Target(records=tuple(sorted(gone)))
    found = route(old, target)
    assert (found.level, found.start, found.steps) == ("G3", start, 10 - start)
    with payload_absent(lambda number: number in gone):
        new = delete(old, target, route=found, to=tmp_path / "deletions")
        assert same(new, never(old, target, tmp_path / "never"))
    assert not same(new, old) and steps_of(new) == range(start, 10)
    assert gone <= who_moved(old) and not gone & who_moved(new)  # its slots stay, and no entry has it moving a layer


def who_moved(run: Path) -> set[int]:
    """The examples that moved any layer, as `explorer trace` tells them."""
    ledger = RunLedger(run)
    everything: Any = {name: range(len(getattr(ledger.genesis, name))) for name in ("classes", "layers")}
    found = participants(ledger, steps_of(run), **everything)
    return {number for each in found for number in each.examples}


@pytest.mark.slow
def test_an_authority(tmp_path: Path) -> None:
    second = people.authority(DESK, Role.DATA_GOVERNANCE, branches=("licensed",))
    trust = replace(desk.TRUST, authorities=(*desk.TRUST.authorities, second))
    directory = author(tmp_path, LATE)
    split = Digits().load(None).train
    owners = [DESK if at % 6 == 2 else GOVERNANCE for at in range(len(split))]  # of every other example of the class
    made = bytearray()
    tags = [desk.Record(split.content(at), desk.classes_of(at + 1)[at], "", by) for at, by in enumerate(owners)]
    write_table(directory / "tags.parquet", desk.tag_records(tags, made))
    (directory / "salts").unlink()
    write_salts(directory / "salts", Salts(content=bytes(made)))
    keys = [people.private(GOVERNANCE), people.private(DESK)]
    write_envelope(directory / "tags.json", desk.signed(directory / "tags.parquet", *keys, trust=trust))
    write_trust(directory / "trust.json", trust)
    old = trained(tmp_path, directory, recipe_of("late", METHODS, **TRAIN))
    target = Target(authorities=(DESK,))
    found = route(old, target)
    assert (found.level, found.start) == ("G3", 5)
    with payload_absent(lambda number: number % 6 == 2):
        new = delete(old, target, route=found, to=tmp_path / "deletions")
        assert same(new, never(old, target, tmp_path / "never"))


@pytest.mark.slow
def test_a_class_of_which_some_were_in_quarantine(tmp_path: Path) -> None:
    """They are not read again, and stay in it: otherwise all slots of the batches would change."""
    directory = author(tmp_path, replace(LATE, quarantine=Quarantine.WEIGHT_ZERO))
    split, strangers = Digits().load(None).train, {0, 5, 8}  # one of another class, two of this one
    made = bytearray()
    classes = desk.classes_of(len(split))
    tags = [desk.Record(split.content(at + (at in strangers)), classes[at], "", GOVERNANCE) for at in range(len(split))]
    write_table(directory / "tags.parquet", desk.tag_records(tags, made))
    (directory / "salts").unlink()
    write_salts(directory / "salts", Salts(content=bytes(made)))
    desk.attest(directory)
    old = trained(tmp_path, directory, recipe_of("late", METHODS, **TRAIN))
    assert quarantine_of(RunLedger(old)) == strangers
    with payload_absent(of_class):
        new = delete(old, CLASS, route=route(old, CLASS), to=tmp_path / "deletions")
        assert same(new, never(old, CLASS, tmp_path / "never")) and quarantine_of(RunLedger(new)) == strangers
    assert rows_of(new).tolist() == rows_of(old)[5:].tolist()
    (new / rundir.GOVERNANCE / QUARANTINE_FILE).unlink()
    with pytest.raises(RunError, match="was planned for governance"):  # the control
        train_counterfactual(new)
    rundir.write_bytes(new / rundir.GOVERNANCE / QUARANTINE_FILE, b'{"other-content":[5,"8"]}')
    with pytest.raises(ProvenanceError, match=r"quarantine\.json: expected lists of rows by reason"):
        train_counterfactual(new)


DECIDING: list[Any] = [
    "contributions",
    {"governed_freezing": {"start": 0.3, "settled": 10.0, "patience": 1, "profiles": 6, "probes": 4}},
    {"governed_selective_backprop": {"start": 0.3}},
    {"sam": {"rho": 0.3}},
]


@pytest.mark.slow
def test_with_methods_that_decide_class_by_class(desk_of: Path, tmp_path: Path) -> None:
    """What they had noted of the class before it trained is forgotten in the first step that is trained again."""
    old = trained(tmp_path, desk_of, recipe_of("late", DECIDING, **TRAIN))
    found = route(old, CLASS)
    assert found.start == 5
    assert same(delete(old, CLASS, route=found, to=tmp_path / "new"), never(old, CLASS, tmp_path / "never"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting", [{}, {"precision": "bf16"}, {"microbatch_size": 2}], ids=["", "bf16", "microbatches"]
)
def test_a_transformer(tmp_path: Path, setting: Any) -> None:
    data = text(tmp_path / "data")
    desk_of = author(tmp_path, LATE, source=TEXT_SOURCE, data=data)
    methods = ["contributions", {"ema": {"half_life": 0.2}}, {"gradient_clipping": {"threshold": 0.05}}]
    changes: Any = {"model": GPT, "dataset": TEXT, "optimizer": ADAMW, "batch_size": 12, "epochs": 2.0}
    changes |= {"evaluations": 2, **setting}  # automatic ones depend on the time
    old = trained(tmp_path, desk_of, recipe_of("late", methods, **changes), data=data)
    with payload_absent(of_class):
        new = delete(old, CLASS, route=route(old, CLASS), to=tmp_path / "deletions", data=data)
        assert same(new, never(old, CLASS, tmp_path / "never", data=data)) and not same(new, old)


@pytest.mark.slow
def test_a_deletion_from_a_run_that_a_deletion_made(new: Path, tmp_path: Path) -> None:
    """It leaves out both, and continues from the state that the first one had taken over."""
    second = Target(classes=(MIT,))
    last = delete(new, second, route=route(new, second), to=tmp_path / "deletions")
    assert same(last, never(new, second, tmp_path / "never"))
    assert left_out(run_files.read(run_files.RunRecord, last / rundir.RUN)).classes == (NEWS, MIT)
    origin = read_origin(last)
    assert origin is not None and origin.run == new.name
    with pytest.raises(RunError, match="leaves out licensed/news already: there is nothing to delete"):
        counterfactual(run_files.read(run_files.RunRecord, last / rundir.RUN), CLASS)


def test_a_replay_of_the_new_run_finds_it_as_it_is_on_record(new: Path) -> None:
    found = replay(new)
    assert found.equal and (found.first, found.last, found.start) == (5, 10, 5)


# What makes it something else.


def test_a_later_checkpoint_would_break_it(old: Path, reference: Path, tmp_path: Path) -> None:
    """After the first contribution: one was kept there, for another class."""
    late = replace(route(old, CLASS), start=8, steps=2)
    assert not same(delete(old, CLASS, route=late, to=tmp_path / "deletions"), reference)


@pytest.mark.slow
def test_a_forward_pass_before_admission_would_break_it(
    desk_of: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running statistics include every class that is passed, and the kept checkpoint has them."""
    passes = Loop._passes

    def looking(self: Loop) -> Any:
        absent = self.state.resource(Session).absent
        for share in self.state.shares:
            if not share.parameters and share.name not in absent:
                self.read_share(share)
                assert self.state.batch is not None
                self.setting.model(self.state.batch.inputs)
        return passes(self)

    monkeypatch.setattr(Loop, "_passes", looking)
    old = trained(tmp_path, desk_of, recipe_of("late", METHODS, model=BATCHNORM, **TRAIN))
    new = delete(old, CLASS, route=route(old, CLASS), to=tmp_path / "deletions")
    reference = never(old, CLASS, tmp_path / "never")
    found = [read_ended(RunLedger(run)).tensors.buffers["norm.running_mean"] for run in (new, reference)]
    assert found[0] != found[1]


def test_shifted_slots_would_break_it(old: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run without the class is one with its places empty, not one with its places given away."""
    begin = Order.__init__

    def shifted(self: Order, codes: np.ndarray, *, seed: int, blocks: Blocks | None = None) -> None:
        begin(self, codes, seed=seed, blocks=blocks)
        self._members.pop(desk.TAXONOMY.codes[NEWS])
        self._places, self._pattern = batches._interleaved({code: len(found) for code, found in self._members.items()})

    monkeypatch.setattr(Order, "__init__", shifted)
    assert not same(new, never(old, CLASS, tmp_path / "never"))


@pytest.mark.slow
def test_a_decision_by_the_classes_probes_reaches_others(desk_of: Path, tmp_path: Path) -> None:
    """The plan goes back to before it; a start at the class's first step gives another run."""
    old = trained(tmp_path, desk_of, recipe_of("gated", ["contributions", GATE], **TRAIN))
    found = route(old, CLASS)
    assert found.start == 0
    reference = never(old, CLASS, tmp_path / "never")
    assert same(delete(old, CLASS, route=found, to=tmp_path / "deletions"), reference)
    late = replace(found, start=5, steps=5)
    assert not same(delete(old, CLASS, route=late, to=tmp_path / "late"), reference)


# Refused, interrupted.


def test_elsewhere_it_is_refused_with_all_that_differs(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    differing = (
        Elsewhere(what="hardware.threads", recorded="1", here="2"),
        Elsewhere(what="packages.torch", recorded="2.12.0", here="2.13.0"),
        Elsewhere(what="platform", recorded="Linux-1", here="Linux-2"),
    )
    monkeypatch.setattr(deletion, "elsewhere", lambda run, record: differing)
    with pytest.raises(RunError, match=r"hardware.threads: 1 then, 2 here; packages.torch: 2.12.0 then, 2.13.0 here$"):
        delete(old, CLASS, route=route(old, CLASS), to=tmp_path / "deletions")
    assert not (tmp_path / "deletions").exists()
    monkeypatch.setattr(deletion, "elsewhere", lambda run, record: differing[2:])
    delete(old, CLASS, route=route(old, CLASS), to=tmp_path / "deletions")  # an update of the system changes no bit


def test_an_unfinished_run_is_refused(old: Path, tmp_path: Path, desk_of: Path) -> None:
    copy = tmp_path / "runs" / old.name
    shutil.copytree(old, copy)
    leaves = list(LedgerDirectory(copy / rundir.LEDGER).entries())
    origin = LedgerDirectory(copy / rundir.LEDGER).checkpoint().origin
    signer = Signer(name=origin, algorithm=Algorithm.ED25519, private_key=read_key(desk_of / "trainer.pem", None))
    (copy / rundir.LEDGER / "checkpoint").unlink()
    shutil.rmtree(copy / rundir.LEDGER / "tile")
    with Log.create(copy / rundir.LEDGER, origin=origin, signer=signer) as log:
        log.append(leaves[:-1])
    with pytest.raises(RunError, match="unfinished: its ledger has no end"):
        delete(copy, CLASS, route=route(copy, CLASS), to=tmp_path / "deletions")


def test_a_checkpoint_that_the_ledger_does_not_know_is_refused(old: Path, tmp_path: Path) -> None:
    """It is whole, and of this run, but has a later state."""
    copy = tmp_path / "runs" / old.name
    shutil.copytree(old, copy)
    later = load_checkpoint(old / rundir.KEPT / "step-00000008.json", run_id=old.name)
    save_checkpoint(copy / rundir.KEPT, replace(later, step=5), run_id=old.name, keep=None)
    with pytest.raises(RunError, match="not the state that the ledger has on record after 5 steps"):
        delete(copy, CLASS, route=route(copy, CLASS), to=tmp_path / "deletions")
    assert not (tmp_path / "deletions").exists()


def test_a_directory_with_something_else_in_it_is_refused(old: Path, new: Path, reference: Path) -> None:
    found = route(old, CLASS)
    with pytest.raises(RunError, match="holds a run of its own: give another directory with --out"):
        delete(old, CLASS, route=found, to=reference.parent)
    with pytest.raises(RunError, match="begun as another deletion, G3 from step 5"):
        delete(old, CLASS, route=replace(found, start=0, steps=10), to=new.parent)


@pytest.mark.slow
def test_interrupted_it_goes_on_where_it_was(old: Path, reference: Path, tmp_path: Path) -> None:
    """A stop after seven steps leaves a checkpoint; the same command continues from there, and not from step 5."""
    seen: list[int] = []

    def stop(done: int, total: int) -> None:
        seen.append(done)
        if done == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    found = route(old, CLASS)
    with pytest.raises(KeyboardInterrupt):
        delete(old, CLASS, route=found, to=tmp_path / "deletions", on_progress=stop)
    assert same(delete(old, CLASS, route=found, to=tmp_path / "deletions", on_progress=stop), reference)
    assert seen[:3] == [6, 7, 9] and seen[-1] == 10


def test_two_at_once_are_one(old: Path, reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one begins and ends while this one is still reading the data: what it made stays."""
    found, build = route(old, CLASS), deletion.build_loop

    def meanwhile(*arguments: Any, **named: Any) -> Loop:
        monkeypatch.setattr(deletion, "build_loop", build)
        delete(old, CLASS, route=found, to=tmp_path / "deletions")
        return build(*arguments, **named)

    monkeypatch.setattr(deletion, "build_loop", meanwhile)
    assert same(delete(old, CLASS, route=found, to=tmp_path / "deletions"), reference)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def delete_and_die(old: Path, to: Path, where: int | str) -> None:
    """With a checkpoint after every step that allows one. Killed after so many steps, or before the origin is there."""
    run.FitOptions = partial(FitOptions, checkpoint_seconds=0.0)  # pyright: ignore[reportAttributeAccessIssue]
    if where == "preparing":
        deletion.write_origin = die

    def watch(done: int, total: int) -> None:
        if done == where:
            die()

    delete(old, CLASS, route=route(old, CLASS), to=to, on_progress=watch)


@pytest.mark.slow
def test_killed_again_and_again_it_ends_the_same(old: Path, reference: Path, tmp_path: Path) -> None:
    """While it takes over, and in two places of the training; the same command continues each time."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["explorer.training.run", "tests.training.deletions"])
    for where in ("preparing", 6, 9):
        worker = processes.Process(target=delete_and_die, args=(old, tmp_path, where))
        worker.start()
        worker.join(600)
        assert worker.exitcode == -signal.SIGKILL
    new = delete(old, CLASS, route=route(old, CLASS), to=tmp_path)
    assert same(new, reference)
    # A checkpoint that was still being written when the process was killed does not count.
    assert run_files.read(run_files.ResultRecord, new / rundir.RESULT).resumed in (1, 2, 3)

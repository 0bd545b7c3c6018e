"""Governed runs, from documents to a ledger that verifies; what is not believed starts nothing."""

import json
import shutil
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from explorer import run_files, rundir
from explorer.audit.shares import estimates
from explorer.canonical import digest
from explorer.entries.kinds import End, Genesis, Step, decode
from explorer.errors import ProvenanceError, RecipeError, RunError
from explorer.ledger.storage import LedgerDirectory, read_blob
from explorer.ledger.verify import verify
from explorer.provenance.commitments import destroy_salt, read_salts
from explorer.provenance.keys import new_key, read_key, write_key
from explorer.provenance.trust import Quorum, Role, Trust, read_trust
from explorer.recipes import machine
from explorer.run_files import RunRecord
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.documents import read_copies
from explorer.runlog.run_ledger import RunLedger
from explorer.training import demonstration
from explorer.training.replay import replay
from explorer.training.run import build_loop, execute
from tests.training.governed_for_tests import METHODS, begun, documents, planned, recipe

SIMULATED = ("simulated/class-00", "simulated/class-01", "simulated/class-02")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return documents(tmp_path_factory.mktemp("governance"))


@pytest.fixture
def desk(made: Path, tmp_path: Path) -> Path:
    """Documents that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "desk"))


@pytest.fixture(scope="module")
def done(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    directory = begun(planned(recipe(made)), tmp_path_factory.mktemp("runs"))
    execute(directory)
    return directory


def entries(run: Path) -> list[Any]:
    return [decode(leaf) for leaf in LedgerDirectory(run / rundir.LEDGER).entries(0)]


def alone(trust: Trust) -> Trust:
    """The trust file without cosigners."""
    quorum = Quorum(documents=trust.quorum.documents, checkpoints={Role.TRAINER: 1})
    return replace(trust, quorum=quorum)


def test_the_ledger_of_a_governed_run_verifies_under_the_trainers_name(done: Path) -> None:
    record = run_files.read(RunRecord, done / rundir.RUN)
    trust = alone(read_trust(done / "governance" / "trust.json"))
    origin = f"example.com/trainer/{record.run_id}"
    found = verify(done / rundir.LEDGER, anchor=anchor_of_trust(trust, origin=origin), now=int(time.time()))
    assert found.ok, found
    assert found.checkpoint.origin == origin


def test_entries_say_which_numbers_are_estimates(made: Path, tmp_path: Path) -> None:
    methods = [{"contributions": {"every": 3}} if method == "contributions" else method for method in METHODS]
    run = begun(planned(recipe(made, methods=methods)), tmp_path)
    execute(run)
    steps = [entry for entry in entries(run) if isinstance(entry, Step)]
    assert [step.estimated for step in steps] == [False, True, True, False]
    assert estimates(RunLedger(run), range(4)) == (
        "In 2 of these 4 steps the numbers are estimates, from sketches of 64 numbers a layer: a cosine is off by about"
        " 0.13."
    )
    assert estimates(RunLedger(run), range(0, 1)) is None
    assert replay(run).equal


def test_the_first_entry_names_what_the_run_is_made_of(done: Path) -> None:
    record = run_files.read(RunRecord, done / rundir.RUN)
    genesis, *_, end = entries(done)
    assert isinstance(genesis, Genesis) and isinstance(end, End)
    governance = record.identity["governance"]
    assert genesis.run == record.run_id and genesis.recipe == digest(record.identity)
    assert (genesis.trust, genesis.taxonomy, genesis.policy) == (
        governance["trust"],
        governance["taxonomy"],
        governance["policy"],
    )
    assert genesis.tags["digits"].root == governance["tags"]
    assert genesis.tags["digits"].attestation == governance["attestation"]
    assert genesis.classes == SIMULATED and genesis.blobs.keys() == {"tensors"}
    assert genesis.code == rundir.read_json(done / rundir.ENVIRONMENT)["training_code"]
    loop = build_loop(record, data=None, documents=read_copies(done))
    assert genesis.layers == tuple(leaf.name for leaf in loop.state.layers)


def test_every_step_says_how_many_examples_of_each_class(done: Path) -> None:
    steps = [entry for entry in entries(done) if isinstance(entry, Step)]
    assert [step.step for step in steps] == [0, 1, 2, 3]
    assert all(sum(step.examples) == 64 and step.quarantined == 0 for step in steps)
    assert all(abs(examples - 64 / 3) <= 1 for step in steps for examples in step.examples)


def test_the_result_says_what_the_ledger_costs(done: Path) -> None:
    metrics = rundir.read_json(done / rundir.RESULT)["metrics"]
    assert metrics["ledger_bytes_per_step"] > 0 and metrics["ledger_seconds_per_step"] > 0


def test_documents_are_part_of_a_runs_name_and_their_place_is_not(made: Path, desk: Path) -> None:
    record = planned(recipe(made)).record
    assert planned(recipe(desk)).record == record
    assert planned(recipe("desk"), beside=desk.parent).record == record
    assert planned(recipe("elsewhere"), governance=desk).record == record
    other = planned(recipe(made, methods=[{"routing": {"policy": "lenient"}}, *METHODS[1:]])).record
    assert other.run_id != record.run_id and other.identity["governance"] != record.identity["governance"]
    ungoverned = planned(recipe(methods=[])).record
    assert "governance" not in ungoverned.identity


def test_tags_alone_type_the_batches(made: Path, tmp_path: Path) -> None:
    """Without routing or recorder: the tags are checked, and a batch is made of shares."""
    plan = planned(recipe(made, methods=[]))
    assert plan.record.identity["governance"]["policy"] is None
    loop = build_loop(plan.record, data=None, documents=plan.documents)
    loop.step()
    assert [share.name for share in loop.state.shares] == list(SIMULATED)
    directory = begun(plan, tmp_path)
    execute(directory)
    assert not (directory / rundir.LEDGER).exists()


@pytest.mark.parametrize("method", [{"routing": {"policy": "lower"}}, "contributions", "entropy", "recorder"])
def test_governed_methods_ask_for_documents(method: Any) -> None:
    name = method if isinstance(method, str) else "routing"
    with pytest.raises(
        RecipeError, match=rf"tiny.yaml: recipe 'tiny': '{name}' acts on signed documents, .*governance"
    ):
        planned(recipe(methods=[method]))


def test_a_policy_that_is_not_there(made: Path) -> None:
    with pytest.raises(ProvenanceError, match=r"unknown policy 'lowe'; did you mean 'lower'\? known: lenient, lower"):
        planned(recipe(made, methods=[{"routing": {"policy": "lowe"}}]))


def test_an_example_that_is_not_its_tags_refuses_or_is_quarantined_and_the_ledger_has_it(
    desk: Path, tmp_path: Path
) -> None:
    for slot in (3, 700):
        destroy_salt(desk / "salts", slot)
    with pytest.raises(
        ProvenanceError, match=r"the example of slot 3 .*: its salt was destroyed: .*; so it is of 1 more"
    ):
        planned(recipe(desk))
    lenient = [{"routing": {"policy": "lenient"}}, *METHODS[1:]]
    run = begun(planned(recipe(desk, methods=lenient)), tmp_path)
    execute(run)
    genesis, *others = entries(run)
    content = read_blob(run / rundir.LEDGER, genesis.blobs["quarantine"].sha256)
    assert json.loads(content) == {"erased": [3, 700]}
    steps = [entry for entry in others if isinstance(entry, Step)]
    assert all(sum(step.examples) + step.quarantined == 64 for step in steps)
    assert sum(step.quarantined for step in steps) == 1  # of an epoch's two, at a quarter and at three quarters of it


def test_examples_without_tags_stand_in_the_ledger_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their tag is the zero tag of their slot: written, replayed and audited alike."""
    every = demonstration.records_of
    monkeypatch.setattr(demonstration, "records_of", lambda *given, **named: islice(every(*given, **named), 800))
    lenient = [{"routing": {"policy": "lenient"}}, *METHODS[1:]]
    plan = planned(recipe(documents(tmp_path), methods=lenient))
    run = begun(plan, tmp_path / "runs")
    execute(run)
    genesis, *others = entries(run)
    content = read_blob(run / rundir.LEDGER, genesis.blobs["quarantine"].sha256)
    assert json.loads(content) == {"no-tag": list(range(800, 899))}
    assert sum(entry.quarantined for entry in others if isinstance(entry, Step)) == round(256 * 99 / 899)
    assert replay(run).equal


def test_documents_that_change_after_planning_start_nothing(desk: Path, tmp_path: Path) -> None:
    """The copies are checked again when the run starts, not only when it is planned."""
    run = begun(planned(recipe(desk)), tmp_path)
    table = run / "governance" / "tags.parquet"
    content = bytearray(table.read_bytes())
    content[100] ^= 1
    table.write_bytes(content)
    with pytest.raises(ProvenanceError, match=r"tags.parquet: not the file that was signed"):
        execute(run)
    assert not (run / rundir.LEDGER).exists()


def test_documents_of_another_run_start_nothing(desk: Path, made: Path, tmp_path: Path) -> None:
    one = begun(planned(recipe(made)), tmp_path)
    other = begun(planned(recipe(made, methods=[{"routing": {"policy": "lenient"}}])), tmp_path)
    shutil.copy(other / "governance" / "policy.json", one / "governance" / "policy.json")
    with pytest.raises(RunError, match=r"was planned for governance .*, found .*: plan it again here"):
        execute(one)


def test_a_run_without_its_copies_starts_not(made: Path, tmp_path: Path) -> None:
    run = begun(planned(recipe(made)), tmp_path)
    shutil.rmtree(run / "governance")
    with pytest.raises(RunError, match=r"cannot read .*source.json"):
        execute(run)


def test_only_a_trainer_signs_the_ledger(desk: Path, tmp_path: Path) -> None:
    for name, message in (("model-risk.pem", "wrong role: example.com/model-risk"), (None, "not in the trust file")):
        (desk / "trainer.pem").unlink()
        write_key(desk / "trainer.pem", new_key() if name is None else read_key(desk / name, None), None)
        run = begun(planned(recipe(desk)), tmp_path / str(name))
        with pytest.raises(ProvenanceError, match=message):
            execute(run)
        assert not (run / rundir.LEDGER).exists()


@pytest.mark.slow
def test_the_passphrase_of_the_trainer_comes_from_the_environment(
    desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = read_key(desk / "trainer.pem", None)
    (desk / "trainer.pem").unlink()
    write_key(desk / "trainer.pem", key, "correct horse")
    run = begun(planned(recipe(desk)), tmp_path)
    for found, message in ((None, "its passphrase is needed"), ("wrong", "wrong passphrase")):
        monkeypatch.delenv("EXPLORER_PASSPHRASE", raising=False)
        if found is not None:
            monkeypatch.setenv("EXPLORER_PASSPHRASE", found)
        with pytest.raises(ProvenanceError, match=message):
            execute(run)
    monkeypatch.setenv("EXPLORER_PASSPHRASE", "correct horse")
    assert execute(run).steps == 4


@pytest.mark.slow
def test_a_ledger_goes_on_with_the_code_that_began_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(planned(recipe(made)), tmp_path)
    stopped(run, monkeypatch)
    before = entries(run)
    assert isinstance(before[0], Genesis) and not isinstance(before[-1], End)
    monkeypatch.setattr(machine, "code_digest", lambda parts=(".",): "f" * 64)
    with pytest.raises(RunError, match="its ledger was begun by other code; found ffff"):
        execute(run)
    monkeypatch.undo()
    assert execute(run).resumed == 1
    assert entries(run)[: len(before)] == before and isinstance(entries(run)[-1], End)


def stopped(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted after the first segment, where a checkpoint may be written."""
    from explorer.training import run as module

    count = iter([False, True])

    class Stop:
        def __enter__(self) -> Any:
            return lambda: next(count, True)

        def __exit__(self, *_: object) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(module, "stop_signals", Stop)
        with pytest.raises(KeyboardInterrupt):
            execute(run)


def test_the_same_documents_and_seed_give_the_same_bits_and_the_same_entries(
    made: Path, done: Path, tmp_path: Path
) -> None:
    """But for commitments, whose secrets are each run's own."""
    again = begun(planned(recipe(made)), tmp_path)
    execute(again)
    results = [rundir.read_json(run / rundir.RESULT)["state_digest"] for run in (done, again)]
    assert results[0] == results[1]
    slots = [[entry.slots for entry in entries(run) if isinstance(entry, Step)] for run in (done, again)]
    assert slots[0] == slots[1]
    assert read_salts(done / rundir.SECRETS).content != read_salts(again / rundir.SECRETS).content

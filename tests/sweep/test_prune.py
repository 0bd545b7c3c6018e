"""Pruning removes what an earlier specification left behind, and nothing that anything rests on."""

import dataclasses
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import run_files, rundir
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Genesis, Observation, encode
from explorer.errors import RunError, SweepError
from explorer.ledger.log import Log
from explorer.note import Algorithm, Signer
from explorer.project import Project
from explorer.run_files import RunRecord
from explorer.runlog.attested import ATTESTATION
from explorer.runlog.target import Origin, Target, write_origin
from explorer.store import queries
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.sweep import prune as pruning
from explorer.sweep.prune import TRASH, plan_pruning, prune
from tests.builders import run_record, write_plan, write_run
from tests.cli.command import explorer, refused
from tests.entries.examples import EXAMPLES

KEPT = run_record()
OLD = run_record(full_steps=40)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A sweep whose plan has one of its two runs."""
    for record in (KEPT, OLD):
        write_run(tmp_path / "runs", record)
    write_plan(tmp_path / "runs", [KEPT])
    return tmp_path / "runs"


def place(runs: Path, record: RunRecord = OLD) -> Path:
    return runs / record.sweep / record.run_id


def reasons(runs: Path, *named: str) -> list[str]:
    found = plan_pruning(runs, "digits", named=named)
    assert not found.removable
    return [each.reason for each in found.kept]


def test_it_lists_first_and_removes_on_request(runs: Path) -> None:
    ingest(runs)
    listed = explorer("sweep", "prune", "digits", "--runs", runs)
    assert OLD.run_id in listed.stdout and "--yes removes them" in listed.stdout
    assert place(runs).exists()
    done = explorer("sweep", "prune", "digits", "--yes", "--runs", runs)
    assert "1 run directories of digits" in done.stdout and ": removed" in done.stdout
    assert [path.name for path in rundir.run_directories(runs / "digits")] == [KEPT.run_id]
    assert not (runs / "digits" / TRASH).exists()
    assert len(queries.results(database(runs), every=True).rows) == 1
    assert explorer("sweep", "prune", "digits", "--runs", runs).stdout == "nothing to remove from digits\n"


def test_a_specification_names_its_sweep_if_it_is_what_was_started(runs: Path) -> None:
    spec = runs.parent / "digits.yaml"
    spec.write_text("name: digits\n")
    assert OLD.run_id in explorer("sweep", "prune", spec, "--runs", runs).stdout
    spec.write_text("name: digits\nseeds: [7]\n")
    assert "differs from the specification that digits was last started with" in refused(
        "sweep", "prune", spec, "--runs", runs
    )


@pytest.mark.parametrize("name", ["../digits", "digits/..", "/", "", "digit", "_audit"])
def test_no_other_directory_can_be_named(runs: Path, name: str) -> None:
    with pytest.raises(SweepError, match="unknown sweep"):
        plan_pruning(runs, name)
    with pytest.raises(SweepError, match="unknown sweep"):
        prune(runs, name)


@pytest.mark.parametrize("name", [KEPT.run_id, "../digits", "."])
def test_a_run_of_the_plan_cannot_be_named(runs: Path, name: str) -> None:
    with pytest.raises(SweepError, match="unknown superseded run"):
        prune(runs, "digits", named=[name])
    assert place(runs, KEPT).exists()


def test_a_run_in_progress_and_a_sweep_in_progress_are_kept(runs: Path) -> None:
    with rundir.locked(place(runs), what="run"):
        assert reasons(runs) == ["it is being trained"]
        assert not prune(runs, "digits").removable
    with rundir.locked(runs / "digits", what="sweep"), pytest.raises(RunError, match="is in use by"):
        prune(runs, "digits")
    assert place(runs).exists()
    assert prune(runs, "digits").removable == (place(runs),)  # the control


def test_a_governed_run_is_removed_only_where_it_is_named(runs: Path) -> None:
    (place(runs) / rundir.LEDGER).mkdir()
    assert reasons(runs) == ["governed: its ledger is a record; to remove it, name the run"]
    assert prune(runs, "digits", named=[OLD.run_id]).removable == (place(runs),)
    assert not place(runs).exists()


def test_a_run_with_an_attested_model_is_kept_even_where_it_is_named(runs: Path) -> None:
    rundir.write_bytes(place(runs) / rundir.MODEL / ATTESTATION, b"{}")
    assert reasons(runs, OLD.run_id) == ["an attestation vouches for its model"]


STATE = LedgerState(origin=f"example.com/trainer/{OLD.run_id}", size=3, root="0" * 64)


def test_a_run_that_a_deletion_continued_from_is_kept(runs: Path) -> None:
    made = write_run(runs, dataclasses.replace(run_record(seed=3), sweep="deletions"))
    target = Target(classes=("personal",))
    write_origin(made, Origin(level="G3", run=OLD.run_id, ledger=STATE, target=target, begins=0, state=None))
    assert reasons(runs, OLD.run_id) == [f"the deletion deletions/{made.name} continued from it"]


def test_runs_in_the_project_ledger_are_kept(runs: Path) -> None:
    seen = Observation(ledger=STATE, model="0" * 64, role="evaluator", admitted={}, statement="0" * 64, blobs={})
    with Project.open(runs, key=Ed25519PrivateKey.generate(), name="example.com/trainer") as project:
        project.append(dataclasses.replace(seen, ledger=dataclasses.replace(STATE, origin="example.com/trainer/other")))
        assert plan_pruning(runs, "digits").removable == (place(runs),)
        project.append(seen)
    assert reasons(runs, OLD.run_id) == ["entry 1 of runs/_audit is about its ledger"]


def test_the_parent_of_a_ledger_is_kept(runs: Path) -> None:
    child = write_run(runs, dataclasses.replace(run_record(seed=3), sweep="single"))
    signer = Signer(
        name=f"example.com/trainer/{child.name}",
        algorithm=Algorithm.ED25519,
        private_key=Ed25519PrivateKey.generate(),
    )
    genesis = next(each for each in EXAMPLES if isinstance(each, Genesis))
    log = Log.create(child / rundir.LEDGER, origin=signer.name, signer=signer)
    assert plan_pruning(runs, "digits").removable == (place(runs),)  # a ledger without an entry names nothing
    parents = (dataclasses.replace(genesis.parents[0], ledger=STATE),)
    log.append([encode(dataclasses.replace(genesis, parents=parents))])
    log.commit()
    log.close()
    assert reasons(runs, OLD.run_id) == [f"the ledger of single/{child.name} names it as a parent"]


def test_a_record_that_cannot_be_read_keeps_every_governed_run(runs: Path) -> None:
    rundir.write_json(runs / "deletions" / "other" / rundir.RUN, {})
    rundir.write_json(runs / "deletions" / "other" / rundir.ORIGIN, {"run": OLD.run_id})
    (place(runs) / rundir.LEDGER).mkdir()
    (reason,) = reasons(runs, OLD.run_id)
    assert reason.startswith("what depends on it is unknown: ")


def test_a_confirmed_recipe_keeps_the_runs_that_found_it(runs: Path) -> None:
    fast = run_record(recipe="fast", methods=("ema",), full_steps=40)
    write_run(runs, fast)
    fresh = [dataclasses.replace(each, sweep="digits-confirm-fast", seed=5) for each in (OLD, fast)]
    assert len(plan_pruning(runs, "digits").removable) == 2
    write_plan(runs, fresh)
    assert set(reasons(runs)) == {"the sweep digits-confirm-fast confirmed its recipe"}
    write_plan(runs, fresh[:1])  # the control: a single recipe confirms nothing
    assert len(plan_pruning(runs, "digits").removable) == 2


def test_controls_whose_budget_is_not_known_yet_are_kept(runs: Path) -> None:
    made_for = {"control": "rescaled-baseline", "control_of": ("fast",)}
    run_files.write(place(runs) / rundir.RUN, dataclasses.replace(OLD, **made_for))
    write_plan(runs, [KEPT], waiting=1)
    assert reasons(runs) == ["its budget follows from a profile that is not measured yet"]
    write_plan(runs, [KEPT], waiting=0)
    assert len(plan_pruning(runs, "digits").removable) == 1


def test_links_are_not_followed(runs: Path) -> None:
    outside = runs.parent / "outside"
    write_run(outside, OLD)
    target = place(outside)
    (place(runs) / "link").symlink_to(target, target_is_directory=True)
    (runs / "digits" / run_record(seed=9).run_id).symlink_to(target, target_is_directory=True)
    (runs / "linked").symlink_to(runs / "digits", target_is_directory=True)
    assert prune(runs, "digits").removable == (place(runs),)
    assert (target / rundir.RESULT).exists()
    with pytest.raises(SweepError, match="unknown sweep"):
        plan_pruning(runs, "linked")


def test_a_planted_trash_directory_leads_nowhere(runs: Path) -> None:
    outside = runs.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (runs / "digits" / TRASH).symlink_to(outside, target_is_directory=True)
    with pytest.raises(RunError, match="expected a directory from an earlier pruning"):
        prune(runs, "digits")
    assert (outside / "file").exists() and place(runs).exists()


def test_leftovers_of_a_crash_are_deleted_the_next_time(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(trash: Path) -> None:
        if any(trash.glob("*")):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pruning, "_empty", killed)
        with pytest.raises(KeyboardInterrupt):
            prune(runs, "digits")
    assert (runs / "digits" / TRASH / OLD.run_id / rundir.RESULT).exists()  # whole, and no reader sees it
    assert [path.name for path in rundir.run_directories(runs / "digits")] == [KEPT.run_id]
    assert prune(runs, "digits").removable == ()
    assert not (runs / "digits" / TRASH).exists()

"""Integrity of run directories, checked from nothing but the directories."""

import shutil

import pytest

from explorer import rundir
from explorer.audit.integrity import check_run, check_runs
from explorer.errors import RunError
from explorer.store.examine import CHECKS, State
from explorer.store.ingest import ingest
from tests.builders import change_result, run_record, write_failure, write_run, write_sweep


@pytest.fixture
def runs(tmp_path):
    write_sweep(tmp_path, {"baseline": {1.0: (0.9, 0.8)}, "fast": {0.5: (0.7,)}})
    return tmp_path


def test_sound_runs_match(runs):
    found = check_runs(runs)
    assert found.sound
    assert found.sentence == "3 of 3 runs match the digests they recorded"
    assert all(run.checks == tuple(CHECKS) and run.files == 2 for run in found.runs)


def test_a_tampered_run_is_counted_and_named(runs):
    directory = next((runs / "digits").glob("*fast*"))
    with (directory / rundir.METRICS).open("r+") as file:
        file.write('{"step": 2')
    found = check_runs(runs, sweep="digits")
    assert not found.sound
    assert found.sentence == "2 of 3 runs match the digests they recorded"
    (bad,) = [run for run in found.runs if not run.sound]
    assert bad.directory == directory
    assert {finding.check for finding in bad.findings} >= {"files"}


def test_tampering_after_the_ingest_is_seen(runs):
    ingest(runs)
    directory = next((runs / "digits").glob("*fast*"))
    (directory / rundir.METRICS).unlink()
    assert ingest(runs).problems == ()
    assert not check_runs(runs).sound


def test_a_better_result_written_by_hand_is_seen(runs):
    directory = next((runs / "digits").glob("*fast*"))
    change_result(directory, metrics={"accuracy": 0.99, "nll": 0.01})
    assert [finding.check for finding in check_run(directory).findings] == ["metrics", "metrics"]


def test_unfinished_runs_are_examined_and_not_counted(runs):
    write_run(runs, run_record(recipe="half"), finished=False)
    write_failure(runs, run_record(recipe="failed"))
    found = check_runs(runs)
    assert found.sentence == "3 of 3 runs match the digests they recorded"
    states = {run.state: run.checks for run in found.runs}
    assert states[State.FAILED] == states[State.INTERRUPTED] == ("records", "name", "identity", "steps")


def test_a_directory_without_a_readable_record_is_damaged(runs):
    directory = next((runs / "digits").glob("*fast*"))
    (directory / rundir.RUN).write_text("{")
    found = check_run(directory)
    assert (found.state, found.checks) == (State.DAMAGED, ("records",))
    (directory / rundir.RUN).unlink()
    (directory / rundir.RUN).mkdir()
    assert check_run(directory).state == State.DAMAGED


def test_one_run_and_none(runs):
    shutil.rmtree(next((runs / "digits").glob("*fast*")))
    shutil.rmtree(next((runs / "digits").glob("*s1-*")))
    assert check_runs(runs).sentence == "1 of 1 run matches the digests they recorded"
    with pytest.raises(RunError, match="unknown sweep 'digit'; did you mean 'digits'"):
        check_runs(runs, sweep="digit")
    with pytest.raises(RunError, match="there is no run directory"):
        check_run(runs / "digits" / "absent")

"""Every way in which a run directory can contradict itself is found, and a sound one has no findings."""

import json

import pytest

from explorer import run_files, rundir
from explorer.run_files import RunRecord, Trunk
from explorer.store.examine import State, examine
from tests.builders import change_result, run_record, write_failure, write_run


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path, run_record())


def rewrite(run, **changes):
    path = run / rundir.RUN
    value = json.loads(path.read_text())
    path.write_text(json.dumps(value | changes))


def checks(run):
    return {finding.check for finding in examine(run).findings}


def test_a_sound_run_has_no_findings(run):
    found = examine(run)
    assert (found.state, found.findings, found.problem) == (State.FINISHED, (), None)
    assert found.metrics[-1].metric == "nll"


def test_renamed_directory(run):
    assert checks(run.rename(run.with_name("other"))) == {"name"}


def test_changed_identity_changes_the_id(run):
    identity = run_files.read(RunRecord, run / rundir.RUN).identity
    rewrite(run, identity=identity | {"seed": 1})
    assert "identity" in checks(run)


def test_phases_that_do_not_add_up(run):
    rewrite(run, phases={"all": 79})
    assert "steps" in checks(run)
    rewrite(run, phases={"all": 81, "less": -1})
    assert "steps" in checks(run)


def test_a_result_of_fewer_steps(run):
    change_result(run, steps=79)
    assert {"steps", "metrics"} <= checks(run)


@pytest.mark.parametrize("step", [-1, 0, 41, 81])
def test_first_steps_that_another_run_cannot_have_made(run, step):
    """The control: 40 of its 80 steps, and none of those that it timed itself."""
    change_result(run, timed_steps=40, trunk=Trunk(run="shorter", step=40, state="0" * 64))
    assert checks(run) == set()
    change_result(run, trunk=Trunk(run="shorter", step=step, state="0" * 64))
    assert checks(run) == {"steps"}


def test_a_changed_file(run):
    lines = (run / rundir.METRICS).read_text()
    (run / rundir.METRICS).write_text(lines.replace("2.0", "1.9", 1))
    assert checks(run) == {"files"}
    assert "changed: digest" in (examine(run).problem or "")


def test_an_absent_file(run):
    (run / rundir.METRICS).unlink()
    assert "files" in checks(run)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a/../../secret", "link", "nul\0l"])
def test_no_file_outside_the_directory_is_read(run, name):
    (run.parent / "secret").write_text("x")
    (run / "link").symlink_to(run.parent / "secret")
    change_result(run, files={name: "0" * 64})
    assert "outside the run directory" in (examine(run).problem or "")


def test_a_result_that_nobody_measured(run):
    change_result(run, metrics={"accuracy": 0.99, "nll": 0.3})
    assert checks(run) == {"metrics"}
    assert "the result says accuracy 0.99 after 80 steps" in (examine(run).problem or "")


def test_what_a_method_found_out_about_the_whole_run_has_no_measurement(run):
    change_result(run, metrics={"accuracy": 0.9, "nll": 0.3, "ledger_bytes_per_step": 800.0})
    assert "ledger_bytes_per_step" not in (examine(run).problem or "")


def test_a_result_without_its_quality(run):
    change_result(run, metrics={"nll": 0.3})
    assert "has no 'accuracy'" in (examine(run).problem or "")


def test_a_result_of_another_run(run):
    change_result(run, run_id="another")
    assert checks(run) == {"metrics"}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"format": 2}', b"[" * 100_000, b'{"a": NaN}'])
@pytest.mark.parametrize("name", [rundir.RUN, rundir.RESULT])
def test_a_damaged_record_is_a_finding_that_names_the_file(run, name, content):
    (run / name).write_bytes(content)
    found = examine(run)
    assert found.state == State.DAMAGED
    assert name in (found.problem or "")


def test_numbers_and_texts_that_no_database_takes(run):
    rewrite(run, seed=2**70)
    assert checks(run) == {"records"}
    rewrite(run, seed=0, model="\ud800")
    assert checks(run) == {"records"}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"step": 1, "metric": "lr"}',
        '{"step": 1.5, "metric": "lr", "value": 1}',
        '{"step": true, "metric": "lr", "value": 1}',
        '{"step": -1, "metric": "lr", "value": 1}',
        '{"step": 1, "metric": "lr", "value": NaN}',
        '{"step": 1, "metric": "lr", "value": "1"}',
        '{"step": 1, "metric": "lr", "value": 1, "x": 1}',
        '{"step": 1, "metric": "\\ud800", "value": 1}',
        '{"step": 1, "metric": "' + 5000 * "x" + '", "value": 1}',
        '{"step": 1, "metric": "lr", "value": ' + 400 * "9" + "}",
    ],
)
def test_a_damaged_measurement_is_named_by_its_line(run, line):
    content = (run / rundir.METRICS).read_text()
    (run / rundir.METRICS).write_text(line + "\n" + content)
    assert "metrics.jsonl, line 1: damaged" in (examine(run).problem or "")


def test_a_measurement_beyond_the_end(run):
    with (run / rundir.METRICS).open("a") as file:
        file.write('{"step": 81, "metric": "lr", "value": 1}\n')
    assert "steps" in checks(run)


def test_a_cut_last_line_is_damage_only_in_a_finished_run(tmp_path, run):
    unfinished = write_run(tmp_path, run_record(seed=1), finished=False)
    for directory in (run, unfinished):
        with (directory / rundir.METRICS).open("a") as file:
            file.write('{"step": 2, "met')
    assert "cut off" in (examine(run).problem or "")
    assert examine(unfinished).problem is None


def test_states(tmp_path):
    assert examine(write_run(tmp_path, run_record(seed=1), finished=False)).state == State.INTERRUPTED
    assert examine(write_failure(tmp_path, run_record(seed=2))).state == State.FAILED
    assert examine(write_failure(tmp_path, run_record(seed=3), kind="interrupted")).state == State.INTERRUPTED
    assert examine(write_failure(tmp_path, run_record(seed=5), kind="diverged")).state == State.DIVERGED
    running = write_run(tmp_path, run_record(seed=4), finished=False)
    with rundir.locked(running, what="run"):
        assert examine(running).state == State.RUNNING
    assert examine(running).state == State.INTERRUPTED

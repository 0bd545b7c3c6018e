"""Sweeps over commands: the grammar, what a program reports, its process, and the files that come of it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest

from explorer import run_files, rundir, track
from explorer.errors import ExplorerError, RecipeError, SpecError
from explorer.run_files import ResultRecord, RunRecord
from explorer.store.examine import State, examine
from explorer.sweep.commands import command_process
from explorer.sweep.commands.command_task import command_line
from explorer.sweep.commands.tracked import Tracked, fold, parse_line, read_tracked
from explorer.sweep.execute import Settings, profile_sweep, run_sweep
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.spec import load_spec

SPEC: dict[str, Any] = {
    "name": "shell",
    "task": {"command": "sh train.sh {lr} {epochs} {seed}", "metrics": ["accuracy"], "dataset": "d", "model": "m"},
    "set": {"lr": 0.1},
    "scale": {"epochs": 4},
    "baseline": "baseline",
    "recipes": {"baseline": {}, "fast": {"set": {"lr": 0.3}}},
    "budgets": [0.5, 1.0],
    "seeds": [0],
}
# A program in another language than Python: it prints its records.
SHELL = """
echo "learning rate $1"
for step in $(seq $2); do
    echo "{\\"explorer\\": \\"log\\", \\"step\\": $step, \\"train_loss\\": 0.$step, \\"seconds\\": $step}"
done
echo "{\\"explorer\\": \\"done\\", \\"accuracy\\": $1, \\"examples\\": 100}"
"""


def written(tmp_path: Path, script: str = SHELL, /, **changes: Any) -> Path:
    """Write a specification with its script, and return its path."""
    (tmp_path / "train.sh").write_text(script)
    content = {**SPEC, **changes}
    path = tmp_path / "shell.yaml"
    path.write_text(json.dumps(content))  # JSON is YAML
    return path


def task(**changes: Any) -> dict[str, Any]:
    return {**SPEC["task"], **changes}


def planned(tmp_path: Path, script: str = SHELL, /, **changes: Any) -> Plan:
    return make_plan(load_spec(written(tmp_path, script, **changes)), runs=tmp_path / "runs")


# --- the grammar ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": task(command="sh train.sh {lrr} {epochs}")}, "unknown placeholder 'lrr'; did you mean 'lr'?"),
        ({"task": task(command="sh train.sh {lr!r} {epochs}")}, "expected a name in braces"),
        ({"task": task(command="sh train.sh '{lr} {epochs}")}, "No closing quotation"),
        ({"task": task(notebook="a.ipynb")}, "both a command and a notebook"),
        ({"task": task(metrics=[])}, "the first one decides"),
        ({"task": task(metrics=["acuracy"])}, "did you mean 'accuracy'?"),
        ({"task": task(metrics={"accuracy": {"higher_is_better": False}})}, "in every sweep"),
        ({"task": task(files=["../secret"])}, "within the directory of the specification"),
        ({"task": task(comand="x")}, "unknown parameter 'comand'"),
        ({"set": {"lr": 0.1, "decay": 1}}, "the command does not have {decay}"),
        ({"set": {"lr": [0.1]}}, "expected text, a number, true or false"),
        ({"set": {"seed": 1, "lr": 1}}, "a name that every run has"),
        ({"scale": {"epochs": 0}}, "expected a number above 0"),
        ({"recipes": {"baseline": ["ema"]}}, "expected a mapping with set, scale"),
        ({"recipes": {"baseline": {}, "same": {"set": {"lr": 0.1}}}}, "the same recipe as 'baseline'"),
        ({"train": {"epochs": 3}}, "the task is a command"),
        ({"seeds": [0, 1], "task": task(command="sh train.sh {lr} {epochs}")}, "does not use {seed}"),
    ],
)
def test_a_specification_that_cannot_work_is_refused_with_the_reason(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError) as error:
        load_spec(written(tmp_path, **changes))
    assert message in str(error.value)
    assert str(tmp_path / "shell.yaml:1") in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budgets": [0.1, 1.0]}, "budget 0.1 leaves 0.4 of epochs"),
        ({"task": task(command="nowhere-to-be-found {lr} {epochs} {seed}")}, "there is no program"),
        ({"task": task(files=["data.csv"])}, "there is no file or directory"),
        ({"task": task(env=["EXPLORER_ABSENT"])}, "EXPLORER_ABSENT is not set"),
    ],
)
def test_what_the_machine_lacks_is_noticed_by_the_plan(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        planned(tmp_path, **changes)
    assert not (tmp_path / "runs").exists()


def test_a_value_stays_one_argument_and_no_shell_reads_it(tmp_path: Path) -> None:
    plan = planned(tmp_path, set={"lr": "1; touch pwned $(id)"})
    run = next(run for run in plan.runs if run.record.recipe == "baseline")
    assert run.setting is not None
    line = command_line(run.setting, run.record, directory=tmp_path, python="python")
    assert line == ["sh", "train.sh", "1; touch pwned $(id)", "2", "0"]


def test_the_identity_has_code_data_variables_and_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("1")
    changes = {"task": task(env=["SECRET"], files=["data"])}

    def names() -> list[str]:
        return [run.record.run_id for run in planned(tmp_path, **changes).runs]

    first, record = names(), planned(tmp_path, **changes).runs[0].record
    assert set(record.identity["data"]) == {"train.sh", "data/a.csv"}
    assert "hunter2" not in json.dumps(run_files.to_json(record))
    assert names() == first
    (tmp_path / "data" / "a.csv").write_text("2")
    second = names()
    monkeypatch.setenv("SECRET", "other")
    assert len({*first, *second, *names()}) == 3 * len(first)


def test_modules_next_to_a_script_are_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import helper, numpy\n")
    (tmp_path / "helper.py").write_text("import explorer.track\n")
    plan = planned(tmp_path, task=task(command="{python} train.py {lr} {epochs} {seed}"))
    identity = plan.runs[0].record.identity
    assert set(identity["data"]) == {"train.py", "helper.py"}
    assert {"python", "numpy"} <= set(identity["versions"]) and "torch" not in identity["versions"]


def test_of_a_notebook_the_code_counts_and_its_outputs_do_not(tmp_path: Path) -> None:
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}}
    cell = nbformat.v4.new_code_cell("lr = 0.1\nepochs = 2\nseed = 0", metadata={"tags": ["parameters"]})
    code = nbformat.v4.new_code_cell("%matplotlib inline\nimport numpy")
    changes = {"task": {"notebook": "train.ipynb", "metrics": ["accuracy"]}}

    def record() -> RunRecord:
        nbformat.write(nbformat.v4.new_notebook(cells=[cell, code], metadata=kernel), tmp_path / "train.ipynb")
        return planned(tmp_path, **changes).runs[0].record

    first = record()
    assert first.identity["recipe"]["task"] == {"notebook": "train.ipynb"}
    assert set(first.identity["data"]) == {"train.ipynb"} and "numpy" in first.identity["versions"]
    code.outputs = [nbformat.v4.new_output("stream", text="seen")]
    assert record().run_id == first.run_id
    code.source += "\nnumpy.zeros(1)"
    assert record().run_id != first.run_id


# --- reports ---


def test_an_attempt_that_ended_and_whose_result_was_lost_is_made_again() -> None:
    begun, done = {"explorer": "start", "at": 1.0}, {"explorer": "done", "accuracy": 0.5, "at": 2.0}
    log = {"explorer": "log", "step": 1, "train_loss": 1.0, "at": 2.0}
    assert fold([begun, log, done]).done
    assert not fold([begun, log, done, begun]).done, "the second attempt has not ended"
    again = fold([begun, log, done, begun, log, {**done, "accuracy": 0.75}])
    assert (again.done, again.final, again.attempts, len(again.measured)) == (True, {"accuracy": 0.75}, 2, 1)


def test_an_attempt_continues_from_the_last_checkpoint() -> None:
    tracked = fold(
        [
            {"explorer": "start", "at": 100.0},
            {"explorer": "log", "step": 1, "train_loss": 3.0, "seconds": 1.0, "at": 102.0},
            {"explorer": "checkpoint", "path": "a", "at": 103.0},
            {"explorer": "log", "step": 2, "train_loss": 9.0, "seconds": 2.0, "at": 105.0},  # lost by the kill
            {"explorer": "start", "at": 200.0},
            {"explorer": "log", "step": 2, "train_loss": 2.0, "seconds": 1.5, "at": 202.0},
            {"explorer": "done", "accuracy": 0.5, "at": 204.0},
            {"explorer": "log", "step": 3, "train_loss": 0.0, "at": 999.0},
        ]
    )
    assert tracked == Tracked(
        measured=((1, "train_loss", 3.0), (2, "train_loss", 2.0)),
        step=2,
        reported=2.5,
        wall=7.0,
        attempts=2,
        checkpoints=1,
        checkpoint="a",
        final={"accuracy": 0.5},
        done=True,
    )


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b'{"explorer": "eval"}',
        b'{"explorer": "log"}',
        b'{"explorer": "log", "step": -1}',
        b'{"explorer": "log", "step": 1, "loss": "low"}',
        b'{"explorer": "log", "step": 1, "seconds": NaN}',
        b'{"explorer": "log", "step": 1, "<b>": 1}',
        b'{"explorer": "checkpoint", "path": "../../etc"}',
        b"[" * 4000,
        b" " * 5000,
    ],
)
def test_a_line_that_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(ExplorerError, match="line 7: not a record"):
        parse_line(line, where="line 7")


def test_what_log_returned_from_survives_kill_9(tmp_path: Path) -> None:
    code = (
        "import os, signal\nfrom explorer import track\n"
        "for step in range(1000): track.log(step=step, loss=0.5)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, track.PLACE: str(tmp_path)})
    assert done.returncode == -signal.SIGKILL
    assert [step for step, *_ in read_tracked(tmp_path).measured] == list(range(1000))


def test_outside_a_sweep_nothing_is_recorded(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    track.log(step=1, loss=0.5)
    track.checkpoint(tmp_path / "absent")
    track.done(accuracy=0.5)
    assert track.resume() is None
    assert capsys.readouterr().err.count("outside a sweep") == 1
    with pytest.raises(ValueError, match="step"):
        track.log(step=-1)


# --- processes ---


def outcome(plan: Plan) -> list[str]:
    return [failure.message for failure in run_sweep(plan).failures]


def test_a_shell_program_is_swept(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert outcome(plan) == []
    for run in plan.runs:
        examined = examine(run.directory)
        assert (examined.state, examined.problem) == (State.FINISHED, None)
        result = run_files.read(ResultRecord, run.directory / rundir.RESULT)
        steps = round(4 * run.record.ssr)
        assert result.metrics == {"accuracy": 0.3 if run.record.recipe == "fast" else 0.1}
        assert (result.steps, result.examples, result.clock) == (steps, 100, "reported")
        assert result.timings.training() == steps
        assert (run.directory / "stdout.txt").read_text().startswith("learning rate")
    assert not planned(tmp_path).missing  # nothing is run again


@pytest.mark.parametrize(
    ("script", "changes", "message"),
    [
        ("echo one >&2; echo broken pipe dream >&2; exit 3", {}, "exit status 3; the end of its standard error:\none"),
        ("true", {}, "without a result: expected track.done(accuracy=...)"),
        ('echo \'{"explorer": "done", "acuracy": 1}\'', {}, "did you mean 'acuracy'?"),
        ('echo \'{"explorer": "done", "accuracy": NaN}\'', {}, "the final accuracy is nan"),
        ('echo \'{"explorer": "log", "accuracy": 1}\'; sleep 60', {}, "step: missing"),
        ("sleep 60 & sleep 60", {"task": task(timeout=0.3)}, "took longer than 0.3 s"),
    ],
)
def test_a_failure_says_why(tmp_path: Path, script: str, changes: dict[str, Any], message: str) -> None:
    plan = planned(tmp_path, script, recipes={"baseline": {}}, budgets=[1.0], **changes)
    (failure,) = outcome(plan)
    assert message in failure
    assert not (plan.runs[0].directory / rundir.RESULT).exists()


def test_a_timeout_ends_the_whole_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_process, "FAREWELL", 0.3)
    script = f"sleep 77 & echo $! > {tmp_path}/child; trap '' TERM; sleep 77"
    plan = planned(tmp_path, script, recipes={"baseline": {}}, budgets=[1.0], task=task(timeout=0.3))
    begun = time.monotonic()
    run_sweep(plan)
    assert time.monotonic() - begun < 60
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "child").read_text()), 0)


def test_a_killed_run_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    # The first attempt kills itself after its checkpoint, the second finds it and counts on.
    script = """
    if [ -n "$EXPLORER_RESUME" ]; then first=$(($(cat "$EXPLORER_RESUME") + 1)); else first=1; fi
    for step in $(seq $first 4); do
        echo "{\\"explorer\\": \\"log\\", \\"step\\": $step, \\"train_loss\\": 1, \\"seconds\\": 1}"
        if [ $step = 2 ]; then
            echo 2 > state; echo '{"explorer": "checkpoint", "path": "state"}'
            while [ -z "$(ls -A "$EXPLORER_TRACK/private/checkpoint" 2> /dev/null)" ]; do sleep 0.02; done
            sleep 0.1; echo '{"explorer": "log", "step": 3, "train_loss": 9}'
            sleep 0.1; kill -9 $$
        fi
    done
    echo '{"explorer": "done", "accuracy": 1}'
    """
    plan = planned(tmp_path, script, recipes={"baseline": {}}, budgets=[1.0])
    assert outcome(plan) == []
    directory = plan.runs[0].directory
    result = run_files.read(ResultRecord, directory / rundir.RESULT)
    assert (result.resumed, result.steps, result.timings.training()) == (1, 4, 2.0)
    steps = [line.step for line in examine(directory).metrics if line.metric == "train_loss"]
    assert steps == [1, 2, 3, 4]
    assert not (directory / "private").exists()


def test_output_is_bounded(tmp_path: Path) -> None:
    script = "yes 0123456789 | head -c 3000000; echo last; " + SHELL
    plan = planned(tmp_path, script, recipes={"baseline": {}}, budgets=[1.0])
    assert outcome(plan) == []
    output = (plan.runs[0].directory / "stdout.txt").read_text()
    assert len(output) < 600_000
    assert "bytes are left out" in output and "last\n" in output


def test_code_that_changed_after_the_plan_is_not_run(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    (tmp_path / "train.sh").write_text("touch ran")
    assert "data has changed (train.sh) since it was planned" in outcome(plan)[0]
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_several_workers_mark_the_runs(tmp_path: Path) -> None:
    plan = planned(tmp_path, recipes={"baseline": {}})
    assert run_sweep(plan, Settings(workers=2)).complete
    results = [run_files.read(ResultRecord, run.directory / rundir.RESULT) for run in plan.runs]
    assert [result.contended for result in results] == [True, True]


def test_step_times_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ExplorerError, match="has no step times to measure"):
        profile_sweep(planned(tmp_path))


def test_a_scaled_number_is_rounded_half_up(tmp_path: Path) -> None:
    (setting, *_) = load_spec(written(tmp_path, scale={"epochs": 5})).settings
    assert [setting.scaled(ssr)["epochs"] for ssr in (0.1, 0.5, 0.7, 1.0)] == [1, 3, 4, 5]
    with pytest.raises(RecipeError, match=r"leaves 0.25 of epochs: 5.*a budget of 0.1 or more"):
        setting.scaled(0.05)


def test_a_record_is_complete_before_it_is_run(tmp_path: Path) -> None:
    record: RunRecord = planned(tmp_path).runs[-1].record
    assert (record.recipe, record.methods, record.steps) == ("fast", ("lr=0.3",), 0)

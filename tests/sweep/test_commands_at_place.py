"""Commands and notebooks of the user's at a place: their files travel, and nothing else of their machine does."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest

from explorer import run_files, rundir
from explorer.errors import SpecError
from explorer.place.leases import claims_of
from explorer.place.published_sweep import MAX_TASK_FILES, Published, RunAt
from explorer.run_files import ResultRecord, RunRecord
from explorer.store.examine import State, examine
from explorer.sweep.at_place import publish
from explorer.sweep.commands import carried
from explorer.sweep.execute import Settings, run_sweep
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.run_at import Ended, Worker, run_any, run_at
from explorer.sweep.spec import load_spec
from tests.sweep.test_run_at import start_worker, wait_until

SPEC: dict[str, Any] = {
    "name": "own",
    "task": {
        "command": "./train.sh {lr} {epochs} {directory}",
        "metrics": ["accuracy"],
        "files": ["data/table.csv"],
        "env": ["OWN_SETTING"],
    },
    "set": {"lr": 0.1},
    "scale": {"epochs": 4},
    "baseline": "baseline",
    "recipes": {"baseline": {}, "fast": {"set": {"lr": 0.3}}},
    "budgets": [1.0],
    "seeds": [0],
}
SHELL = """#!/bin/sh
read value < data/table.csv
for step in $(seq $2); do
    echo "{\\"explorer\\": \\"log\\", \\"step\\": $step, \\"train_loss\\": 0.$step$value, \\"seconds\\": $step}"
done
echo kept > "$3/output.txt"
echo "{\\"explorer\\": \\"done\\", \\"accuracy\\": $1, \\"examples\\": 100}"
"""
# Waits after its first checkpoint, in a first attempt; a later one continues from it, if it is given one.
SLOW = """#!/bin/sh
test -z "$EXPLORER_RESUME" || grep -q weights "$EXPLORER_RESUME" || exit 1
echo "{\\"explorer\\": \\"log\\", \\"step\\": 1, \\"train_loss\\": 0.5, \\"seconds\\": 1}"
echo weights > model.bin
CHECKPOINT
if [ ! -e "$OWN_SETTING" ]; then touch "$OWN_SETTING"; sleep 600; fi
echo "{\\"explorer\\": \\"done\\", \\"accuracy\\": $1, \\"steps\\": 2}"
"""
KEEPS = 'echo "{\\"explorer\\": \\"checkpoint\\", \\"path\\": \\"model.bin\\"}"'


@pytest.fixture(autouse=True)
def _setting(monkeypatch):
    monkeypatch.setenv("OWN_SETTING", "as planned")


def written(home: Path, script: str = SHELL, **changes: Any) -> Path:
    (home / "data").mkdir(parents=True)
    (home / "data" / "table.csv").write_text("7\n")
    (home / "train.sh").write_text(script)
    (home / "train.sh").chmod(0o755)
    (home / "own.yaml").write_text(json.dumps({**SPEC, **changes}))
    return home / "own.yaml"


def planned(home: Path, runs: Path) -> Plan:
    return make_plan(load_spec(home / "own.yaml"), runs=runs)


def worked(place: Path, **settings: Any) -> list[Ended]:
    ended: list[Ended] = []
    run_any(Worker(place=str(place), commands=True, **settings), on_end=ended.append)
    return ended


def what_came(runs: Path) -> dict[str, Any]:
    """What does not depend on where a run was executed."""
    came = {}
    for run in rundir.run_directories(runs / "own"):
        result = run_files.read(ResultRecord, run / rundir.RESULT)
        same = [(run / name).read_bytes() for name in (rundir.RUN, rundir.METRICS, "work/output.txt")]
        came[run.name] = (result.metrics, result.steps, result.examples, same)
    return came


def test_the_files_of_a_command_travel_and_its_output_comes_back(tmp_path):
    home, place = tmp_path / "home", tmp_path / "place"
    written(home)
    assert run_sweep(planned(home, tmp_path / "calm")).complete
    plan = planned(home, tmp_path / "runs")
    publish(plan, str(place), profile=plan.classes)
    away = home.rename(tmp_path / "away")
    assert [ended.state for ended in worked(place)] == ["done"] * 2, "nothing is read at home"
    away.rename(home)
    summary = run_sweep(planned(home, tmp_path / "runs"), Settings(place=str(place)))
    assert summary.complete and summary.executed == 2
    assert what_came(tmp_path / "runs") == what_came(tmp_path / "calm")
    for run in rundir.run_directories(tmp_path / "runs" / "own"):
        assert examine(run).state is State.FINISHED, "its files have the digests of its result"
        assert rundir.read_json(run / rundir.ENVIRONMENT)["directory"] == str(home)
        assert len(claims_of(Published.at(str(place)).objects, run.name)) == 1


def test_a_sweep_of_commands_takes_part_at_its_place(tmp_path):
    written(tmp_path / "home")
    assert run_sweep(planned(tmp_path / "home", tmp_path / "runs"), Settings(place=str(tmp_path / "place"))).complete
    assert len(what_came(tmp_path / "runs")) == 2


def test_a_worker_executes_what_it_was_allowed_and_has_software_for(tmp_path, monkeypatch):
    written(tmp_path / "home")
    at = publish(planned(tmp_path / "home", tmp_path / "runs"), str(tmp_path / "place"))
    run_id = at.plan().runs[0]
    ended = run_at(Worker(place=str(tmp_path / "place")), run_id)
    assert ended.state == "not here" and "run-at --commands" in ended.message
    with monkeypatch.context() as patch:
        patch.setenv("OWN_SETTING", "another")
        (first, _) = worked(tmp_path / "place")
        assert first.state == "not here" and "other values of environment (OWN_SETTING)" in first.message
        patch.delenv("OWN_SETTING")
        assert "OWN_SETTING is not set" in worked(tmp_path / "place")[0].message
    run = at.run(run_id)
    other = {**run.run.identity, "versions": {"python": "2.7"}}
    change(at, replace(run, run=replace(run.run, identity=other)))
    assert "damaged: its identity has the digest" in run_at(allowed(tmp_path), run_id).message
    assert claims_of(at.objects, run_id) == []


def allowed(tmp_path: Path) -> Worker:
    return Worker(place=str(tmp_path / "place"), commands=True)


def change(at: Published, run: RunAt) -> None:
    at.write(f"runs/{run.run.run_id}.json", run)


def test_files_stay_in_their_directory_and_are_those_of_the_identity(tmp_path):
    written(tmp_path / "home")
    at = publish(planned(tmp_path / "home", tmp_path / "runs"), str(tmp_path / "place"))
    run_id = at.plan().runs[0]
    run = at.run(run_id)
    assert run.task is not None
    digest = run.task.files["train.sh"]
    for name in ("../evil.sh", "/tmp/evil.sh", "a/../../evil.sh", "a\\evil.sh", ""):
        change(at, replace(run, task=replace(run.task, files={**run.task.files, name: digest})))
        assert "is not the name of a file" in run_at(allowed(tmp_path), run_id).message
    assert not list(tmp_path.rglob("evil.sh"))
    change(
        at, replace(run, task=replace(run.task, files={"train.sh": digest, "data": digest, "data/table.csv": digest}))
    )
    assert run_at(allowed(tmp_path), run_id).state == "later"
    other = at.run(at.plan().runs[1])
    at.objects.put("given/" + digest, b"#!/bin/sh\ntouch evil.sh\n")
    change(at, run)
    assert "damaged: its digest is" in run_at(allowed(tmp_path), run_id).message
    swapped = {**run.task.files, "train.sh": run.task.files["data/table.csv"]}
    change(at, replace(other, task=replace(run.task, files=swapped)))
    ended = run_at(allowed(tmp_path), other.run.run_id)
    assert ended.state == "not here" and "other values of data (train.sh)" in ended.message
    assert claims_of(at.objects, run_id) == []


def test_what_cannot_travel_is_refused_before_anything_is_published(tmp_path, monkeypatch):
    home, place = tmp_path / "home", tmp_path / "place"
    written(home, task={**SPEC["task"], "files": ["data"]})
    plan = planned(home, tmp_path / "runs")
    (home / "train.sh").write_text("exit 0")
    with pytest.raises(SpecError, match=r"train\.sh has changed since the plan"):
        publish(plan, str(place))
    with monkeypatch.context() as patch:
        patch.setattr(carried, "MAX_TASK", 3)
        with pytest.raises(SpecError, match="expected at most 1000 files and 256 MiB"):
            publish(planned(home, tmp_path / "runs"), str(place))
    for number in range(MAX_TASK_FILES):
        (home / "data" / f"{number}.csv").write_text("1\n")
    with pytest.raises(SpecError, match="1002 files; expected at most 1000"):
        publish(planned(home, tmp_path / "runs"), str(place))
    assert not place.exists()


def test_the_timeout_of_a_command_is_not_tried_again(tmp_path):
    task = {**SPEC["task"], "timeout": 1.0}
    written(tmp_path / "home", "#!/bin/sh\n: $1 $2 $3\nsleep 600\n", task=task, recipes={"baseline": {}})
    publish(planned(tmp_path / "home", tmp_path / "runs"), str(tmp_path / "place"))
    (ended,) = worked(tmp_path / "place")
    assert ended.state == "failed" and "took longer than 1 s" in ended.message


@pytest.mark.slow
@pytest.mark.notebook
def test_a_notebook_at_a_place_comes_back_executed(tmp_path):
    home, place = tmp_path / "home", tmp_path / "place"
    notebook = nbformat.v4.new_notebook()
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    parameters = nbformat.v4.new_code_cell("lr = 0.0\nepochs = 0", metadata={"tags": ["parameters"]})
    report = "from pathlib import Path\nfrom explorer import track\nprint(Path('data/table.csv').read_text())"
    notebook.cells = [parameters, nbformat.v4.new_code_cell(f"{report}\ntrack.done(accuracy=lr, steps=epochs)")]
    task = {"notebook": "train.ipynb", "metrics": ["accuracy"], "files": ["data"]}
    written(home, task=task, recipes={"baseline": {}})
    nbformat.write(notebook, home / "train.ipynb")
    publish(planned(home, tmp_path / "runs"), str(place))
    away = home.rename(tmp_path / "away")
    (ended,) = worked(place)
    assert ended.state == "done", ended
    away.rename(home)
    assert run_sweep(planned(home, tmp_path / "runs"), Settings(place=str(place))).complete
    (run,) = rundir.run_directories(tmp_path / "runs" / "own")
    assert '"7' in (run / rundir.NOTEBOOK).read_text()
    assert run_files.read(RunRecord, run / rundir.RUN).steps == 4


@pytest.mark.slow
@pytest.mark.parametrize("keeps", [True, False])
def test_a_lost_command_continues_from_its_checkpoint_or_from_its_beginning(tmp_path, monkeypatch, keeps):
    monkeypatch.setenv("OWN_SETTING", str(tmp_path / "began"))
    script = SLOW.replace("CHECKPOINT", KEEPS if keeps else ": $2 $3")
    written(tmp_path / "home", script, recipes={"baseline": {}})
    at = publish(planned(tmp_path / "home", tmp_path / "runs"), str(tmp_path / "place"))
    (run_id,) = at.plan().runs
    first = start_worker(tmp_path / "place", "--run", run_id, "--commands", "--lease", "2")
    try:
        wait_until(
            lambda: (tmp_path / "began").exists() and (not keeps or any(at.objects.list("checkpoints/"))), seconds=900
        )
    finally:
        first.kill()
        first.communicate()
    wait_until(lambda: not claims_of(at.objects, run_id)[-1].open(time.time()))
    deadline = time.monotonic() + 900
    while (ended := run_at(allowed(tmp_path), run_id)).state == "elsewhere" and time.monotonic() < deadline:
        time.sleep(0.5)
    assert ended.state == "done", ended
    assert run_sweep(planned(tmp_path / "home", tmp_path / "runs"), Settings(place=str(tmp_path / "place"))).complete
    result = run_files.read(ResultRecord, tmp_path / "runs" / "own" / run_id / rundir.RESULT)
    assert result.resumed == int(keeps)

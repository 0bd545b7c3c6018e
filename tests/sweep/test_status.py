import json
import subprocess
import sys
import time

import pytest

from explorer import rundir
from explorer.errors import SweepError
from explorer.sweep.status import sweep_status
from tests.sweep.sweeps import ROOT, SPEC, execute, plan, spec


def states(runs):
    return [run.state for run in sweep_status(runs / "tiny").runs]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    execute(runs)
    return runs


@pytest.mark.slow
def test_a_finished_sweep(finished):
    status = sweep_status(finished / "tiny", content=SPEC)
    assert status.counts == {"done": 4}
    assert (status.active, status.spec_changed, status.superseded) == (False, False, ())
    assert [(run.ssr, run.recipe) for run in status.runs] == [
        (0.5, "baseline"),
        (0.5, "mixed"),
        (1.0, "baseline"),
        (1.0, "mixed"),
    ]


def test_a_changed_specification_is_noticed(finished):
    assert sweep_status(finished / "tiny", content=spec(seeds=[0, 1])).spec_changed
    assert sweep_status(finished / "tiny").spec_changed is None


@pytest.mark.slow
def test_every_state(tmp_path):
    execute(tmp_path)
    directories = [run.directory for run in plan(tmp_path).runs]
    for directory in directories[:3]:
        (directory / rundir.RESULT).unlink()
    assert states(tmp_path) == ["interrupted"] * 3 + ["done"]  # started, without a result, and no process at work
    (directories[0] / rundir.ENVIRONMENT).unlink()
    rundir.write_json(directories[1] / rundir.FAILURE, {"kind": "exception", "message": "ValueError: no"})
    (directories[3] / rundir.RESULT).write_text("[]")
    assert states(tmp_path) == ["planned", "failed", "interrupted", "damaged"]
    assert sweep_status(tmp_path / "tiny").runs[1].message == "ValueError: no"
    rundir.write_json(directories[1] / rundir.FAILURE, {"kind": "interrupted", "message": "stopped"})
    rundir.write_json(directories[2] / rundir.FAILURE, {"kind": "diverged", "message": "training diverged: nan"})
    assert states(tmp_path) == ["planned", "interrupted", "diverged", "damaged"]
    (directories[2] / rundir.FAILURE).unlink()
    with rundir.locked(directories[2], what="run"), rundir.locked(tmp_path / "tiny", what="sweep"):
        assert states(tmp_path) == ["planned", "interrupted", "running", "damaged"]
        assert sweep_status(tmp_path / "tiny").active
    (directories[1] / rundir.FAILURE).write_text("{")
    assert states(tmp_path)[1] == "failed"


@pytest.mark.slow
def test_runs_of_an_earlier_specification_are_listed(tmp_path):
    execute(tmp_path)
    execute(tmp_path, spec(budgets=[0.5]))
    status = sweep_status(tmp_path / "tiny")
    assert status.counts == {"done": 2}
    assert len(status.superseded) == 2


def test_a_directory_without_a_sweep(tmp_path):
    with pytest.raises(SweepError, match="no sweep was started here; expected sweep.json".replace(".", r"\.")):
        sweep_status(tmp_path / "absent")


@pytest.mark.parametrize(
    "change",
    [
        {"runs": None},
        {"runs": [{}]},
        {"runs": [{"run_id": "../../etc", "recipe": "a", "ssr": 1, "seed": 0}]},
        {"runs": [{"run_id": "a/b", "recipe": "a", "ssr": 1, "seed": 0}]},
        {"runs": [{"run_id": ".lock", "recipe": "a", "ssr": 1, "seed": 0}]},
        {"runs": [{"run_id": "a", "recipe": "a", "ssr": "1", "seed": 0}]},
        {"runs": [{"run_id": "a", "recipe": 7, "ssr": 1, "seed": 0}]},
        {"name": 7},
        {"spec": None},
    ],
)
def test_a_damaged_plan(tmp_path, change):
    whole = {"format": 1, "name": "tiny", "spec": {}, "runs": []}
    rundir.write_json(tmp_path / "tiny" / rundir.SWEEP, whole)
    assert sweep_status(tmp_path / "tiny").runs == ()
    rundir.write_json(tmp_path / "tiny" / rundir.SWEEP, whole | change)
    with pytest.raises(SweepError, match=r"sweep\.json: damaged"):
        sweep_status(tmp_path / "tiny")


def test_status_needs_no_training_code():
    code = "import explorer.sweep.status, explorer.yaml_document, sys, json; print(json.dumps(sorted(sys.modules)))"
    begun = time.monotonic()
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True).stdout)
    assert time.monotonic() - begun < 5
    assert {"torch", "papermill", "pydantic", "jsonschema", "numpy", "nbformat", "IPython"}.isdisjoint(loaded)

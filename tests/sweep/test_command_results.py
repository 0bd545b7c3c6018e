"""Sweeps over commands and notebooks to the end: what is shown of their runs, where unknown stays unknown, a run again,
confirmation, Ctrl-C and a killed sweep."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from explorer import run_files, rundir
from explorer.api import Runs, load
from explorer.report.sweep_report import write_sweep_report
from explorer.run_files import ResultRecord, RunRecord, listed_methods
from explorer.store import frames
from explorer.store.examine import State, examine
from explorer.store.ingest import ingest
from explorer.sweep.execute import run_sweep
from explorer.sweep.plan import make_plan
from explorer.sweep.spec import load_spec
from explorer.training import watch
from explorer.views.sweep.run_notebook import describe, outcome
from tests.cli.command import explorer
from tests.views.test_run_cards import cards

# In shell. Its third argument says whether it counts its examples.
SCRIPT = """
for step in $(seq $2); do
    echo "{\\"explorer\\": \\"log\\", \\"step\\": $step, \\"train_loss\\": 0.$step, \\"seconds\\": $step}"
done
if [ $3 = counts ]; then examples=", \\"examples\\": $((100 * $2))"; fi
echo "{\\"explorer\\": \\"done\\", \\"accuracy\\": $1$examples}"
"""
SPEC = """
name: shell
task: {command: "sh train.sh {lr} {epochs} {way} {seed}", metrics: [accuracy], dataset: d, model: m}
set: {lr: 0.1, way: silent}
scale: {epochs: 2}
baseline: baseline
recipes: {baseline: {}, fast: {set: {lr: 0.3, way: counts}}}
budgets: [1.0]
seeds: [0]
"""


def write(directory: Path, script: str = SCRIPT, spec: str = SPEC) -> Path:
    """Write a specification with its script, and return its path."""
    (directory / "train.sh").write_text(script)
    (directory / "shell.yaml").write_text(spec)
    return directory / "shell.yaml"


def sweep(spec: Path) -> Path:
    """Run a sweep as if nothing else used the machine, and return the directory of all runs."""
    runs = spec.parent / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "_reasons", lambda *_, **__: [])
        done = run_sweep(make_plan(load_spec(spec), runs=runs))
    assert [failure.message for failure in done.failures] == []
    assert done.complete
    return runs


def run_of(runs: Path, recipe: str) -> Path:
    (run,) = (runs / "shell").glob(f"m-d-{recipe}-*")
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two recipes, of which `baseline` does not say how many examples it trained on."""
    directory = sweep(write(tmp_path_factory.mktemp("shell")))
    ingest(directory)
    return directory


@pytest.fixture
def results(runs: Path) -> Runs:
    return load(runs).sweep("shell")


def test_examples_that_were_not_reported_are_unknown(results: Runs) -> None:
    rows = results.frame.set_index("recipe")
    assert rows["batch_size"].isna().all()
    assert rows["steps"].tolist() == [2, 2]
    assert rows["examples"].isna()["baseline"] and rows["examples"]["fast"] == 200
    curves = results.curve_frame("train_loss").set_index("recipe")
    assert curves[curves.index == "baseline"]["examples"].isna().all() and curves["examples"]["fast"].tolist() == [
        100,
        200,
    ]


@pytest.mark.slow
def test_examples_that_were_not_reported_have_no_mark(results: Runs) -> None:
    assert _marked(results, "steps") == {"baseline", "fast"}
    assert _marked(results, "examples") == {"fast"}
    (reason,) = results.compare(x="examples").frame["reason"].dropna().unique()
    assert "examples" in reason


def _marked(results: Runs, x: str) -> set[str]:
    """Return the recipes with a mark in the chart."""
    data = results.chart(x=x).to_dict()["datasets"].values()
    return {row["recipe"] for rows in data for row in rows if row.get("x") is not None and "y" in row}


def test_the_notebook_view_describes_such_a_run(runs: Path) -> None:
    run = run_of(runs, "fast")
    shown = str(describe(run).data)
    assert "lr=0.3<br>way=counts" in shown and ": 2 steps</td>" in shown
    assert "examples in the batches" in str(outcome(run_files.read(ResultRecord, run / rundir.RESULT)).data)
    silent = str(outcome(run_files.read(ResultRecord, run_of(runs, "baseline") / rundir.RESULT)).data)
    assert "examples" not in silent and "digest of the model" not in silent
    assert listed_methods(run_files.read(RunRecord, run / rundir.RUN)) == ()


def test_the_card_says_what_cannot_be_promised(runs: Path, results: Runs) -> None:
    text = re.sub("<[^>]+>", " ", cards(results.frame, runs))
    assert text.count("another run may give other bits") == 2
    assert "the seconds of training that it reported" in text
    assert "Model digest" not in text and "of 0 examples" not in text


def test_a_run_that_is_not_over_has_unknown_steps(tmp_path: Path) -> None:
    plan = make_plan(load_spec(write(tmp_path, "exit 3")), runs=tmp_path / "runs")
    run_sweep(plan)
    ingest(tmp_path / "runs")
    rows = frames.unfinished(tmp_path / "runs" / "explorer.duckdb")
    assert len(rows) == 2 and rows["steps"].isna().all() and rows["examples"].isna().all()


@pytest.mark.slow
def test_the_report_says_what_cannot_be_promised(runs: Path, tmp_path: Path) -> None:
    write_sweep_report(runs, "shell", tmp_path / "report.md", format="md")
    text = (tmp_path / "report.md").read_text()
    assert "Trained by: a command or notebook of the user's" in text
    assert "timed by the seconds of training that it reported" in text
    assert "no run of it is profiled" in text
    assert "PyTorch" not in text and "Precision, batch size: unknown, unknown" in text


def test_one_run_is_run_again_and_compared(runs: Path, tmp_path: Path) -> None:
    done = explorer("run", str(run_of(runs, "fast") / rundir.RUN), "--out", str(tmp_path))
    assert "accuracy in the record  30.00%; a command's bits are not promised" in done.stdout
    assert examine(tmp_path / run_of(runs, "fast").name).state == State.FINISHED


def test_a_run_whose_code_changed_is_not_run_again(tmp_path: Path) -> None:
    directory = sweep(write(tmp_path))
    (tmp_path / "train.sh").write_text("touch ran")
    done = explorer("run", str(run_of(directory, "fast") / rundir.RUN), "--out", str(tmp_path / "again"))
    assert done.returncode == 1 and "data has changed (train.sh)" in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_recipe_is_confirmed_on_fresh_seeds(tmp_path: Path) -> None:
    spec = SPEC.replace("budgets: [1.0]", "budgets: [0.5, 1.0]").replace("seeds: [0]", "seeds: [0, 1]")
    directory = sweep(write(tmp_path, spec=spec))
    done = explorer("confirm", "shell", "fast", "--seeds", "2", "--runs", str(directory))
    assert done.returncode in (0, 1), done.stderr
    fresh = [run_files.read(RunRecord, path).seed for path in (directory / "shell-confirm-fast").glob("*/run.json")]
    assert fresh and not {0, 1} & set(fresh)


@pytest.mark.slow
def test_a_notebook_is_swept(tmp_path: Path) -> None:
    parameters = nbformat.v4.new_code_cell(
        "lr = 0.1\nepochs = 2\nseed = 0\nway = ''", metadata={"tags": ["parameters"]}
    )
    code = """
from explorer import track
for step in range(1, epochs + 1):
    track.log(step=step, train_loss=1 / step, seconds=float(step))
if way == 'fails':
    raise RuntimeError('a cell that raises')
track.done(accuracy=lr, examples=10 * epochs)
"""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=[parameters, nbformat.v4.new_code_cell(code)], metadata=kernel)
    nbformat.write(notebook, tmp_path / "train.ipynb")
    task = SPEC.replace('command: "sh train.sh {lr} {epochs} {way} {seed}"', "notebook: train.ipynb")
    spec = write(tmp_path, spec=task)
    run = run_of(sweep(spec), "fast")
    result = run_files.read(ResultRecord, run / rundir.RESULT)
    assert (result.metrics, result.steps, result.examples) == ({"accuracy": 0.3}, 2, 20)
    executed = nbformat.read(run / rundir.NOTEBOOK, as_version=4)
    assert any("injected-parameters" in cell.metadata.get("tags", ()) for cell in executed.cells)
    spec.write_text(spec.read_text().replace("way: counts", "way: fails"))
    (failure,) = run_sweep(make_plan(load_spec(spec), runs=tmp_path / "runs")).failures
    assert "a cell that raises" in failure.message


def _until(reached: Callable[[], bool], *, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.05)


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# It says where it is, and waits there until it is ended; a second attempt continues from its checkpoint.
WAITS = """
echo $$ >> pids
if [ -n "$EXPLORER_RESUME" ]; then
    echo '{"explorer": "done", "accuracy": 1}'
    exit
fi
echo '{"explorer": "log", "step": 1, "train_loss": 1}'
echo 1 > state
echo '{"explorer": "checkpoint", "path": "state"}'
while [ -z "$(ls -A "$EXPLORER_TRACK/private/checkpoint" 2> /dev/null)" ]; do sleep 0.05; done
touch waiting
sleep 98765 & sleep 98765
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_a_sweep_that_is_ended_leaves_no_process_and_resumes(tmp_path: Path, number: signal.Signals) -> None:
    spec = write(tmp_path, WAITS, SPEC.replace(", fast: {set: {lr: 0.3, way: counts}}", ""))
    command = [sys.executable, "-m", "explorer", "sweep", "run", str(spec), "--runs", str(tmp_path / "runs")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path)
    try:
        _until((tmp_path / "waiting").exists)
        process.send_signal(number)
        assert process.wait(timeout=600) != 0
        (pid,) = map(int, (tmp_path / "pids").read_text().split())
        _until(lambda: _is_gone(pid))
        group = subprocess.run(["ps", "-A", "-o", "args="], capture_output=True, text=True).stdout
        assert "sleep 98765" not in group
    finally:
        process.kill()
        process.wait()
    run = run_of(tmp_path / "runs", "baseline")
    assert examine(run).state != State.FINISHED
    sweep(spec)
    result = run_files.read(ResultRecord, run / rundir.RESULT)
    assert (result.resumed, result.steps) == (1, 1)

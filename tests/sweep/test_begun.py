"""Runs of programs that no sweep started: `explorer.begin` in notebooks and scripts."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import explorer
from explorer import Metric, Place, begin, load, run_files, rundir, track
from explorer.errors import ExplorerError, RunError
from explorer.run_files import FailureRecord, ResultRecord, RunRecord
from explorer.store.examine import State, examine
from explorer.store.ingest import ingest
from explorer.sweep.commands import begun
from explorer.sweep.commands.tracked import read_tracked
from tests.cli.command import refused
from tests.views.test_run_cards import cards

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let this process be a notebook, whose main module has no file, in a directory of its own."""
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    monkeypatch.setattr(track, "_notified", False)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for run in tuple(begun._open):
        run.close()


def begin_here(recipe: str = "baseline", **changes: Any) -> Path:
    changes = {"metrics": ["accuracy"], "settings": {"lr": 0.1}, "threads": 1, **changes}
    return begin(Place(runs="runs", sweep="mine", recipe=recipe), **changes)


def train(accuracy: float = 0.9, steps: int = 2) -> None:
    for step in range(1, steps + 1):
        track.log(step=step, train_loss=1 / step, seconds=float(step))
    track.done(accuracy=accuracy, examples=100 * steps)


def test_a_notebook_makes_runs_with_curves_and_intervals(notebook: Path) -> None:
    directory = notebook
    for seed, budget in itertools.product((0, 1, 2), (0.5, 1.0)):
        for recipe, lr in (("baseline", 0.1), ("fast", 0.3)):
            directory = begin_here(recipe, seed=seed, budget=budget, settings={"lr": lr})
            train(0.5 + budget / 4 + lr / 3 + seed * (lr + budget) / 100, steps=int(20 * budget))
            assert examine(directory).state is State.FINISHED
    ingest(notebook / "runs")
    results = load(notebook / "runs").sweep("mine")
    rows = results.frame
    assert rows.groupby("recipe").size().to_dict() == {"baseline": 6, "fast": 6}
    assert len(results.curve_frame("train_loss")) == 6 * (10 + 20)
    (fast,) = results.compare(x="time").frame.to_dict("records")
    assert fast["recipe"] == "fast" and 1 < fast["low"] <= fast["speedup"] <= fast["high"]
    text = re.sub("<[^>]+>", " ", cards(rows.head(1), notebook / "runs"))
    assert (
        "another run may give other bits" in text
        and "by your own program, which made this run, a notebook: its code is not on record" in text
    )
    again = refused("run", directory / rundir.RUN, "--out", notebook / "again")
    assert again.endswith("a program of yours made this run (explorer.train, explorer.begin): run it again")


def test_what_log_returned_from_is_in_the_curve_at_once(notebook: Path) -> None:
    directory = begin_here()
    track.log(step=1, train_loss=0.5)
    assert [(line.step, line.value) for line in examine(directory).metrics] == [(1, 0.5)]
    assert examine(directory).state is State.RUNNING
    begun._open[0].close()
    assert examine(directory).state is State.INTERRUPTED


def test_the_same_program_continues_its_run(notebook: Path) -> None:
    (notebook / "model.bin").write_text("two steps")
    first = begin_here()
    track.log(step=2, train_loss=0.5, seconds=2)
    track.checkpoint("model.bin")
    track.log(step=3, train_loss=9.0, seconds=3)  # trained once more
    assert track.resume() is None
    second = begin_here()
    kept = track.resume()
    assert second == first and kept is not None and Path(kept).read_text() == "two steps"
    track.log(step=3, train_loss=0.4, seconds=1)
    track.done(accuracy=0.9)
    result = run_files.read(ResultRecord, first / rundir.RESULT)
    assert (result.resumed, result.steps, result.timings.training()) == (1, 3, 3.0)
    assert [line.value for line in examine(first).metrics] == [0.5, 0.4, 0.9]
    with pytest.raises(RunError, match="is finished"):
        begin_here()
    assert begin_here(seed=1) != first


def test_after_the_end_nothing_is_recorded(notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = begin_here()
    train()
    before = (directory / track.FILE).read_bytes()
    track.log(step=9, train_loss=0.0)
    assert (directory / track.FILE).read_bytes() == before and capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": ["acuracy"]}, "did you mean 'accuracy'?"),
        ({"metrics": []}, "expected a list of names"),
        ({"metrics": "accuracy"}, "expected a list of names"),
        ({"metrics": [Metric(name="accuracy", higher_is_better=False)]}, "one meaning in all tables"),
        ({"settings": {"seed": 3}}, "expected seed=..."),
        ({"settings": {"lr": [0.1]}}, "settings.lr"),
        ({"settings": {"l r": 1}}, "settings"),
        ({"budget": 0}, "budget"),
        ({"seed": -1}, "seed"),
        ({"files": ["absent.csv"]}, "there is no file or directory"),
        ({"files": ["/etc/hostname"]}, "leads out of"),
        ({"model": "../x"}, "model"),
    ],
)
def test_arguments_that_cannot_be_are_refused(notebook: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ExplorerError, match=r"^explorer\.begin: ") as error:
        begin_here(**changes)
    assert message in str(error.value)
    assert not (notebook / "runs").exists()


def test_a_record_that_cannot_be_is_refused_and_the_run_continues(notebook: Path) -> None:
    directory = begin_here()
    with pytest.raises(ValueError, match=r"track\.log: found the metric 'a b'"):
        track.log(step=1, **{"a b": 1.0})
    with pytest.raises(ValueError, match=r"track\.done: unknown metric 'accuracy'; did you mean 'acuracy'"):
        track.done(acuracy=0.5)  # pyright: ignore[reportCallIssue]
    train()
    assert examine(directory).state is State.FINISHED


def test_a_result_that_is_no_number_is_a_failure(notebook: Path) -> None:
    directory = begin_here()
    with pytest.raises(RunError, match="diverged: the final accuracy is nan"):
        train(float("nan"))
    assert examine(directory).state is State.DIVERGED
    assert run_files.read(FailureRecord, directory / rundir.FAILURE).attempts == 1


def test_a_run_that_another_process_trains_is_left_alone(notebook: Path) -> None:
    directory = begin_here()
    begun._open[0].close()
    with rundir.locked(directory, what="it"), pytest.raises(RunError, match="is in use by process"):
        begin_here()
    assert not begun._open and track.resume() is None


def test_within_a_sweep_the_run_has_begun(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(track.PLACE, str(notebook / "swept"))
    assert begin_here() == notebook / "swept"
    assert not (notebook / "runs").exists()


def test_of_a_script_the_code_is_known(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (notebook / "helper.py").write_text("import numpy")
    script = notebook / "train.py"
    script.write_text("import helper\nimport explorer\n")
    main = ModuleType("__main__")
    main.__file__ = str(script)
    monkeypatch.setitem(sys.modules, "__main__", main)
    first = run_files.read(RunRecord, begin_here() / rundir.RUN)
    assert set(first.identity["data"]) == {"train.py", "helper.py"} and "numpy" in first.identity["versions"]
    assert first.identity["recipe"]["task"] == {"own": "mine-task"}
    assert (first.model, first.dataset, first.methods) == ("train", "mine-task", ("lr=0.1",))
    (notebook / "helper.py").write_text("import numpy as np")
    assert begin_here().name != first.run_id


KILLED = """
import os, signal, sys
import explorer
from explorer import track

place = explorer.Place(runs="runs", sweep="mine")
explorer.begin(place, metrics=["accuracy"], settings={"lr": 0.1}, threads=1)
for step in range(1, 201):
    track.log(step=step, train_loss=1 / step)
    if step == 200 and not os.path.exists("again"):
        os.kill(os.getpid(), signal.SIGKILL)
track.done(accuracy=0.5)
"""


@pytest.mark.slow
def test_a_script_that_is_killed_keeps_what_it_reported(notebook: Path) -> None:
    (notebook / "train.py").write_text(KILLED)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "train.py"], cwd=notebook, env=environment)
    assert done.returncode == -signal.SIGKILL
    (directory,) = (notebook / "runs" / "mine").glob("train-*")
    assert [step for step, *_ in read_tracked(directory).measured] == list(range(1, 201))
    examined = examine(directory)
    assert examined.state is State.INTERRUPTED and len(examined.metrics) == 200
    (notebook / "again").touch()
    assert subprocess.run([sys.executable, "train.py"], cwd=notebook, env=environment).returncode == 0
    assert run_files.read(ResultRecord, directory / rundir.RESULT).resumed == 1
    environment_of = json.loads((directory / rundir.ENVIRONMENT).read_text())
    assert environment_of["command"][-1] == "train.py" and environment_of["python"] == sys.version.split()[0]


@pytest.mark.slow
def test_the_callback_of_a_trainer_makes_a_run(notebook: Path) -> None:
    helpers = pytest.importorskip("tests.adapters.test_huggingface")
    trainer = helpers.classifier(notebook, eval_strategy="epoch")
    directory = begin_here("trainer")
    trainer.train(resume_from_checkpoint=track.resume())
    examined = examine(directory)
    assert (examined.state, examined.problem) == (State.FINISHED, None)
    assert {"train_loss", "accuracy"} <= {line.metric for line in examined.metrics}


@pytest.mark.slow
def test_live_processes_of_its_own_are_not_others() -> None:
    before = begun._read().own - time.process_time()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            end = time.monotonic() + 120
            while begun._read().own - time.process_time() < before + 0.3:
                assert time.monotonic() < end
                time.sleep(0.05)
        finally:
            child.kill()


def test_it_is_a_public_name() -> None:
    assert explorer.begin is begin and "begin" in dir(explorer)

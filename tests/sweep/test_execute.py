"""Executing sweeps in this process: order, resuming, failures, hooks, stopping, disks that refuse."""

import errno
import json
import os
import re
import signal
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest

from explorer import run_files, rundir
from explorer.errors import RunError, StoreError, SweepError
from explorer.run_files import FailureRecord, ProfileRecord
from explorer.sweep import execute as executing
from explorer.sweep.execute import Settings, run_sweep
from explorer.sweep.profiles import read_profiles
from explorer.sweep.status import sweep_status
from explorer.sweep.work import Job, Outcome, lost_on, lost_workers, perform
from explorer.sweep.workers import InProcess
from tests.sweep.sweeps import SPEC, execute, outcomes, plan, results, spec

pytestmark = pytest.mark.notebook


KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


class Listener:
    def __init__(self):
        self.events = []

    def __call__(self, event):
        self.events.append(event)

    def kinds(self):
        return [event.kind for event in self.events]


def test_a_sweep_from_start_to_end(tmp_path):
    listener, finished = Listener(), []
    first = plan(tmp_path).runs[0].directory
    first.mkdir(parents=True)
    (first / ".environment.json.1.tmp").write_text("{")  # a process was killed while it wrote
    summary = execute(tmp_path, on_event=listener, on_result=lambda path: finished.append(path.name))
    planned = plan(tmp_path)
    names = [run.record.run_id for run in planned.runs]
    assert (summary.done, summary.executed, summary.complete) == (4, 4, True)
    assert (
        finished
        == names
        == list(json.loads((tmp_path / "tiny/sweep.json").read_text())["runs"][i]["run_id"] for i in range(4))
    )
    assert listener.kinds() == ["start", "done", "done", "done", "done", "end"]
    assert [event.fraction for event in listener.events] == sorted(event.fraction for event in listener.events)
    assert (listener.events[0].seconds_left, listener.events[-1].seconds_left) == (None, 0)
    assert listener.events[-1].fraction == 1
    assert not list(tmp_path.rglob("*.tmp"))
    for run in planned.runs:
        assert not results(tmp_path)[run.record.run_id].contended
        assert nbformat.read(run.directory / rundir.NOTEBOOK, as_version=4).metadata.explorer["state"] == "complete"


@pytest.mark.slow
def test_only_what_is_missing_runs(tmp_path):
    execute(tmp_path)
    before, stamps = outcomes(tmp_path), {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    listener = Listener()
    summary = execute(tmp_path, on_event=listener)
    assert (summary.done, summary.executed) == (4, 0)
    assert listener.kinds() == ["start", "end"]
    wider = execute(tmp_path, spec(seeds=[0, 1]))
    assert (wider.done, wider.executed) == (8, 4)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert before.items() <= outcomes(tmp_path).items()


WILD = {"train": {"optimizer": {"sgd": {"lr": 100.0, "weight_decay": 10.0}}}, "methods": []}
DIVERGES = spec(recipes={"baseline": [], "wild": WILD}, budgets=[2.0, 3.0])


@pytest.mark.slow
def test_a_run_that_diverges_is_recorded_and_the_others_continue(tmp_path):
    listener = Listener()
    summary = execute(tmp_path, DIVERGES, on_event=listener)
    assert (summary.done, summary.complete, summary.interrupted) == (2, False, False)
    assert listener.kinds() == ["start", "done", "failed", "done", "failed", "end"]  # not retried
    failures = {failure.run_id: failure.message for failure in summary.failures}
    assert len(failures) == 2
    for run_id, message in failures.items():
        assert re.search(r"training diverged|is (nan|inf) at step", message)
        failure = run_files.read(FailureRecord, tmp_path / "tiny" / run_id / rundir.FAILURE)
        assert (failure.kind, failure.attempts, failure.message) == ("diverged", 1, message)
        notebook = nbformat.read(tmp_path / "tiny" / run_id / rundir.NOTEBOOK, as_version=4)
        assert notebook.metadata.explorer["state"] == "diverged"
    assert sweep_status(tmp_path / "tiny").counts == {"done": 2, "diverged": 2}


@pytest.mark.slow
def test_a_failed_run_is_tried_again_by_the_next_start(tmp_path, monkeypatch):
    expected = outcomes_of_undisturbed(tmp_path / "calm")
    monkeypatch.setattr(executing, "perform", lambda job: Outcome(fault="exception", message="ValueError: moody"))
    assert len(execute(tmp_path / "moody").failures) == 4
    monkeypatch.undo()
    assert execute(tmp_path / "moody").complete
    assert not list(tmp_path.glob("moody/*/*/failure.json"))
    assert outcomes(tmp_path / "moody") == expected


def outcomes_of_undisturbed(runs):
    execute(runs)
    return outcomes(runs)


@pytest.mark.parametrize("fault", ["dead kernel", "lost worker", "timeout"])
def test_faults_of_the_machine_are_retried_twice(tmp_path, monkeypatch, fault):
    calls = []

    def perform(job):
        calls.append(job.directory.name)
        return Outcome(fault=fault, message="gone") if calls.count(job.directory.name) <= deaths else Outcome()

    monkeypatch.setattr(executing, "perform", perform)
    monkeypatch.setattr(executing, "BACKOFF", (0.01, 0.02))
    listener = Listener()
    deaths = 2
    assert execute(tmp_path / "a", spec(budgets=[1.0]), on_event=listener).complete
    assert [calls.count(name) for name in dict.fromkeys(calls)] == [3, 3]
    assert listener.kinds().count("retry") == 4
    calls.clear()
    deaths = 3
    summary = execute(tmp_path / "b", spec(budgets=[1.0]))
    assert [calls.count(name) for name in dict.fromkeys(calls)] == [3, 3]
    assert [failure.message for failure in summary.failures] == ["gone", "gone"]
    failure = run_files.read(FailureRecord, tmp_path / "b/tiny" / calls[0] / rundir.FAILURE)
    assert (failure.kind, failure.attempts) == (fault, 3)


def test_a_worker_that_is_called_back_costs_no_retry(tmp_path, monkeypatch):
    calls = []

    def perform(job):
        calls.append(job.directory.name)
        return Outcome(fault="preempted", message="called back") if len(calls) <= 9 else Outcome()

    monkeypatch.setattr(executing, "perform", perform)
    listener = Listener()
    assert execute(tmp_path, spec(budgets=[1.0]), on_event=listener).complete
    assert len(calls) == 11  # more often than any fault of a machine is forgiven
    assert (listener.kinds().count("retry"), listener.kinds().count("failed")) == (9, 0)


def test_a_full_disk_ends_the_sweep_and_blames_no_run(tmp_path, monkeypatch):
    full = Outcome(fault="full disk", message="no space", hosts=("here",))
    monkeypatch.setattr(executing, "perform", lambda job: full)
    with pytest.raises(RunError, match=r"mixed.*|baseline.*: no space: free some space; the same command continues"):
        execute(tmp_path)
    assert set(sweep_status(tmp_path / "tiny").counts) == {"planned"}


class Hosts(InProcess):
    """An executor of two hosts, one of which can be left out."""

    def __init__(self):
        self.avoided = []

    def avoid(self, host):
        self.avoided.append(host)
        return len(set(self.avoided)) < 2


def test_a_host_with_a_full_disk_is_left_out_where_there_are_others(tmp_path, monkeypatch):
    made = Hosts()

    def perform(job):
        return Outcome() if made.avoided else Outcome(fault="full disk", message="no space", hosts=("a",))

    monkeypatch.setattr(executing, "perform", perform)
    monkeypatch.setattr(executing, "BACKOFF", (0.01, 0.02))
    assert execute(tmp_path, executor=made).complete
    assert made.avoided == ["a"]


def job_in(directory):
    return Job(
        directory=directory,
        notebook=directory / "absent.ipynb",
        engine="inline",
        threads=1,
        data=None,
        contended=False,
        timeout=None,
    )


def test_a_call_that_a_full_disk_ends_says_so(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    outcome = perform(job_in(tmp_path / "run"))
    assert (outcome.fault, outcome.hosts) == ("full disk", (socket.gethostname(),))


def test_a_call_whose_worker_died_goes_back_to_the_sweep(tmp_path):
    """Some executors repeat the calls of dead workers, and do not know where a run may be tried, and how often."""
    for number in range(3):
        (tmp_path / f"{rundir.BEGUN}{number}").write_text(f"host-{number}, process 1")
    job = job_in(tmp_path)
    for known in range(3):
        assert perform(replace(job, lost=known)).fault == "lost worker"
    assert lost_workers(tmp_path) == ["host-0, process 1", "host-1, process 1", "host-2, process 1"]
    assert lost_on(tmp_path) == {"host-0", "host-1", "host-2"}
    with pytest.raises(FileNotFoundError):  # it begins, and there is no notebook
        perform(replace(job, lost=3))
    assert len(lost_workers(tmp_path)) == 3


def test_a_run_is_tried_again_on_another_host(tmp_path, monkeypatch):
    asked = []

    class Choosing(InProcess):
        def submit_to(self, hardware, apart, fn, *args):
            asked.append(set(apart))
            return self.submit(fn, *args)

    def lost(job):
        host = f"host-{len(lost_workers(job.directory))}"
        job.directory.mkdir(parents=True, exist_ok=True)
        (job.directory / f"{rundir.BEGUN}{host}").write_text(f"{host}, process 1")
        return Outcome(fault="lost worker", message="it died")

    monkeypatch.setattr(executing, "perform", lost)
    monkeypatch.setattr(executing, "BACKOFF", (0.0, 0.0))
    only = spec(recipes={"baseline": []}, budgets=[1.0])
    summary = run_sweep(plan(tmp_path, only), Settings(profile=False), executor=Choosing())
    assert len(summary.failures) == 1, "three hosts are enough"
    assert asked == [set(), {"host-0"}, {"host-0", "host-1"}]


def kills_its_worker(job):
    """Execute nothing; where the run is of the recipe `mixed`, die with it."""
    if "mixed" in job.directory.name:
        (job.directory / f"{rundir.BEGUN}{os.getpid()}").write_text(f"here, process {os.getpid()}")
        os.kill(os.getpid(), signal.SIGKILL)
    return Outcome()


@pytest.mark.slow
def test_a_run_that_kills_three_workers_is_set_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(executing, "perform", kills_its_worker)
    monkeypatch.setattr(executing, "BACKOFF", (0.01, 0.02))
    listener = Listener()
    summary = execute(tmp_path, spec(budgets=[1.0]), workers=2, on_event=listener)
    assert (summary.done, len(summary.failures), listener.kinds().count("retry")) == (1, 1, 2)
    state = next(run for run in sweep_status(tmp_path / "tiny").runs if run.recipe == "mixed")
    assert state.state == "set aside"
    assert len(re.findall(r"here, process \d+", state.message)) == 3
    assert (
        execute(tmp_path / "again", spec(budgets=[1.0], recipes={"baseline": []}), workers=2).done == 1
    )  # the control


@pytest.mark.slow
def test_success_needs_a_result_and_not_only_a_notebook(tmp_path):
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": KERNEL})
    source = "directory = None\ndata = None\ncontended = None"
    notebook.cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": ["parameters"]}))
    nbformat.write(notebook, tmp_path / "lazy.ipynb")
    summary = execute(tmp_path, notebook=tmp_path / "lazy.ipynb")
    assert summary.done == 0
    assert all("cannot read" in failure.message and "result.json" in failure.message for failure in summary.failures)


def test_a_notebook_without_the_parameters_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(SweepError, match="No such file"):
        execute(tmp_path, notebook=tmp_path / "absent.ipynb")
    with pytest.raises(SweepError, match="unknown notebook engine 'wram'; did you mean 'warm'"):
        execute(tmp_path, engine="wram")
    assert not list(tmp_path.glob("tiny/*/run.json"))


@pytest.mark.slow
def test_a_second_start_on_the_same_directory_is_refused(tmp_path):
    with (
        rundir.locked(tmp_path / "tiny", what="sweep"),
        pytest.raises(
            RunError, match=rf"sweep 'tiny' is in use by process {os.getpid()}: wait for it or stop it first"
        ),
    ):
        execute(tmp_path)
    assert execute(tmp_path).complete


@pytest.mark.slow  # a run waits ten seconds for its lock
def test_a_run_that_another_process_trains_is_the_only_failure(tmp_path):
    first = plan(tmp_path).runs[0]
    with rundir.locked(first.directory, what="run"):
        summary = execute(tmp_path)
    assert summary.done == 3
    assert "is in use by process" in summary.failures[0].message


LONG = spec(train={**SPEC["train"], "epochs": 14}, recipes={"baseline": []}, budgets=[1.0], seeds=[0, 1])  # 196 steps


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    runs = tmp_path_factory.mktemp("calm")
    execute(runs, LONG)
    return outcomes(runs)


def kill_once_it_trains(directory, number):
    """Send the signal to this process when the first measurements of the run are on the disk."""
    metrics = directory / rundir.METRICS
    for _ in range(3000):
        if metrics.exists() and metrics.stat().st_size:
            os.kill(os.getpid(), number)
            return
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_everything_resumable(tmp_path, undisturbed, number):
    """The sweep stops in the middle of its first run, and continues from the checkpoint to the same bits."""
    listener = Listener()
    first = plan(tmp_path, LONG).runs[0]
    threading.Thread(target=kill_once_it_trains, args=(first.directory, number)).start()
    summary = execute(tmp_path, LONG, on_event=listener)
    assert (summary.interrupted, summary.complete) == (True, False)
    assert (summary.done, summary.failures) == (0, ())
    assert listener.kinds() == ["start", "interrupted", "end"]
    assert [run.state for run in plan(tmp_path, LONG).runs] == ["interrupted", "planned"]
    assert list((first.directory / rundir.CHECKPOINT).iterdir())
    assert execute(tmp_path, LONG).complete
    assert outcomes(tmp_path) == undisturbed
    assert results(tmp_path)[first.record.run_id].resumed == 1
    assert not (first.directory / rundir.FAILURE).exists()


@pytest.mark.slow
def test_signal_handlers_are_put_back(tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    execute(tmp_path)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.slow
def test_a_hook_that_fails_is_a_warning(tmp_path):
    def hook(directory):
        raise StoreError("the database is in use")

    summary = execute(tmp_path, on_result=hook)
    assert summary.complete
    assert summary.warnings == ("the database is in use",) * 4


@pytest.mark.slow
def test_a_full_disk_stops_the_sweep_and_loses_nothing(tmp_path, monkeypatch):
    execute(tmp_path, spec(budgets=[0.5]))
    whole, write = outcomes(tmp_path), rundir.write_bytes

    def full(path, content):
        if path.parent.name.startswith("resnet8") and "ssr1-" in path.parent.name:
            raise RunError(f"cannot write {path}: {os.strerror(errno.ENOSPC)}")
        write(path, content)

    monkeypatch.setattr(rundir, "write_bytes", full)
    with pytest.raises(RunError, match="No space left on device"):
        execute(tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))
    monkeypatch.undo()
    assert execute(tmp_path).complete
    assert whole.items() <= outcomes(tmp_path).items()


def test_a_path_that_is_no_directory_is_refused(tmp_path):
    (tmp_path / "tiny").write_text("in the way")
    with pytest.raises(RunError, match="cannot lock"):
        execute(tmp_path)


@pytest.mark.slow
def test_a_damaged_run_record_is_written_again_from_the_plan(tmp_path):
    first, *_ = plan(tmp_path).runs
    first.directory.mkdir(parents=True)
    (first.directory / rundir.RUN).write_text("{")
    assert execute(tmp_path).complete


@pytest.mark.slow
def test_every_recipe_is_profiled_once(tmp_path):
    listener = Listener()
    summary = execute(tmp_path, spec(budgets=[0.5]), profile=True, on_event=listener)
    assert summary.complete
    assert summary.warnings == ()
    kinds = [kind for kind in listener.kinds() if kind != "busy"]  # other programs may run during the tests
    assert kinds[:5] == ["start", "profile", "done", "done", "profile"] and kinds[-1] == "end"
    profiles = read_profiles(tmp_path / "tiny")
    planned = plan(tmp_path, spec(budgets=[0.5]))
    assert set(profiles) == {run.record.recipe_digest for run in planned.runs}
    assert {run.source for run in planned.runs} == {"profiled"}
    (path, *_) = (tmp_path / "tiny" / rundir.PROFILES).iterdir()
    assert path.stem == run_files.read(ProfileRecord, path).key
    listener.events.clear()
    assert execute(tmp_path, spec(budgets=[0.5]), profile=True, on_event=listener).complete
    assert listener.kinds() == ["start", "end"]

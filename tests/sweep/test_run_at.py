"""A sweep at a place, with real workers: killed, stopped past their lease, preempted; the results stay the same."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from explorer import rundir
from explorer.errors import PlaceError, RunError
from explorer.objects import DirectoryObjects
from explorer.place.leases import claims_of
from explorer.place.published_sweep import FailureAt, Published, ResultAt
from explorer.recipes import machine
from explorer.sweep import run_at
from explorer.sweep.at_place import publish
from explorer.sweep.execute import Settings, run_sweep
from explorer.sweep.plan import make_plan
from explorer.sweep.profiles import read_profiles
from explorer.sweep.run_at import Worker, missing_at, run_any, run_of_index
from explorer.sweep.spec import load_spec
from explorer.sweep.status import sweep_status
from explorer.sweep.work import Outcome
from tests.pretended_machines import pretend
from tests.sweep.sweeps import ROOT, SPEC, execute, outcomes, plan, spec

LONG = spec(train={**SPEC["train"], "epochs": 40}, recipes={"baseline": []}, budgets=[1.0])  # one run of 560 steps


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    runs = tmp_path_factory.mktemp("calm")
    assert execute(runs).complete
    return outcomes(runs)


def published(tmp_path: Path, content=SPEC) -> Published:
    return publish(plan(tmp_path / "planned", content), str(tmp_path / "place"))


def worker(tmp_path: Path, **settings) -> Worker:
    return Worker(place=str(tmp_path / "place"), engine="inline", **settings)


def start_worker(place: Path, *options: str) -> subprocess.Popen[str]:
    """A worker of its own, as a scheduler starts one."""
    return subprocess.Popen(
        [sys.executable, "-m", "explorer", "run-at", str(place), "--json", *options],
        cwd=place.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(holds, *, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


@pytest.mark.notebook
def test_a_sweep_at_a_place_gives_what_it_gives_here(tmp_path, undisturbed):
    assert execute(tmp_path / "runs", place=str(tmp_path / "place")).complete
    assert outcomes(tmp_path / "runs") == undisturbed


@pytest.mark.notebook
def test_results_of_other_workers_come_back(tmp_path, undisturbed):
    published(tmp_path)
    ended = []
    run_any(worker(tmp_path), on_end=ended.append)
    assert [run.state for run in ended] == ["done"] * 4 and missing_at(str(tmp_path / "place")) == []
    summary = execute(tmp_path / "runs", place=str(tmp_path / "place"))
    assert summary.complete and outcomes(tmp_path / "runs") == undisturbed
    assert len(claims_of(DirectoryObjects(tmp_path / "place"), ended[0].run_id)) == 1, "nothing ran twice"


@pytest.mark.notebook
def test_a_run_is_executed_once(tmp_path):
    published(tmp_path)
    first = run_of_index(str(tmp_path / "place"), 0)
    assert first is not None
    assert run_at.run_at(worker(tmp_path), first).state == "done"
    assert run_at.run_at(worker(tmp_path), first).state == "done"
    assert len(claims_of(DirectoryObjects(tmp_path / "place"), first)) == 1
    assert run_of_index(str(tmp_path / "place"), 4) is None


def test_another_machine_does_not_claim(tmp_path, monkeypatch):
    at = published(tmp_path)
    run_id = at.plan().runs[0]
    monkeypatch.setattr(machine, "_cpu_name", lambda: "Another CPU")
    ended = run_at.run_at(worker(tmp_path), run_id)
    assert ended.state == "not here" and "Another CPU" in ended.message
    monkeypatch.undo()
    there = at.run(run_id)
    at.write(f"runs/{run_id}.json", replace(there, machine=replace(there.machine, training_code="0" * 64)))
    ended = run_at.run_at(worker(tmp_path), run_id)
    assert ended.state == "not here" and "training code" in ended.message
    assert claims_of(at.objects, run_id) == []


def test_a_run_that_cost_three_workers_is_set_aside(tmp_path, monkeypatch):
    at = published(tmp_path)
    run_id = at.plan().runs[0]
    now = [time.time()]
    monkeypatch.setattr("explorer.place.leases.time.time", lambda: now[0])
    for _ in range(3):
        assert run_at.take(at.objects, run_id, host="node", hardware="CPU") is not None
        now[0] += 1000  # never heard of again
    ended = run_at.run_at(worker(tmp_path), run_id)
    assert ended.state == "set aside" and "set aside after 3 attempts" in ended.message
    failure = at.find(FailureAt, f"failures/{run_id}.json")
    assert failure is not None and failure.kind == "set aside"
    assert run_id not in missing_at(str(tmp_path / "place"))


@pytest.mark.notebook
def test_an_exception_is_not_tried_again(tmp_path, monkeypatch):
    at = published(tmp_path)
    run_id = at.plan().runs[0]
    monkeypatch.setattr("explorer.training.run.fit", lambda *_: 1 / 0)
    ended = run_at.run_at(worker(tmp_path), run_id)
    assert ended.state == "failed" and "ZeroDivisionError" in ended.message
    monkeypatch.undo()
    assert run_at.run_at(worker(tmp_path), run_id) == ended
    assert len(claims_of(at.objects, run_id)) == 1
    # A new start of the sweep tries it again, as at home.
    assert execute(tmp_path / "runs", place=str(tmp_path / "place")).complete
    assert at.names("failures") == set()


@pytest.mark.parametrize(("told", "state"), [(True, "preempted"), (False, "failed")])
def test_what_a_stop_breaks_is_no_fault_of_the_run(tmp_path, monkeypatch, told, state):
    at = published(tmp_path)
    run_id = at.plan().runs[0]

    def perform(job):
        if told:
            signal.raise_signal(signal.SIGTERM)
        return Outcome(fault="exception", message="CellExecutionError: the kernel was stopped while it began")

    monkeypatch.setattr(run_at, "perform", perform)
    assert run_at.run_at(worker(tmp_path), run_id).state == state
    assert at.names("failures") == (set() if told else {run_id})


@pytest.mark.parametrize(
    ("kind", "state"), [("exception", "failed"), ("diverged", "diverged"), ("set aside", "set aside")]
)
def test_what_failed_elsewhere_has_its_state_here(tmp_path, monkeypatch, kind, state):
    at = published(tmp_path)
    runs = at.plan().runs
    for run_id in runs:
        claim = run_at.take(at.objects, run_id, host="node", hardware="CPU")
        assert claim is not None
        at.fail(claim, kind, "so it was")
    monkeypatch.setattr(Published, "forgive", lambda self: None)  # as while other workers are at work
    summary = execute(tmp_path / "runs", place=str(tmp_path / "place"))
    assert [failure.message for failure in summary.failures] == ["so it was"] * len(runs)
    assert sweep_status(tmp_path / "runs" / "tiny").counts == {state: len(runs)}


@pytest.mark.notebook
def test_one_damaged_result_is_a_fault_of_its_run(tmp_path):
    at = published(tmp_path)
    run_any(worker(tmp_path), on_end=lambda ended: None)
    first = at.plan().runs[0]
    result = at.find(ResultAt, f"results/{first}.json")
    assert result is not None
    small = {**result.files.small, rundir.METRICS: base64.b64encode(b"changed").decode()}
    at.write(f"results/{first}.json", replace(result, files=replace(result.files, small=small)))
    summary = execute(tmp_path / "runs", place=str(tmp_path / "place"))
    assert [failure.run_id for failure in summary.failures] == [first] and summary.done == 3
    assert "damaged: its digest is" in summary.failures[0].message


def test_step_times_that_cannot_be_measured_cost_no_run(tmp_path, monkeypatch):
    planned = plan(tmp_path / "planned")
    at = publish(planned, str(tmp_path / "place"), profile=planned.classes)

    def fail(*_):
        raise RunError("no memory")

    monkeypatch.setattr(run_at, "_measure", fail)
    ended = run_at.profile_at(worker(tmp_path))
    assert ended is not None and ended.state == "done" and "no step times: no memory" in ended.message
    assert run_at.profile_at(worker(tmp_path)) is None, "no other job tries again"
    at.forgive()
    assert run_at.profile_at(worker(tmp_path)) is not None, "a new start of the sweep does"


@pytest.mark.notebook
def test_a_place_that_refuses_the_result_is_no_fault_of_the_run(tmp_path, monkeypatch):
    at = published(tmp_path)
    run_id = at.plan().runs[0]
    with monkeypatch.context() as patch:
        patch.setattr(DirectoryObjects, "create", refuse_results(DirectoryObjects.create))
        ended = run_at.run_at(worker(tmp_path), run_id)
    assert ended.state == "later" and "no space" in ended.message
    assert run_id in missing_at(str(tmp_path / "place")), "it can be tried again"


def refuse_results(create):
    def refusing(objects, key, content):
        if key.startswith("results/"):
            raise PlaceError("no space")
        return create(objects, key, content)

    return refusing


# --- workers that die, are stopped, or are told to go ---


@pytest.fixture(scope="module")
def long_run(tmp_path_factory) -> dict:
    runs = tmp_path_factory.mktemp("long")
    assert execute(runs, LONG).complete
    return outcomes(runs)


@pytest.fixture
def workers(monkeypatch) -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def collected(tmp_path: Path, content) -> dict:
    assert execute(tmp_path / "runs", content, place=str(tmp_path / "place")).complete
    return outcomes(tmp_path / "runs")


@pytest.mark.slow
def test_a_killed_worker_is_replaced_after_its_lease(tmp_path, long_run, workers):
    at = published(tmp_path, LONG)
    run_id = at.plan().runs[0]
    first = start_worker(tmp_path / "place", "--run", run_id, "--lease", "2")
    workers.append(first)
    wait_until(lambda: list(at.objects.list(f"claims/{run_id}/")))
    time.sleep(1)
    first.kill()
    first.wait()
    second = start_worker(tmp_path / "place", "--claim")
    workers.append(second)
    out, err = second.communicate(timeout=240)
    while second.returncode == 75:  # the lease was not over
        time.sleep(1)
        second = start_worker(tmp_path / "place", "--claim")
        workers.append(second)
        out, err = second.communicate(timeout=240)
    assert second.returncode == 0, (out, err)
    assert collected(tmp_path, LONG) == long_run
    assert [claim.ending(time.time()) for claim in claims_of(at.objects, run_id)] == ["lost worker", "done"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_preempted_worker_leaves_its_checkpoint(tmp_path, long_run, workers, number):
    at = published(tmp_path, LONG)
    run_id = at.plan().runs[0]
    first = start_worker(tmp_path / "place", "--run", run_id)
    workers.append(first)
    wait_until(lambda: list(at.objects.list(f"claims/{run_id}/")))
    time.sleep(4)  # into the training, or before: both have to work
    first.send_signal(number)
    out, err = first.communicate(timeout=240)
    assert first.returncode in (75, 0), (out, err)
    assert "Traceback" not in err
    if first.returncode == 75:
        assert claims_of(at.objects, run_id)[-1].ended == "preempted"
    second = start_worker(tmp_path / "place", "--run", run_id)  # at once: nothing has to run out
    workers.append(second)
    out, err = second.communicate(timeout=240)
    assert second.returncode == 0 and json.loads(out)["state"] == "done", (out, err)
    assert collected(tmp_path, LONG) == long_run


@pytest.mark.slow
def test_a_worker_that_was_stopped_past_its_lease_changes_nothing(tmp_path, long_run, workers):
    at = published(tmp_path, LONG)
    run_id = at.plan().runs[0]
    zombie = start_worker(tmp_path / "place", "--run", run_id, "--lease", "1")
    workers.append(zombie)
    wait_until(lambda: list(at.objects.list(f"claims/{run_id}/")))
    zombie.send_signal(signal.SIGSTOP)
    wait_until(lambda: not claims_of(at.objects, run_id)[-1].open(time.time()))
    deadline = time.monotonic() + 240
    while True:
        other = start_worker(tmp_path / "place", "--run", run_id)
        workers.append(other)
        out, err = other.communicate(timeout=240)
        if other.returncode == 0 or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert other.returncode == 0, (out, err)
    before = at.objects.read(f"results/{run_id}.json", max_bytes=10**6)
    zombie.send_signal(signal.SIGCONT)
    out, err = zombie.communicate(timeout=240)
    assert zombie.returncode == 0, (out, err)
    assert at.objects.read(f"results/{run_id}.json", max_bytes=10**6) == before
    assert list(at.objects.list("findings/")) == []
    assert collected(tmp_path, LONG) == long_run


@pytest.mark.slow
def test_workers_of_the_planned_machine_measure_and_train_for_one_that_is_none(
    tmp_path, undisturbed, workers, monkeypatch
):
    planned = plan(tmp_path / "runs")
    with monkeypatch.context() as patch:
        pretend(patch, name="A laptop")  # it plans for this machine, and executes nothing
        planned = make_plan(load_spec(SPEC), runs=tmp_path / "runs", targets=planned.targets, rehearsed=True)
        assert planned.why_not_here is not None
        worker = []

        def follow(event) -> None:
            if event.kind == "waiting" and not worker:
                worker.append(start_worker(tmp_path / "place", "--claim"))
                workers.extend(worker)

        summary = run_sweep(planned, Settings(place=str(tmp_path / "place"), on_event=follow))
    out, err = worker[0].communicate(timeout=240)
    assert summary.complete and worker[0].returncode == 0, (out, err)
    ended = [json.loads(line) for line in out.splitlines()]
    assert ended[0]["message"] == "step times", "they come first"
    assert outcomes(tmp_path / "runs") == undisturbed
    profiled = read_profiles(tmp_path / "runs" / "tiny")
    assert set(profiled) == {run.record.recipe_digest for run in planned.runs}

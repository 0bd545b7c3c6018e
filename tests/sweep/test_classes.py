"""A sweep for several classes of machines: planned once for each, and executed by machines of each."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from explorer import run_files, rundir, schema
from explorer.errors import PlaceError, SpecError, SweepError
from explorer.machine_class import Machine
from explorer.place.leases import claims_of, end, take
from explorer.place.published_sweep import Published
from explorer.planned import superseded
from explorer.recipes.machine import this_machine
from explorer.run_files import ProfileRecord, RunRecord
from explorer.store.ingest import ingest
from explorer.sweep import run_at
from explorer.sweep.at_place import publish
from explorer.sweep.confirm import check_same, confirmation
from explorer.sweep.job_files import Jobs, job_files
from explorer.sweep.plan import Plan
from explorer.sweep.profiles import read_profiles
from explorer.sweep.run_at import Ended, Worker, profile_at, run_any, run_of_index
from explorer.sweep.spec import load_spec
from tests.cli.command import explorer, refused
from tests.pretended_machines import H200, pretend, pretending
from tests.sweep.sweeps import ROOT, execute, plan, results, spec
from tests.sweep.test_commands import SPEC as COMMAND
from tests.sweep.test_plan import profile_of

OTHER = "AMD EPYC 9999"
BASELINE = {"recipes": {"baseline": []}, "budgets": [0.5]}  # one run


def probe_of(path: Path, **machine: str) -> str:
    """Write what `explorer probe --json` prints on a machine; return the path."""
    with pytest.MonkeyPatch.context() as patch:
        rundir.write_json(path, schema.to_json(pretend(patch, **machine)))
    return str(path)


@pytest.fixture
def two(tmp_path: Path) -> dict[str, Any]:
    """A sweep for this machine's class, and one that is like it but for its name."""
    return spec(
        on=[{"probe": probe_of(tmp_path / "here.json")}, {"probe": probe_of(tmp_path / "other.json", name=OTHER)}]
    )


@pytest.fixture
def there() -> Iterator[pytest.MonkeyPatch]:
    """Within the test, this process is a machine of the other class."""
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, name=OTHER)
        yield patch


def ids(planned: Plan) -> list[str]:
    return [run.record.run_id for run in planned.runs]


def worker(tmp_path: Path) -> Worker:
    return Worker(place=str(tmp_path / "place"), engine="inline")


# --- the plan ---


def test_every_run_is_planned_once_for_each_class(tmp_path: Path, two):
    both = plan(tmp_path / "both", two)
    alone = [plan(tmp_path / str(at), spec(on=[one])) for at, one in enumerate(two["on"])]
    assert [ids(own) for own in both.classes] == [ids(own) for own in alone]
    assert set(ids(alone[0])).isdisjoint(ids(alone[1]))
    assert [own.why_not_here is None for own in both.classes] == [True, False]
    content = both.to_json()
    assert [run["run_id"] for run in content["runs"]] == [*ids(alone[0]), *ids(alone[1])]
    assert [machine["hardware"]["name"] for machine in content["machines"]] == [this_machine().hardware.name, OTHER]
    assert "machines" not in alone[0].to_json(), "a plan for one class is as it was"


def test_the_plan_is_the_same_on_machines_of_both_classes(tmp_path: Path, two):
    here = plan(tmp_path, two)
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, name=OTHER)
        elsewhere = plan(tmp_path, two)
    assert here.to_json() == elsewhere.to_json()
    assert (here.target.machine.hardware.name, elsewhere.target.machine.hardware.name) == (
        this_machine().hardware.name,
        OTHER,
    )


def test_readers_could_not_tell_two_classes_of_the_same_hardware_apart(tmp_path: Path):
    same = {"probe": probe_of(tmp_path / "old.json", torch="2.12.0")}
    with pytest.raises(
        SpecError, match=r"spec: on\[1\]: found '.*', which on\[0\] names too; runs are compared by hard"
    ):
        plan(tmp_path, spec(on=[{"name": this_machine().hardware.name}, same]))
    assert plan(tmp_path, spec(on=[same])).runs  # the control


TUNE = {"space": {"lr": [0.01, 1]}, "runs": 2, "budget": 1, "seeds": [9]}


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"tune": TUNE}, "tune: a tuning chooses values by the results of one class: name one class under 'on', or"),
        ({"until": {"interval": "10%", "of": ["mixed"], "at_most": 12}}, "until: the number of seeds is decided by"),
        ({"search": {"of": ["mixup"], "spend": "1h"}}, "search: a search chooses runs by the results of one class"),
    ],
)
def test_what_is_decided_by_results_is_for_one_class(two, more: dict[str, Any], fault: str):
    with pytest.raises(SpecError, match=f"spec: {fault}"):
        load_spec(two | more)


def test_a_command_is_for_one_class(two):
    with pytest.raises(SpecError, match="spec: on: the runs of a command are for one class: name one"):
        load_spec(COMMAND | {"on": two["on"]})


def test_the_runs_of_all_classes_count_towards_the_most(two):
    assert load_spec(spec(seeds=list(range(4000)))).seeds  # the control: 16,000 runs
    with pytest.raises(SpecError, match="32000 runs are too many for one sweep"):
        load_spec(two | {"seeds": list(range(4000))})


def test_runs_of_an_earlier_version_are_left_out_in_every_class(tmp_path: Path, two):
    earlier = {"probe": probe_of(tmp_path / "earlier.json", name=OTHER, torch="2.12.0")}
    old = plan(tmp_path, spec(on=[earlier])).runs[0]
    rundir.write_json(old.directory / rundir.RUN, schema.to_json(old.record))
    planned = plan(tmp_path, two)
    assert planned.left_out == (old.directory,)
    forgetful = planned.to_json()
    del forgetful["machines"]  # the control: a reader that knows the first class only shows it as another machine's
    assert superseded(planned.directory, forgetful) == []


def test_the_plan_shows_runs_time_and_money_of_each_class(tmp_path: Path):
    content = spec(
        on=[{"probe": probe_of(tmp_path / "here.json")}, {"probe": probe_of(tmp_path / "h200.json", **H200)}]
    )
    planned = plan(tmp_path / "runs", content)
    for own, step in zip(planned.classes, (0.01, 0.0001), strict=True):
        for run in own.runs:
            made = profile_of(run.record, step)
            rundir.write_json(planned.directory / rundir.PROFILES / f"{made.key}.json", schema.to_json(made))
    written = tmp_path / "tiny.yaml"
    written.write_text(yaml.safe_dump(content))
    answer = json.loads(explorer("sweep", "plan", written, "--runs", tmp_path / "runs", "--json").stdout)
    here, there = answer["classes"]
    assert (len(here["missing"]), len(there["missing"])) == (4, 4) and len(answer["missing"]) == 8
    assert here["train_seconds"] == pytest.approx(100 * there["train_seconds"])
    assert answer["train_seconds"] == pytest.approx(here["train_seconds"] + there["train_seconds"])
    assert here["usd"] is None and there["usd"] > 0 and answer["usd"] is None, "no sum of what is not known"
    assert here["why_not_here"] is None and "planned for NVIDIA H200 (cuda)" in there["why_not_here"]
    shown = explorer("sweep", "plan", written, "--runs", tmp_path / "runs").stdout
    assert shown.count("4 runs, 0 done, 4 to do") == 2
    assert "planned for NVIDIA H200 (cuda), torch 2.13.0+cu130, as known from" in shown
    assert "this machine does not execute these runs: planned for NVIDIA H200 (cuda)" in shown


def test_a_confirmation_is_for_the_class_of_the_machine_that_makes_it(tmp_path: Path, two):
    planned = plan(tmp_path / "runs", two)
    rundir.write_json(planned.directory / rundir.SWEEP, planned.to_json())
    content = confirmation(tmp_path / "runs", "tiny", "mixed")
    assert "on" not in content
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, name=OTHER)
        confirming = plan(tmp_path / "runs", content)
        check_same(confirming, planned.to_json())
        assert {run.record.hardware.name for run in confirming.runs} == {OTHER}
        pretend(patch, name="of neither class")
        with pytest.raises(SweepError, match="is not what it was in tiny"):
            check_same(plan(tmp_path / "runs", content), planned.to_json())


# --- execution on this machine ---


@pytest.mark.notebook
def test_each_machine_executes_the_runs_of_its_class_and_says_what_is_left(tmp_path: Path, two):
    content = two | BASELINE
    events = []
    summary = execute(tmp_path, content, on_event=events.append)
    first, second = plan(tmp_path, content).classes
    assert summary.complete and (summary.done, summary.executed) == (1, 1)
    assert set(results(tmp_path)) == set(ids(first)) and not second.runs[0].directory.exists()
    (left,) = (event.message for event in events if event.kind == "left")
    assert left.startswith(f"1 runs are left to machines of their class, {OTHER} (cpu)") and "--at PLACE" in left
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, name=OTHER)
        events.clear()
        assert execute(tmp_path, content, on_event=events.append).executed == 1
    assert set(results(tmp_path)) == {*ids(first), *ids(second)}
    assert not [event for event in events if event.kind == "left"], "nothing is left"
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, name="of neither class")
        with pytest.raises(SweepError, match=rf"planned for .*; planned for {OTHER}"):
            execute(tmp_path, content)


# --- execution at a place ---


@pytest.mark.notebook
def test_a_worker_claims_runs_of_its_class_and_says_why_not_the_others(tmp_path: Path, two, there):
    content = two | BASELINE
    at = publish(plan(tmp_path / "planned", content), str(tmp_path / "place"))
    first, second = at.plan().classes
    ended: list[Ended] = []
    assert run_any(worker(tmp_path), on_end=ended.append) == []
    left, done = ended[0], ended[1]
    assert left.state == "left" and left.message.startswith("1 runs are left to machines of their class: planned for ")
    assert (done.run_id, done.state) == (second.runs[0], "done")
    assert claims_of(at.objects, first.runs[0]) == [] and len(claims_of(at.objects, second.runs[0])) == 1
    assert run_at.run_at(worker(tmp_path), first.runs[0]).state == "not here"
    pretend(there, name="of neither class")
    ended.clear()
    assert run_any(worker(tmp_path), on_end=ended.append) == []
    assert [one.state for one in ended] == ["not here"], "its own class is all that the command could have executed"
    assert claims_of(at.objects, first.runs[0]) == []


def test_another_build_of_torch_on_the_hardware_of_a_class_does_not_claim(tmp_path: Path, two):
    at = publish(plan(tmp_path / "planned", two), str(tmp_path / "place"))
    first = at.plan().classes[0].runs[0]
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, build="2.13.0, commit 1")
        ended = run_at.run_at(worker(tmp_path), first)
    assert ended.state == "not here" and "another build of torch" in ended.message
    assert claims_of(at.objects, first) == []


def test_an_index_counts_in_the_runs_of_one_class(tmp_path: Path, two):
    place = str(tmp_path / "place")
    first, second = publish(plan(tmp_path / "planned", two), place).plan().classes
    here = this_machine().hardware.name
    assert [run_of_index(place, at, name=here) for at in range(5)] == [*first.runs, None]
    assert [run_of_index(place, at, name=OTHER) for at in range(5)] == [*second.runs, None]
    with pytest.raises(PlaceError, match=f"--index: the sweep is for 2 classes: add --class, one of .*'{OTHER}'"):
        run_of_index(place, 0)
    with pytest.raises(PlaceError, match=r"unknown class 'AMD EPYC 999'; did you mean 'AMD EPYC 9999'"):
        run_of_index(place, 0, name="AMD EPYC 999")
    wrong = explorer("run-at", place, "--class", OTHER, "--index", "0")
    assert wrong.returncode == 1 and f"not here: planned for {OTHER}" in wrong.stderr
    assert "--class: found without --index or --profile" in refused("run-at", place, "--class", OTHER, "--claim")


def test_runs_that_are_added_move_no_index(tmp_path: Path, two):
    """Controls come when step times are known; an array of jobs may have been submitted before."""
    place, few = str(tmp_path / "place"), two | {"seeds": [0]}
    before = publish(plan(tmp_path / "planned", few), place).plan()
    planned = plan(tmp_path / "planned", few)
    more = plan(tmp_path / "planned", few | {"budgets": [0.5, 1.0, 1.5]})
    extended = planned.extended(more)
    after = publish(extended, place).plan()
    for then, now in zip(before.classes, after.classes, strict=True):
        assert now.runs[: len(then.runs)] == then.runs and len(now.runs) == len(then.runs) + 2


def test_no_class_waits_for_the_step_times_of_another(tmp_path: Path, two, monkeypatch):
    planned = plan(tmp_path / "planned", two)
    at = publish(planned, str(tmp_path / "place"), profile=planned.classes)
    first, second = at.plan().classes
    claim = take(at.objects, first.measuring, host="node", hardware="CPU", lease=3600)  # somebody measures the first
    assert claim is not None
    measured = []

    def measure(worker, published: Published, records, folder: str) -> bool:
        measured.append(folder)
        profile: ProfileRecord = profile_of(records[0], 0.001)
        published.write(f"{folder}{profile.key}.json", profile)
        return True

    monkeypatch.setattr(run_at, "_measure", measure)
    waits = profile_at(worker(tmp_path))
    assert waits is not None and waits.state == "elsewhere"
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, name=OTHER)
        ended = profile_at(worker(tmp_path))
        assert ended is not None and ended.state == "done"
        assert profile_at(worker(tmp_path)) is None, "once"
        wrong = profile_at(worker(tmp_path), name=this_machine().hardware.name)
        assert wrong is None, "they are there"
    assert measured == [second.profiles]
    end(at.objects, claim, "preempted")
    ended = profile_at(worker(tmp_path))
    assert ended is not None and ended.state == "done" and measured == [second.profiles, first.profiles]


@pytest.mark.notebook
def test_the_start_at_a_place_executes_its_class_and_follows_the_other(tmp_path: Path, two):
    content = two | BASELINE
    place = tmp_path / "place"
    publish(plan(tmp_path / "planned", content), str(place))
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, name=OTHER)
        run_any(worker(tmp_path), on_end=lambda ended: None)
    events = []
    summary = execute(tmp_path / "runs", content, place=str(place), on_event=events.append)
    assert summary.complete and summary.done == 2
    first, second = plan(tmp_path / "runs", content).classes
    assert set(results(tmp_path / "runs")) == {*ids(first), *ids(second)}
    assert (events[-1].done, events[-1].total) == (2, 2)


# --- job files ---


def test_slurm_has_a_script_for_each_class_and_kubernetes_a_job(tmp_path: Path, two):
    written, out = tmp_path / "tiny.yaml", tmp_path / "tiny.slurm"
    written.write_text(yaml.safe_dump(two))
    command = ("sweep", "jobs", written, "--runs", tmp_path / "runs", "--at", tmp_path / "place", "--for")
    assert "--out: missing: 2 classes of machines have a file each" in refused(*command, "slurm")
    assert not (tmp_path / "place").exists()
    assert explorer(*command, "slurm", "--out", out).returncode == 0
    scripts = sorted(tmp_path.glob("tiny.*.slurm"))
    assert len(scripts) == 2 and scripts[0].name == "tiny.amd-epyc-9999.slurm"
    for script in scripts:
        assert "#SBATCH --array=0-3\n" in script.read_text() and "##SBATCH --constraint=" in script.read_text()
    assert f"--class '{OTHER}' --index" in scripts[0].read_text() and OTHER not in scripts[1].read_text()
    manifest = explorer(*command, "kubernetes", "--image", "registry/explorer:1").stdout
    jobs = list(yaml.safe_load_all(manifest))
    assert jobs[1]["metadata"]["name"] == "tiny-amd-epyc-9999" and len({job["metadata"]["name"] for job in jobs}) == 2
    assert all(job["spec"]["completions"] == 4 for job in jobs)
    container = jobs[1]["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][3:] == ["--class", OTHER, "--index", "$(JOB_COMPLETION_INDEX)"]


def test_names_of_jobs_fit_a_label_of_kubernetes():
    hardware = this_machine().hardware
    jobs = [
        Jobs(sweep="s" * 90, place="p", runs=1, hardware=hardware, label=f"{'c' * 29}{at}", image="i") for at in (0, 1)
    ]
    names = [job["metadata"]["name"] for job in yaml.safe_load_all(job_files("kubernetes", jobs)[None])]
    assert len(set(names)) == 2 and max(map(len, names)) <= 50


# --- two machines: processes whose kernels and measurements take themselves for another machine, too ---


def start_worker(tmp_path: Path, name: str | None) -> subprocess.Popen[str]:
    """A worker of its own at the place; with a name, on hardware of that name."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} if name is None else pretending(tmp_path / "other", name)
    return subprocess.Popen(
        [sys.executable, "-m", "explorer", "run-at", str(tmp_path / "place"), "--claim", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.notebook
def test_two_workers_of_two_classes_complete_a_sweep_that_is_followed_from_a_third_machine(tmp_path: Path, two):
    """Scale's S7, end to end: each worker measures and trains for its class only, and results are shown apart."""
    content = two | {"budgets": [0.5]}
    planned = plan(tmp_path / "planned", content)
    at = publish(planned, str(tmp_path / "place"), profile=planned.classes)
    workers = [start_worker(tmp_path, None), start_worker(tmp_path, OTHER)]
    said = [process.communicate(timeout=500) for process in workers]
    assert [process.returncode for process in workers] == [0, 0], said
    for (out, _), own, other in zip(said, planned.classes, reversed(planned.classes), strict=True):
        lines = [json.loads(line) for line in out.splitlines()]
        assert {line["run_id"] for line in lines if line["state"] == "done"} >= set(ids(own))
        assert not {line["run_id"] for line in lines} & set(ids(other))
        assert [line["message"] for line in lines].count("step times") == 1, "its own class has them"
    for own in planned.classes:
        claims = [claims_of(at.objects, run_id) for run_id in ids(own)]
        assert [len(of_run) for of_run in claims] == [1, 1]
        assert {of_run[0].hardware for of_run in claims} == {own.target.machine.hardware.name}
    runs = tmp_path / "runs"
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, name="A laptop")
        assert plan(runs, content).why_not_here is not None
        assert execute(runs, content, place=str(tmp_path / "place"), profile=True).complete
    digests = {run.record.recipe_digest for own in planned.classes for run in own.runs}
    assert set(read_profiles(runs / "tiny")) == digests and len(digests) == 4
    ingest(runs)
    shown = explorer("results", "tiny", "--runs", runs).stdout
    tables = shown.split("recipe  ")[1:]
    assert len(tables) == 2 and f"{OTHER}, 1 thread" in shown and f"{this_machine().hardware.name}, 1 thread" in shown


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A scheduler with two Dask workers, one of which is on hardware of another name."""
    distributed = pytest.importorskip("distributed", reason="needs the extra `cluster`")
    started = []
    with distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        environments = [{**os.environ, "PYTHONPATH": str(ROOT)}, pretending(tmp_path / "other", OTHER)]
        for environment in environments:
            options = ("--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1")
            command = [sys.executable, "-m", "dask", "worker", cluster.scheduler_address, *options]
            settings = {"DASK_DISTRIBUTED__WORKER__DAEMON": "False"}
            started.append(subprocess.Popen(command, env=environment | settings, stderr=subprocess.DEVNULL))
        cluster.wait_for_workers(2, timeout=240)
        yield cluster.scheduler_address
    for process in started:
        process.terminate()
        process.wait()


def asked_for(planned: Plan) -> list[tuple[RunRecord, Machine]]:
    return [(own.runs[0].record, own.target.machine) for own in planned.classes]


@pytest.mark.slow
@pytest.mark.notebook
def test_no_call_lands_on_a_worker_of_another_class(tmp_path: Path, two, cluster: str):
    from explorer.sweep.dask_engine import DaskWorkers

    content = two | BASELINE | {"seeds": [0, 1]}
    planned = plan(tmp_path / "runs", content)
    with DaskWorkers(cluster, threads=1, classes=asked_for(planned)) as workers:
        for own in planned.classes:
            hardware = own.runs[0].record.hardware
            assert workers.room(hardware) == 1
            calls = [workers.submit_to(hardware, (), hardware_name) for _ in range(6)]
            assert {call.result(timeout=300) for call in calls} == {hardware.name}
        everywhere = [workers.submit(hardware_name) for _ in range(6)]  # the control: a call that asks for nothing
        assert {call.result(timeout=300) for call in everywhere} == {this_machine().hardware.name, OTHER}
    written = tmp_path / "tiny.yaml"
    written.write_text(yaml.safe_dump(content))
    done = explorer("sweep", "run", written, "--runs", tmp_path / "runs", "--on", cluster)
    assert done.returncode == 0 and "4 runs done, 4 of them now" in done.stdout, done.stderr
    found = {
        run: run_files.read(RunRecord, tmp_path / "runs" / "tiny" / run / rundir.RUN)
        for run in results(tmp_path / "runs")
    }
    assert {name for own in planned.classes for name in ids(own)} == set(found)
    measured = read_profiles(tmp_path / "runs" / "tiny").values()
    assert {profile.hardware.name for profile in measured} == {this_machine().hardware.name, OTHER}


def hardware_name() -> str:
    return this_machine().hardware.name

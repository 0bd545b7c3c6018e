"""When a sweep measures its step times, and when again: first, on request, after a drift, after a busy machine."""

import json
from concurrent.futures import Future
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from explorer import run_files, rundir
from explorer.cli.app import app
from explorer.errors import RunError
from explorer.run_files import ProfileRecord, Watch
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.sweep import execute as executing
from explorer.sweep import plan as planning
from explorer.sweep import presence
from explorer.sweep.execute import Settings, profile_sweep
from explorer.sweep.measure import DRIFT, Measured, _drift
from explorer.sweep.plan import make_plan
from explorer.sweep.profiles import busy_reasons, read_profiles, to_profile, unprofiled
from explorer.sweep.spec import load_spec
from tests.sweep.sweeps import execute, plan, spec
from tests.sweep.test_plan import profile_of

pytestmark = pytest.mark.notebook

SMALL = spec(budgets=[0.5])
QUIET = Watch(cores=2, load=0.1, others=0.0, stolen=0.0)
BUSY = replace(QUIET, others=0.6, reasons=("other processes took 60% of its 2 cores",))


class Machine:
    """A stand-in for the measurement: it writes the profiles of a machine that the test describes."""

    def __init__(self):
        self.passes, self.checks = [], 0
        self.watches = [QUIET]  # of each pass; the last one stays
        self.moved = None  # by how much the baseline drifted
        self.fault = None

    def measure(self, directory, runs, *, reasons=(), **_):
        if self.fault is not None:
            raise self.fault
        number = len(self.passes)
        watch = self.watches[min(number, len(self.watches) - 1)]
        watch = replace(watch, reasons=(*reasons, *watch.reasons))
        self.passes.append({run.recipe for run in runs})
        for run in runs:
            record = replace(profile_of(run, 0.01 * (number + 1)), profile_pass=f"pass {number}", watch=watch)
            run_files.write(directory / rundir.PROFILES / f"{record.key}.json", record)
        return Measured(busy=watch.reasons, faults=())

    def drift(self, directory, runs, **_):
        self.checks += 1
        assert {run.recipe for run in runs} == {"baseline"}
        return self.moved


class Here:
    """Calls happen in this process."""

    def __init__(self, *_, **__): ...

    def submit(self, call, *arguments, **keywords):
        done = Future()
        try:
            done.set_result(call(*arguments, **keywords))
        except RunError as error:
            done.set_exception(error)
        return done

    def shutdown(self, **_): ...

    def interrupt(self): ...


@pytest.fixture
def machine(monkeypatch):
    found = Machine()
    monkeypatch.setattr(executing, "measure", found.measure)
    monkeypatch.setattr(executing, "drift", found.drift)
    monkeypatch.setattr(executing, "LocalProcesses", Here)
    monkeypatch.setattr(presence, "GRACE", 0.0)
    return found


def run(tmp_path, content=SMALL, **settings):
    events = []
    summary = execute(tmp_path, content, profile=True, on_event=events.append, **settings)
    return summary, [event.kind for event in events], events


@pytest.mark.slow
def test_times_are_measured_before_the_first_run_and_the_baseline_again_at_the_end(tmp_path, machine):
    summary, kinds, _ = run(tmp_path)
    assert summary.complete
    assert kinds == ["start", "profile", "done", "done", "profile", "end"]
    assert (machine.passes, machine.checks) == ([{"baseline", "mixed"}], 1)


@pytest.mark.slow
def test_a_run_has_its_time_as_soon_as_it_is_finished(tmp_path, machine):
    """Also where the sweep ends there: Ctrl-C after the first run leaves a time, and so a curve to begin with."""
    seen = []

    def finished(directory):
        ingest(tmp_path)
        seen.append(frames.results(tmp_path / "explorer.duckdb")[["time_source", "train_seconds"]].values.tolist())
        started._stop()  # as Ctrl-C does

    started = executing._Execution(plan(tmp_path, SMALL), Settings(engine="inline", workers=1, on_result=finished))
    summary = started.run()
    assert summary.interrupted and summary.executed == 1
    assert seen == [[["profiled", pytest.approx(0.01 * started.plan.runs[0].record.steps)]]]
    assert machine.checks == 0  # who was told to stop measures no more


@pytest.mark.slow
def test_a_drift_has_everything_measured_again(tmp_path, machine):
    machine.moved = 0.07
    _, kinds, events = run(tmp_path)
    assert kinds == ["start", "profile", "done", "done", "profile", "profile", "end"]
    assert [event.message for event in events if event.kind == "profile"] == [
        "",
        "of the baseline, to see whether they still hold",
        "again, because those of the baseline moved by +7%",
    ]
    assert machine.passes == [{"baseline", "mixed"}] * 2
    assert {profile.profile_pass for profile in read_profiles(tmp_path / "tiny").values()} == {"pass 1"}


@pytest.mark.slow
def test_a_busy_machine_is_said_and_asked_again_when_the_runs_are_done(tmp_path, machine):
    machine.watches = [BUSY, QUIET]
    summary, kinds, events = run(tmp_path)
    assert kinds == ["start", "profile", "busy", "done", "done", "profile", "end"]
    assert next(event.message for event in events if event.kind == "busy") == BUSY.reasons[0]
    assert summary.warnings == ()
    profiles = read_profiles(tmp_path / "tiny")
    assert busy_reasons(profiles, profiles.keys()) == ()
    assert machine.checks == 0


@pytest.mark.slow
def test_a_machine_that_stays_busy_is_measured_twice_and_not_for_ever(tmp_path, machine):
    machine.watches = [BUSY]
    _, kinds, _ = run(tmp_path)
    assert kinds == ["start", "profile", "busy", "done", "done", "profile", "busy", "end"]
    assert run(tmp_path)[1] == ["start", "end"]  # `explorer sweep profile` measures again
    profiles = read_profiles(tmp_path / "tiny")
    assert busy_reasons(profiles, profiles.keys()) == BUSY.reasons


@pytest.mark.slow
def test_what_fails_to_measure_first_is_measured_last(tmp_path, machine):
    machine.fault = RunError("no room")
    _, kinds, _ = run(tmp_path)
    assert kinds == ["start", "profile", "warning", "done", "done", "profile", "warning", "end"]
    machine.fault = None
    assert run(tmp_path)[1] == ["start", "profile", "end"]


@pytest.mark.slow
def test_without_profiles_nothing_is_measured(tmp_path, machine):
    execute(tmp_path, SMALL)
    assert (machine.passes, machine.checks) == ([], 0)


@pytest.mark.slow
def test_another_sweep_that_trains_is_named_in_the_profile(tmp_path, machine, monkeypatch):
    monkeypatch.setattr(presence, "others", lambda place=None: ["theirs"])
    monkeypatch.setattr(presence, "FOR_TRAINING", 0.05)
    _, kinds, events = run(tmp_path)
    assert kinds[:4] == ["start", "waiting", "profile", "busy"]
    assert events[1].message.startswith("sweep 'theirs' trains on this machine: waiting")
    profiles = read_profiles(tmp_path / "tiny")
    assert busy_reasons(profiles, profiles.keys()) == ("sweep 'theirs' trained at the same time",)


@pytest.mark.slow
def test_it_is_measured_again_on_request_and_nothing_is_trained(tmp_path, machine):
    run(tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    events = []
    summary = profile_sweep(plan(tmp_path, SMALL), Settings(on_event=events.append))
    assert [event.kind for event in events] == ["start", "profile", "end"]
    assert summary.executed == 0 and len(machine.passes) == 2
    assert {profile.profile_pass for profile in read_profiles(tmp_path / "tiny").values()} == {"pass 1"}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")} == stamps


@pytest.mark.slow
def test_old_profiles_stay_when_measuring_again_fails(tmp_path, machine):
    run(tmp_path)
    before = read_profiles(tmp_path / "tiny")
    machine.fault = RunError("no room")
    assert profile_sweep(plan(tmp_path, SMALL)).warnings == ("no room",)
    assert read_profiles(tmp_path / "tiny") == before


def test_a_sweep_that_runs_is_not_measured_by_another_process(tmp_path, machine):
    planned = plan(tmp_path, SMALL)
    with rundir.locked(planned.directory, what="it"), pytest.raises(RunError, match="sweep 'tiny' is in use by"):
        profile_sweep(planned)


@pytest.mark.slow
def test_profiles_of_two_passes_are_not_compared(tmp_path, machine):
    """Killed between two files, a new pass has replaced one of them."""
    run(tmp_path)
    planned = plan(tmp_path, SMALL)
    runs = [each.record for each in planned.runs]
    assert unprofiled(planned.directory, runs) == []
    path = next((planned.directory / rundir.PROFILES).glob("*.json"))
    run_files.write(path, replace(run_files.read(ProfileRecord, path), profile_pass="another"))
    assert unprofiled(planned.directory, runs) == runs


def test_recipes_of_which_nothing_runs_are_not_waited_for(tmp_path):
    runs = [each.record for each in plan(tmp_path, spec(budgets=[0.5, 1.0])).runs]
    mixed = [run.run_id for run in runs if run.recipe == "mixed"]
    assert {run.recipe for run in to_profile(runs, failed=mixed)} == {"baseline"}
    assert to_profile(runs, failed=mixed[:1]) == runs


@pytest.mark.slow
def test_the_command_measures_for_real_and_says_both_times(tmp_path):
    """Nothing is trained, before or after; the second time, the earlier times are shown with the new ones."""
    (tmp_path / "tiny.yaml").write_text(json.dumps(SMALL))
    arguments = ["sweep", "profile", str(tmp_path / "tiny.yaml"), "--runs", str(tmp_path / "runs")]
    first = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert first.exit_code == 0, first.output
    assert "trying a few steps of 2 recipes before training starts" in first.stderr
    profiles = read_profiles(tmp_path / "runs" / "tiny")
    assert {profile.recipe for profile in profiles.values()} == {"baseline", "mixed"}
    assert len({profile.profile_pass for profile in profiles.values()}) == 1
    assert all(profile.watch is not None for profile in profiles.values())
    assert not list((tmp_path / "runs").rglob("result.json"))
    assert CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}).exit_code == 0
    again = read_profiles(tmp_path / "runs" / "tiny")
    assert {profile.profile_pass for profile in again.values()}.isdisjoint(
        profile.profile_pass for profile in profiles.values()
    )


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ((1.0, 1.0, 1.0), (1.03, 1.03, 1.03), None),  # less than DRIFT
        ((1.0, 0.98, 1.02), (1.08, 1.07, 1.09), 0.08),
        ((1.0, 0.98, 1.02), (0.9, 0.89, 0.91), -0.1),
        ((1.0, 0.8, 1.2), (1.08, 1.07, 1.09), None),  # no more than it spread
    ],
)
def test_a_drift_is_more_than_noise(tmp_path, before, after, moved):
    (run, *_) = (each.record for each in plan(tmp_path, SMALL).runs)
    assert DRIFT == 0.05

    def profile(seconds, low, high):
        made = profile_of(run, seconds)
        phases = {name: replace(phase, low=low, high=high) for name, phase in made.phases.items()}
        return replace(made, phases=phases)

    found = _drift(profile(*before), profile(*after), run)
    assert found == (None if moved is None else pytest.approx(moved))


@pytest.mark.slow
def test_recipes_are_tried_out_once_and_it_is_said(tmp_path, machine, monkeypatch):
    tried, told = [], []
    monkeypatch.setattr(planning, "rehearse", lambda recipe, **_: tried.append(recipe.name) or ())

    def make():
        return make_plan(load_spec(SMALL), runs=tmp_path, on_rehearse=lambda names: told.append(list(names)))

    executing.run_sweep(make(), Settings(engine="inline", workers=1))
    assert (tried, told) == (["baseline", "mixed"], [["baseline", "mixed"]])
    make()
    assert len(tried) == 2 and len(told) == 1  # every run is done
    wider = spec(budgets=[0.5], recipes={"baseline": [], "mixed": ["mixup", "ema"], "third": ["ema"]})
    make_plan(load_spec(wider), runs=tmp_path, on_rehearse=lambda names: told.append(list(names)))
    assert told[-1] == ["third"]

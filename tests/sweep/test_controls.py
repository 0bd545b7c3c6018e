"""Controls: twins and rescaled baselines are planned, executed, kept over interruptions and new measurements."""

import dataclasses
import json
import os
import signal
import threading
from concurrent.futures import Future

import pytest
from typer.testing import CliRunner

from explorer import run_files, rundir
from explorer.analysis.controls import controlled
from explorer.cli.app import app
from explorer.errors import SpecError
from explorer.methods.ema import EMA
from explorer.methods.label_smoothing import LabelSmoothing
from explorer.methods.mixup import MixUp
from explorer.methods.random_subset import RandomSubset
from explorer.run_files import PhaseProfile, ProfileRecord
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.sweep import execute as executing
from explorer.sweep.measure import Measured
from explorer.sweep.spec import load_spec
from explorer.sweep.status import sweep_status
from tests.sweep.sweeps import execute, outcomes, plan, results, spec

TRAIN = {"epochs": 4, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1, "momentum": 0.9}}}  # 112 steps
PICKY = {"selective_backprop": {"keep": 0.25}}
RECIPES = {"baseline": [], "slow": ["sam"], "even": ["label_smoothing"]}


def rescaled(**changes):
    return spec(**{"controls": "rescaled", "train": TRAIN, "recipes": RECIPES, **changes})


def write_profiles(planned, **seconds):
    """Step times of the recipes by name, as if they had been measured."""
    for record in {run.record.recipe: run.record for run in planned.runs}.values():
        if record.recipe in seconds:
            write_profile(planned.directory, record, seconds=seconds[record.recipe])


def write_profile(directory, record, *, seconds):
    profile = ProfileRecord(
        recipe_digest=record.recipe_digest,
        recipe=record.recipe,
        hardware=record.hardware,
        torch="2.11.0",
        phases={name: PhaseProfile(seconds=seconds, low=seconds, high=seconds, windows=5) for name in record.phases},
        inference_seconds=0.001,
        made_at="2026-11-21T12:00:00Z",
    )
    run_files.write(directory / rundir.PROFILES / f"{profile.key}.json", profile)


def controls(planned):
    return [(run.record.ssr, run.record.control_of) for run in planned.runs if run.record.control]


def test_without_a_profile_the_controls_are_counted(tmp_path):
    planned = plan(tmp_path, rescaled(seeds=[0, 1]))
    assert controls(planned) == []
    assert [(run.recipe, run.ssr, run.seed) for run in planned.waiting] == [
        (recipe, ssr, seed) for ssr in (0.5, 1.0) for seed in (0, 1) for recipe in ("slow", "even")
    ]
    assert planned.to_json()["waiting"] == 8
    assert plan(tmp_path, {**rescaled(), "controls": "twin"}).waiting == ()


def test_a_rescaled_baseline_takes_as_long_as_the_recipe(tmp_path):
    write_profiles(plan(tmp_path, rescaled()), baseline=0.010, slow=0.0234, even=0.0101)
    planned = plan(tmp_path, rescaled())
    assert controls(planned) == [(1.17, ("slow",)), (2.34, ("slow",))]  # `even` takes what the ladder takes already
    times = {(run.record.recipe, run.record.ssr): run.seconds for run in planned.runs}
    for ssr, other in ((0.5, 1.17), (1.0, 2.34)):
        assert times["baseline", other] == pytest.approx(times["slow", ssr], abs=0.005)  # half a step
    record = planned.runs[-1].record
    assert record.run_id.startswith("resnet8-digits-baseline-ssr2.34-s0-")
    assert (record.recipe, record.control) == ("baseline", "rescaled-baseline")


def test_a_control_is_the_same_run_as_any_other(tmp_path):
    """What it is for is no part of its identity: the same baseline on a ladder of its own has the same name."""
    write_profiles(plan(tmp_path, rescaled()), baseline=0.01, slow=0.02, even=0.01)
    (control,) = (run.record for run in plan(tmp_path, rescaled()).runs if run.record.control)
    ladder = plan(tmp_path / "other", spec(train=TRAIN, budgets=[2.0])).runs[0].record
    assert control == dataclasses.replace(ladder, control="rescaled-baseline", control_of=("slow",))
    assert controls(plan(tmp_path, rescaled(budgets=[0.5, 1.0, 2.0]))) == [(4.0, ("slow",))]


def test_a_cheap_recipe_has_a_small_control_and_one_too_cheap_is_reported(tmp_path):
    write_profiles(plan(tmp_path, rescaled()), baseline=0.1, slow=0.04, even=0.0001)
    planned = plan(tmp_path, rescaled())
    assert controls(planned) == [(0.2, ("slow",)), (0.4, ("slow",))]
    (left_out,) = planned.not_run
    assert left_out.name == "baseline for as long as even"
    assert "leaves no step" in left_out.reason


def test_step_times_that_move_a_little_move_no_control(tmp_path):
    """Runs that were made under an earlier profile are taken as long as they still take the same time."""
    first = plan(tmp_path, rescaled())
    write_profiles(first, baseline=0.010, slow=0.0234, even=0.01)
    for run in plan(tmp_path, rescaled()).runs:
        if run.record.control:
            run_files.write(run.directory / rundir.RUN, run.record)
    write_profiles(first, baseline=0.010, slow=0.0237, even=0.01)
    assert controls(plan(tmp_path, rescaled())) == [(1.17, ("slow",)), (2.34, ("slow",))]
    write_profiles(first, baseline=0.010, slow=0.0270, even=0.01)  # that is another time
    assert controls(plan(tmp_path, rescaled())) == [(1.35, ("slow",)), (2.7, ("slow",))]


def test_twins(tmp_path):
    content = spec(
        controls="twin", recipes={"baseline": [], "picky": [PICKY, "ema"], "both": [PICKY], "plain": ["ema"]}
    )
    found = load_spec(content)
    assert [recipe.name for recipe in found.recipes] == [
        "baseline",
        "picky",
        "both",
        "plain",
        "picky-random",
        "both-random",
    ]
    assert {method.name for method in found.recipes[4].methods} == {"random_subset", "ema"}
    assert found.recipes[5].methods == (RandomSubset(keep=0.25),)  # as many
    assert found.twins == {"picky-random": ("picky",), "both-random": ("both",)}
    twins = {run.record.recipe: run.record for run in plan(tmp_path, content).runs if run.record.control}
    assert {name: (run.control, run.control_of) for name, run in twins.items()} == {
        "picky-random": ("random-subset", ("picky",)),
        "both-random": ("random-subset", ("both",)),
    }
    assert plan(tmp_path, {**content, "controls": "all"}).to_json()["waiting"] == 6  # no twin has a control of its own


def test_a_recipe_that_is_the_twin_already_is_the_control(tmp_path):
    other = {"selective_backprop": {"keep": 0.25, "scale": 0.5}}  # scored smaller, as many chosen
    recipes = {"baseline": [], "one": [PICKY], "two": [other], "random": [{"random_subset": {"keep": 0.25}}]}
    found = load_spec(spec(controls="twin", recipes=recipes))
    assert [recipe.name for recipe in found.recipes] == list(recipes)
    assert found.twins == {"random": ("one", "two")}


def test_an_impossible_twin_is_reported(monkeypatch):
    monkeypatch.setattr(MixUp, "twin", lambda self: LabelSmoothing(smoothing=0.1))
    recipes = {"baseline": [], "one": ["mixup", {"label_smoothing": {"smoothing": 0.3}}], "two": ["mixup", "ema"]}
    found = load_spec(spec(controls="all", recipes=recipes | {"two-random": ["sam"]}))
    assert found.twins == {}
    assert [each.name for each in found.not_run] == ["one-random", "two-random"]
    assert found.not_run[0].reason.startswith("method 'label_smoothing' is given twice")
    assert found.not_run[1].reason.startswith("another recipe has the name of the control of")
    monkeypatch.setattr(EMA, "twin", lambda self: self)
    assert (
        load_spec(spec(controls="all", recipes={"baseline": [], "own": ["ema"]})).twins == {}
    )  # its own twin tells nothing


def test_an_unknown_word():
    with pytest.raises(
        SpecError, match=r"controls: unknown word 'rescald'; did you mean 'rescaled'\? known: all, rescaled, t"
    ):
        load_spec(spec(controls="rescald"))
    for wrong in (True, ["all"]):
        with pytest.raises(SpecError, match="controls: unknown word"):
            load_spec(spec(controls=wrong))
    with pytest.raises(SpecError, match="20001 runs are too many"):
        load_spec(
            spec(controls="rescaled", budgets=[1.0], seeds=list(range(6667)), recipes={"baseline": [], "one": ["ema"]})
        )


REAL = spec(
    controls="all",
    train={**TRAIN, "epochs": 1},  # 28 steps
    recipes={
        "baseline": [],
        "picky": [PICKY],
        "slow": [{"sam": {"interval": 1}}],
        "idle": [{"label_smoothing": {"smoothing": 0.0}}],
    },
    budgets=[1.0],
)


@pytest.fixture
def quiet(monkeypatch):
    """Step times without a quiet machine: a step of sam takes 1.5 times as long as every other."""

    def measure(directory, runs, **_):
        for record in runs:
            write_profile(directory, record, seconds=0.015 if "sam" in record.methods else 0.01)
        return Measured(busy=(), faults=())

    class Here:
        def __init__(self, *_, **__): ...

        def submit(self, call, *arguments, **keywords):
            done = Future()
            done.set_result(call(*arguments, **keywords))
            return done

        def shutdown(self, **_): ...

        def interrupt(self): ...

    monkeypatch.setattr(executing, "measure", measure)
    monkeypatch.setattr(executing, "drift", lambda *_, **__: None)
    monkeypatch.setattr(executing, "LocalProcesses", Here)


@pytest.mark.slow
@pytest.mark.notebook
def test_a_sweep_knows_the_budgets_of_its_controls_before_it_runs_anything(tmp_path, quiet):
    events = []
    summary = execute(tmp_path, REAL, profile=True, on_event=events.append)
    planned = plan(tmp_path, REAL)
    assert summary.warnings == ()
    assert (summary.done, summary.complete, summary.waiting) == (6, True, 0)
    assert (planned.missing, planned.waiting) == ((), ())
    assert [(run.record.recipe, run.record.ssr, run.record.control_of) for run in planned.runs] == [
        ("baseline", 1.0, ()),
        ("picky", 1.0, ()),
        ("slow", 1.0, ()),
        ("idle", 1.0, ()),
        ("picky-random", 1.0, ("picky",)),
        ("baseline", 1.5, ("slow",)),  # those of `picky` and `idle` would be the baseline's own run
    ]
    assert [event.kind for event in events] == ["start", "profile", *["done"] * 6, "profile", "end"]
    assert [event.total for event in events] == [8] * 2 + [6] * 8
    assert events[-1].fraction == 1

    entries = json.loads((tmp_path / "tiny/sweep.json").read_text())["runs"]
    assert [entry["run_id"] for entry in entries] == [run.record.run_id for run in planned.runs]
    status = sweep_status(tmp_path / "tiny")
    assert (status.counts, status.waiting, status.not_run) == ({"done": 6}, 0, ())
    assert [run.control for run in status.runs] == [None] * 4 + ["random-subset", "rescaled-baseline"]

    before = {path: path.read_bytes() for path in tmp_path.rglob("r*.json")}
    again = execute(tmp_path, REAL, profile=True)
    assert (again.executed, again.complete) == (0, True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("r*.json")} == before

    ingest(tmp_path)
    found = {(each.recipe, each.control): each for each in controlled(frames.results(database(tmp_path)))}
    assert found["idle", "rescaled-baseline"].verdict == "the same"  # the baseline under another name gains nothing
    assert found["slow", "rescaled-baseline"].control_ssr == 1.5
    assert found["picky", "random-subset"].name == "picky-random"


@pytest.mark.notebook
@pytest.mark.slow
def test_controls_can_be_asked_for_later(tmp_path, quiet):
    """A finished sweep is not run again for them, and every run of it keeps its bytes."""
    plain = {key: value for key, value in REAL.items() if key != "controls"}
    plain["recipes"] = {"baseline": [], "slow": [{"sam": {"interval": 1}}]}
    execute(tmp_path, plain, profile=True)
    before = {path: path.read_bytes() for path in tmp_path.rglob("r*.json")}
    later = execute(tmp_path, {**plain, "controls": "rescaled"}, profile=True)
    assert (later.executed, later.done, later.complete) == (1, 3, True)
    assert before.items() <= {path: path.read_bytes() for path in tmp_path.rglob("r*.json")}.items()


@pytest.mark.slow  # it measures
@pytest.mark.notebook
def test_a_measured_control_takes_as_long(tmp_path):
    content = {**REAL, "controls": "rescaled", "recipes": {"baseline": [], "slow": [{"sam": {"interval": 1}}]}}
    assert execute(tmp_path, content, profile=True).complete
    planned = plan(tmp_path, content).runs
    seconds = {(run.record.recipe, run.record.control): run.seconds or 0.0 for run in planned}
    control, slow = seconds["baseline", "rescaled-baseline"], seconds["slow", None]
    assert slow > 1.2 * seconds["baseline", None]  # two passes a step
    assert abs(control - slow) <= max(0.03 * slow, seconds["baseline", None] / 28)


@pytest.mark.slow
@pytest.mark.notebook
def test_without_profiles_the_sweep_says_that_controls_are_not_done(tmp_path):
    recipes = {"baseline": [], "slow": ["sam"]}
    summary = execute(tmp_path, rescaled(train={**TRAIN, "epochs": 0.25}, recipes=recipes, budgets=[1.0]))
    assert (summary.done, summary.waiting, summary.complete) == (2, 1, False)
    assert sweep_status(tmp_path / "tiny").waiting == 1


def test_the_command_line_tells_controls_apart(tmp_path):
    content = rescaled(compose={"pairs_of": ["swa", "ema"]}, budgets=[1.0], controls="all")
    content["recipes"] = {"baseline": [], "picky": [PICKY]}
    (tmp_path / "tiny.yaml").write_text(json.dumps(content))
    arguments = [str(tmp_path / "tiny.yaml"), "--runs", str(tmp_path)]

    def said(command):
        done = CliRunner().invoke(app, ["sweep", command, *arguments], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.stderr
        return done.stdout

    fresh = said("plan")
    assert "up to 1 more control runs, whose budgets follow from the profile" in fresh
    assert "not run: swa-ema: methods 'ema' and 'swa' cannot be combined: " in fresh
    assert "picky-random (control: random subset)" in fresh
    planned = plan(tmp_path, content)
    write_profiles(planned, baseline=0.01, picky=0.007)
    known = plan(tmp_path, content)
    rundir.write_json(tmp_path / "tiny" / rundir.SWEEP, known.to_json())
    for command in ("plan", "status"):
        assert "baseline (control: rescaled baseline)" in said(command)
        assert "not run: swa-ema: methods" in said(command)
        assert "more control runs" not in said(command)


@pytest.mark.slow  # two sweeps
@pytest.mark.notebook
def test_killed_among_its_controls_it_continues_to_the_same_bits(tmp_path):
    """The profiles are on the disk, so the budgets are the same and the checkpoint is gone on from."""
    short = {**TRAIN, "epochs": 0.25}  # 7 steps, and 42 of the control
    content = rescaled(train=short, recipes={"baseline": [], "slow": ["sam"]}, budgets=[1.0])
    write_profiles(plan(tmp_path / "calm", content), baseline=0.01, slow=0.06)
    write_profiles(plan(tmp_path / "moody", content), baseline=0.01, slow=0.06)
    execute(tmp_path / "calm", content)
    control = next(run for run in plan(tmp_path / "moody", content).runs if run.record.control)

    def interrupt():
        metrics = control.directory / rundir.METRICS
        while not metrics.exists():
            if stopped.wait(0.01):
                return
        os.kill(os.getpid(), signal.SIGINT)

    stopped = threading.Event()
    threading.Thread(target=interrupt).start()
    summary = execute(tmp_path / "moody", content)
    stopped.set()
    assert summary.interrupted
    assert [run.state for run in plan(tmp_path / "moody", content).runs] == ["done", "done", "interrupted"]
    assert execute(tmp_path / "moody", content).complete
    assert results(tmp_path / "moody")[control.record.run_id].resumed == 1
    assert outcomes(tmp_path / "moody") == outcomes(tmp_path / "calm")

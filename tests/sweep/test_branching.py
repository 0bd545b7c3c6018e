"""Sweeps whose longer runs begin with the steps of shorter ones."""

import dataclasses
import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from explorer import run_files, rundir
from explorer.costing import Price
from explorer.errors import RunError
from explorer.run_files import Hardware
from explorer.sweep.execute import Settings, run_sweep
from explorer.sweep.plan import Plan
from explorer.sweep.prune import prune
from explorer.sweep.spec import load_spec
from explorer.sweep.trunks import places, tidy
from explorer.training import run as run_module
from explorer.training.branching import why_not
from tests.sweep.sweeps import SPEC, execute, outcomes, plan, results, spec, start
from tests.sweep.test_plan import profile_of

BUDGETS = [0.25, 0.5, 1.0, 1.5]
TRAIN = {**SPEC["train"], "epochs": 2, "evaluations": 4, "schedule": {"wsd": {"warmup": 0.05}}}
LADDER = spec(train=TRAIN, recipes={"baseline": [], "mixed": ["mixup"]}, budgets=BUDGETS)  # 7, 14, 28 and 42 steps
# The shared steps: 6, 12, 23 and 34.


def separate(runs: Path, content: dict[str, Any] = LADDER) -> dict[str, tuple[Any, ...]]:
    """The outcomes of the same runs in sweeps of one budget, where no run can begin with another's steps."""
    found: dict[str, tuple[Any, ...]] = {}
    for budget in content["budgets"]:
        assert execute(runs / f"{budget}", {**content, "budgets": [budget]}).complete
        assert all(result.trunk is None for result in results(runs / f"{budget}").values())
        found |= outcomes(runs / f"{budget}")
    return found


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, ...]]:
    return separate(tmp_path_factory.mktemp("apart"))


def trunk_files(runs: Path) -> list[Path]:
    return sorted((runs / "tiny" / rundir.TRUNKS).glob("*/*"))


# --- the plan ---


def test_the_plan_says_what_is_shared(tmp_path: Path) -> None:
    planned = plan(tmp_path, LADDER)
    runs = [run for run in planned.runs if run.record.recipe == "mixed"]
    assert [(run.record.steps, run.place and (run.place.step, run.place.start)) for run in runs] == [
        (7, (6, 0)),
        (14, (12, 6)),
        (28, (23, 12)),
        (42, (34, 23)),
    ]
    ids = [run.record.run_id for run in runs]
    assert [run.place and run.place.after for run in runs] == [None, *ids[:-1]]
    assert [run.place and run.place.longer for run in runs] == [(14, 28, 42), (28, 42), (42,), ()]
    assert planned.unshared == {}
    assert not list(tmp_path.iterdir())


def test_time_and_money_are_of_the_steps_that_are_trained(tmp_path: Path) -> None:
    """And the other figure is that of the time axis, on which a run costs what all its steps take."""
    planned = plan(tmp_path, LADDER)
    (tmp_path / "tiny/_profiles").mkdir(parents=True)
    for record in {run.record.recipe_digest: run.record for run in planned.runs}.values():
        profile = profile_of(record, 2.0)
        run_files.write(tmp_path / "tiny/_profiles" / f"{profile.key}.json", profile)
    planned = plan(tmp_path, LADDER)
    hardware: Hardware = planned.runs[0].record.hardware
    price = Price(provider="own", instance="box", accelerator=hardware.name, count=1, usd_per_hour=36.0, source="test")
    estimate = planned.estimate(workers=1, prices=[price])
    made = 2 * (7 + (14 - 6) + (28 - 12) + (42 - 23))
    assert estimate.train_seconds == pytest.approx(2.0 * made)
    assert estimate.separate_seconds == pytest.approx(2.0 * 2 * (7 + 14 + 28 + 42))
    assert estimate.usd == pytest.approx(2.0 * made * 36 / 3600)
    assert [run.seconds for run in planned.runs][::2] == pytest.approx([14.0, 28.0, 56.0, 84.0])


REASONS = {
    "cosine": ({"schedule": "cosine"}, [], "every step of the schedule 'cosine' depends on the length"),
    "warm-up": (
        {"schedule": {"wsd": {"warmup": 0.1, "scale_warmup": True}}},
        [],
        "scale_warmup makes the first steps depend on the length",
    ),
    "methods": ({}, ["ema", "mixup", "batch_size_warmup"], "the steps of batch_size_warmup, ema depend on the length"),
    "a parameter": ({}, [{"stochastic_depth": {"warmup": 0.5}}], "the steps of stochastic_depth depend on the length"),
}


@pytest.mark.parametrize("name", REASONS)
def test_a_recipe_that_shares_nothing_says_why(name: str) -> None:
    train, methods, reason = REASONS[name]
    content = spec(train={**TRAIN, **train}, recipes={"baseline": [], "other": methods or ["mixup"]})
    told = why_not(load_spec(content).recipes[1], None)
    assert told is not None and told.startswith(reason)


def test_a_parameter_can_make_the_difference() -> None:
    chosen = [{"stochastic_depth": {"warmup": 0.0}}, {"colout": {"finetune": 0.0}}]
    assert why_not(load_spec(spec(train=TRAIN, recipes={"baseline": [], "other": chosen})).recipes[1], None) is None


def test_a_recipe_without_shared_steps_is_planned_as_before(tmp_path: Path) -> None:
    planned = plan(tmp_path, spec(train={**TRAIN, "schedule": "cosine"}, budgets=BUDGETS))
    assert all(run.place is None and run.share == 1 for run in planned.runs)
    assert set(planned.unshared) == {"baseline", "mixed"}
    assert plan(tmp_path, {**LADDER, "budgets": [1.0]}).unshared == {}


# --- execution ---


@pytest.mark.slow
def test_every_run_is_the_run_of_a_sweep_of_its_own_budget(tmp_path: Path, apart: dict[str, Any]) -> None:
    seen: list[int] = []
    planned = plan(tmp_path, LADDER)
    summary = run_sweep(
        planned,
        Settings(
            engine="inline",
            workers=1,
            profile=False,
            on_result=lambda directory: seen.append(len(trunk_files(tmp_path))),
        ),
    )
    assert summary.complete
    assert outcomes(tmp_path) == apart
    trunks = {run.record.steps: results(tmp_path)[run.record.run_id].trunk for run in planned.runs}
    assert {steps: trunk.step if trunk else 0 for steps, trunk in trunks.items()} == {7: 0, 14: 6, 28: 12, 42: 23}
    made = sum(result.steps - (result.trunk.step if result.trunk else 0) for result in results(tmp_path).values())
    assert made == 2 * 50
    # Of each recipe only the state that the next run begins with is kept, and none at the end.
    assert max(seen) == 4  # two files each
    assert not (tmp_path / "tiny" / rundir.TRUNKS).exists()


@pytest.mark.slow
def test_with_several_workers_no_step_is_made_twice(tmp_path: Path, apart: dict[str, Any]) -> None:
    """One recipe and seed: the runs wait for each other's steps, and not for each other's end."""
    content = {**LADDER, "recipes": {"baseline": []}}
    order: list[tuple[str, int]] = []

    def note(event: Any) -> None:
        if event.run:
            order.append((event.kind, event.run.record.steps))

    assert execute(tmp_path, content, workers=2, on_event=note).complete
    assert outcomes(tmp_path) == {name: of for name, of in apart.items() if name in outcomes(tmp_path)}
    trunks = [results(tmp_path)[run.record.run_id].trunk for run in plan(tmp_path, content).runs]
    assert [trunk.step if trunk else 0 for trunk in trunks] == [0, 6, 12, 23]


def test_a_run_begins_when_the_steps_are_there_and_not_before(tmp_path: Path) -> None:
    planned = plan(tmp_path, {**LADDER, "recipes": {"baseline": []}})
    execution = _execution(planned)
    first = execution._next()
    assert first is not None and first.run.record.steps == 7
    execution.running[object()] = first  # type: ignore[index]
    assert execution._next() is None
    awaited = planned.runs[1].place
    assert awaited is not None
    awaited.awaited.parent.mkdir(parents=True)
    awaited.awaited.touch()
    second = execution._next()
    assert second is not None and second.run.record.steps == 14
    execution.running[object()] = second  # type: ignore[index]
    assert execution._next() is None
    # A run that ended without leaving its state holds nobody up.
    execution.running.clear()
    third = execution._next()
    assert third is not None and third.run.record.steps == 28


def _execution(planned: Plan) -> Any:
    from explorer.sweep import execute as module

    execution = module._Execution(planned, Settings(engine="inline", workers=2, profile=False))
    execution.served = {planned.target.machine.label}
    execution._share_out(planned.missing)
    return execution


@pytest.mark.slow
def test_a_shorter_run_that_failed_costs_only_steps(
    tmp_path: Path, apart: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = run_module.fit

    def failing(loop: Any, options: Any) -> Any:
        if loop.setting.total_steps == 14:
            raise RunError("no luck")
        return train(loop, options)

    content = {**LADDER, "recipes": {"baseline": []}}
    with monkeypatch.context() as patched:
        patched.setattr(run_module, "fit", failing)
        summary = execute(tmp_path, content)
    assert len(summary.failures) == 1
    assert trunk_files(tmp_path)  # it may be tried again
    assert execute(tmp_path, content).complete
    assert outcomes(tmp_path) == {name: of for name, of in apart.items() if name in outcomes(tmp_path)}
    steps = {result.steps: result.trunk and result.trunk.step for result in results(tmp_path).values()}
    assert steps == {7: None, 14: 6, 28: 6, 42: 23}
    assert trunk_files(tmp_path) == []


def test_a_branch_file_at_a_run_that_cannot_share_is_refused(tmp_path: Path) -> None:
    content = spec(train={**TRAIN, "schedule": "cosine"}, recipes={"baseline": []}, budgets=[0.5])
    run = plan(tmp_path, content).runs[0]
    run_files.write(run.directory / rundir.RUN, run.record)
    (run.directory / rundir.BRANCH).write_text(json.dumps({"format": 1, "longer": [28]}))
    with pytest.raises(
        RunError, match=r"branch.json: run .* cannot share steps with longer ones: every step of the sch"
    ):
        run_module.execute(run.directory)
    (run.directory / rundir.BRANCH).write_text(json.dumps({"format": 1, "longer": [0]}))
    with pytest.raises(RunError, match=r"branch.json: damaged Branch: longer"):
        run_module.execute(run.directory)


def test_a_new_plan_without_longer_runs_takes_the_file_back(tmp_path: Path) -> None:
    one = {**LADDER, "recipes": {"baseline": []}, "budgets": [0.5]}
    run = plan(tmp_path, one).runs[0]
    run_files.write(run.directory / rundir.RUN, run.record)
    (run.directory / rundir.BRANCH).write_text(json.dumps({"format": 1, "longer": [28]}))
    assert execute(tmp_path, one).complete
    assert not (run.directory / rundir.BRANCH).exists()
    assert trunk_files(tmp_path) == []


# --- what is left ---


def test_pruning_removes_states_that_no_run_needs(tmp_path: Path) -> None:
    content = {**LADDER, "recipes": {"baseline": []}, "budgets": [0.25, 0.5]}
    assert execute(tmp_path, content).complete
    used = plan(tmp_path, content).runs[0].record
    for name in (f"{used.recipe_digest[:16]}-s0", "0123456789abcdef-s7"):
        path = tmp_path / "tiny" / rundir.TRUNKS / name
        path.mkdir(parents=True, exist_ok=True)
        (path / "step-00000006.json").write_text("{}")
    result = plan(tmp_path, content).runs[1].directory / rundir.RESULT
    kept = result.read_bytes()
    result.unlink()  # a run that could begin there is left
    prune(tmp_path, "tiny")
    assert [path.parent.name for path in trunk_files(tmp_path)] == [f"{used.recipe_digest[:16]}-s0"]
    result.write_bytes(kept)
    prune(tmp_path, "tiny")
    assert trunk_files(tmp_path) == []


def test_only_states_that_runs_begin_with_are_kept(tmp_path: Path) -> None:
    trunk = tmp_path / "trunk"
    trunk.mkdir()
    for step in (6, 12, 23):
        for suffix in (".json", ".safetensors"):
            (trunk / f"step-{step:08d}{suffix}").touch()
    tidy(trunk, [15, 34])
    assert sorted(path.stem[-2:] for path in trunk.glob("*.json")) == ["12", "23"]
    tidy(trunk, [34])
    assert [path.name for path in sorted(trunk.iterdir())] == ["step-00000023.json", "step-00000023.safetensors"]
    tidy(trunk, [])
    assert not trunk.exists()


def test_a_state_that_is_there_already_is_used_by_the_plan(tmp_path: Path) -> None:
    planned = plan(tmp_path, {**LADDER, "recipes": {"baseline": []}})
    records = [run.record for run in planned.runs]
    steps = {7: 6, 14: 12, 28: 23, 42: 34}
    trunk = tmp_path / "tiny" / rundir.TRUNKS / f"{records[0].recipe_digest[:16]}-s0"
    trunk.mkdir(parents=True)
    (trunk / "step-00000012.json").touch()
    (trunk / "step-other.json").touch()
    found = places(tmp_path / "tiny", [records[1], records[3]], step_of=lambda record: steps[record.steps])
    assert [(found[r.run_id].start, found[r.run_id].after) for r in (records[1], records[3])] == [(12, None)] * 2
    shutil.rmtree(trunk)
    again = places(tmp_path / "tiny", [records[1], records[3]], step_of=lambda record: steps[record.steps])
    assert [(again[r.run_id].start, again[r.run_id].after) for r in (records[1], records[3])] == [
        (0, None),
        (12, records[1].run_id),
    ]
    assert places(tmp_path / "tiny", [records[3]], step_of=lambda record: steps[record.steps]) == {}


def test_other_seeds_and_recipes_are_other_trunks(tmp_path: Path) -> None:
    planned = plan(tmp_path, {**LADDER, "seeds": [0, 1], "budgets": [0.5, 1.0]})
    trunks = {(run.record.recipe, run.record.seed): run.place and run.place.trunk for run in planned.runs}
    assert len(set(trunks.values())) == 4
    assert dataclasses.replace(planned.runs[0], place=None).share == 1


@pytest.mark.slow
@pytest.mark.notebook
def test_killed_again_and_again_at_random_moments(tmp_path: Path) -> None:
    content = {**LADDER, "train": {**TRAIN, "epochs": 6}}
    expected = separate(tmp_path / "apart", content)
    draw = random.Random("branches")
    for _ in range(3):
        process = start(tmp_path / "runs", content, engine="inline", workers=2)
        time.sleep(draw.uniform(3, 12))
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate()
        psutil.wait_procs(family, timeout=300)
    assert execute(tmp_path / "runs", content).complete
    assert outcomes(tmp_path / "runs") == expected
    assert trunk_files(tmp_path / "runs") == []

import dataclasses
import shutil

import pytest
import torch

from explorer import run_files, rundir
from explorer.costing import Price
from explorer.errors import SpecError
from explorer.run_files import PhaseProfile, ProfileRecord
from explorer.sweep.spec import load_spec
from tests.sweep.sweeps import execute, plan, results, spec

WIDE = spec(budgets=[1.0, 0.5], seeds=[3, 1])


def profile_of(record, seconds):
    return ProfileRecord(
        recipe_digest=record.recipe_digest,
        recipe=record.recipe,
        hardware=record.hardware,
        torch="2.11.0",
        phases={name: PhaseProfile(seconds=seconds, low=seconds, high=seconds, windows=5) for name in record.phases},
        inference_seconds=0.001,
        made_at="2026-11-21T12:00:00Z",
    )


def test_cheap_budgets_come_first_and_all_recipes_of_a_seed_together(tmp_path):
    order = [(run.record.ssr, run.record.seed, run.record.recipe) for run in plan(tmp_path, WIDE).runs]
    assert order == [(ssr, seed, recipe) for ssr in (0.5, 1.0) for seed in (3, 1) for recipe in ("baseline", "mixed")]


def test_planning_writes_nothing(tmp_path):
    plan(tmp_path, WIDE)
    assert not list(tmp_path.iterdir())


def test_a_budget_that_leaves_no_step(tmp_path):
    with pytest.raises(
        SpecError, match=r"spec: budgets: recipe 'baseline': budget 0\.01 leaves no step: 0\.5 epochs of"
    ):
        plan(tmp_path, spec(budgets=[0.01, 1]))


def test_a_method_that_finds_nothing_to_change_is_refused_before_anything_runs(tmp_path):
    """The model has strided convolutions, and none with that many channels."""
    nothing = {"blurpool": {"min_channels": 1000}}
    state = torch.get_rng_state()
    with pytest.raises(SpecError, match=r"spec: recipes\.soft: blurpool: found nothing to change in ResNet: expected"):
        plan(tmp_path, spec(recipes={"baseline": [], "soft": [nothing]}))
    assert plan(tmp_path, spec(recipes={"baseline": [], "soft": [{"blurpool": {"min_channels": 1}}]})).runs
    assert torch.equal(torch.get_rng_state(), state)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_finished_runs_are_not_missing(tmp_path):
    execute(tmp_path)
    wide = plan(tmp_path, spec(seeds=[0, 1]))
    assert [run.state for run in wide.runs] == ["done", "done", "planned", "planned"] * 2
    assert {run.record.seed for run in wide.missing} == {1}
    assert wide.runs[0].source == "measured"  # the first runs say how long the others take
    assert wide.runs[2].seconds == wide.runs[0].seconds


@pytest.mark.slow
def test_runs_that_other_code_has_trained_are_named(tmp_path):
    """A change of code without a new version keeps the names of runs; that must not go unseen."""
    execute(tmp_path)
    first, second, *_ = plan(tmp_path).runs
    assert not first.other_code and not second.other_code
    environment = rundir.read_json(first.directory / rundir.ENVIRONMENT)
    rundir.write_json(first.directory / rundir.ENVIRONMENT, environment | {"training_code": "0" * 64})
    (second.directory / rundir.ENVIRONMENT).write_text("damaged")
    assert [run.other_code for run in plan(tmp_path).runs] == [True, False, False, False]


def test_time_and_money_come_from_profiles(tmp_path):
    fresh = plan(tmp_path)
    estimate = fresh.estimate(workers=2, prices=())
    assert (estimate.runs, estimate.unknown, estimate.train_seconds, estimate.usd) == (4, 4, 0, None)
    for run in fresh.runs[:2]:
        profile = profile_of(run.record, seconds=2.0)
        run_files.write(fresh.directory / rundir.PROFILES / f"{profile.key}.json", profile)
    known = plan(tmp_path)
    steps = sum(run.record.steps for run in known.runs)
    price = Price(
        provider="own",
        instance="box",
        accelerator=fresh.runs[0].record.hardware.name,
        count=2,
        usd_per_hour=7200.0,
        source="test",
    )
    estimate = known.estimate(workers=2, prices=(price,))
    assert {run.source for run in known.runs} == {"profiled"}
    assert estimate.unknown == 0
    assert estimate.train_seconds == 2.0 * steps
    assert estimate.wall_seconds == pytest.approx((2.0 * steps + 4 * 0.15) / 2)
    assert estimate.usd == pytest.approx(2.0 * steps)


def test_a_damaged_profile_counts_as_missing(tmp_path):
    profiles = tmp_path / "tiny" / rundir.PROFILES
    profiles.mkdir(parents=True)
    (profiles / "x.json").write_text("{")
    assert all(run.seconds is None for run in plan(tmp_path).runs)


@pytest.mark.slow
def test_a_run_belongs_to_its_specification(tmp_path):
    """Anything that determines the result gives the run another name; names and tuning do not."""
    names = {run.record.run_id for run in plan(tmp_path).runs}
    for change in ({"threads": 2}, {"train": {**WIDE["train"], "batch_size": 32}}, {"seeds": [1]}):
        assert names.isdisjoint(run.record.run_id for run in plan(tmp_path, spec(**change)).runs)
    for change in ({"name": "other"}, {"tuning": "by grid"}):
        assert names == {run.record.run_id for run in plan(tmp_path, spec(**change)).runs}


@pytest.mark.slow
def test_damaged_results_are_kept_and_reported(tmp_path):
    execute(tmp_path)
    first, second, *_ = plan(tmp_path).runs
    whole = results(tmp_path)[first.record.run_id]
    (first.directory / rundir.RESULT).write_text('{"format": 1')
    run_files.write(second.directory / rundir.RESULT, dataclasses.replace(whole, run_id="another"))
    damaged = plan(tmp_path)
    assert [run.state for run in damaged.runs] == ["damaged", "damaged", "done", "done"]
    assert "result.json: damaged: not JSON" in damaged.runs[0].message
    assert "not the result of this run" in damaged.runs[1].message
    assert damaged.missing == ()
    summary = execute(tmp_path)
    assert [failure.run_id for failure in summary.failures] == [first.record.run_id, second.record.run_id]
    assert not summary.complete
    shutil.rmtree(first.directory)
    assert [run.record.run_id for run in plan(tmp_path).missing] == [first.record.run_id]


@pytest.mark.slow
def test_a_recipe_that_was_renamed_is_not_trained_again(tmp_path):
    execute(tmp_path)
    trained = {run.record.run_id for run in plan(tmp_path).runs}
    renamed = spec(recipes={"baseline": [], "other": ["mixup", "ema"]})
    found = plan(tmp_path, renamed)
    assert not found.missing and not found.left_out
    assert {run.record.run_id for run in found.runs} == trained
    assert {run.record.recipe for run in found.runs} == {"baseline", "other"}
    assert execute(tmp_path, renamed).executed == 0
    changed = plan(tmp_path, spec(recipes={"baseline": [], "other": ["mixup"]}))
    assert (len(changed.missing), len(changed.left_out)) == (2, 2)  # the control: another recipe is another run


def test_names_of_other_directories_are_refused_for_sweeps():
    for name in ("single", "deletions"):
        with pytest.raises(SpecError, match="is the directory of runs"):
            load_spec(spec(name=name))

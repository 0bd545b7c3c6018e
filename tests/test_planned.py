"""The plan of a sweep decides which of its run directories are shown."""

import dataclasses
from pathlib import Path

import pytest

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.errors import SweepError
from explorer.planned import data_option, data_option_of, read_plan, superseded
from explorer.run_files import Hardware, RunRecord
from tests.builders import CPU, H200, plan_of, run_record, write_run


def recorded(runs: Path, *given: RunRecord) -> list[RunRecord]:
    for record in given:
        write_run(runs, record)
    return list(given)


def left(runs: Path, plan: dict) -> set[str]:
    return {path.name for path in superseded(runs / "digits", plan)}


PHOTOS = {"task": {"dataset": {"imagefolder": {"path": "photos"}}}}


@pytest.mark.parametrize(
    ("spec", "needs"),
    [
        (PHOTOS, True),
        ({"task": {"dataset": "cifar10"}}, True),
        ({"task": {"dataset": {"image_shards": {"path": "s3://bucket/photos"}}}}, False),
        ({"task": {"dataset": "digits"}}, False),
        ({"task": {"dataset": {"digits": {"size": 16}}}}, False),
        *(
            (damaged, False)
            for damaged in (None, [], {"task": 3}, {"task": {"dataset": {}}}, {"task": {"dataset": [1]}})
        ),
    ],
)
def test_a_command_names_the_directory_of_data_where_it_needs_one(
    spec: object, needs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EXPLORER_DATA", raising=False)
    assert data_option(spec) == (("--data", "DIR") if needs else ())
    assert data_option(spec, Path("here")) == ("--data", "here")
    monkeypatch.setenv("EXPLORER_DATA", "/data")  # which every verb reads
    assert data_option(spec) == ()


def test_the_sweep_tells_what_its_commands_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXPLORER_DATA", raising=False)
    assert data_option_of(tmp_path, "photos") == ()
    (tmp_path / "photos").mkdir()
    rundir.write_json(tmp_path / "photos" / rundir.SWEEP, plan_of([run_record()]) | {"spec": PHOTOS})
    assert data_option_of(tmp_path, "photos") == ("--data", "DIR")


def test_runs_that_the_plan_has_stay(tmp_path: Path) -> None:
    mine = recorded(tmp_path, run_record(seed=0), run_record(seed=1), run_record(recipe="fast", methods=("ema",)))
    assert left(tmp_path, plan_of(mine)) == set()


def test_changed_settings_seeds_and_budgets_leave_runs_behind(tmp_path: Path) -> None:
    kept, other_settings, other_seed, other_budget = recorded(
        tmp_path, run_record(), run_record(full_steps=40), run_record(seed=7), run_record(ssr=0.5)
    )
    expected = {each.run_id for each in (other_settings, other_seed, other_budget)}
    assert left(tmp_path, plan_of([kept])) == expected
    everything = plan_of([kept, other_settings, other_seed, other_budget])
    assert left(tmp_path, everything) == set()


def test_changed_data_leaves_runs_behind(tmp_path: Path) -> None:
    then = run_record()
    identity = {**then.identity, "data": "of today"}
    now = dataclasses.replace(
        then,
        identity=identity,
        recipe_digest=digest({key: identity[key] for key in identity if key not in ("ssr", "seed")}),
        run_id=f"{then.run_id.rpartition('-')[0]}-{digest(identity)[:8]}",
    )
    recorded(tmp_path, then, now)
    assert left(tmp_path, plan_of([now])) == {then.run_id}


def test_a_renamed_recipe_is_the_same_run_unless_both_are_there(tmp_path: Path) -> None:
    (old,) = recorded(tmp_path, run_record(recipe="fast", methods=("ema",)))
    new = dataclasses.replace(old, recipe="quick", run_id=old.run_id.replace("-fast-", "-quick-"))
    assert new.identity == old.identity
    assert left(tmp_path, plan_of([new])) == set()
    recorded(tmp_path, new)
    assert left(tmp_path, plan_of([new])) == {old.run_id}


def test_the_same_recipe_on_another_machine_is_shown_and_another_recipe_there_is_not(tmp_path: Path) -> None:
    there = dataclasses.replace(H200, threads=CPU.threads)
    here, same, other, unasked = recorded(
        tmp_path,
        run_record(),
        run_record(hardware=there),
        run_record(hardware=there, full_steps=40),
        run_record(hardware=there, seed=5),
    )
    assert left(tmp_path, plan_of([here])) == {other.run_id, unasked.run_id}
    assert same.run_id not in left(tmp_path, plan_of([here]))


def test_other_threads_and_other_software_are_another_specification(tmp_path: Path) -> None:
    here = run_record()
    threads = run_record(hardware=dataclasses.replace(CPU, threads=2))
    elsewhere = run_record(hardware=dataclasses.replace(H200, threads=8))
    identity = {**here.identity, "versions": {"torch": "2.10"}}
    software = dataclasses.replace(
        here, identity=identity, recipe_digest="0" * 64, run_id=f"resnet8-digits-baseline-{digest(identity)[:8]}"
    )
    recorded(tmp_path, here, threads, elsewhere, software)
    assert left(tmp_path, plan_of([here])) == {threads.run_id, elsewhere.run_id, software.run_id}


def test_rescaled_baselines_of_another_machine_keep_their_own_budgets(tmp_path: Path) -> None:
    there = Hardware(device="cpu", name="another", threads=CPU.threads)
    control = dataclasses.replace(
        run_record(ssr=0.7, hardware=there), control="rescaled-baseline", control_of=("fast",)
    )
    stray = dataclasses.replace(run_record(ssr=0.6), control="rescaled-baseline", control_of=("fast",))
    here, _, _ = recorded(tmp_path, run_record(), control, stray)
    assert left(tmp_path, plan_of([here])) == {stray.run_id}


@pytest.mark.parametrize("how", ["train", "deletion", "moved"])
def test_what_no_specification_asked_for_is_never_superseded(tmp_path: Path, how: str) -> None:
    here = run_record()
    other = run_record(seed=9)
    if how == "train":
        identity = {**other.identity, "recipe": {"task": {"own": "digits-task", "model": "Net"}}}
        other = dataclasses.replace(other, identity=identity, run_id=f"net-digits-own-ssr1-s9-{digest(identity)[:8]}")
    recorded(tmp_path, here, other)
    run = tmp_path / "digits" / other.run_id
    if how == "deletion":
        rundir.write_json(run / rundir.ORIGIN, {})
    if how == "moved":
        run_files.write(run / rundir.RUN, dataclasses.replace(other, sweep="elsewhere"))
    assert left(tmp_path, plan_of([here])) == set()
    recorded(tmp_path, run_record(seed=8))  # the control: without the mark it is
    assert len(left(tmp_path, plan_of([here]))) == 1


def test_a_run_that_cannot_be_read_is_not_judged(tmp_path: Path) -> None:
    here, broken = recorded(tmp_path, run_record(), run_record(seed=3))
    (tmp_path / "digits" / broken.run_id / rundir.RUN).write_text('{"run_id": 7}')
    assert left(tmp_path, plan_of([here])) == set()


def test_a_plan_of_an_older_version_knows_its_machine_by_its_runs(tmp_path: Path) -> None:
    here, there, old = recorded(tmp_path, run_record(), run_record(hardware=H200), run_record(seed=4))
    plan = plan_of([here])
    del plan["hardware"]
    for entry in plan["runs"]:
        del entry["effective"]
    assert left(tmp_path, plan) == {old.run_id}
    assert there.run_id not in left(tmp_path, plan)


@pytest.mark.parametrize(
    "change",
    [
        {"hardware": {"device": "cpu"}},
        {"hardware": {"device": "cpu", "name": 3, "threads": 1}},
        {"hardware": {"device": "cpu", "name": "x", "threads": "1"}},
        {"baseline": 3},
        {"runs": [{"run_id": "a", "recipe": "b", "ssr": True, "seed": 0}]},
        {"runs": [{"run_id": "a", "recipe": "b", "ssr": 1, "seed": 0, "effective": 3}]},
        {"runs": [{"run_id": "a", "recipe": "b", "ssr": 1, "seed": 0, "control_of": [3]}]},
    ],
)
def test_a_plan_that_says_no_plan_is_damaged(tmp_path: Path, change: dict) -> None:
    whole = plan_of([run_record()])
    rundir.write_json(tmp_path / "digits" / rundir.SWEEP, whole)
    assert read_plan(tmp_path / "digits") == whole
    rundir.write_json(tmp_path / "digits" / rundir.SWEEP, whole | change)
    with pytest.raises(SweepError, match=r"sweep\.json: damaged"):
        read_plan(tmp_path / "digits")

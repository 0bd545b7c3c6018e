"""`explorer confirm`: it shows the cost, refuses a recipe that has changed since, and runs only fresh seeds."""

import json
from pathlib import Path

import pytest

from explorer import rundir
from explorer.sweep.plan import make_plan
from explorer.sweep.spec import load_spec
from tests.builders import write_profile, write_run
from tests.cli.command import explorer, refused
from tests.sweep.sweeps import execute, spec

TINY = spec(budgets=[1.0], seeds=[0, 3])


def test_a_plan_is_shown_and_its_specification_written_only_if_it_is_the_same_recipe(tmp_path: Path) -> None:
    plan = make_plan(load_spec(TINY), runs=tmp_path).to_json()
    rundir.write_json(tmp_path / "tiny" / rundir.SWEEP, plan)
    other = [run | {"recipe_digest": "0" * 64} for run in plan["runs"]]
    rundir.write_json(tmp_path / "other" / rundir.SWEEP, plan | {"name": "other", "runs": other})
    assert "is not what it was in other" in refused("confirm", "other", "mixed", "--plan", "--runs", tmp_path)
    assert "did you mean 'mixed'" in refused("confirm", "tiny", "mixd", "--runs", tmp_path)
    assert list(tmp_path.glob("*.yaml")) == []

    done = explorer("confirm", "tiny", "mixed", "--seeds", "2", "--plan", "--json", "--runs", tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    path = tmp_path / "tiny-confirm-mixed.yaml"
    assert (said["spec"], said["seeds"], said["runs"], said["missing"]) == (str(path), [1, 2], 4, 4)
    assert load_spec(path).seeds == (1, 2) and not (tmp_path / "tiny-confirm-mixed").exists()


def test_without_a_recipe_it_takes_the_answer_of_ask_and_says_so(tmp_path: Path) -> None:
    planned = make_plan(load_spec(spec(budgets=[0.5, 1.0], seeds=[0, 1, 2])), runs=tmp_path)
    rundir.write_json(tmp_path / "tiny" / rundir.SWEEP, planned.to_json())
    assert "no run has finished, so there is no winner yet" in refused("confirm", "tiny", "--runs", tmp_path)
    records = {run.record.recipe: run.record for run in planned.runs}
    for record in (run.record for run in planned.runs):
        write_run(tmp_path, record, metrics={"accuracy": 0.9 + 0.05 * record.ssr + 0.001 * record.seed})
    for name, seconds in (("baseline", 0.02), ("mixed", 0.01)):
        write_profile(tmp_path, records[name], seconds=dict.fromkeys(records[name].phases, seconds))

    done = explorer("confirm", "tiny", "--plan", "--runs", tmp_path)
    assert done.returncode == 0, done.stderr
    said = "explorer: confirming mixed, the cheapest recipe of tiny that is as good as the baseline (95.10% in 70 ms)"
    assert said in done.stderr and (tmp_path / "tiny-confirm-mixed.yaml").exists()
    # A recipe that is named wins over the answer, and a slower one is no answer.
    write_profile(tmp_path, records["mixed"], seconds=dict.fromkeys(records["mixed"].phases, 0.04))
    words = refused("confirm", "tiny", "--plan", "--runs", tmp_path)
    assert "no recipe is known to be as good as the baseline for less" in words and "known: mixed" in words
    named = explorer("confirm", "tiny", "mixed", "--plan", "--runs", tmp_path)
    assert named.returncode == 0 and "confirming" not in named.stderr


@pytest.mark.slow
def test_fresh_seeds_alone_are_run_and_reported(tmp_path: Path) -> None:
    execute(tmp_path, TINY)
    options = ("--seeds", "1", "--engine", "inline", "--workers", "1", "--runs", str(tmp_path))
    done = explorer("confirm", "tiny", "mixed", *options)
    assert done.returncode == 1  # one seed confirms nothing
    assert "2 runs done, 2 of them now" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("mixed: not confirmed on 1 fresh seed: ")
    names = sorted(path.name for path in rundir.run_directories(tmp_path / "tiny-confirm-mixed"))
    assert len(names) == 2 and all("-s1-" in name for name in names)
    again = explorer("confirm", "tiny", "mixed", "--json", *options)
    *events, verdict = map(json.loads, again.stdout.splitlines())
    assert verdict["event"] == "verdict" and verdict["verdict"] == "not confirmed" and verdict["seeds"] == [1]
    assert {event["event"] for event in events} <= {"start", "end"}  # nothing was run again

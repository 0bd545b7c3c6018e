"""Sweeps that add seeds: one decision, from the first stage, whatever happens in between."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer import run_files, rundir
from explorer.analysis.equal_quality import equal_quality
from explorer.analysis.sentences import answer
from explorer.analysis.verdict import sweep_verdicts
from explorer.campaign.until import expected, run_until
from explorer.errors import RunError, SpecError, SweepError
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.sweep.confirm import confirmation
from explorer.sweep.execute import Summary
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.spec import load_spec
from explorer.sweep.status import sweep_status
from explorer.sweep.until_key import DecisionRecord
from tests.builders import write_profile, write_run
from tests.sweep.sweeps import execute as execute_really
from tests.sweep.sweeps import spec

ROUNDS = (0.999, 1.0, 1.001, 1.0, 1.0)
SPEED = {"baseline": 1.0, "mixed": 1.3, "other": 1.1}
UNTIL = {"interval": "25%", "of": ["mixed"], "at_most": 9}
CONTENT = spec(
    recipes={"baseline": [], "mixed": ["mixup"], "other": ["ema"]},
    budgets=[0.5, 1.0, 2.0],
    seeds=[0, 1, 2],
    until=UNTIL,
)

Quality = Callable[[str, float, int], float]


def noisy(recipe: str, ssr: float, seed: int, *, noise: float = 0.015) -> float:
    draws = np.random.default_rng([seed, int(ssr * 10), len(recipe)])
    return float(0.7 + 0.1 * np.log(ssr * SPEED[recipe]) + noise * draws.normal())


def planned(runs: Path, content: dict[str, Any] = CONTENT) -> Plan:
    return make_plan(load_spec(content), runs=runs, rehearsed=True)


def trainer(runs: Path, quality: Quality = noisy, *, most: int = 10_000) -> Callable[[Plan], Summary]:
    """What runs a plan without training: results by a rule. It is killed before it has made more than `most` runs."""
    left = most

    def execute(plan: Plan) -> Summary:
        nonlocal left
        rundir.write_json(plan.directory / rundir.SWEEP, plan.to_json())
        for run in plan.missing:
            if not left:
                raise KeyboardInterrupt
            left -= 1
            record = run.record
            accuracy = quality(record.recipe, record.ssr, record.seed)
            write_run(runs, record, metrics={"accuracy": accuracy, "nll": 1 - accuracy})
            if not (plan.directory / rundir.PROFILES).exists() or record.ssr == plan.spec.budgets[0]:
                write_profile(runs, record, rounds=ROUNDS, profile_pass="one")
        ingest(runs)
        return Summary(
            done=len(plan.runs),
            executed=len(plan.missing),
            failures=(),
            waiting=0,
            interrupted=False,
            warnings=(),
            seconds=1.0,
        )

    return execute


def run(runs: Path, content: dict[str, Any] = CONTENT, quality: Quality = noisy, *, most: int = 10_000) -> list[str]:
    """Run the sweep as `explorer sweep run` does; return what it tells."""
    told: list[str] = []
    run_until(planned(runs, content), trainer(runs, quality, most=most), runs=runs, tell=told.append)
    return told


def decision(runs: Path) -> DecisionRecord:
    return run_files.read(DecisionRecord, runs / "tiny" / rundir.UNTIL)


def finished(runs: Path) -> dict[str, set[int]]:
    rows = frames.results(database(runs), sweep="tiny")
    return {str(recipe): set(seeds) for recipe, seeds in rows.groupby("recipe")["seed"]}


def test_seeds_are_added_once_and_only_to_the_recipes_that_are_named(tmp_path: Path) -> None:
    told = run(tmp_path)
    added = decision(tmp_path).added
    assert 0 < len(added) < 7 and added == tuple(range(3, 3 + len(added)))
    assert finished(tmp_path) == {"baseline": {0, 1, 2, *added}, "mixed": {0, 1, 2, *added}, "other": {0, 1, 2}}
    assert any("decided once by the two-stage rule (Stein)" in words for words in told)
    # Again: nothing is left to run, to decide or to say.
    before = (tmp_path / "tiny" / rundir.UNTIL).read_bytes()
    assert not planned(tmp_path).missing and not run(tmp_path)
    assert (tmp_path / "tiny" / rundir.UNTIL).read_bytes() == before


@pytest.mark.slow
def test_the_interval_is_that_of_two_stages_and_as_narrow_as_asked(tmp_path: Path) -> None:
    run(tmp_path)
    rows = frames.results(database(tmp_path), sweep="tiny")
    two, naive = (
        {result.recipe: result for result in equal_quality(table)} for table in (rows, rows.drop(columns="added"))
    )
    mixed, n = two["mixed"], 3 + len(decision(tmp_path).added)
    assert (mixed.n, mixed.first, two["other"].n, two["other"].first) == (n, 3, 3, None)
    assert mixed.errors is not None and mixed.errors[0].df == 2
    assert mixed.ratio == pytest.approx(naive["mixed"].ratio)  # of all seeds, either way
    assert naive["mixed"].errors is not None and naive["mixed"].errors[0].df == n - 1
    assert two["other"].ratio_low == naive["other"].ratio_low
    verdict = next(verdict for verdict in sweep_verdicts(rows) if verdict.comparison.recipe == "mixed")
    assert f"3 seeds, then {n - 3} more by the two-stage rule (Stein)" in answer(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 13, 26, 27, 28, 33])
def test_a_sweep_that_was_killed_goes_on_with_the_same_decision(tmp_path: Path, most: int) -> None:
    run(tmp_path / "undisturbed")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed", most=most)
    run(tmp_path / "killed")
    assert finished(tmp_path / "killed") == finished(tmp_path / "undisturbed")
    both = [replace(decision(tmp_path / name), decided_at="") for name in ("killed", "undisturbed")]
    assert both[0] == both[1]


@pytest.mark.slow
def test_what_added_seeds_say_never_changes_their_number(tmp_path: Path) -> None:
    """They are wild here: a rule that looked again would ask for many more."""

    def wild(recipe: str, ssr: float, seed: int) -> float:
        return noisy(recipe, ssr, seed, noise=0.015 if seed < 3 else 0.3)

    run(tmp_path / "calm")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "wild", quality=wild, most=33)
    run(tmp_path / "wild", quality=wild)
    assert decision(tmp_path / "wild").added == decision(tmp_path / "calm").added


@pytest.mark.slow
def test_it_is_not_decided_while_times_are_unknown_or_too_noisy(tmp_path: Path) -> None:
    execute = trainer(tmp_path)

    def untimed(plan: Plan) -> Summary:
        summary = execute(plan)
        for path in (plan.directory / rundir.PROFILES).iterdir():
            path.unlink()
        ingest(tmp_path)
        return summary

    with pytest.raises(SweepError, match=r"until: how many seeds mixed needs cannot be decided yet: .* not profiled"):
        run_until(planned(tmp_path), untimed, runs=tmp_path, tell=print)
    assert not (tmp_path / "tiny" / rundir.UNTIL).exists()
    for recipe in SPEED:
        first = next(run.record for run in planned(tmp_path).runs if run.record.recipe == recipe)
        write_profile(tmp_path, first, rounds=(0.5, 0.7, 1.0, 1.4, 2.0), profile_pass=recipe)
    with pytest.raises(SweepError, match=r"the noise of step times makes the interval \+-\d+%; profile again"):
        run(tmp_path)
    assert not (tmp_path / "tiny" / rundir.UNTIL).exists()


@pytest.mark.slow
def test_a_recipe_without_an_interval_gets_no_seeds(tmp_path: Path) -> None:
    told = run(tmp_path, quality=lambda recipe, ssr, seed: noisy(recipe, ssr, seed) - (0.5 if recipe == "mixed" else 0))
    assert decision(tmp_path).added == () and told == ["until: mixed; not reached", "until: no seeds are added"]


@pytest.mark.slow
def test_another_number_after_a_look_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, most=27)
    narrower = {**CONTENT, "until": {**UNTIL, "interval": "22%"}}
    assert planned(tmp_path, narrower).decided is None  # no added seed was seen
    run(tmp_path)
    with pytest.raises(SpecError, match="would be optional stopping: write seeds and until as they were"):
        planned(tmp_path, narrower)
    with pytest.raises(SpecError, match="optional stopping"):
        planned(tmp_path, {**CONTENT, "seeds": [0, 1, 2, 3]})
    # The control: the decision is no obstacle to what is not another number of the same runs.
    more = {**CONTENT, "recipes": {**CONTENT["recipes"], "fourth": ["cutout"]}}
    assert planned(tmp_path, more).decided == decision(tmp_path)
    assert len(planned(tmp_path, more).missing) == 9
    changed = {**narrower, "train": {**CONTENT["train"], "batch_size": 32}}
    assert planned(tmp_path, changed).decided is None


@pytest.mark.slow
def test_added_seeds_are_no_seeds_of_a_confirmation_and_the_other_way_round(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, most=26)
    content = confirmation(tmp_path, "tiny", "mixed", seeds=2)
    assert content["seeds"] == [3, 4] and "until" not in content
    rundir.write_json(tmp_path / content["name"] / rundir.SWEEP, planned(tmp_path, content).to_json())
    run(tmp_path)
    added = decision(tmp_path).added
    assert added and added[0] == 5
    assert not {*confirmation(tmp_path, "tiny", "mixed", seeds=4)["seeds"]} & {0, 1, 2, *added}


@pytest.mark.slow
def test_plan_and_status_say_what_may_follow(tmp_path: Path) -> None:
    until = planned(tmp_path).spec.until
    assert until is not None and expected(planned(tmp_path), until, runs=tmp_path) is None
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, most=26)
    ingest(tmp_path)
    likely = expected(planned(tmp_path), until, runs=tmp_path)
    assert likely is not None and 0 <= likely <= 6
    assert sweep_status(tmp_path / "tiny").may_add == 6
    run(tmp_path)
    status = sweep_status(tmp_path / "tiny")
    assert status.may_add == 0 and status.counts == {"done": 27 + 6 * len(decision(tmp_path).added)}


@pytest.mark.slow
def test_a_damaged_decision_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    path = tmp_path / "tiny" / rundir.UNTIL
    path.write_text(path.read_text().replace('"added"', '"adde"'))
    with pytest.raises(RunError, match=r"until\.json: damaged DecisionRecord"):
        planned(tmp_path)


@pytest.mark.slow
def test_a_real_sweep_adds_seeds(tmp_path: Path) -> None:
    content = {**CONTENT, "until": {**UNTIL, "interval": "100%", "at_most": 4}}
    content["train"] = {**CONTENT["train"], "epochs": 1}

    def execute(plan: Plan) -> Summary:
        summary = execute_really(tmp_path, content)
        for run in plan.runs:
            write_profile(tmp_path, run.record, rounds=ROUNDS, profile_pass="one")
        ingest(tmp_path)
        return summary

    summary = run_until(planned(tmp_path, content), execute, runs=tmp_path, tell=print)
    added = len(decision(tmp_path).added)
    assert summary.executed == 27 + 6 * added == summary.done
    assert {*finished(tmp_path)["mixed"]} == {*range(3 + added)}

"""Tuning on small real sweeps: equal effort, the choice, going on after a kill, and the runs of the claim."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import rundir
from explorer.campaign.tune import tune, tuning_plan
from explorer.errors import SpecError, SweepError
from explorer.run_files import tuning_words
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.sweep.confirm import confirmation
from explorer.sweep.execute import Settings, Summary, run_sweep
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.spec import SweepSpec, load_spec
from explorer.sweep.tuned import FILE, TunedRecord, read_tuned
from tests.sweep.sweeps import results, spec

pytestmark = pytest.mark.slow  # real training

TUNE: dict[str, Any] = {"space": {"lr": [0.01, 1.0]}, "runs": 3, "budget": 0.5, "seeds": [100]}
ASKED = spec(tune=TUNE, budgets=[1.0], recipes={"baseline": [], "smooth": [{"label_smoothing": {"smoothing": 0.3}}]})


def run(planned: Plan) -> Summary:
    return run_sweep(planned, Settings(engine="inline", workers=1, profile=False))


def only(count: int) -> Callable[[Plan], Summary]:
    """Run no more than so many of the missing runs: what a kill leaves."""
    return lambda planned: run(replace(planned, runs=planned.missing[:count]))


def tuned(runs: Path, content: dict[str, Any] = ASKED, execute: Callable[[Plan], Summary] = run) -> TunedRecord:
    made = tune(load_spec(content), runs=runs, data=None, execute=execute)
    assert made is not None
    return made


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TunedRecord]:
    runs = tmp_path_factory.mktemp("tuned")
    return runs, tuned(runs)


def test_every_recipe_gets_the_same_points_and_the_same_effort(done: tuple[Path, TunedRecord]) -> None:
    _, (baseline, smooth) = done[0], done[1].recipes
    assert [point.values for point in baseline.points] == [point.values for point in smooth.points]
    assert (len(baseline.points), baseline.steps) == (len(smooth.points), smooth.steps) == (3, 12)


def test_the_choice_is_the_best_of_the_results_on_the_disk(done: tuple[Path, TunedRecord]) -> None:
    runs, made = done
    of_run = results(runs, "tiny-tune")
    for own in made.recipes:
        measured = [of_run[point.runs[0]].metrics["accuracy"] for point in own.points]
        assert [point.quality for point in own.points] == measured
        assert own.chosen == measured.index(max(measured))
    assert read_tuned(runs / "tiny") == made


def test_the_claims_runs_are_those_of_the_chosen_values_and_of_nothing_else(done: tuple[Path, TunedRecord]) -> None:
    runs, made = done
    planned = make_plan(load_spec(ASKED), runs=runs, rehearsed=True)
    by_hand = {
        own.recipe: {
            "train": {"optimizer": {"sgd": {"lr": own.values["lr"], "momentum": 0.9}}},
            "methods": ASKED["recipes"][own.recipe],
        }
        for own in made.recipes
    }
    other = make_plan(load_spec(spec(budgets=[1.0], recipes=by_hand)), runs=runs, rehearsed=True)
    assert [own.record.identity for own in planned.runs] == [own.record.identity for own in other.runs]
    assert {own.record.seed for own in planned.runs}.isdisjoint(made.seeds)
    assert {own.record.tuning for own in planned.runs} == {made.words}
    assert planned.to_json()["tuned"]["sweep"] == "tiny-tune"


def test_a_sweep_that_is_not_tuned_yet_is_not_planned(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"spec: tune: not done yet; `explorer tune spec` does it"):
        make_plan(load_spec(ASKED), runs=tmp_path)


def test_another_question_is_tuned_again_and_keeps_the_runs_that_both_have(done: tuple[Path, TunedRecord]) -> None:
    runs, _ = done
    more = load_spec(ASKED | {"tune": TUNE | {"runs": 4}})
    with pytest.raises(SpecError, match="not done yet"):
        make_plan(more, runs=runs)
    planned = tuning_plan(more, runs=runs, data=None)
    assert (len(planned.runs), len(planned.missing)) == (8, 2)


def test_a_tuning_that_was_killed_goes_on_and_ends_the_same(tmp_path: Path, done: tuple[Path, TunedRecord]) -> None:
    assert tune(load_spec(ASKED), runs=tmp_path, data=None, execute=only(2)) is None
    assert not (tmp_path / "tiny" / FILE).exists()
    kept = {name: result.finished_at for name, result in results(tmp_path, "tiny-tune").items()}
    assert len(kept) == 2
    made = tuned(tmp_path)
    assert kept.items() <= {name: own.finished_at for name, own in results(tmp_path, "tiny-tune").items()}.items()
    assert _without_times(made) == _without_times(done[1])


def _without_times(made: TunedRecord) -> list[Any]:
    return [[(point.values, point.quality, point.runs) for point in own.points] + [own.chosen] for own in made.recipes]


def test_with_a_recipe_that_is_the_baseline_equal_tuning_gives_no_edge(tmp_path: Path) -> None:
    """The input control: smoothing by 0 trains bit for bit as the baseline does."""
    same = {"baseline": [], "same": [{"label_smoothing": {"smoothing": 0.0}}]}
    baseline, other = tuned(tmp_path, ASKED | {"recipes": same}).recipes
    assert (baseline.values, baseline.quality, baseline.edges) == (other.values, other.quality, other.edges)


def test_a_point_that_diverged_is_never_chosen_and_all_of_them_are_an_error(tmp_path: Path) -> None:
    train = ASKED["train"] | {"epochs": 1, "optimizer": {"sgd": {"lr": 100}}}
    content = ASKED | {"recipes": {"baseline": []}, "train": train}

    def of(*decays: float) -> dict[str, Any]:
        return content | {"tune": TUNE | {"space": {"weight_decay": {"of": [*decays]}}, "budget": 1.0}}

    (own,) = tuned(tmp_path, of(10, 0.001)).recipes
    assert {point.values["weight_decay"]: point.quality is None for point in own.points} == {10: True, 0.001: False}
    assert own.values == {"weight_decay": 0.001}
    assert len({point.runs for point in own.points}) == 2  # three points of two choices: equal ones share their run
    with pytest.raises(SweepError, match=r"every point of the recipe 'baseline' diverged at budget 1"):
        tuned(tmp_path, of(10, 9))


def test_every_recipe_of_a_tuned_sweep_is_tuned_and_its_tuning_runs_confirm_nothing(
    tmp_path: Path, done: tuple[Path, TunedRecord]
) -> None:
    made = tuned(tmp_path)
    run(make_plan(load_spec(ASKED), runs=tmp_path))
    ingest(tmp_path)
    rows = frames.results(database(tmp_path), sweep="tiny")
    assert set(rows["tuning"]) == {made.words}
    assert tuning_words(made.words, is_baseline=False) == made.words
    assert tuning_words("lr by grid", is_baseline=False) is None  # the control: by hand it is the baseline's alone
    for name in ("tiny", "tiny-tune"):
        assert frames.confirming(database(tmp_path), name) == []
    facets = frames.facets(database(tmp_path)).set_index("sweep")["tunes"]
    assert (facets["tiny"].any(), facets["tiny-tune"].all()) == (False, True)
    content = confirmation(tmp_path, "tiny", "smooth")
    assert set(content["seeds"]).isdisjoint({0, 100})
    again = load_spec(content)
    assert {recipe.name: recipe.optimizer.lr for recipe in again.recipes} == {
        own.recipe: own.values["lr"] for own in made.recipes
    }


def test_a_damaged_record_is_one_clear_error(tmp_path: Path, done: tuple[Path, TunedRecord]) -> None:
    path = tmp_path / "tiny" / FILE
    value = json.loads((done[0] / "tiny" / FILE).read_bytes())
    value["recipes"][0]["chosen"] = 3
    rundir.write_json(path, value)
    with pytest.raises(SweepError, match=r"tuned.json: recipe 'baseline' has no point 3"):
        make_plan(load_spec(ASKED), runs=tmp_path)
    path.write_text("{")
    with pytest.raises(SweepError, match=r"tuned.json: not JSON"):
        make_plan(load_spec(ASKED), runs=tmp_path)


# --- Optuna's samplers ---


def sequential(sampler: str, runs: int = 4) -> SweepSpec:
    return load_spec(ASKED | {"tune": TUNE | {"sampler": sampler, "runs": runs}})


def test_without_optuna_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SweepError, match=r"sampler 'tpe' needs optuna, .* pip install 'explorer\[search\]'"):
        tune(sequential("tpe"), runs=tmp_path, data=None, execute=run)


@pytest.mark.parametrize("sampler", ["tpe", "gp", "cmaes"])
def test_a_sampler_that_goes_by_results_goes_on_after_a_kill_with_the_same_points(tmp_path: Path, sampler: str) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed: pip install 'explorer[search]'")
    if sampler == "cmaes":
        pytest.importorskip("cmaes", reason="cmaes is not installed: pip install 'explorer[search]'")
    whole = tune(sequential(sampler), runs=tmp_path / "whole", data=None, execute=run)
    assert whole is not None
    assert [len(own.points) for own in whole.recipes] == [4, 4]
    parts = tmp_path / "parts"
    while (made := tune(sequential(sampler), runs=parts, data=None, execute=only(1))) is None:
        assert len(results(parts, "tiny-tune")) < 8
    assert _without_times(made) == _without_times(whole)


def test_kill_9_loses_no_finished_run(tmp_path: Path, done: tuple[Path, TunedRecord]) -> None:
    path, runs = tmp_path / "tiny.yaml", tmp_path / "runs"
    path.write_text(json.dumps(ASKED))  # JSON is YAML
    command = [sys.executable, "-m", "explorer", "tune", str(path), "--runs", str(runs), "--engine", "inline"]
    process = subprocess.Popen([*command, "--workers", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(list(runs.glob(f"tiny-tune/*/{rundir.RESULT}"))) < 2 and process.poll() is None:
        assert time.monotonic() < deadline, "no run has finished"
        time.sleep(0.01)
    process.kill()
    process.wait()
    kept = {name: result.finished_at for name, result in results(runs, "tiny-tune").items()}
    made = tuned(runs)
    assert kept.items() <= {name: own.finished_at for name, own in results(runs, "tiny-tune").items()}.items()
    assert _without_times(made) == _without_times(done[1])

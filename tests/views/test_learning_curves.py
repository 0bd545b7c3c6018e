"""Learning curves in the explorer: the first section, its chart, and runs that are picked, training or failed."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from explorer import run_files, rundir
from explorer.run_files import METRICS, RunRecord
from explorer.store.ingest import ingest
from explorer.store.learning_curves import learning_curves
from explorer.store.published import database
from explorer.store.run_sources import file_digest
from explorer.views.explore import Explorer, explore
from explorer.views.explorer import pulse
from explorer.views.explorer.curves_chart import curves_chart
from explorer.views.explorer.question import from_token, to_token
from explorer.views.explorer.tabs.curves_section import CurvesSection
from tests.builders import run_record, write_failure, write_plan, write_profile, write_run

LOSSES = [2.0 / (step + 1) for step in range(80)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recipes of three seeds at two budgets; one run of the second failed."""
    place = tmp_path_factory.mktemp("runs")
    for recipe in ("baseline", "fast"):
        methods = () if recipe == "baseline" else ("fast",)
        for seed in range(3):
            for ssr, quality in ((0.5, 0.8), (1.0, 0.9)):
                record = run_record(recipe=recipe, methods=methods, ssr=ssr, seed=seed)
                losses = [loss + 0.1 * seed for loss in LOSSES[: record.steps]]
                write_run(place, record, losses=losses, metrics={"accuracy": quality + 0.01 * seed, "nll": 0.3})
        write_profile(place, run_record(recipe=recipe, methods=methods), seconds=0.01)
    write_failure(place, run_record(recipe="fast", methods=("fast",), seed=3))
    ingest(place)
    return place


@pytest.fixture
def opened(runs: Path) -> Explorer:
    return explore(runs)


def section(opened: Explorer) -> CurvesSection:
    found = opened._sections.by_key["curves"]
    assert isinstance(found, CurvesSection)
    return found


def layers(drawn: Any) -> dict[str, pd.DataFrame]:
    """The rows that each layer of a chart draws, by its name."""
    chart = drawn.to_dict() if not isinstance(drawn, dict) else drawn
    data = chart.get("datasets", {})
    return {layer["name"]: pd.DataFrame(data[layer["data"]["name"]]) for layer in chart["layer"] if "name" in layer}


def shown(opened: Explorer) -> dict[str, pd.DataFrame]:
    return layers(section(opened)._chart.spec)


def test_it_is_open_at_first_with_the_mean_loss_of_every_recipe(opened: Explorer) -> None:
    assert opened._sections.opened.value == "curves"
    words = section(opened)._words.value
    assert "7 runs of all recipes shown, at their full budget; lines are means over seeds, bands their 95%" in words
    assert "1 run did not finish" in words
    drawn = shown(opened)
    assert {*drawn["lines"]["series"]} >= {"baseline at 1", "fast at 1"}
    assert set(drawn["bands"]["group"]) == {"baseline", "fast"}
    assert drawn["ends"]["group"].tolist() == ["fast"]  # the cross of the run that failed


def test_a_pick_shows_these_runs_and_leaves_the_section_open(opened: Explorer) -> None:
    directories = [str(name) for name in opened.shown["directory"][:2]]
    opened._picked(directories)
    assert opened._sections.opened.value == "curves"
    assert "2 runs picked above" in section(opened)._words.value
    assert set(shown(opened)["lines"]["group"]) == {"baseline"}
    opened._brushed((0.3, 0.5, 0.0, 1.0))  # seconds of half the budget
    assert "6 runs picked above" in section(opened)._words.value
    opened._brushed(())
    assert "7 runs of all recipes" in section(opened)._words.value


def test_the_controls_change_the_chart_and_the_token(opened: Explorer) -> None:
    curves = section(opened)
    curves.runs.value, curves.over.value, curves.scale.value = True, "time", True
    lines = shown(opened)["lines"]
    assert lines["series"].nunique() == 7
    assert lines["x"].max() == pytest.approx(0.8)
    assert {"raw", "lines"} <= shown(opened).keys()
    curves.smooth.value = 0.0
    assert "raw" not in shown(opened)
    kept = from_token(to_token(opened.question))
    assert (kept.curve_runs, kept.curve_x, kept.curve_log, kept.curve_smooth) == (True, "time", True, 0.0)
    curves.metric.value = "accuracy"
    assert "Measured once a run" in curves._words.value


def test_a_token_with_unknown_names_opens_with_others(runs: Path) -> None:
    opened = explore(runs, curve="no such metric", curve_x="furlongs", curve_smooth=0.04)
    curves = section(opened)
    assert (curves.metric.value, curves.over.value, curves.smooth.value) == ("train_loss", "steps", 0.05)


def test_runs_that_are_training_are_drawn_whoever_started_them(growing_place: Path) -> None:
    directory = growing_place / "digits" / NEXT.run_id
    with rundir.locked(growing_place / "digits", what="sweep"), rundir.locked(directory, what="run"):
        opened = explore(growing_place)
        assert "1 run training now" in section(opened)._words.value
        lines = shown(opened)["lines"]
        assert lines.loc[lines["series"].str.contains("-s9-"), "x"].max() == 30
        # It does not cut the mean of the finished seeds off where it is now.
        assert lines.loc[lines["series"] == "fast at 1", "x"].max() == 80


def test_names_from_outside_are_text(tmp_path: Path) -> None:
    record = replace(run_record(recipe="<img src=y>"), baseline="<img src=y>")
    directory = write_run(tmp_path, record, losses=[1.0, 0.5])
    lines = (directory / rundir.METRICS).read_text().replace("train_loss", "<img src=x>")
    (directory / rundir.METRICS).write_text(lines)
    result = json.loads((directory / rundir.RESULT).read_text())
    result["files"][rundir.METRICS] = file_digest(directory / rundir.METRICS)
    rundir.write_json(directory / rundir.RESULT, result)
    ingest(tmp_path)
    opened = explore(tmp_path)
    curves = section(opened)
    curves.metric.value = "<img src=x>"
    assert "<img" not in curves._words.value


@pytest.mark.slow
@pytest.mark.parametrize("over", ["steps", "examples", "time"])
@pytest.mark.parametrize("mean", [True, False])
def test_every_choice_is_a_valid_chart(over: str, mean: bool, runs: Path) -> None:
    frame = learning_curves(database(runs), "train_loss", sweep="digits")
    every: tuple[dict[str, Any], ...] = ({}, {"smooth": 0.1, "log": True}, {"interactive": False})
    for options in every:
        chart = curves_chart(frame, metric=METRICS["train_loss"], over=over, mean=mean, width=400, **options)
        assert "train_loss against" in chart.to_dict()["description"]
    accuracy = learning_curves(database(runs), "accuracy", sweep="digits")
    drawn = layers(curves_chart(accuracy, metric=METRICS["accuracy"], over=over, mean=mean, log=True))
    assert drawn["lines"]["y"].between(0, 0.2).all()  # errors, on a log scale


# --- the pulse ---


@pytest.fixture
def growing_place(runs: Path, tmp_path: Path) -> Path:
    """A copy of the runs with a plan that has one more, which is there and not finished."""
    place = tmp_path / "runs"
    shutil.copytree(runs, place)
    write_run(place, NEXT, finished=False, losses=LOSSES[:30])
    write_plan(place, [run_files.read(RunRecord, path) for path in sorted((place / "digits").glob("*/run.json"))])
    return place


NEXT = run_record(recipe="fast", methods=("fast",), seed=9)


@pytest.mark.slow
def test_a_sweep_that_someone_else_runs_is_followed_to_its_end(
    growing_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "LEAST", 1e6)
    opened = explore(growing_place)
    directory = growing_place / "digits" / NEXT.run_id
    assert opened._pulse.beat() == pulse.IDLE  # nothing runs, and nothing is done
    with rundir.locked(growing_place / "digits", what="sweep"):
        with rundir.locked(directory, what="run"):
            assert opened._pulse.beat() == pulse.TRAINING
            assert "1 run training now" in section(opened)._words.value
            with (directory / rundir.METRICS).open("a") as file:
                file.write('{"step": 44, "metric": "train_loss", "value": 0.1}\n')
            opened._pulse.beat()
            assert shown(opened)["lines"]["x"].max() == 80
            assert {30, 44} <= set(shown(opened)["lines"]["x"])
        write_run(growing_place, NEXT, losses=LOSSES, metrics={"accuracy": 0.93, "nll": 0.3})
        runs_before = len(opened.shown)
        opened._pulse.beat()  # too early for another ingest
        assert len(opened.shown) == runs_before
    assert opened._pulse.beat() == pulse.TRAINING  # the lock is free: one more ingest
    assert len(opened.shown) == runs_before + 1
    assert opened._pulse.beat() == pulse.IDLE


def test_one_view_of_a_kernel_is_followed_and_a_script_has_no_timer(runs: Path) -> None:
    without = explore(runs)
    assert without._pulse._timer is None

    async def both() -> tuple[Any, Any]:
        first, second = explore(runs), explore(runs)
        return first._pulse._timer, second._pulse._timer

    first, second = asyncio.run(both())
    assert first is None and second is not None

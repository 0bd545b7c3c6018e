import asyncio
import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from explorer.errors import ExplorerError
from explorer.store.ingest import ingest
from explorer.views.explore import Explorer, explore
from explorer.views.explorer.sharing import FORMATS
from explorer.views.notebook import runs_directory
from tests.builders import run_record, write_failure, write_profile, write_run
from tests.sample import write_sample


@pytest.fixture(scope="module")
def explorer(runs: Path) -> Explorer:
    return explore(runs)


def texts(widget: Any) -> str:
    """All HTML that a widget shows."""
    own = getattr(widget, "html", "") or (getattr(widget, "value", "") if type(widget).__name__ == "HTML" else "")
    return str(own) + "".join(map(texts, getattr(widget, "children", ())))


def brush(explorer: Explorer, ranges: dict[str, list[float]]) -> None:
    """What the browser sends after a brush."""
    store = [{"unit": "runs", "fields": [], "values": list(ranges.values())}] if ranges else []
    explorer._figure._chart._vl_selections = {"brush": {"value": ranges, "store": store}}


def test_it_opens_with_an_answer(explorer: Explorer) -> None:
    shown = texts(explorer)
    assert "fast reaches the baseline&#39;s accuracy 1.93x faster" in shown
    assert "(1.54x to 2.42x)" in shown and "1.54 to 2.42" in shown  # in the headline and in the table
    assert "not confirmed on fresh seeds yet" in shown
    assert "9 runs of all recipes shown, at their full budget" in shown  # their learning curves
    assert len(explorer.shown) == 45


@pytest.mark.parametrize(("typed", "meant"), [("97", 0.97), ("97%", 0.97), ("0.97", 0.97), ("970", None)])
def test_a_target_in_a_view_is_meant_as_it_is_typed(runs: Path, typed: str, meant: float | None) -> None:
    opened = explore(runs, view=f"digits?metric=accuracy&target={typed}")
    assert opened.question.target == meant


def test_the_command_that_opens_the_view_is_copied(runs: Path) -> None:
    opened = explore(runs, view="digits?x=steps&target=0.97")
    assert opened._sharing.copy.text.startswith("explorer open explore --view 'digits?")
    assert "x=steps&target=0.97" in opened._sharing.copy.text


def test_a_control_asks_anew(explorer: Explorer) -> None:
    explorer._controls.metric.value = "nll"
    assert explorer.question.metric == "nll"
    assert "baseline&#39;s nll" in texts(explorer)
    explorer._controls.recipes.value = ("heavy",)
    assert explorer.question.recipes == ("baseline", "heavy")
    assert explorer._controls.recipes.value == ("baseline", "heavy")
    assert explorer._controls.read().recipes == ("baseline", "heavy")
    explorer._controls.recipes.value = ("baseline", "fast", "heavy")
    assert explorer._controls.read().recipes == ()  # all of them: those that another sweep has, too
    explorer._controls.metric.value = "accuracy"
    assert len(explorer.shown) == 45


def test_an_own_price_brings_costs(explorer: Explorer) -> None:
    assert [key for _, key in explorer._controls.payment.options] == ["time", "steps", "examples"]
    explorer._controls.price.value = "a lot"
    assert "found &#39;a lot&#39;" in texts(explorer) and explorer.question.usd_per_hour is None
    explorer._controls.price.value = "$3600"
    assert [key for _, key in explorer._controls.payment.options] == ["time", "cost", "steps", "examples"]
    explorer._controls.payment.value = "cost"
    assert "x cheaper" in texts(explorer)
    assert explorer.shown["cost_usd"].tolist() == pytest.approx(explorer.shown["train_seconds"].tolist())
    explorer.ask(replace(explorer.question, usd_per_hour=None))
    assert explorer.question.payment == "time"


@pytest.mark.parametrize("written", ["97", "97%", " 0.97 "])
def test_an_own_target_is_used_for_chart_and_table(explorer: Explorer, written: str) -> None:
    explorer._controls.target.value = written
    assert explorer.question.target == pytest.approx(0.97)
    assert "accuracy 97.00%" in texts(explorer)
    assert "target 97.00%" in str(explorer._figure._chart.spec)
    explorer._controls.metric.value = "nll"
    assert explorer.question.target is None  # 0.97 of accuracy says nothing about a loss
    explorer._controls.metric.value = "accuracy"
    assert explorer._controls.target.value == ""
    assert "target 98.18%" in str(explorer._figure._chart.spec)


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("9700", "expected accuracy from 0.00% to 100.00%"),
        ("-3", "expected accuracy from"),
        ("99.9%", "No run here reaches accuracy 99.90%"),
        ("0.1", "Every run here is past accuracy 10.00%"),
        ("much", "found &#39;much&#39;"),
    ],
)
def test_an_impossible_target_is_refused_next_to_its_field(explorer: Explorer, written: str, complaint: str) -> None:
    before, drawn = explorer.question, explorer._figure._chart.spec
    explorer._controls.target.value = written
    assert complaint in explorer._controls._complaint.value
    assert explorer.question == before and explorer._figure._chart.spec is drawn
    explorer._controls.scale.value = not explorer._controls.scale.value  # other fields still work
    assert explorer.question.target is None and explorer.question.log is not before.log
    assert explorer._controls._complaint.value == ""
    explorer._controls.scale.value = before.log


def test_a_brush_lists_its_runs_and_a_click_takes_it_back(explorer: Explorer) -> None:
    explorer.ask(replace(explorer.question, section="runs"))
    brush(explorer, {"x": [3.1, 3.3], "y": [0.9, 1.0]})
    assert "3 runs selected" in texts(explorer)
    assert "explorer run" in texts(explorer)
    assert set(explorer.shown["recipe"]) == {"baseline"}
    brush(explorer, {})
    assert "All 45 runs" in texts(explorer)


def test_a_brush_still_works_after_the_chart_changed(explorer: Explorer) -> None:
    explorer.ask(replace(explorer.question, section="runs"))
    explorer.ask(replace(explorer.question, log=not explorer.question.log))
    brush(explorer, {"x": [3.1, 3.3], "y": [0.9, 1.0]})
    assert "3 runs selected" in texts(explorer)
    explorer.ask(replace(explorer.question, log=not explorer.question.log))
    assert "3 runs selected" in texts(explorer)  # and it is drawn again
    drawn = explorer._figure._chart.spec
    assert drawn is not None and {"x": [3.1, 3.3], "y": [0.9, 1.0]} in [each.get("value") for each in drawn["params"]]
    explorer._controls.metric.value = "nll"
    assert explorer.question.brush == () and "All 45 runs" in texts(explorer)  # it was about other numbers
    explorer._controls.metric.value = "accuracy"


def test_a_brush_that_is_reported_again_undoes_no_choice(explorer: Explorer) -> None:
    explorer._open(replace(explorer.question, section="runs", brush=(1.0, 4.0, 0.9, 1.0)))
    first, second = explorer.shown["directory"][:2]
    explorer._sections.by_key["runs"].grid.selected = [first]  # pyright: ignore[reportAttributeAccessIssue]
    again = {"x": [1.0000000000000009, 4.000000000000004], "y": [0.8999999999999999, 1.0]}  # as Vega rounds it
    brush(explorer, again)
    assert (explorer.question.chosen, explorer.question.brush) == ((first,), (1.0, 4.0, 0.9, 1.0))
    explorer._change(brush=(), chosen=(second,))  # a pick elsewhere, with the brush still on the screen
    brush(explorer, again)
    assert (explorer.question.chosen, explorer.question.brush) == ((second,), ())
    brush(explorer, {**again, "x": [1.0, 3.99]})  # the control: moved by a pixel
    assert (explorer.question.chosen, explorer.question.brush[1]) == ((), 3.99)
    brush(explorer, {})


def test_a_brush_on_a_log_scale_selects_by_quality(tmp_path: Path) -> None:
    write_sample(tmp_path, seeds=1)
    opened = explore(tmp_path)
    assert opened._answer is not None and opened._answer.scene is not None
    runs = opened._answer.scene.runs
    scene = replace(opened._answer.scene, runs=runs.assign(y=runs["y"].where(runs["ssr"] > 0.2, 0.4)))
    opened._answer = replace(opened._answer, scene=replace(scene, y_range=(0.4, 0.99)))
    opened._figure.show(opened._answer)
    brush(opened, {"y": [0.55, 0.65]})  # errors
    assert set(opened.shown["ssr"]) == {0.125}


@pytest.mark.slow
def test_exports_hold_exactly_what_is_shown(explorer: Explorer, runs: Path, tmp_path: Path) -> None:
    brush(explorer, {"x": [3.1, 3.3], "y": [0.9, 1.0]})
    for kind in FORMATS:
        path = explorer.export(kind, directory=tmp_path)
        origin = json.loads(path.with_name(f"{path.name}.json").read_text())
        assert origin["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert origin["database_sha256"] == hashlib.sha256((runs / "explorer.duckdb").read_bytes()).hexdigest()
        assert origin["query"]["sweep"] == "digits"
        assert origin["rows"] == 3
    csv = pd.read_csv(next(tmp_path.glob("*.csv")))
    parquet = pd.read_parquet(next(tmp_path.glob("*.parquet")))
    assert csv["run_id"].tolist() == parquet["run_id"].tolist() == explorer.shown["run_id"].tolist()
    assert next(tmp_path.glob("*.png")).read_bytes().startswith(b"\x89PNG")
    assert next(tmp_path.glob("*.svg")).read_text().startswith("<svg")
    brush(explorer, {})


def test_an_export_that_cannot_be_written_says_so(
    explorer: Explorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "exports").write_text("in the way")
    monkeypatch.chdir(tmp_path)
    explorer._sharing.write("csv")
    assert "cannot write" in texts(explorer)


def test_without_a_database_it_says_what_to_type(tmp_path: Path) -> None:
    opened = explore(tmp_path)
    shown = texts(opened)
    assert "No runs yet" in shown
    assert "explorer quickstart" in shown
    assert opened._empty.button.description.startswith("Run the quickstart")


def test_refresh_finds_what_was_made_since(tmp_path: Path) -> None:
    empty = explore(tmp_path)
    with pytest.raises(ExplorerError, match="nothing to export"):
        empty.export("csv")
    write_sample(tmp_path, seeds=2)
    empty.refresh()
    assert "6 runs of all recipes shown, at their full budget" in texts(empty)
    write_sample(tmp_path, sweep="later", seeds=1)
    empty.refresh()
    assert empty.question.sweep == "digits"  # what was chosen stays
    assert [name for _, name in empty._controls.sweep.options] == ["*", "digits", "later"]
    empty._controls.sweep.value = "later"
    assert "n=1" in texts(empty)


@pytest.mark.slow
def test_a_database_without_finished_runs_and_a_damaged_one(runs: Path, tmp_path: Path) -> None:
    ingest(tmp_path)
    assert "There are no runs" in texts(explore(tmp_path))
    (tmp_path / "explorer.duckdb").write_bytes(b"not a database")
    damaged = explore(tmp_path)
    assert "cannot be read" in texts(damaged) and "The store cannot be used" in texts(damaged)
    assert damaged._empty.button.description == "Rebuild the store"  # the quickstart would not help
    asyncio.run(damaged._empty.run())
    assert "There are no runs" in texts(damaged) and "cannot be read" not in texts(damaged)


def test_a_database_that_disappears_while_it_is_open(runs: Path, tmp_path: Path) -> None:
    shutil.copy(runs / "explorer.duckdb", tmp_path)
    opened = explore(tmp_path)
    (tmp_path / "explorer.duckdb").unlink()
    opened._controls.metric.value = "nll"
    assert "there is no database" in texts(opened)


def test_the_directory_of_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("EXPLORER_RUNS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert runs_directory(None) == tmp_path.parent / "runs"
    monkeypatch.setenv("EXPLORER_RUNS", "/elsewhere")
    assert runs_directory(None) == Path("/elsewhere")
    assert runs_directory("here") == Path("here")


def test_a_table_by_what_is_reached_says_so_in_a_sentence(explorer: Explorer) -> None:
    words = "heavy is worse than the baseline by 0.40 points in the same time"
    assert words not in texts(explorer)
    explorer.ask(replace(explorer.question, order="best"))
    assert words in texts(explorer)
    explorer.ask(replace(explorer.question, order="least"))


def test_failed_runs_alone_are_counted(tmp_path: Path) -> None:
    write_failure(tmp_path, run_record(seed=0))
    write_failure(tmp_path, run_record(seed=1))
    ingest(tmp_path)
    shown = texts(explore(tmp_path))
    assert "There are no finished runs" in shown and "2 failed" in shown and "sweep status" in shown


@pytest.mark.slow
def test_a_sweep_in_progress_and_one_run_show_what_there_is(tmp_path: Path) -> None:
    write_run(tmp_path, run_record(), metrics={"accuracy": 0.9, "nll": 0.3})
    write_run(tmp_path, run_record(seed=1), finished=False)
    ingest(tmp_path)
    opened = explore(tmp_path)
    shown = texts(opened)
    assert "One run: baseline" in shown and "nothing to compare with yet" in shown
    assert "is not known yet" in shown  # nobody has measured its steps
    opened.ask(replace(opened.question, payment="steps"))
    assert len(opened.shown) == 1 and "1 finished run" in texts(opened)
    assert texts(opened).count('class="x-card-title"') == 1  # the run itself is in the comparison's place
    write_run(tmp_path, run_record(seed=2), metrics={"accuracy": 0.9, "nll": 0.3})
    ingest(tmp_path)
    opened.refresh()
    assert 'class="x-card-title"' not in texts(opened)


def test_a_snapshot_of_an_older_version_says_how_to_make_it_anew(tmp_path: Path) -> None:
    write_sample(tmp_path, seeds=1)
    with duckdb.connect(tmp_path / "explorer.duckdb") as connection:
        connection.execute("UPDATE schema_version SET version = 4")
    assert "explorer store rebuild" in texts(explore(tmp_path))


@pytest.mark.slow
def test_fresh_seeds_take_the_place_of_the_wish_for_them(tmp_path: Path) -> None:
    """The same two recipes on other seeds, in a sweep where there was nothing to choose."""
    draws = np.random.default_rng(1)
    for sweep, seeds in (("all", (0, 1, 2)), ("fresh", (3, 4, 5))):
        for recipe, methods, gain, step in (("baseline", (), 0.0, 0.04), ("fast", ("fast",), 0.01, 0.02)):
            record = run_record()
            for ssr, quality in ((0.25, 0.90), (0.5, 0.93), (1.0, 0.95)):
                for seed in seeds:
                    record = run_record(recipe=recipe, sweep=sweep, ssr=ssr, seed=seed, methods=methods)
                    accuracy = quality + gain + float(draws.normal(0, 0.0004))
                    write_run(tmp_path, record, metrics={"accuracy": accuracy, "nll": 1 - accuracy})
            write_profile(tmp_path, record, seconds=step)
    ingest(tmp_path)
    shown = texts(explore(tmp_path, sweep="all"))
    assert shown.count("confirmed on 3 fresh seeds") == 3  # in the headline, and behind two chips of the table
    shutil.rmtree(tmp_path / "fresh")
    ingest(tmp_path)
    alone = texts(explore(tmp_path, sweep="all"))
    assert "not confirmed on fresh seeds yet" in alone and "confirmed on 3" not in alone

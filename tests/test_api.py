"""`explorer.load` in a notebook: the lines of its docstring run, and every answer is a table, a chart or a sentence."""

import inspect
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient

import explorer
from explorer import api
from explorer.api import UNITS, Runs, load
from explorer.errors import AnalysisError, ExplorerError, StoreError
from explorer.store.export import export
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.views.explorer.checked_view import view_by_fields
from explorer.views.explorer.question import from_token
from tests.builders import run_record, write_profile, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recipes, three budgets, three seeds: `fast` needs half the time of the baseline for the same accuracy."""
    directory = tmp_path_factory.mktemp("notebook") / "runs"
    for recipe, step in (("baseline", 0.02), ("fast", 0.01)):
        methods = () if recipe == "baseline" else ("channels_last",)
        for ssr in (0.25, 0.5, 1.0):
            for seed in range(3):
                record = run_record(recipe=recipe, ssr=ssr, seed=seed, methods=methods, full_steps=400)
                accuracy = 0.9 + 0.08 * ssr + 0.002 * seed + 0.0003 * ((seed * 7 + int(8 * ssr) + step * 100) % 3)
                accuracy += 0.002 if recipe == "fast" else 0
                write_run(directory, record, metrics={"accuracy": accuracy, "nll": 1 - accuracy})
        rounds = tuple(step * factor for factor in (0.99, 1.0, 1.01, 1.0, 1.0))
        profiled = run_record(recipe=recipe, methods=methods, full_steps=400)
        write_profile(directory, profiled, seconds=step, rounds=rounds)
    ingest(directory)
    return directory


@pytest.fixture(scope="module")
def loaded(runs: Path) -> Runs:
    return load(runs)


def lines() -> list[str]:
    """Return the lines of code in the docstring of `explorer.api`."""
    (block,) = re.findall(r"\n\n(    import explorer\n.*?)\n\n\S", inspect.getdoc(api) or "", re.DOTALL)
    return [line.partition("#")[0].strip() for line in textwrap.dedent(block).splitlines() if line.strip()]


def test_the_package_shows_its_functions_and_loads_none() -> None:
    assert {"load", "train", "govern"} <= set(dir(explorer))
    assert explorer.load is load
    code = "import sys, explorer; dir(explorer); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "pandas", "duckdb", "altair", "numpy"} & set(loaded)
    assert (Path(explorer.__file__).parent / "py.typed").exists()


def test_the_stub_declares_what_the_package_loads() -> None:
    stub = (Path(explorer.__file__).parent / "__init__.pyi").read_text()
    named = {name: module for module, name in re.findall(r"^from (\S+) import \w+ as (\w+)$", stub, re.MULTILINE)}
    modules = dict.fromkeys(vars(explorer)["_MODULES"], "explorer")
    assert named == vars(explorer)["_LAZY"] | modules


def test_a_frame_has_units_and_is_a_copy(loaded: Runs) -> None:
    assert len(loaded.frame) == 18
    assert set(UNITS) >= set(loaded.frame.attrs["units"]) and "train_seconds" in loaded.frame.attrs["units"]
    loaded.frame["quality"] = 0.0
    assert (loaded.table["quality"] > 0.9).all()
    numeric = {name for name in loaded.table.select_dtypes("float") if loaded.table[name].notna().any()}
    assert numeric <= set(UNITS), "every number with a unit has it documented"


def test_a_comparison_is_a_table(loaded: Runs) -> None:
    made = loaded.sweep("digits").compare()
    (row,) = made.frame.to_dict("records")
    assert row["recipe"] == "fast" and row["claims"] and row["low"] < row["speedup"] < row["high"]
    assert row["speedup"] == pytest.approx(2, rel=0.1)
    assert "<table" in made._repr_html_() and "fast" in repr(made) and "fast" in made.summary
    for target in (0.95, "95%", 95):
        assert loaded.compare(target=target).frame["target"].tolist() == [0.95]
    assert loaded.compare(x="steps").frame["needed"].iloc[0] > 100
    assert loaded.compare(metric="nll").verdicts[0].comparison.setting.metric == "nll"
    assert loaded.compare(baseline="fast").frame["recipe"].tolist() == ["baseline"]


@pytest.mark.slow
def test_a_chart_is_altair_and_saves_without_a_network(loaded: Runs, tmp_path: Path) -> None:
    chart = loaded.chart(target="95%").properties(title="Mine")
    assert chart.to_dict()["title"] == "Mine"
    chart.save(tmp_path / "tradeoff.html")
    page = (tmp_path / "tradeoff.html").read_text()
    assert not re.search(r'(src|href)="?https?:', page) and len(page) > 500_000
    chart.save(tmp_path / "tradeoff.json")
    assert "vega-lite" in json.loads((tmp_path / "tradeoff.json").read_text())["$schema"]
    chart.save(tmp_path / "tradeoff.svg")


def test_curves_are_drawn_and_come_as_a_frame(loaded: Runs) -> None:
    frame = loaded.curve_frame("train_loss")
    assert {"recipe", "seed", "ssr", "step", "seconds", "value"} <= set(frame) and len(frame) > 100
    for options in ({}, {"x": "time", "mean": False}, {"smooth": 0.1, "log": True, "budget": None}):
        assert loaded.curves("train_loss", **options).to_dict()["layer"]


def test_a_question_is_answered_with_evidence(loaded: Runs) -> None:
    found_one = loaded.ask(quality=0.95, max_time="10min")
    assert found_one.recipe == "fast" and found_one.holds and "fast" in found_one.sentence
    assert found_one.frame["recipe"].tolist() == ["fast", "baseline"] and "<table" in found_one._repr_html_()
    assert not loaded.ask(quality=0.999).holds
    ahead = loaded.ask(quality=0.999, forecast=2.0)
    assert not ahead.holds and "Forecast at budget 2" in repr(ahead)
    assert "a law needs 4" in ahead.forecasts["reason"].iloc[0] and loaded.ask(quality=0.999).forecasts.empty


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_export_answers_as_its_runs_do(runs: Path, loaded: Runs, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"results.{ending}"
    export(database(runs), path)
    again = load(path)
    columns = ["recipe", "verdict", "speedup", "low", "high", "p_value", "reach_rate"]
    pd.testing.assert_frame_equal(again.compare().frame[columns], loaded.compare().frame[columns])
    assert again.ask(quality=0.95).sentence == loaded.ask(quality=0.95).sentence
    assert again.chart().to_dict()["layer"]
    for refused in (lambda: again.curves("train_loss"), again.explore, lambda: again.compare(metric="nll")):
        with pytest.raises(StoreError):
            refused()


MISTAKES = {
    "did you mean 'digits'": lambda runs: runs.sweep("digit"),
    "did you mean 'time'": lambda runs: runs.compare(x="tim"),
    "did you mean 'baseline'": lambda runs: runs.compare(baseline="basline"),
    "did you mean 'train_loss'": lambda runs: runs.curves("train_los"),
    "did you mean 'nll'": lambda runs: runs.chart(metric="nl"),
    "found '970'; expected accuracy from 0.00% to 100.00%": lambda runs: runs.compare(target=970),
    "found 'nan'; expected a number such as 0.93": lambda runs: runs.compare(target=float("nan")),
    "confidence: found 95; expected a number from 0.5 to": lambda runs: runs.compare(confidence=95),
    "unknown baseline '3'": lambda runs: runs.compare(baseline=3),
    "unknown sweep '3'": lambda runs: runs.sweep(3),
    "width: found 'wide'; expected a number": lambda runs: runs.chart(width="wide"),
    "smooth: found 7; expected a number from 0 to 1": lambda runs: runs.curves("train_loss", smooth=7),
    "max_cost: found 'cheap'; expected US dollars": lambda runs: runs.ask(max_cost="cheap"),
    "max_inference: found '2'; expected a time": lambda runs: runs.ask(max_inference=2),
    "max_time: found '10 parsecs'; expected a time": lambda runs: runs.ask(max_time="10 parsecs"),
    "deletable: found 'a'": lambda runs: runs.ask(deletable="a"),
    "budget: found 0.3": lambda runs: runs.curves("train_loss", budget=0.3),
    "no run has a known cost": lambda runs: runs.chart(x="cost"),
    "finite number above 0": lambda runs: runs.ask(max_time=-1),
    "unknown field 'metrik'; did you mean 'metric'": lambda runs: runs.explore(metrik="nll"),
    "unknown metric 'nl'; did you mean 'nll'": lambda runs: runs.explore(metric="nl"),
    "unknown sweep 'digts'; did you mean 'digits'": lambda runs: runs.explore(view="digts?x=steps"),
    "unknown recipe 'fats'; did you mean 'fast'": lambda runs: runs.explore(recipes=["fats"]),
    "found '970'; expected accuracy from": lambda runs: runs.explore(target=970),
    "x: cost is not known for these runs": lambda runs: runs.explore(x="cost"),
}


def test_a_view_makes_the_round_trip(runs: Path, loaded: Runs) -> None:
    opened = loaded.sweep("digits").explore(metric="nll", x="steps", recipes=["fast"], target=0.05)
    token = opened._sharing.token.value
    assert {"metric=nll", "x=steps", "target=0.05"} <= set(token.partition("?")[2].split("&"))
    again = loaded.explore(view=token)
    assert again.question == opened.question and again._sharing.token.value == token
    assert from_token(opened._sharing.copy.text) == from_token(token)
    assert view_by_fields(runs, token, {"metric": "accuracy", "target": "95%"}).target == 0.95


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_sentence_with_the_nearest_name(loaded: Runs, words: str) -> None:
    with pytest.raises(ExplorerError, match=re.escape(words)):
        MISTAKES[words](loaded)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"", "cannot be read"),
        ("a.csv", b"a,b\n1,2\n", "no column 'sweep'"),
        ("a.csv", b"\xff\xfe\x00", "cannot be read"),
        ("a.parquet", b"PAR1 no", "cannot be read"),
        ("a.pkl", b"", "expected a directory of runs"),
    ],
)
def test_a_file_that_is_no_export_is_refused(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StoreError, match=words):
        load(tmp_path / name)
    with pytest.raises(StoreError, match="no directory or file"):
        load(tmp_path / "nowhere")


def test_several_sweeps_need_a_choice(runs: Path, loaded: Runs) -> None:
    other = loaded.table.assign(sweep="other")
    both = Runs(directory=runs, table=pd.concat([loaded.table, other], ignore_index=True))
    with pytest.raises(StoreError, match=r"found 2 sweeps.*digits, other"):
        both.compare()
    with pytest.raises(StoreError, match=r"found 2 sweeps.*digits, other"):
        both.curves("train_loss")  # the recipes of one name are two
    assert both.sweeps == ["digits", "other"] and "36 finished runs" in repr(both) and "<table" in both._repr_html_()
    with pytest.raises(AnalysisError):
        loaded.curves("train_loss", x="wall")


def test_the_lines_of_the_readme_run_where_there_are_several_sweeps(
    loaded: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    (block,) = [code for code in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "explorer.load(" in code]
    parts = [loaded.table.assign(sweep=name) for name in ("source", "other")]
    both = Runs(directory=None, table=pd.concat(parts, ignore_index=True))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(explorer, "load", lambda place: both)
    exec(compile(block, "README.md", "exec"), {})
    assert (tmp_path / "tradeoff.html").stat().st_size > 10_000


@pytest.mark.notebook
@pytest.mark.slow
def test_the_lines_of_the_docstring_run_in_a_notebook(runs: Path) -> None:
    cells = [nbformat.v4.new_code_cell(line) for line in lines()]
    assert len(cells) == 8
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(runs.parent)}}).execute()
    kinds = [{kind for output in cell.outputs for kind in output.get("data", {})} for cell in notebook.cells]
    assert "text/html" in kinds[2] and "text/html" in kinds[3] and "text/html" in kinds[6]
    assert "image/svg+xml" in kinds[5] and any("vegalite" in kind for kind in kinds[5])
    assert "application/vnd.jupyter.widget-view+json" in kinds[7]
    assert (runs.parent / "tradeoff.html").exists()

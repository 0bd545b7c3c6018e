"""Controls in the reports of a sweep, in the chart and in the terminal."""

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from explorer.cli.app import app
from explorer.page import html
from explorer.page.html import fragment
from explorer.report.sweep_report import write_sweep_report
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.views.explorer.comparison_tables import CONTROLS, control_blocks, control_rows
from explorer.views.explorer.payments import PAYMENTS
from explorer.views.explorer.scene import build_scene
from explorer.views.explorer.tradeoff import describe, tradeoff
from tests.builders import run_record, write_profile, write_run, write_sweep

SEEDS = (0.001, -0.002, 0.0015)


def around(value: float) -> tuple[float, ...]:
    return tuple(value + each for each in SEEDS)


VANISHES = "its gain vanishes against the control"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`slow` is better than the baseline at each budget, and no better than the baseline given its time; `picky` is
    better than choosing at random."""
    directory = tmp_path_factory.mktemp("controls") / "runs"
    qualities = {
        "baseline": {0.5: around(0.80), 1.0: around(0.85)},
        "slow": {0.5: (0.852, 0.848, 0.8515), 1.0: (0.901, 0.896, 0.9035)},
        "picky": {0.5: around(0.82), 1.0: around(0.87)},
    }
    write_sweep(directory, qualities, step_seconds={"slow": 0.02, "picky": 0.005})
    for seed, quality in enumerate(around(0.90)):
        record = run_record(ssr=2.0, seed=seed)
        record = dataclasses.replace(record, control="rescaled-baseline", control_of=("slow",))
        write_run(directory, record, metrics={"accuracy": quality, "nll": 1.0 - quality})
    for ssr, value in ((0.5, 0.9), (1.0, 0.855)):
        for seed, quality in enumerate((value, value + 0.002, value + 0.001)):
            twin = run_record(recipe="picky-random", methods=("random",), ssr=ssr, seed=seed)
            twin = dataclasses.replace(twin, control="random-subset", control_of=("picky",))
            write_run(directory, twin, metrics={"accuracy": quality, "nll": 1.0 - quality})
            write_profile(directory, twin, seconds=0.005)
    ingest(directory)
    return directory


def made(runs: Path, format: str) -> str:
    write_sweep_report(runs, "digits", runs.parent / "report", format=format)
    return (runs.parent / "report").read_text()


@pytest.mark.slow
def test_the_page_and_the_text_have_the_table_and_the_words(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "svg", lambda picture, width: "<svg ></svg>")
    monkeypatch.setattr(html, "_bundle", lambda: "")  # a drawing takes its time, and is another test's
    page, text = made(runs, "html"), made(runs, "md")
    assert page.count("<h3>Controls</h3>") == text.count("### Controls") == 2  # accuracy and nll
    for words in (VANISHES, "picky is better than picky-random, which chooses as many examples at random"):
        assert words in page.replace("Picky", "picky") and words in text.replace("Picky", "picky")
    assert "baseline for as long" in page
    assert f"| {' | '.join(CONTROLS)} |" in text


def test_a_gain_that_vanishes_is_a_negative_result(runs: Path) -> None:
    negatives = json.loads(made(runs, "json"))["negatives"]
    vanished = [each for each in negatives if each["topic"] == "no better than its control"]
    first = vanished[0]
    assert first["subject"] == "slow" and first["where"].startswith("accuracy on")
    assert "slow is better than baseline at the same budget" in first["words"]
    assert not any(each["subject"] == "picky" and "control" in each["topic"] for each in negatives)


@pytest.mark.slow
def test_a_control_is_not_compared_with_the_baseline_in_the_table_of_recipes(runs: Path) -> None:
    text = made(runs, "md").partition("## nll")[0]
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith(("| picky", "| baseline"))]
    last = {row[0].strip("| "): row[-2] for row in rows if "from" in row[2]}
    assert last["baseline"] == "85.02%" and last["picky"].startswith("not tested at")
    assert last["picky-random"] == "-"


def test_the_numbers_are_there(runs: Path) -> None:
    (accuracy, _) = json.loads(made(runs, "json"))["sections"]
    found = {
        (each["result"]["recipe"], each["result"]["control"], each["result"]["ssr"]): each["result"] | each
        for each in accuracy["controls"]
    }
    slow = found["slow", "rescaled-baseline", 1.0]
    assert (slow["control_ssr"], slow["verdict"], slow["gain_vanishes"]) == (2.0, "cannot tell", True)
    assert slow["seconds"] == slow["control_seconds"] == pytest.approx(1.6)
    assert found["slow", "rescaled-baseline", 0.5]["control_ssr"] == 1.0  # the ladder's own
    assert found["picky", "random-subset", 1.0]["verdict"] == "better"
    assert found["picky", "random-subset", 0.5]["verdict"] == "worse"
    assert [line["label"] for line in accuracy["recipes"]] == ["baseline", "picky", "picky-random", "slow"]
    assert "picky-random" not in {each["result"]["recipe"] for each in accuracy["equal_quality"]}
    assert "picky-random" not in accuracy["answer"]


@pytest.mark.slow
def test_a_twin_is_drawn_as_a_control_and_is_on_no_front(runs: Path) -> None:
    """At half the budget it is the best that there is."""
    results = frames.results(database(runs))
    scene = build_scene(results, payment=PAYMENTS["steps"], baseline="baseline", target=None)
    assert scene is not None
    assert scene.controls == ["picky-random"]
    on_front = scene.means[scene.means["on_front"]]
    assert set(on_front["recipe"]) == {"slow"}
    assert "Controls, dashed: picky-random." in describe(scene)
    assert '"strokeDash": {"condition"' in json.dumps(tradeoff(scene).to_dict())
    plain = build_scene(results[results["control"].isna()], payment=PAYMENTS["steps"], baseline="baseline", target=None)
    assert plain is not None and plain.controls == []
    assert '"strokeDash": {"condition"' not in json.dumps(tradeoff(plain).to_dict())


@pytest.mark.slow
def test_a_sweep_without_controls_says_nothing_of_them(tmp_path: Path) -> None:
    write_sweep(tmp_path, {"baseline": {1.0: (0.8, 0.82)}, "fast": {1.0: (0.9, 0.91)}}, step_seconds={"fast": 0.02})
    ingest(tmp_path)
    assert "Controls" not in made_at(tmp_path)
    assert fragment(*control_blocks(frames.results(database(tmp_path)))) == ""


def made_at(runs: Path) -> str:
    write_sweep_report(runs, "digits", runs / "report.md", format="md")
    return (runs / "report.md").read_text()


def test_the_notebook_gets_the_table_and_the_words(runs: Path) -> None:
    results = frames.results(database(runs))
    found = fragment(*control_blocks(results))
    assert found.count("<tr") == 1 + 6  # slow and picky at two budgets, picky beside two kinds
    assert VANISHES in found
    hostile = fragment(*control_blocks(results.assign(recipe=results["recipe"].replace("slow", "<script>"))))
    assert "<script>" not in hostile and "&lt;script&gt;" in hostile
    assert control_rows([]) == []


def test_the_terminal_tells_controls_from_candidates(runs: Path) -> None:
    done = CliRunner().invoke(app, ["results", "digits", "--rows", "--runs", str(runs)], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "rescaled-baseline" in done.stdout and "random-subset" in done.stdout
    assert "controls of digits:\n" in done.stdout
    assert VANISHES in done.stdout
    short = CliRunner().invoke(app, ["results", "digits", "--runs", str(runs)], env={"COLUMNS": "200"})
    assert short.exit_code == 0 and VANISHES in short.stdout
    assert "random-subset" not in short.stdout and "explorer results digits --rows" in short.stdout

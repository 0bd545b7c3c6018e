"""`explorer results SWEEP --composition`, in this process: the tables, the JSON, and what is refused."""

import json
from pathlib import Path

import pytest

from explorer.cli.verdicts import show_composition
from explorer.errors import ExplorerError
from tests.cli.command import explorer
from tests.composed_sample import TOGETHER, write_composed
from tests.sample import write_sample


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("composed") / "runs"
    write_composed(directory)
    write_sample(directory)
    return directory


@pytest.mark.slow
def test_tables(runs: Path) -> None:
    done = explorer("results", "composed", "--composition", "--runs", runs)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "AMD EPYC 7B13, 1 thread; budget 1"
    assert any(line.split()[:1] == ["fast"] and "1.83x" in line for line in lines)
    assert "Lone: no prediction: unknown was not run on its own." in lines
    assert "average with resize" in done.stdout and "both shorten forward and backward" in done.stdout


def test_json(runs: Path) -> None:
    done = explorer(
        "results", "composed", "--composition", "--metric", "nll", "--budget", "0.5", "--runs", runs, "--json"
    )
    (found,) = json.loads(done.stdout)
    assert (found["sweep"], found["metric"], found["ssr"]) == ("composed", "nll", 0.5)
    fast = next(recipe for recipe in found["recipes"] if recipe["label"] == "fast")
    assert fast["speedup"] * fast["of_predicted_time_value"] == pytest.approx(fast["predicted_speedup"])
    assert fast["of_predicted_time_low"] < fast["of_predicted_time_value"] < fast["of_predicted_time_high"]
    pair = next(pair for pair in found["pairs"] if {pair["first"], pair["second"]} == {"resize", "average"})
    assert pair["quality"]["value"] == pytest.approx(-TOGETHER, abs=0.006) and pair["quality"]["n"] == 3


def test_a_sweep_that_composes_nothing(runs: Path) -> None:
    done = explorer("results", "digits", "--composition", "--runs", runs)
    assert "No recipe combines methods" in done.stdout


@pytest.mark.parametrize(
    ("sweep", "metric", "budget", "words"),
    [
        (None, None, None, "expected its name; known: composed, digits"),
        ("composd", None, None, "did you mean 'composed'"),
        ("composed", "acuracy", None, "did you mean 'accuracy'"),
        ("composed", None, 3.0, "budget: found 3; expected one of 0.5, 1"),
    ],
)
def test_what_is_not_there_is_refused(
    runs: Path, sweep: str | None, metric: str | None, budget: float | None, words: str
) -> None:
    with pytest.raises(ExplorerError, match=words):
        show_composition(runs, sweep, metric=metric, budget=budget)


@pytest.mark.parametrize(
    ("options", "words"), [(("--composition", "--format", "csv"), "as tables"), (("--budget", "1"), "belongs to")]
)
def test_options_that_do_not_fit_together(runs: Path, options: tuple[str, ...], words: str) -> None:
    done = explorer("results", "composed", *options, "--runs", runs)
    assert done.returncode != 0 and words in done.stderr

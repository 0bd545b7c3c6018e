"""The command line as a process: what it prints, where, and its exit status."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from explorer.cli.results import measured
from explorer.errors import StoreError
from explorer.provenance.trust import new_trust
from explorer.run_files import FAST, METRICS, Metric
from explorer.schema import to_json
from explorer.training.run import execute
from explorer.views.sweep.run_notebook import describe
from tests.builders import run_record, write_failure
from tests.cli.command import Done, explorer, refused
from tests.recipes_for_tests import tiny_recipe, tiny_run, write_run

RECIPE = """
task: {dataset: digits, model: {resnet8: {width: 0.5}}}
train: {epochs: 0.2, batch_size: 64, optimizer: {sgd: {lr: 0.1}}}
methods: [label_smoothing]
"""


def test_help_names_every_verb() -> None:
    done = explorer("--help")
    assert done.returncode == 0
    for verb in ("quickstart", "methods", "run", "sweep", "open", "results", "report", "store"):
        assert f"\n  {verb} " in done.stdout


def test_methods_lists_and_describes() -> None:
    listed = json.loads(explorer("methods", "--json").stdout)
    assert "mixup" in {method["name"] for method in listed}
    mixup = json.loads(explorer("methods", "mixup", "--json").stdout)
    assert mixup["parameters"][0]["range"] == ">= 0, <= 100"
    assert mixup["neutral"] == {"alpha": 0.0}
    assert "Zhang" in explorer("methods", "mixup").stdout


def test_an_unknown_method_is_refused_with_the_nearest_name() -> None:
    message = refused("methods", "mixupp")
    assert message.startswith("explorer: unknown method 'mixupp'; did you mean 'mixup'? known: alibi, ")


def test_run_trains_a_recipe_and_repeats_it_bit_for_bit(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(RECIPE)
    first = json.loads(explorer("run", recipe, "--runs", tmp_path / "runs", "--json").stdout)
    assert 0 <= first["metrics"]["accuracy"] <= 1 and not first["trained_already"]
    twice = explorer("run", recipe, "--runs", tmp_path / "runs")
    assert twice.returncode == 0 and "trained already, " in twice.stdout
    directory = Path(first["directory"])
    again = explorer("run", directory / "run.json", "--out", tmp_path / "again")
    assert again.returncode == 0 and "trained already" not in again.stdout
    assert "bit-identical to the record" in again.stdout


def test_run_notices_other_bits(tmp_path: Path) -> None:
    """The control: a record that was changed does not come out again."""
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(RECIPE)
    first = json.loads(explorer("run", recipe, "--runs", tmp_path / "runs", "--json").stdout)
    directory = Path(first["directory"])
    result = json.loads((directory / "result.json").read_text())
    (directory / "result.json").write_text(json.dumps(result | {"state_digest": "0" * 64}))
    again = explorer("run", directory / "run.json", "--out", tmp_path / "again")
    assert again.returncode == 1
    assert "NOT the same bits" in again.stdout


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "metods: []",
            "unknown key 'metods'; did you mean 'methods'?"
            " known: budget, governance, methods, name, seed, start, task, threads",
        ),
        ("seed: -1", "mine.yaml: seed: found int -1: input should be"),
        ("budget: 0.001", "budget 0.001 leaves no step"),
        ("threads: many", "mine.yaml: threads: found str 'many'"),
    ],
)
def test_a_bad_recipe_file_is_refused(line: str, message: str, tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(RECIPE + line + "\n")
    assert message in refused("run", recipe, "--runs", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_absent_files_are_refused(tmp_path: Path) -> None:
    assert "nowhere.yaml" in refused("run", "nowhere.yaml", cwd=tmp_path)
    assert "nowhere.yaml" in refused("sweep", "plan", "nowhere.yaml", cwd=tmp_path)
    assert "there is no directory runs" in refused("results", cwd=tmp_path)
    assert "there is no directory" in refused("store", "ingest", cwd=tmp_path)


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        explorer("--debug", "results", cwd=tmp_path)


def test_results_without_a_finished_run_say_what_there_is(tmp_path: Path) -> None:
    write_failure(tmp_path / "runs", run_record())
    explorer("store", "ingest", "--runs", tmp_path / "runs")
    assert explorer("results", "--runs", tmp_path / "runs").stdout == "no finished runs yet: 1 failed\n"
    assert json.loads(explorer("results", "--runs", tmp_path / "runs", "--json").stdout) == []


def test_results_of_finished_runs(tmp_path: Path) -> None:
    execute(write_run(tmp_path / "runs" / "test", tiny_run(tiny_recipe(epochs=0.2))))
    assert explorer("store", "ingest", "--runs", tmp_path / "runs").returncode == 0
    table = explorer("results", "test", "--runs", tmp_path / "runs")
    assert table.returncode == 0
    assert "tiny" in table.stdout
    lines = explorer("results", "test", "--runs", tmp_path / "runs", "--format", "csv").stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("sweep,run_id,recipe")
    assert "known: test" in refused("results", "nosuch", "--runs", tmp_path / "runs")


def test_the_terminal_shows_a_metric_as_everything_else_does() -> None:
    custom = [Metric(name="f1", unit=unit, higher_is_better=True, format=style) for unit, style in UNITS]
    for metric in (*METRICS.values(), *custom):
        for value in (0.98766, 12345.678, -0.5):
            assert measured(value, metric.unit, metric.format) == metric.show(value)


UNITS = (("fraction", ".3f"), ("1", ""), ("bits", ",.2f"), ("fraction", ".1%"))


@pytest.mark.slow
def test_a_closed_pipe_is_no_error() -> None:
    command = [sys.executable, "-m", "explorer", "methods", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def process(*arguments: str, encoding: str = "utf-8", stdout: int | None = subprocess.PIPE) -> Done:
    """The command line in a process of its own, which has a standard output of its own."""
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "1000"}
    command = [sys.executable, "-m", "explorer", *arguments]
    done = subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, env=environment, encoding="utf-8", check=False
    )
    return Done(returncode=done.returncode, stdout=done.stdout or "", stderr=done.stderr)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.slow
def test_output_to_a_full_disk_is_one_line_and_not_a_success() -> None:
    with Path("/dev/full").open("wb") as full:
        done = process("methods", "--json", stdout=full.fileno())
    assert done.returncode == 1
    assert done.stderr == "explorer: [Errno 28] No space left on device\n"


@pytest.mark.slow
def test_a_terminal_that_knows_ascii_alone_is_no_fault() -> None:
    done = process("methods", encoding="ascii:strict")
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u2500" in done.stdout


def test_a_name_that_the_system_refuses_is_one_line(tmp_path: Path) -> None:
    message = refused("authority", "list", tmp_path / ("n" * 300))
    assert message.endswith("File name too long")


def test_an_error_never_steers_the_terminal(tmp_path: Path) -> None:
    trust = {**to_json(new_trust("lab")), "\x1b[31mred\u202e": 1}
    (tmp_path / "trust.json").write_text(json.dumps(trust))
    message = refused("authority", "list", "trust.json", cwd=tmp_path)
    assert r"\x1b[31mred\u202e: unknown key" in message
    assert message.isprintable()


def test_what_methods_warn_of_shows_in_the_plan_and_in_json(tmp_path: Path) -> None:
    """The control: the same sweep without the method."""
    spec = {"name": "warned", "task": {"dataset": "digits", "model": {"resnet8": {"width": 0.5}}}, "baseline": "plain"}
    spec |= {"train": {"epochs": 0.2, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1}}}, "budgets": [1.0]}
    path = tmp_path / "spec.yaml"
    for methods, warned in ((["weight_standardization"], True), ([], False)):
        path.write_text(json.dumps({**spec, "recipes": {"plain": [], "ws": [*methods, "ema"]}, "seeds": [0]}))
        words = explorer("sweep", "plan", path, "--runs", tmp_path / "runs").stdout
        assert ("warning: recipe ws: weight_standardization: The model has batch normalisation" in words) is warned
        found = json.loads(explorer("sweep", "plan", path, "--runs", tmp_path / "runs", "--json").stdout)
        assert bool(found["warnings"]) is warned
    single = {"task": spec["task"], "train": spec["train"], "methods": ["weight_standardization"], "name": "ws"}
    path.write_text(json.dumps(single))
    done = explorer("run", path, "--runs", tmp_path / "runs")
    assert done.returncode == 0 and "warning: weight_standardization: The model has" in done.stderr


def test_what_the_machine_decides_and_what_a_run_gives_up_is_said(tmp_path: Path) -> None:
    """In plan, run, record and notebook. The control: a precision of the author's, and strict kernels."""
    task = {"dataset": "digits", "model": {"resnet8": {"width": 0.5}}}
    train = {"epochs": 0.2, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1}}}
    sweep = {"name": "sweep", "task": task, "baseline": "plain", "budgets": [1.0], "seeds": [0]}
    path = tmp_path / "spec.yaml"
    for more, given_up in (({"precision": "auto", "deterministic": "fast"}, True), ({"precision": "fp32"}, False)):
        path.write_text(json.dumps({**sweep, "train": train | more, "recipes": {"plain": [], "ema": ["ema"]}}))
        words = explorer("sweep", "plan", path, "--runs", tmp_path / "runs").stdout
        record = json.loads(explorer("sweep", "plan", path, "--runs", tmp_path / "runs", "--json").stdout)
        assert words.count("precision: auto is ") == len(record.get("notes", ())) == given_up
        assert (f"warning: recipe ema: {FAST}" in words) is given_up
        path.write_text(json.dumps({"name": "one", "task": task, "train": train | more}))
        done = explorer("run", path, "--runs", tmp_path / "runs")
        assert done.returncode == 0
        assert (done.stderr.startswith("precision: auto is "), f"warning: {FAST}" in done.stderr) == (
            given_up,
            given_up,
        )
        assert (FAST in done.stdout) is given_up
        (run,) = (tmp_path / "runs" / "single").iterdir()
        assert (FAST in str(describe(run).data)) is given_up
        for words, why in (
            (["replay", run], "has no ledger: "),
            (["delete", "plan", run, "open"], "no governed run: "),
        ):
            message = refused(*words)
            assert (FAST in message) is given_up and why in message
        shutil.rmtree(tmp_path / "runs")


def test_a_plan_says_what_longer_runs_share_and_why_others_do_not(tmp_path: Path) -> None:
    """The control: under a cosine nothing is shared, and one line says so for all recipes."""
    train = {"epochs": 0.5, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1}}, "schedule": "wsd"}
    spec = {"name": "shared", "task": {"dataset": "digits", "model": {"resnet8": {"width": 0.5}}}, "baseline": "plain"}
    spec |= {"train": train, "budgets": [0.5, 1.0, 2.0], "seeds": [0], "recipes": {"plain": [], "averaged": ["ema"]}}
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(spec))
    words = explorer("sweep", "plan", path, "--runs", tmp_path / "runs").stdout
    assert "shared: longer runs begin with the steps of shorter ones: 40 steps to train in place of 50" in words
    alone = "train their first steps themselves"
    assert f"not shared: longer runs of averaged {alone}: the steps of ema depend on the length" in words
    assert words.startswith(
        "shared: does the other recipe reach the accuracy of plain in less time than plain, which is not tuned? ("
    )
    found = json.loads(explorer("sweep", "plan", path, "--runs", tmp_path / "runs", "--json").stdout)
    assert found["unshared"] == {"averaged": "the steps of ema depend on the length"}
    assert list(found["shared"].values()) == [0, 4, 6]
    path.write_text(json.dumps({**spec, "train": {**train, "schedule": "cosine"}}))
    words = explorer("sweep", "plan", path, "--runs", tmp_path / "runs").stdout
    reason = "every step of the schedule 'cosine' depends on the length; the first ones of 'wsd' do not"
    assert f"not shared: longer runs of all recipes {alone}: {reason}" in words
    assert "\nshared:" not in words
    # The baseline is marked, unless its name says it.
    assert "\nplain (baseline)  none" in words
    path.write_text(json.dumps({**spec, "recipes": {"baseline": []}, "baseline": "baseline"}))
    assert "\nbaseline  none" in explorer("sweep", "plan", path, "--runs", tmp_path / "runs").stdout

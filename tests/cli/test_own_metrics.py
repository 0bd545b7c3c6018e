"""Metrics of a task of one's own, through every face: from training to the store, results, ask, reports and charts."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import Metric, run_files, rundir
from explorer.data.digits import Digits
from explorer.data.streams import torch_stream
from explorer.errors import RecipeError, TrainingError
from explorer.run_files import METRICS, ResultRecord, RunRecord
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.store.run_sources import file_digest
from explorer.training.custom import Place, Trained, train
from explorer.views.explorer.answer import answer
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import read_snapshot
from explorer.views.explorer.tradeoff import tradeoff
from tests.builders import run_record, write_run
from tests.cli.command import explorer
from tests.recipes_for_tests import machine_with

DATA = Digits().load(None)
DECLARED = [
    Metric(name="perplexity", higher_is_better=False),
    Metric(name="top-5", unit="fraction", higher_is_better=True, format=".1%"),
    Metric(name="my_f1", unit="fraction", higher_is_better=True, format=".3f"),
]
TRAIN = {"epochs": 0.3, "batch_size": 32, "optimizer": {"sgd": {"lr": 0.1}}}


@dataclass
class Words:
    """Digits, judged by perplexity: the first metric, for which lower is better and which has no unit."""

    declared_metrics: Any = field(default_factory=lambda: list(DECLARED))

    def batch(self, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
        return DATA.train.inputs[numbers].float().div(128).sub(1).flatten(1), DATA.train.labels[numbers]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none")

    def metrics(self, model: nn.Module) -> dict[str, float]:
        outputs, labels = model(DATA.test.inputs.float().div(128).sub(1).flatten(1)), DATA.test.labels
        hits = (outputs.topk(5).indices == labels[:, None]).any(1)
        return {
            "perplexity": float(F.cross_entropy(outputs, labels).exp()),
            "top-5": float(hits.float().mean()),
            "my_f1": float((outputs.argmax(1) == labels).float().mean()),
            "nll": float(F.cross_entropy(outputs, labels)),
        }


def net() -> nn.Module:
    with torch_stream(torch.device("cpu"), 0, "own"):
        return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def trained(
    runs: Path, *, task: Any = None, recipe: str = "baseline", seed: int = 0, lr: float = 0.1, budget: float = 1
) -> Trained:
    settings = TRAIN | {"optimizer": {"sgd": {"lr": lr}}}
    place = Place(runs=runs, sweep="words", recipe=recipe)
    return train(net(), task or Words(), examples=899, train=settings, budget=budget, seed=seed, place=place)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained on a machine that is quiet by its clocks, whatever else it does: times are then known."""
    where = tmp_path_factory.mktemp("own") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("explorer.training.watch.read_machine", machine_with())
        for seed in (0, 1):
            for budget in (0.5, 1.0, 2.0):
                trained(where, seed=seed, budget=budget)
                trained(where, recipe="warm", seed=seed, lr=0.3, budget=budget)
    return where


def test_the_declaration_travels_with_the_run(runs: Path) -> None:
    (path, *_) = sorted((runs / "words").glob("*/run.json"))
    record = run_files.read(RunRecord, path)
    assert list(record.declared) == DECLARED and record.quality == "perplexity"
    assert record.metric("my_f1") == DECLARED[2] and record.metric("nll") == METRICS["nll"]
    assert record.metric("my_f2") is None


def test_every_name_is_in_the_store_and_in_results(runs: Path) -> None:
    done = ingest(runs)
    assert (done.problems, done.undeclared) == ((), ())
    frame = frames.results(done.database, sweep="words")
    assert set(zip(frame["metric"], frame["unit"], frame["higher_is_better"], strict=True)) == {
        ("perplexity", "1", False)
    }
    f1 = frames.results(done.database, sweep="words", metric="my_f1")
    assert set(f1["format"]) == {".3f"} and f1["higher_is_better"].all()
    shown = explorer("results", "words", "--runs", runs)
    assert shown.returncode == 0 and "perplexity" in shown.stdout


def test_ask_says_it_in_the_units_of_the_task(runs: Path) -> None:
    """Lower is better: a limit that is generous holds, and an impossible one does not."""
    ingest(runs)
    generous = explorer("ask", "words", "--quality", "1000", "--runs", runs)
    assert generous.returncode == 0 and "perplexity at most 1000" in generous.stdout
    impossible = explorer("ask", "words", "--quality", "0.5", "--runs", runs)
    assert impossible.returncode != 0 and "perplexity not reached: best " in impossible.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["html", "md", "json"])
def test_reports_show_all_of_them(runs: Path, tmp_path: Path, kind: str) -> None:
    ingest(runs)
    out = tmp_path / f"report.{kind}"
    assert explorer("report", "words", "--runs", runs, "--format", kind, "--out", out).returncode == 0
    shown = out.read_text()
    for name in ("perplexity", "top-5", "my_f1", "nll"):
        assert name in shown.replace("\\_", "_")
    if kind == "json":
        found = {each["metric"]: (each["unit"], each["higher_is_better"]) for each in json.loads(shown)["sections"]}
        assert found["perplexity"] == ("1", False) and found["my_f1"] == ("fraction", True)


@pytest.mark.slow
def test_the_chart_is_labelled_as_declared(runs: Path) -> None:
    ingest(runs)
    for metric, style in (("perplexity", "~g"), ("my_f1", "~g"), ("top-5", "~%")):
        scene = answer(read_snapshot(runs), Question(sweep="words", metric=metric, payment="steps")).scene
        assert scene is not None and scene.kind.name == metric
        drawn = json.dumps(tradeoff(scene, width=400).to_dict())
        assert metric in drawn and style in drawn
        shown = {"perplexity": "23.46", "my_f1": "0.912", "top-5": "91.2%"}[metric]
        assert scene.kind.show({"perplexity": 23.4567}.get(metric, 0.9123)) == shown


def test_an_undeclared_name_is_refused_before_training(tmp_path: Path) -> None:
    undeclared = Words(declared_metrics=[*DECLARED[:2], Metric(name="my_f2", higher_is_better=True)])
    with pytest.raises(RecipeError, match=r"unknown metric 'my_f1'; did you mean 'my_f2'.*declared_metrics = \["):
        trained(tmp_path, task=undeclared)
    assert not list(tmp_path.iterdir())
    assert trained_nowhere(Words(declared_metrics=[]))["my_f1"] > 0  # without a place nothing is compared


def test_a_declared_metric_that_is_not_reported_is_refused_before_training(tmp_path: Path) -> None:
    silent = Words(declared_metrics=[*DECLARED, Metric(name="my_f2", higher_is_better=True)])
    with pytest.raises(TrainingError, match="'nll' without 'my_f2', which is declared"):
        trained(tmp_path, task=silent)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [93.0, -0.1])
def test_a_fraction_that_is_none_is_refused(tmp_path: Path, wrong: float) -> None:
    """Percentages, most often: shown a hundred times too large from then on."""

    @dataclass
    class Percent(Words):
        after: int = 0  # evaluations that are right before the one that is not
        asked: int = 0

        def metrics(self, model: nn.Module) -> dict[str, float]:
            self.asked += 1
            return super().metrics(model) | ({"my_f1": wrong} if self.asked > self.after else {})

    for after in (0, 1):  # before the training, and at its end
        with pytest.raises(TrainingError, match=r"'my_f1': found .*, expected a number from 0 to 1"):
            trained(tmp_path / str(after), task=Percent(after=after))


def trained_nowhere(task: Any) -> dict[str, float]:
    return train(net(), task, examples=899, train=TRAIN).metrics


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (["my_f1"], "expected a list of explorer.Metric"),
        ([*DECLARED, DECLARED[0]], "found 'perplexity' twice"),
        ([Metric(name="two words", higher_is_better=True)], "'two words'.*name: string should match pattern"),
        ([Metric(name="x", format=".3x", higher_is_better=True)], "format: string should match pattern"),
        ([Metric(name="accuracy", unit="1", higher_is_better=True)], "'accuracy' is known already: unit fraction"),
    ],
)
def test_declarations_that_cannot_be_are_refused(declared: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=message):
        trained(tmp_path, task=Words(declared_metrics=declared))


def test_a_quality_that_is_gone_after_training_is_an_error_of_the_run(tmp_path: Path) -> None:
    class Forgets(Words):
        asked = 0

        def metrics(self, model: nn.Module) -> dict[str, float]:
            self.asked += 1
            return super().metrics(model) if self.asked == 1 else {"nll": 1.0}

    with pytest.raises(TrainingError, match="without 'perplexity', which is the quality of the run"):
        trained(tmp_path, task=Forgets())


def test_another_function_in_the_same_place_is_noticed(tmp_path: Path) -> None:
    class Same(Words):
        """A subclass with the same functions."""

    class Other(Words):
        def metrics(self, model: nn.Module) -> dict[str, float]:
            return {**super().metrics(model), "my_f1": 0.5}

    assert trained(tmp_path).trained
    assert not trained(tmp_path, task=Same()).trained
    with pytest.raises(RecipeError, match=r"trained with another function `metrics`.*Place\(recipe='baseline-2'\)"):
        trained(tmp_path, task=Other())


def test_a_metric_that_nobody_declared_damages_nothing(tmp_path: Path) -> None:
    """A run of another writer: the run counts, the number is kept, and a note names it."""
    directory = write_run(tmp_path, run_record())
    write_run(tmp_path, run_record(seed=1))
    result = run_files.read(ResultRecord, directory / rundir.RESULT)
    line = json.dumps({"step": result.steps, "metric": "my_f1", "value": 0.2})
    with (directory / rundir.METRICS).open("a") as file:
        file.write(line + "\n")
    digests = result.files | {rundir.METRICS: file_digest(directory / rundir.METRICS)}
    changed = {**run_files.to_json(result), "metrics": result.metrics | {"my_f1": 0.2}, "files": digests}
    (directory / rundir.RESULT).write_text(json.dumps(changed))
    done = explorer("store", "ingest", "--runs", tmp_path)
    assert (
        done.returncode == 0 and "metrics that its task does not declare are kept and not shown: 'my_f1'" in done.stderr
    )
    assert len(frames.results(database(tmp_path))) == 2
    assert not set(frames.qualities(database(tmp_path))["metric"]) & {"my_f1"}

"""The unit of the training loss: nats, unless the task of the run has declared another."""

from dataclasses import replace
from pathlib import Path

import pytest

from explorer import run_files
from explorer.data.digits import Digits
from explorer.data.tabular import Tabular
from explorer.engine.task import declared_by
from explorer.run_files import METRICS, Metric
from explorer.store.ingest import ingest
from explorer.store.learning_curves import learning_curves
from explorer.store.published import database
from explorer.views.explorer.curves_chart import curves_chart, metric_named
from tests.builders import run_record, write_run

SQUARED = replace(METRICS["train_loss"], unit="squared SD")


def test_tasks_declare_a_loss_that_is_not_in_nats() -> None:
    table = Tabular(path="t.csv", target="price")
    assert declared_by(replace(table, predict="number")) == (SQUARED,)
    # Cross-entropies, of one label or of several, are in nats.
    assert declared_by(table) == declared_by(replace(table, predict="labels")) == declared_by(Digits()) == ()


def test_a_record_decides_over_the_unit_of_its_loss_and_of_nothing_else_of_ours() -> None:
    record = replace(run_record(), declared=(SQUARED, Metric(name="accuracy", higher_is_better=False)))
    assert record.metric("train_loss") == SQUARED
    assert record.metric("accuracy") == METRICS["accuracy"], "accuracy means the same in every run"
    assert run_files.from_json(run_files.RunRecord, run_files.to_json(record), where="run.json") == record


@pytest.mark.parametrize(
    ("declared", "title"), [((False,), "nats"), ((True,), "squared SD"), ((True, False), "train_loss")]
)
def test_curves_have_the_unit_of_their_runs(tmp_path: Path, declared: tuple[bool, ...], title: str) -> None:
    for seed, other in enumerate(declared):
        record = replace(run_record(seed=seed), declared=(SQUARED,) if other else ())
        write_run(tmp_path, record, losses=[2.0, 1.0], metrics={"accuracy": 0.9, "nll": 0.3})
    ingest(tmp_path)
    frame = learning_curves(database(tmp_path), "train_loss", sweep="digits")
    metric = metric_named("train_loss", of=frame)
    assert metric.unit == (title if title != "train_loss" else "1")
    chart = str(curves_chart(frame, metric=metric, mean=False).to_dict())
    assert (f"train_loss ({title})" in chart) == (title != "train_loss")

"""Targets of one's own tables: numbers and lists of labels, guesses, samples, tables in Parquet."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from explorer.data.digits import Digits
from explorer.data.sources import DATASETS
from explorer.data.tabular import Tabular
from explorer.data.targets import Predict, guess
from explorer.errors import DataError, RecipeError
from explorer.recipes.choice import written
from explorer.recipes.recipe import Recipe, build_recipe
from explorer.training.run_plan import check_methods

TRAIN = {"epochs": 1, "batch_size": 4, "optimizer": {"sgd": {"lr": 0.1}}, "schedule": "constant"}
PRICES = [1_000_000 + 250.5 * number for number in range(100)]
LABELS = ["red|round", "red", "", "blue; round", "blue"] * 20


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = (
        f"{n % 13},{n % 5},{price},{labels}\n" for n, (price, labels) in enumerate(zip(PRICES, LABELS, strict=True))
    )
    (tmp_path / "t.csv").write_text("a,b,price,seen\n" + "".join(rows))
    return tmp_path


def recipe(source: Tabular, *methods: str) -> Recipe:
    return build_recipe("r", task={"dataset": written(source), "model": "mlp"}, train=TRAIN, methods=methods, where="r")


def test_a_number_is_scaled_by_the_training_rows(data: Path) -> None:
    source = Tabular(path="t.csv", target="price", predict="number")
    table = source.load(data)
    assert (table.task, table.classes, table.names, len(table.train), len(table.test)) == ("regression", 1, (), 80, 20)
    assert table.train.labels.dtype == torch.float32 and abs(float(table.train.labels.mean())) < 1e-6
    again = torch.cat((table.train.labels, table.test.labels)).double() * table.scale + table.centre
    assert np.allclose(sorted(again.tolist()), PRICES, atol=0.01)
    assert source.aim == "regression" and source.measures[0] == "rmse"


def test_labels_are_read_from_texts_and_from_lists(data: Path) -> None:
    table = Tabular(path="t.csv", target="seen", predict="labels").load(data)
    assert table.task == "multilabel" and table.names == ("blue", "red", "round")
    counts = torch.cat((table.train.labels, table.test.labels)).sum(0).tolist()
    assert counts == [40, 40, 40] and table.train.labels.shape == (len(table.train), 3)
    assert all(split.labels.any(0).all() for split in (table.train, table.test))
    lists = [[part.strip() for part in text.replace(";", "|").split("|") if part] for text in LABELS]
    columns = {"a": [n % 13 for n in range(100)], "b": [n % 5 for n in range(100)], "price": PRICES, "seen": lists}
    pq.write_table(pa.table(columns), data / "t.parquet")
    same = Tabular(path="t.parquet", target="seen", predict="labels").load(data)
    both = torch.cat((same.train.labels, same.test.labels)).sum(0).tolist()
    assert (same.names, both) == (table.names, counts)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5, 1.0, 2.0], "number"),
        ([*range(50)], "number"),
        ([0, 1, 2] * 20, "class"),
        (["a", "b"], "class"),
        (["a|b", "a", "b|a|c", "c"], "labels"),
        (["Well, it works", "No, it does not"], "class"),
        ([["a"], []], "labels"),
        ([True, False], "class"),
        ([], "class"),
    ],
)
def test_a_guess_by_the_values(values: list[object], expected: Predict) -> None:
    assert guess(values) == expected


@pytest.mark.parametrize(
    ("column", "predict", "words"),
    [
        (["1", "x", "2", "3"], "number", "row 2: found x in column .y.: expected a number"),
        (["1", "", "2", "3"], "number", "row 2: found nothing in column 'y': expected a number"),
        (["1", "inf", "2", "3"], "number", "row 2: found inf"),
        (["7"] * 8, "number", "different numbers to predict"),
        (["a"] * 8, "labels", "found 1 different labels in column 'y'"),
        (["1.5", "2.5"] * 4, "labels", "row 1: found 1.5 in column 'y': expected labels"),
    ],
)
def test_targets_that_are_none_are_named_with_their_row(
    tmp_path: Path, column: list[str], predict: Predict, words: str
) -> None:
    rows = "".join(f"{n * 3 % 7},{value}\n" for n, value in enumerate(column))
    (tmp_path / "t.csv").write_text("x,y\n" + rows)
    with pytest.raises(DataError, match=words):
        Tabular(path="t.csv", target="y", predict=predict).load(tmp_path)


def test_a_sample_is_the_same_each_time_and_leaves_the_test_side_whole(data: Path) -> None:
    rows = "".join(f"{n % 17 / 3},{'many' if n % 4 else 'few'}\n" for n in range(160))
    (data / "s.csv").write_text("x,y\n" + rows)
    whole = Tabular(path="s.csv", target="y").load(data)
    part, again = (Tabular(path="s.csv", target="y", examples=20).load(data) for _ in range(2))
    assert len(part.train) == 20 and torch.bincount(part.train.labels).tolist() == [10, 10]
    assert torch.equal(part.train.inputs, again.train.inputs) and torch.equal(part.test.inputs, whole.test.inputs)
    assert not torch.equal(part.train.inputs, whole.train.inputs[:20])  # of a sorted file the first rows are unlike it
    with pytest.raises(DataError, match="found examples: 999, expected 2"):
        Tabular(path="s.csv", target="y", examples=999).load(data)


def test_later_parameters_move_the_digest_only_where_they_are_used() -> None:
    plain = Tabular(path="t.csv", target="y")
    assert written(plain) == {"tabular": {"path": "t.csv", "target": "y", "tag": None, "test": 0.2}}
    assert written(replace(plain, examples=20))["tabular"]["examples"] == 20
    assert recipe(plain).digest != recipe(replace(plain, predict="number")).digest
    assert written(Digits()) == {"digits": {"size": 8, "simulated_classes": 0}}


def test_a_sample_of_every_other_dataset() -> None:
    few = Digits(examples=30, simulated_classes=3).load(None)
    assert torch.bincount(few.train.labels).tolist() == [3] * 10 and len(few.test) == len(Digits().load(None).test)
    assert few.provenance is not None and len(few.provenance.codes) == 30
    assert all(kind.__dataclass_fields__.get("examples") for kind in DATASETS.values())


def test_methods_that_need_classes_refuse_a_number_with_the_reason(data: Path) -> None:
    number = Tabular(path="t.csv", target="price", predict="number")
    for method, source in (
        ("mixup", number),
        ("label_smoothing", Tabular(path="t.csv", target="seen", predict="labels")),
    ):
        made = recipe(source, method)
        check_methods(made, "r", source.load(data), steps=5)
    with pytest.raises(RecipeError, match="label_smoothing: found a number as the target: expected classes"):
        check_methods(recipe(number, "label_smoothing"), "r", number.load(data), steps=5)


@pytest.mark.parametrize(("target", "predict", "classes"), [("price", "number", 4), ("seen", "labels", 3)])
def test_provenance_of_numbers_and_labels(data: Path, target: str, predict: Predict, classes: int) -> None:
    table = Tabular(path="t.csv", target=target, predict=predict).with_classes(data).load(data)
    assert table.provenance is not None and table.provenance.simulated
    assert len(table.provenance.classes) == classes and len(table.provenance.codes) == len(table.train)

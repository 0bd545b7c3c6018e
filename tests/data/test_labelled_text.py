"""Texts with labels: what is read, and that filling rows up changes nothing for models, losses and metrics."""

from pathlib import Path

import pytest
import torch
from torch import nn

from explorer.data.batches import Batches
from explorer.data.labelled_text import PADDING, LabelledText
from explorer.data.sources import of_path
from explorer.data.tabular import Tabular
from explorer.engine.task import TASKS
from explorer.errors import DataError, RecipeError
from explorer.models import text_classifier
from explorer.models.text_classifier import TextClassifier, TextClassifierSpec
from explorer.recipes.choice import written
from explorer.recipes.recipe import Recipe, build_recipe
from explorer.training.run_plan import check_methods, rehearse

TRAIN = {"epochs": 1, "batch_size": 4, "optimizer": {"sgd": {"lr": 0.1}}, "schedule": "constant"}
GOOD, BAD = "It works as it is described in the manual", "It broke"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = "".join(f'"{BAD if n % 2 else GOOD}, number {n}",{1 if n % 2 else 5}\n' for n in range(40))
    (tmp_path / "reviews.csv").write_text("review,label\n" + rows)
    return tmp_path


def source(**parameters: object) -> LabelledText:
    return LabelledText(**{"path": "reviews.csv", "text": "review", "target": "label"} | parameters)  # pyright: ignore


def recipe(dataset: LabelledText, *methods: object, model: str = "text-classifier") -> Recipe:
    small = {model: {"depth": 1, "width": 16, "heads": 2}}
    task = {"dataset": written(dataset), "model": small}
    return build_recipe("r", task=task, train=TRAIN, methods=methods, where="r")


def test_texts_of_different_lengths_are_rows_of_one(data: Path) -> None:
    texts = source(context=64).load(data)
    assert (texts.task, texts.names, texts.example_shape) == ("classification", ("1", "5"), (64,))
    assert len(texts.train) == 32 and torch.bincount(texts.test.labels).tolist() == [4, 4]
    first = bytes(texts.train.inputs[1].tolist())
    assert first.rstrip(b"\0").decode() == f"{BAD}, number 1" or first.startswith(b"It ")
    assert int((texts.train.inputs != PADDING).sum(1).min()) == len(f"{BAD}, number 1")
    (cut,) = source(context=16).load(data).skipped
    assert cut.count == 40 and cut.reason == "the rest of a text after its first 16 bytes"
    assert PADDING == text_classifier.PADDING


def test_filling_changes_no_answer_no_loss_and_no_metric(data: Path) -> None:
    torch.manual_seed(0)
    model = TextClassifierSpec(depth=2, width=16, heads=2).build(example_shape=(192,), classes=2).eval()
    measured = []
    for context in (64, 192):
        dataset = source(context=context).load(data)
        batches = Batches(dataset, batch_size=8, seed=0, device=torch.device("cpu"))
        measured.append(TASKS[dataset.task](classes=2).evaluate(model, batches))
    assert measured[0] == pytest.approx(measured[1], abs=1e-6)


def test_a_model_that_counts_the_filling_is_noticed(data: Path) -> None:
    """The negative control: with the mean over all places the same two lengths give other numbers."""

    class Counting(TextClassifier):
        def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
            return self.head(self.norm(self.blocks(self.dropout(self.embed(tokens_BT)))).mean(1))

    torch.manual_seed(0)
    like = TextClassifierSpec(depth=2, width=16, heads=2).build(example_shape=(192,), classes=2)
    assert isinstance(like, nn.Module)
    like.__class__ = Counting
    measured = []
    for context in (64, 192):
        dataset = source(context=context).load(data)
        batches = Batches(dataset, batch_size=8, seed=0, device=torch.device("cpu"))
        measured.append(TASKS[dataset.task](classes=2).evaluate(like, batches)["nll"])
    assert abs(measured[0] - measured[1]) > 1e-5


def test_it_trains_with_methods_and_refuses_those_that_cut_texts(data: Path) -> None:
    dataset = source(context=64)
    rehearse(recipe(dataset, "alibi", "label_smoothing", "gated_linear_units"), data=data, threads=1)
    for method, words in (
        ("seq_length_warmup", "expected whole rows"),
        ({"alibi": {"train_length": 0.5}}, "whole rows"),
    ):
        with pytest.raises(RecipeError, match=words):
            check_methods(recipe(dataset, method), "r", dataset.load(data), steps=5)
    with pytest.raises(RecipeError, match=r"'gpt' is for language.*expected one of text-classifier"):
        recipe(dataset, model="gpt")


def test_a_table_of_texts_is_recognised_and_another_is_not(data: Path) -> None:
    found = of_path(data / "reviews.csv")
    assert isinstance(found, LabelledText) and (found.text, found.target) == ("review", "label")
    assert found.context == 64, "no more places than the longest text needs, which has 52 bytes"
    (data / "short.csv").write_text("text,label,x\n" + "ab,1,2\ncd,0,3\n" * 9)
    assert isinstance(of_path(data / "short.csv"), Tabular)
    (data / "named.csv").write_text((data / "reviews.csv").read_text().replace("label", "verdict"))
    assert isinstance(of_path(data / "named.csv"), Tabular)
    asked = of_path(data / "named.csv", target="verdict")
    assert isinstance(asked, LabelledText) and (asked.text, asked.target) == ("review", "verdict")


def test_a_row_without_text_is_named(data: Path) -> None:
    (data / "reviews.csv").write_text("review,label\nWell,1\n ,0\n")
    with pytest.raises(DataError, match="row 2: found nothing in column 'review': expected a text"):
        source().load(data)

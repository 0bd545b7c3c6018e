"""A number, or any number of labels, in place of a class: losses and metrics against scikit-learn, and what refuses."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, mean_absolute_error, r2_score
from torch import Tensor, nn

from explorer.data.batches import Batches
from explorer.data.dataset import Split
from explorer.data.tabular import Table
from explorer.data.targets import kind_for
from explorer.engine.task import TASKS, Multilabel, Regression, average_precision

CPU = torch.device("cpu")
ROWS = torch.from_numpy(np.random.default_rng(0).normal(size=(700, 3)))


def batches(labels: Tensor, *, scale: float = 1.0) -> Batches:
    split = Split(inputs=ROWS, labels=labels)
    kind = kind_for(Table, "labels" if labels.ndim == 2 else "number")
    outputs = labels.shape[1] if labels.ndim == 2 else 1
    table = kind(train=split, test=split, classes=outputs, mean=np.zeros(3), std=np.ones(3), scale=scale)
    return Batches(table, batch_size=8, seed=0, device=CPU)


def test_a_number_is_measured_in_its_own_unit() -> None:
    numbers = (ROWS @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)).to(torch.float32)
    model = nn.Linear(3, 1)
    measured = Regression(classes=1).evaluate(model, batches(numbers, scale=10.0))
    predicted = model(ROWS.float()).detach().squeeze(1).double().numpy()
    truth = numbers.double().numpy()
    assert measured["rmse"] == pytest.approx(10 * np.sqrt(np.mean((predicted - truth) ** 2)))
    assert measured["mae"] == pytest.approx(10 * mean_absolute_error(truth, predicted))
    assert measured["r2"] == pytest.approx(r2_score(truth, predicted))
    assert [*measured] == ["rmse", "mae", "r2"]


def test_several_labels_are_measured_as_scikit_learn_does() -> None:
    there = (ROWS @ torch.eye(3, 4, dtype=torch.float64) > 0.4).to(torch.float32)
    there[:, 3] = 0  # a label that no test example has is left out of the mean
    model = nn.Linear(3, 4)
    measured = Multilabel(classes=4).evaluate(model, batches(there))
    logits = model(ROWS.float()).detach().double().numpy()
    expected = average_precision_score(there[:, :3].numpy(), logits[:, :3], average="macro")
    assert measured["mean_average_precision"] == pytest.approx(expected)
    assert measured["micro_f1"] == pytest.approx(f1_score(there.numpy(), logits >= 0, average="micro"))


def test_the_order_of_equal_scores_changes_nothing() -> None:
    scores = torch.tensor([[0.9], [0.5], [0.5], [0.5], [0.1]], dtype=torch.float64)
    truth = torch.tensor([[1], [1], [0], [0], [1]])
    value = float(average_precision(scores, truth)[0])
    assert value == pytest.approx(average_precision_score(truth[:, 0].numpy(), scores[:, 0].numpy()))
    assert value == float(average_precision(scores.flip(0), truth.flip(0))[0])


def test_losses_are_those_of_each_example_and_take_mixed_targets() -> None:
    outputs, numbers = torch.tensor([[1.0], [4.0]]), torch.tensor([0.0, 2.0])
    assert TASKS["regression"](classes=1).loss(outputs, numbers).tolist() == [1.0, 4.0]
    labels = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    several = TASKS["multilabel"](classes=2)
    assert several.loss(torch.zeros(2, 2), labels).tolist() == pytest.approx([np.log(2)] * 2)
    assert several.entropy(torch.tensor([[0.0, 0.0], [9.0, -9.0]])).tolist() == pytest.approx(
        [np.log(2), 0.0012], abs=1e-3
    )

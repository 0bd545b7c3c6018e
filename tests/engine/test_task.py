"""Losses and metrics against numpy in float64."""

import numpy as np
import pytest
import torch
from torch import nn

from explorer.data.batches import Batches
from explorer.data.clutter import Pictures
from explorer.data.dataset import Split
from explorer.data.sequences import Text
from explorer.engine.task import EVALUATION_BATCH, Classification, LanguageModelling, Segmentation, Task
from explorer.errors import RecipeError
from tests.data_for_tests import noise, noise_batches


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def test_the_loss_of_each_example() -> None:
    logits = np.random.default_rng(0).normal(size=(6, 3))
    labels = np.array([0, 2, 1, 1, 0, 2])
    chances = np.random.default_rng(1).dirichlet([1, 1, 1], 6)
    task = Classification(classes=3)
    found = task.loss(torch.from_numpy(logits), torch.from_numpy(labels))
    np.testing.assert_allclose(found, -log_softmax(logits)[np.arange(6), labels], rtol=1e-12)
    found = task.loss(torch.from_numpy(logits), torch.from_numpy(chances))
    np.testing.assert_allclose(found, -(chances * log_softmax(logits)).sum(1), rtol=1e-12)


def test_metrics_over_several_batches_in_evaluation_mode() -> None:
    """More test examples than one batch holds, and a model that answers differently while it trains."""
    dataset = noise(test=2 * EVALUATION_BATCH + 7)
    batches = noise_batches(dataset)
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.Linear(48, 3)).train()
    linear = model[2]
    assert isinstance(linear, nn.Linear)
    found = Classification(classes=3).evaluate(model, batches)
    x = (dataset.test.inputs[:].numpy().astype(np.float64) / 255 - 0.5) / 0.25
    logits = x.reshape(len(x), -1) @ linear.weight.detach().double().numpy().T + linear.bias.detach().double().numpy()
    labels = dataset.test.labels[:].numpy()
    assert found["accuracy"] == (logits.argmax(1) == labels).mean()
    np.testing.assert_allclose(found["nll"], -log_softmax(logits)[np.arange(len(x)), labels].mean(), rtol=1e-5)


def test_the_loss_of_a_sequence_is_its_mean_over_places() -> None:
    logits = np.random.default_rng(0).normal(size=(2, 5, 3))
    labels = np.random.default_rng(1).integers(0, 3, (2, 5))
    expected = -np.take_along_axis(log_softmax(logits.reshape(10, 3)), labels.reshape(10, 1), 1).reshape(2, 5).mean(1)
    task = LanguageModelling(classes=3)
    found = task.loss(torch.from_numpy(logits), torch.from_numpy(labels))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    chances = torch.nn.functional.one_hot(torch.from_numpy(labels), 3).double()
    np.testing.assert_allclose(task.loss(torch.from_numpy(logits), chances), expected, rtol=1e-12)


def test_bits_per_byte_of_a_model_that_knows_nothing() -> None:
    """Uniform over 256 bytes: eight bits each. One that is certain and right: none."""
    blocks = torch.randint(0, 256, (7, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    batches = Batches(Text.of(blocks, blocks), batch_size=2, seed=0, device=torch.device("cpu"))

    class Uniform(nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return torch.zeros(*tokens.shape, 256)

    found = LanguageModelling(classes=256).evaluate(Uniform(), batches)
    assert found == {"bits_per_byte": pytest.approx(8)}
    periodic = torch.tensor([[1, 2, 1, 2, 1]], dtype=torch.uint8)
    batches = Batches(Text.of(periodic, periodic), batch_size=1, seed=0, device=torch.device("cpu"))

    class Periodic(nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(3 - tokens, 256) * 100.0

    assert LanguageModelling(classes=256).evaluate(Periodic(), batches)["bits_per_byte"] < 1e-6


@pytest.mark.parametrize(
    ("task", "shape", "axis"),
    [
        (Classification(classes=3), (4, 3), 1),
        (LanguageModelling(classes=3), (4, 5, 3), 2),
        (Segmentation(classes=3), (4, 3, 2, 5), 1),
    ],
)
def test_the_entropy_of_a_prediction_is_its_mean_over_places(task: Task, shape: tuple[int, ...], axis: int) -> None:
    logits = np.random.default_rng(0).normal(size=shape)
    chances = np.exp(logits) / np.exp(logits).sum(axis, keepdims=True)
    expected = -(chances * np.log(chances)).sum(axis).reshape(4, -1).mean(1)
    np.testing.assert_allclose(task.entropy(torch.from_numpy(logits)), expected, rtol=1e-12)
    assert task.entropy(torch.zeros(shape)).tolist() == pytest.approx([np.log(3)] * 4)


@pytest.mark.parametrize(
    ("truth", "predicted", "dice"),
    [
        ([0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 2, 2], (2 * 2 / (3 + 3) + 2 * 1 / (1 + 2)) / 2),
        ([0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0], 0.0),  # the background is right, and counts for nothing
        ([0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 0, 0], 1.0),  # class 2 is nowhere, and is left out
        ([0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], 1.0),
        ([0, 0, 0, 0, 0, 0], [0, 0, 2, 0, 0, 0], 0.0),
    ],
)
def test_dice_is_the_mean_over_classes_but_the_background(truth: list, predicted: list, dice: float) -> None:
    inputs = torch.tensor(predicted, dtype=torch.uint8).reshape(2, 1, 1, 3)
    split = Split(inputs=inputs, labels=torch.tensor(truth, dtype=torch.uint8).reshape(2, 1, 3))
    scenes = Pictures(train=split, test=split, classes=3, mean=(0.0,), std=(1 / 255,))

    class Told(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(images[:, 0].long(), 3).movedim(-1, 1).float()

    batches = Batches(scenes, batch_size=2, seed=0, device=torch.device("cpu"))
    assert Segmentation(classes=3).evaluate(Told(), batches)["dice"] == pytest.approx(dice)


def test_a_task_without_logits_has_no_entropy() -> None:
    class Distance(Classification):
        axis = None

    with pytest.raises(RecipeError, match="expected a policy that ranks examples by loss"):
        Distance(classes=0).entropy(torch.zeros(2, 1))

"""Label smoothing against torch's own, which works on index labels."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.data.batches import dense
from explorer.engine.state import State
from explorer.engine.task import Classification, LanguageModelling, Multilabel, Segmentation, smooths
from explorer.errors import TrainingError
from explorer.methods.label_smoothing import LabelSmoothing, smooth_labels
from explorer.methods.mixup import MixUp
from tests.loop_for_tests import noise_loop


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("classes", [2, 10])
def test_same_loss_as_cross_entropy_of_index_labels(smoothing: float, classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (7,), generator=generator)
    targets = smooth_labels(dense(labels, classes=classes).double(), smoothing=smoothing)
    ours = F.cross_entropy(logits, targets, reduction="none")
    theirs = F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    np.testing.assert_allclose(targets.sum(1), 1, rtol=1e-12)


def test_the_definition() -> None:
    found = smooth_labels(torch.tensor([[0.0, 1.0], [0.3, 0.7]], dtype=torch.float64), smoothing=0.2)
    np.testing.assert_allclose(found, [[0.1, 0.9], [0.34, 0.66]], rtol=1e-12)


def test_zero_is_the_same_tensor() -> None:
    targets = torch.rand(3, 4)
    assert smooth_labels(targets, smoothing=0.0) is targets


@dataclass(frozen=True, kw_only=True, slots=True)
class Plain(Classification):
    """A task of another package, whose loss takes targets only."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return F.cross_entropy(outputs, targets, reduction="none")


def smoothed(task: Classification, smoothing: float = 0.5) -> tuple[State, list[Tensor]]:
    """A step's state, its loss and gradients."""
    loop = noise_loop([LabelSmoothing(smoothing=smoothing)], task=task)
    loop.prepare_step()
    loss = loop._passes()  # pyright: ignore[reportPrivateUsage]
    return loop.state, [loss, *(p.grad for p in loop.setting.model.parameters() if p.grad is not None)]


def test_metrics_keep_the_true_labels() -> None:
    state, _ = smoothed(Plain(classes=3))
    assert state.batch is not None and state.loss_targets is not None
    assert torch.equal(state.batch.targets, state.batch.labels)
    expected = smooth_labels(dense(state.batch.labels, classes=3), smoothing=0.5)
    assert torch.equal(state.loss_targets, expected)


def test_no_distribution_is_made_where_the_loss_smooths_class_numbers_itself() -> None:
    """Within rounding it is the same step, since the terms of the loss are added in another order."""
    (state, ours), (_, theirs), (_, plain) = (
        smoothed(Classification(classes=3)),
        smoothed(Plain(classes=3)),
        smoothed(Classification(classes=3), smoothing=0.4),
    )
    assert state.loss_targets is not None and state.loss_targets.dtype is torch.int64 and state.smoothing == 0.5
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
    assert not torch.allclose(ours[0], plain[0], rtol=1e-3)


def test_what_is_mixed_is_smoothed_as_a_distribution() -> None:
    loop = noise_loop([LabelSmoothing(), MixUp()])
    loop.step()
    targets = loop.state.loss_targets
    assert targets is not None and targets.shape == (8, 3) and loop.state.smoothing == 0
    assert float(targets.detach().min()) == pytest.approx(0.1 / 3)


@pytest.mark.parametrize("task", [LanguageModelling(classes=7), Segmentation(classes=7)])
def test_tokens_and_pixels_have_the_loss_of_their_distributions(task: LanguageModelling | Segmentation) -> None:
    generator = torch.Generator().manual_seed(0)
    language = isinstance(task, LanguageModelling)
    outputs = torch.randn((2, 5, 7) if language else (2, 7, 3, 4), generator=generator, dtype=torch.float64)
    labels = torch.randint(7, (2, 5) if language else (2, 3, 4), generator=generator)
    labels[0, 0] = -100
    expected = task.loss(outputs, smooth_labels(dense(labels, classes=7).double(), smoothing=0.3))
    torch.testing.assert_close(task.loss(outputs, labels, smoothing=0.3), expected, rtol=1e-6, atol=0)
    assert smooths(type(task)) and not smooths(Plain) and not smooths(Multilabel)


def test_pixels_and_tokens_are_smoothed_each_by_itself() -> None:
    """Any shape of targets: the classes are the last dimension."""
    labels = torch.randint(3, (2, 4, 5), generator=torch.Generator().manual_seed(0))
    found = smooth_labels(dense(labels, classes=3).double(), smoothing=0.3)
    np.testing.assert_allclose(found, 0.7 * np.eye(3)[labels] + 0.1, rtol=1e-12)


def test_what_is_ignored_stays_ignored() -> None:
    """A row of zeros, which is in no loss, gets no share of the uniform distribution; neither does it in part."""
    targets = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.5, 0.0, 0.0]], dtype=torch.float64)
    found = smooth_labels(targets, smoothing=0.4)
    np.testing.assert_allclose(found, [[0] * 4, [0.1, 0.7, 0.1, 0.1], [0.05, 0.35, 0.05, 0.05]], rtol=1e-12)
    assert float(F.cross_entropy(torch.randn(1, 4, dtype=torch.float64), found[:1])) == 0


def test_class_numbers_are_refused_or_given_their_classes() -> None:
    labels = torch.tensor([9, 0, 0, 3])
    for smoothing in (0.1, 0.0):
        with pytest.raises(TrainingError, match=r"torch.int64: expected distributions .* F.one_hot.*classes=K"):
            smooth_labels(labels, smoothing=smoothing)
        expected = smooth_labels(F.one_hot(labels, 10).float(), smoothing=smoothing)
        assert torch.equal(smooth_labels(labels, smoothing=smoothing, classes=10), expected)


def test_a_smoothed_label_that_is_ignored_has_no_loss() -> None:
    outputs, labels = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, -100, 2, -100])
    smooth = smooth_labels(labels, smoothing=0.1, classes=3)
    found = F.cross_entropy(outputs, smooth, reduction="none")
    torch.testing.assert_close(found, F.cross_entropy(outputs, labels, reduction="none", label_smoothing=0.1))

"""A model and a task of one's own, on real digits."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer import rundir
from explorer.data.digits import Digits
from explorer.data.streams import torch_stream
from explorer.errors import DataError, RecipeError, TrainingError
from explorer.training.custom import Place, Trained, train

TRAIN = {"epochs": 0.5, "batch_size": 32, "optimizer": {"sgd": {"lr": 0.1}}}  # 14 steps
DATA = Digits().load(None)


@dataclass
class Rows:
    """Digits as rows of 64 numbers."""

    shape: tuple[int, ...] = (64,)
    reduction: str = "none"

    def batch(self, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
        return self.inputs(DATA.train.inputs[numbers]), DATA.train.labels[numbers]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction=self.reduction)

    def metrics(self, model: nn.Module) -> dict[str, float]:
        right = model(self.inputs(DATA.test.inputs)).argmax(1) == DATA.test.labels
        return {"accuracy": float(right.float().mean())}

    def inputs(self, images: Tensor) -> Tensor:
        return images.float().div(128).sub(1).reshape(len(images), *self.shape)


def rows_net() -> nn.Module:
    with torch_stream(torch.device("cpu"), 0, "own"):
        return nn.Sequential(nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 10))


def image_net() -> nn.Module:
    with torch_stream(torch.device("cpu"), 0, "own"):
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.Flatten(), nn.Linear(16, 10)
        )


def trained(model: nn.Module, methods: Sequence[Any] = (), **options: Any) -> Trained:
    settings = TRAIN | options.pop("settings", {})
    return train(model, options.pop("task", Rows()), examples=899, train=settings, methods=methods, **options)


def bits(model: nn.Module) -> list[Tensor]:
    return list(model.state_dict().values())


def test_it_learns_and_the_same_call_gives_the_same_bits() -> None:
    models = rows_net(), rows_net()
    first, second = (trained(model, ["label_smoothing", "ema", "sam"]) for model in models)
    assert first.metrics["accuracy"] > 0.6
    assert first.steps == 14 and first.directory is None
    assert first.metrics == second.metrics
    assert all(torch.equal(one, other) for one, other in zip(*map(bits, models), strict=True))


def test_it_goes_on_from_the_weights_that_the_model_has() -> None:
    """The control: another start gives another end."""
    model, other = rows_net(), rows_net()
    with torch.no_grad():
        other[0].weight.mul_(1.5)  # pyright: ignore
    trained(model)
    trained(other)
    assert not torch.equal(model[0].weight, other[0].weight)  # pyright: ignore


def test_methods_for_images_change_a_model_of_ones_own() -> None:
    model = image_net()
    assert trained(model, ["blurpool", "mixup"], task=Rows(shape=(1, 8, 8))).metrics["accuracy"] > 0.2
    assert type(model[2]) is not nn.Conv2d  # pyright: ignore


@pytest.mark.parametrize("name", ["schedule_free", "selective_backprop", "swa"])
def test_methods_that_look_at_examples_of_their_own_accord_get_them_from_the_task(name: str) -> None:
    """Statistics of batch normalisation at the averaged weights; scores."""
    plain, model = rows_net(), rows_net()
    settings = {"schedule": "constant"}
    trained(plain, settings=settings)
    assert trained(model, [name], settings=settings).metrics["accuracy"] > 0.5
    assert not torch.equal(bits(model)[0], bits(plain)[0])


def test_in_a_place_it_stands_among_other_runs_and_resumes(tmp_path: Path) -> None:
    whole = rows_net()
    expected = trained(whole, ["ema"])
    place, model = Place(runs=tmp_path, recipe="smooth"), rows_net()
    stopping = StopsAt(9)
    with pytest.raises(KeyboardInterrupt):
        trained(model, ["ema"], task=stopping, place=place)
    (run,) = (tmp_path / "own").iterdir()
    assert not (run / rundir.RESULT).exists() and len(list((run / rundir.CHECKPOINT).glob("*.json"))) == 1
    model = rows_net()
    found = trained(model, ["ema"], place=place)
    assert found.metrics == expected.metrics and found.directory == run
    assert all(torch.equal(one, other) for one, other in zip(bits(model), bits(whole), strict=True))
    assert not (run / rundir.CHECKPOINT).exists()
    again = rows_net()
    assert not trained(again, ["ema"], place=place).trained
    assert all(torch.equal(one, other) for one, other in zip(bits(again), bits(rows_net()), strict=True))


class StopsAt(Rows):
    """Ctrl-C in the middle of a step."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    def batch(self, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return super().batch(numbers)


class Wrong(Rows):
    def batch(self, numbers: np.ndarray) -> Any:
        return DATA.train.labels[:1]


class Unknown(Rows):
    def metrics(self, model: nn.Module) -> dict[str, float]:
        return {"acuracy": 1.0}


def test_what_does_not_serve_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"'blurpool' works on images; `batch` gives torch.float32"):
        trained(rows_net(), ["blurpool"])
    with pytest.raises(RecipeError, match=r"'routing' acts on signed documents: expected explorer.govern"):
        trained(rows_net(), [{"routing": {"policy": "p"}}])
    with pytest.raises(TrainingError, match=r"loss: found \(\), expected one value for each of 32 examples"):
        trained(rows_net(), task=Rows(reduction="mean"))
    with pytest.raises(DataError, match="batch: found Tensor, expected inputs and targets, tensors of 1 rows each"):
        trained(rows_net(), task=Wrong())
    with pytest.raises(RecipeError, match=r"metrics: unknown metric 'acuracy'.*accuracy"):
        trained(rows_net(), task=Unknown(), place=Place(runs=tmp_path))
    with pytest.raises(RecipeError, match=r"found the name '\.\./x'"):
        Place(runs=tmp_path, sweep="../x")
    assert not list(tmp_path.iterdir())


def test_what_does_not_require_gradients_stays_as_it_is_and_so_does_the_requirement() -> None:
    """The control: the other parameters move. Freezing layers for a while does not outlast the training."""
    model = rows_net()
    kept = model.get_parameter("0.weight").requires_grad_(False)
    before, moved = kept.clone(), model.get_parameter("4.weight").clone()
    trained(model, ["layer_freezing", "ema"])
    assert torch.equal(kept, before) and not torch.equal(model.get_parameter("4.weight"), moved)
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["0.weight"]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module.training for module in model.modules())


def test_a_model_that_fails_is_handed_back_in_order() -> None:
    model = rows_net()
    with pytest.raises(TrainingError, match="the loss is nan"):
        trained(model, ["layer_freezing"], task=Losing(scale=float("nan")))
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(module.training for module in model.modules())


def test_the_run_is_named_by_what_is_frozen_and_by_what_the_model_prints_as(tmp_path: Path) -> None:
    frozen, dropping = rows_net(), rows_net()
    frozen.get_parameter("0.weight").requires_grad_(False)
    dropping.get_submodule("3").p = 0.2  # pyright: ignore
    found = [trained(model, place=Place(runs=tmp_path)) for model in (rows_net(), rows_net(), frozen, dropping)]
    assert [each.trained for each in found] == [True, False, True, True]


@dataclass
class Losing(Rows):
    """Losses of other sizes, or of nothing."""

    scale: float = 1.0
    detached: bool = False

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        found = super().loss(outputs, targets) * self.scale
        return found.detach() if self.detached else found


class Random(Rows):
    def batch(self, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
        inputs, labels = super().batch(numbers)
        return inputs + torch.rand(()), labels


class Words(Rows):
    def metrics(self, model: nn.Module) -> Any:
        return {"accuracy": "good"}


class Pair(nn.Linear):
    """Gives a second thing in training."""

    def forward(self, input: Tensor) -> Any:
        found = super().forward(input)
        return (found, 1) if self.training else found


def test_tasks_and_models_that_do_not_keep_their_word_are_told() -> None:
    with pytest.raises(DataError, match="found another example 0 when it was asked for again"):
        trained(rows_net(), task=Random())
    with pytest.raises(TrainingError, match="depend on no parameter that trains"):
        trained(rows_net(), task=Losing(detached=True))
    with pytest.raises(TrainingError, match="metrics: 'accuracy': found str, expected a number"):
        trained(rows_net(), task=Words())
    with pytest.raises(TrainingError, match="the model gives tuple in training, expected a tensor"):
        trained(Pair(64, 10))
    with pytest.raises(RecipeError, match="train: task: found object without a function `batch`"):
        trained(rows_net(), task=object())
    with pytest.raises(RecipeError, match="model Sequential: found no parameter that trains"):
        trained(rows_net().requires_grad_(False))
    with pytest.raises(RecipeError, match="model Flatten: found no parameter that trains"):
        trained(nn.Flatten())


@pytest.mark.parametrize("amount", [{"budget": float("nan")}, {"seed": 1.5}, {"threads": 0}, {"budget": 1e9}])
def test_amounts_are_checked_before_anything_is_asked_of_the_task(amount: dict[str, Any]) -> None:
    (name,) = amount
    with pytest.raises(RecipeError, match=rf"train: {name}: found"):
        trained(rows_net(), task=Wrong(), **amount)


class SomeIgnored(Rows):
    """Every seventh label is one that the loss ignores; `wrong` is the label of one example."""

    def __init__(self, wrong: dict[int, int] | None = None) -> None:
        super().__init__(shape=(1, 8, 8))
        self.wrong = wrong or {}

    def batch(self, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
        inputs, labels = super().batch(numbers)
        labels = torch.where(torch.from_numpy(numbers) % 7 == 0, -100, labels.long())
        for example, label in self.wrong.items():
            labels[torch.from_numpy(numbers) == example] = label
        return inputs, labels


@pytest.mark.parametrize("methods", [[], ["label_smoothing"], ["mixup"], ["cutmix"], ["mixup", "label_smoothing"]])
def test_labels_that_the_loss_ignores_train_with_and_without_methods(methods: list[str]) -> None:
    assert trained(image_net(), methods, task=SomeIgnored()).metrics["accuracy"] > 0.15


@pytest.mark.parametrize("method", ["label_smoothing", "mixup", "cutmix"])
@pytest.mark.parametrize("label", [999, -1])
def test_a_label_that_is_no_class_is_refused_before_training(method: str, label: int) -> None:
    model = image_net()
    before = [tensor.clone() for tensor in bits(model)]
    with pytest.raises(DataError, match=f"{method}: example 823 has label {label}: expected 0 to 9"):
        trained(model, [method], task=SomeIgnored({823: label}))
    assert all(torch.equal(one, other) for one, other in zip(bits(model), before, strict=True))


class PixelNet(nn.Module):
    """A class for each pixel: whether it is dark, or void."""

    def __init__(self) -> None:
        super().__init__()
        with torch_stream(torch.device("cpu"), 0, "pixels"):
            self.conv = nn.Conv2d(1, 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.conv(images)


class Pixels(Rows):
    def __init__(self) -> None:
        super().__init__(shape=(1, 8, 8))

    def batch(self, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
        images = self.inputs(DATA.train.inputs[numbers])
        return images, self.classes(images)

    def classes(self, images: Tensor) -> Tensor:
        classes = (images[:, 0] < -0.5).long()
        classes[:, 0] = -100
        return classes

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        dense = targets.movedim(-1, 1) if targets.is_floating_point() else targets
        return F.cross_entropy(outputs, dense, reduction="none").mean((1, 2))

    def metrics(self, model: nn.Module) -> dict[str, float]:
        images = self.inputs(DATA.test.inputs)
        found, expected = model(images).argmax(1), self.classes(images)
        return {"pixel_accuracy": float((found == expected)[expected != -100].float().mean())}


@pytest.mark.parametrize("methods", [[], ["label_smoothing"], ["mixup"], ["cutmix"]])
def test_the_void_class_of_pixels_is_ignored_by_every_method(methods: list[str]) -> None:
    assert trained(PixelNet(), methods, task=Pixels()).metrics["pixel_accuracy"] > 0.5


def test_what_methods_warn_of_is_logged_and_returned(caplog: pytest.LogCaptureFixture) -> None:
    """As a log line and no Python warning: programs that turn warnings into errors go on."""
    with torch_stream(torch.device("cpu"), 0, "own"):
        convolution = nn.Conv2d(1, 8, 3, stride=2)
        model = nn.Sequential(convolution, nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(72, 10))
    found = trained(model, ["weight_standardization"], task=Rows(shape=(1, 8, 8)))
    assert len(found.warnings) == 1 and found.warnings[0] in caplog.text
    assert found.warnings[0].startswith("weight_standardization: The model has batch normalisation (1 layers)")
    assert trained(image_net(), ["weight_standardization"], task=Rows(shape=(1, 8, 8))).warnings == ()

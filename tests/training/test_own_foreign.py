"""`explorer.train` on models of torch's own attention and recurrence, which give tuples and use what they never call.

Every method trains such a model, or refuses with a reason. None fails with an error of torch.
"""

import contextlib
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import explorer
from explorer.errors import ExplorerError, RecipeError, TrainingError
from explorer.methods import METHODS
from tests.foreign_models import IMAGES, TEXT, EncoderText, Recurrent, ViT

SETTINGS = {"epochs": 2, "batch_size": 6, "optimizer": {"sgd": {"lr": 0.1}}}
TRAIN_A_VIT = {
    "batch_size_warmup", "channels_last", "compile", "cutmix", "cutout", "ema", "gated_linear_units",
    "gradient_clipping", "label_smoothing", "layer_freezing", "mixup", "muon", "random_subset", "sam",
    "selective_backprop", "stochastic_depth", "swa", "weight_standardization",
}  # fmt: skip


class Pictures:
    def batch(self, numbers: Any) -> tuple[Tensor, Tensor]:
        return IMAGES.inputs[numbers].float() / 128 - 1, IMAGES.labels[numbers]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none")

    def metrics(self, model: nn.Module) -> dict[str, float]:
        return {"accuracy": 0.0}


class Words(Pictures):
    def batch(self, numbers: Any) -> tuple[Tensor, Tensor]:
        return TEXT.inputs[numbers].long(), TEXT.labels[numbers].long()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.mT, targets, reduction="none").mean(1)


def trained(model: nn.Module, task: Pictures, *methods: object) -> nn.Module:
    explorer.train(model, task, examples=12, train=SETTINGS, methods=methods)
    return model


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrence_trains(kind: type[nn.LSTM]) -> None:
    torch.manual_seed(0)
    model = Recurrent(kind)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trained(model, Words())
    assert not [name for name, tensor in model.state_dict().items() if torch.equal(tensor, before[name])]


def test_a_frozen_prefix_saves_the_gradients_of_out_proj() -> None:
    """Attention takes `out_proj.weight` without calling `out_proj`: it is a layer all the same, and is frozen."""
    torch.manual_seed(0)
    model, seen = EncoderText(), []
    weight: Any = model.get_parameter("encoder.layers.0.self_attn.out_proj.weight")

    class Watched(Words):
        def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
            seen.append(weight.requires_grad)
            return super().loss(outputs, targets)

    head = model.head.weight.clone()
    trained(model, Watched(), {"layer_freezing": {"start": 0.0, "level": 0.9}})
    assert seen[0] is True and seen[-1] is False  # nothing is frozen in the first step
    assert not torch.equal(model.head.weight, head)


def test_a_size_that_the_model_cannot_take_is_named() -> None:
    with pytest.raises(TrainingError, match=r"inputs of shape \(3, 4, 4\), which progressive_resizing made"):
        trained(ViT(), Pictures(), {"progressive_resizing": {"initial_scale": 0.5}})
    with pytest.raises(TrainingError, match=r"which colout made of examples of shape \(3, 8, 8\)"):
        trained(ViT(), Pictures(), {"colout": {"p_row": 0.4, "p_col": 0.4}})


def test_what_changes_nothing_in_such_a_model_is_refused() -> None:
    with pytest.raises(RecipeError, match="blurpool: found nothing to change in ViT"):
        trained(ViT(), Pictures(), "blurpool")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler
@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_a_vision_transformer_or_says_why_not(name: str) -> None:
    torch.manual_seed(0)
    refused = name not in TRAIN_A_VIT
    with pytest.raises(ExplorerError) if refused else contextlib.nullcontext():
        trained(ViT(), Pictures(), name)

"""Exact exchange, exact return, and one average for a tensor of two names."""

import torch
from torch import nn

from explorer.engine.averages import Held, exchange, model_tensors


class Tied(nn.Module):
    """An embedding whose matrix is the head too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.ones(2), persistent=False)


def test_a_model_is_its_parameters_and_persistent_buffers_each_once() -> None:
    tensors = model_tensors(Tied())
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    assert list(tensors) == ["embed.weight", *(f"norm.{name}" for name in norm)]
    assert not any(tensor.requires_grad for tensor in tensors.values())


def test_exchanging_twice_is_exact() -> None:
    one = {"w": torch.randn(50), "n": torch.tensor(1)}
    other = {"w": torch.randn(50), "n": torch.tensor(2)}
    before = [{k: v.clone() for k, v in tensors.items()} for tensors in (one, other)]
    exchange(one, other)
    assert torch.equal(one["w"], before[1]["w"]) and torch.equal(other["n"], before[0]["n"])
    exchange(one, other)
    for tensors, old in zip((one, other), before, strict=True):
        assert all(torch.equal(tensors[name], old[name]) for name in tensors)


def test_a_tied_tensor_comes_back_from_an_exchange() -> None:
    """With an average for each of its names the second exchange would leave the average in the model."""
    model = Tied()
    average = {name: torch.zeros_like(tensor) for name, tensor in model_tensors(model).items()}
    trained = model.embed.weight.detach().clone()
    exchange(average, model_tensors(model))
    assert not model.head.weight.any()
    exchange(average, model_tensors(model))
    assert torch.equal(model.head.weight, trained) and not average["embed.weight"].any()


def test_what_is_held_is_put_back_exactly() -> None:
    model = Tied()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    held = Held.of(model)
    for tensor in model_tensors(model).values():
        tensor.add_(1)
    held.put_back()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())

"""Layers that torch refuses for the sake of determinism: by name, wherever the operation is."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from explorer.engine.nondeterministic import refused_layer, refused_operation
from explorer.recipes import machine


class Scattered(torch.autograd.Function):
    """The identity; its backward pass scatters by an operation for which torch has no deterministic kernel, on CPUs
    too."""

    @staticmethod
    def forward(ctx: Any, input: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return input.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        places = torch.arange(gradient.numel())
        return torch.zeros(gradient.numel()).put_(places, gradient.flatten()).view_as(gradient)


class Scattering(nn.Module):
    """A pooling layer, say."""

    def forward(self, input: Tensor) -> Tensor:
        return Scattered.apply(input)  # pyright: ignore[reportReturnType]


class Block(nn.Module):
    """Calls the operation itself, between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, input: Tensor) -> Tensor:
        return self.last(Scattered.apply(self.first(input)))


def net(middle: Callable[[], nn.Module]) -> nn.Sequential:
    """The layer in question is within another one, behind one that writes to its input."""
    return nn.Sequential(
        nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Sequential(nn.Identity(), middle()), nn.Linear(6, 2)
    )


@pytest.fixture(autouse=True)
def strict() -> Any:
    with machine.fixed_bits(threads=1, kernels="strict"):
        yield


def failed(model: nn.Module, inputs: Tensor) -> RuntimeError:
    with pytest.raises(RuntimeError) as caught:
        model(inputs).sum().backward()
    return caught.value


@pytest.mark.parametrize("middle", [Scattering, Block])
def test_the_innermost_layer_that_has_the_operation_is_named(middle: type[nn.Module]) -> None:
    model, inputs = net(middle), torch.ones(3, 6)
    assert refused_operation(failed(model, inputs)) == "put_"
    assert refused_layer(model, inputs) == "2.1"
    assert torch.are_deterministic_algorithms_enabled()


def test_a_model_without_one_has_no_such_layer() -> None:
    """The operation may be in the loss. The control: other errors are no refusals."""
    model = net(nn.Identity)
    assert refused_layer(model, torch.ones(3, 6)) is None
    assert refused_operation(failed(model, torch.ones(3, 5))) is None
    with machine.fixed_bits(threads=1, kernels="fast"):
        net(Scattering)(torch.ones(3, 6)).sum().backward()

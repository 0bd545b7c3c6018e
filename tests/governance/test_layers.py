"""The layers of governed models: names, depths, tensors, adapters."""

import pytest
import torch
from torch import Tensor, nn

from explorer.engine.surgery import leaves
from explorer.errors import RecipeError
from explorer.governance.layers import governed_layers
from explorer.governance.session import Session
from explorer.models.gpt import GPT, Size
from tests.governance.governed import SEALED, governed_loop


def test_layers_and_then_their_adapters() -> None:
    """A pattern that fits normalisation too adds nothing to it."""
    found = governed_loop(SEALED).state.resource(Session)
    assert [layer.name for layer in found.layers] == ["0", "1", "3", "7", "0@customer", "3@customer", "7@customer"]
    assert [layer.depth for layer in found.layers[4:]] == [0.0, 2 / 3, 1.0]


def test_a_tied_tensor_belongs_to_the_layer_that_meets_it_first() -> None:
    tokens, head = nn.Embedding(5, 8), nn.Linear(8, 5, bias=False)
    head.weight = tokens.weight
    both = nn.Sequential(tokens, head)
    found = governed_layers(both, leaves(both, torch.zeros(1, 4, dtype=torch.int64)))
    assert [(each.layer.name, each.parameters) for each in found] == [("0", ("0.weight",))]


def test_every_tensor_of_a_transformer_is_in_one_layer() -> None:
    model = GPT(Size(depth=1, width=8, heads=2), dropout=0.0, context=4, tokens=5)
    found = governed_layers(model, leaves(model, torch.zeros(1, 4, dtype=torch.int64)))
    assert [each.layer.name for each in found][:2] == ["embed.tokens", "embed.positions"]
    names = [name for each in found for name in each.parameters]
    assert sorted(names) == sorted(dict(model.named_parameters()))


def test_state_that_no_layer_owns_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3, affine=False), nn.Flatten(), nn.Linear(72, 3))
    with pytest.raises(
        RecipeError, match="1: found num_batches_tracked, running_mean, running_var in a module without"
    ):
        governed_layers(model, leaves(model, torch.zeros(1, 2, 6, 4)))


def test_tensors_outside_of_any_named_module_are_refused() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(48, 3))

        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1) @ self.weight

    with pytest.raises(RecipeError, match="found a layer named ''"):
        governed_layers(Bare(), leaves(Bare(), torch.zeros(1, 48)))

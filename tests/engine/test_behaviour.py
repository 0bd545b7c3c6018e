"""Behaviours of single modules: what stays, and that several of one module all act."""

import copy

import pytest
import torch
from torch import nn

from explorer.engine.behaviour import change_modules, mix_in
from explorer.errors import RecipeError


class Doubled:
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)  # pyright: ignore[reportAttributeAccessIssue]


class Shifted:
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 1 + super().forward(input)  # pyright: ignore[reportAttributeAccessIssue]


def double(module: nn.Module, name: str) -> bool:
    if isinstance(module, Doubled) or not isinstance(module, nn.Linear):
        return False
    mix_in(Doubled, module)
    return True


def test_the_module_stays_what_it_was() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)).eval()
    met: list[str] = []
    model[0].register_forward_hook(lambda *_: met.append("hook"))
    plain, first, names = copy.deepcopy(model), model[0], list(model.state_dict())
    assert change_modules(model, double, method="m", target="linear layers") == ["0", "2"]
    assert model[0] is first and isinstance(first, nn.Linear) and not first.training
    assert list(model.state_dict()) == names
    x = torch.randn(3, 2)
    expected = 2 * nn.functional.linear(torch.relu(2 * plain[0](x)), *plain[2].parameters())
    assert torch.allclose(model(x), expected) and met
    assert torch.equal(copy.deepcopy(model)(x), model(x))


def test_a_shared_module_is_changed_once_and_the_model_may_be_it() -> None:
    layer = nn.Linear(2, 2)
    assert change_modules(nn.Sequential(layer, layer), double, method="m", target="t") == ["0"]
    assert change_modules(nn.Linear(2, 2), double, method="m", target="t") == [""]


def test_several_behaviours_all_act_the_last_one_outermost() -> None:
    module = nn.Identity()
    mix_in(Doubled, module)
    mix_in(Shifted, module)
    assert module(3) == 7
    again = nn.Identity()
    mix_in(Doubled, again)
    mix_in(Shifted, again)
    assert type(again) is type(module), "one class for what behaves alike"
    assert nn.Identity()(3) == 3, "other modules are as they were"


def test_nothing_changed_is_an_error() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    change_modules(model, double, method="m", target="linear layers")
    with pytest.raises(RecipeError, match="m: found nothing to change in Sequential: expected linear layers"):
        change_modules(model, double, method="m", target="linear layers")

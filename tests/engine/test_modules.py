"""Surgery and behaviours: what is replaced or mixed in, and what stays as it was."""

import copy

import pytest
import torch
from torch import nn

from explorer.engine.leaves import leaves
from explorer.engine.modules import change_modules, mix_in, replace_modules
from explorer.errors import RecipeError
from explorer.models.table import MODELS


def to_identity(module: nn.Module, _: str) -> nn.Module | None:
    return nn.Identity() if isinstance(module, nn.ReLU) else None


def test_names_and_modes() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(2, 2), nn.ReLU())).eval()
    assert replace_modules(model, to_identity, method="m", target="rectifiers") == ["0", "1.1"]
    assert not any(isinstance(module, nn.ReLU) for module in model.modules())
    assert not any(module.training for module in model.modules())


def test_a_shared_module_stays_shared() -> None:
    shared = nn.ReLU()
    model = nn.Sequential(shared, nn.Linear(2, 2), shared, nn.Sequential(shared))
    assert replace_modules(model, to_identity, method="m", target="rectifiers") == ["0", "2", "3.0"]
    inner = model[3]
    assert isinstance(inner, nn.Sequential)
    assert model[0] is model[2] is inner[0]


def test_no_match_is_an_error() -> None:
    with pytest.raises(RecipeError, match="m: found nothing to change in Sequential: expected rectifiers"):
        replace_modules(nn.Sequential(nn.Linear(2, 2)), to_identity, method="m", target="rectifiers")


class Odd(nn.Module):
    """A parameter of its own, a layer used twice, a layer never used, execution against registration."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(7, 7)
        self.last = nn.Linear(6, 3)
        self.twice = nn.Conv2d(2, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.twice(self.twice(x)))
        return self.last(x.flatten(1)[:, :6]) * self.gain


def test_leaves_in_order_of_execution_with_their_cost() -> None:
    model = Odd()
    found = leaves(model, torch.zeros(2, 2, 5, 4))
    assert [(leaf.name, leaf.parameters) for leaf in found] == [
        ("twice", ("twice.weight", "twice.bias")),
        ("norm", ("norm.weight", "norm.bias")),
        ("last", ("last.weight", "last.bias")),
        ("gain", ("gain",)),
        ("unused", ("unused.weight", "unused.bias")),  # beside its neighbour in the order of definition
    ]
    filters = 2 * 2 * 9
    assert [leaf.cost for leaf in found] == [20 * (filters + 2), 20 * (2 + 2), 18 + 3, 3, 49 + 7]


def test_the_model_is_left_as_it_was() -> None:
    model = Odd().train()
    model.norm.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    leaves(model, torch.randn(1, 2, 5, 4))
    assert [model.training, model.norm.training, model.last.training] == [True, False, True]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_multiply_adds_of_a_resnet() -> None:
    """ResNet-20 on 32x32 images takes about 41 million multiply-adds (He et al. 2016: 0.041 billion)."""
    found = leaves(MODELS["resnet20"]().build(example_shape=(3, 32, 32), classes=10), torch.zeros(1, 3, 32, 32))
    assert sum(leaf.cost for leaf in found) == pytest.approx(41e6, rel=0.02)
    assert found[0].name == "conv" and found[-1].name == "head"


def test_multiply_adds_of_a_transformer() -> None:
    """For every token twelve width squared in each block, beside gains and biases; looking something up costs none."""
    model = MODELS["gpt"](depth=2, width=128, heads=2).build(example_shape=(16,), classes=256)  # pyright: ignore
    found = {leaf.name: leaf.cost for leaf in leaves(model, torch.zeros(1, 16, dtype=torch.int64))}
    assert found["embed.tokens"] == 0
    blocks = sum(cost for name, cost in found.items() if name.startswith("blocks."))
    assert blocks == pytest.approx(16 * 2 * 12 * 128**2, rel=0.05)


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

"""Sealed regions: absent where they are off, a low-rank map where they are on."""

import copy

import pytest
import torch
from torch import Tensor, nn

from explorer.errors import RecipeError
from explorer.governance.region_modules import Adapter, Sealed, adapter_name, seal, switch_of, switched_on
from explorer.models.resnet import ResNet
from explorer.provenance.regions import SealedRegion
from tests.loop_for_tests import small_net

CUSTOMER = SealedRegion(name="customer", branch="personal/customer", layers=("*",), rank=2)
VALUES = SealedRegion(name="values", branch="open/mit", layers=("7",), rank=3)  # a name that torch's containers keep
INPUT = torch.randn(4, 2, 6, 6, generator=torch.Generator().manual_seed(0))


def sealed_net(*regions: SealedRegion, seed: int = 0) -> tuple[nn.Module, Sealed]:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = small_net("group")
    return model, seal(model, regions or (CUSTOMER, VALUES), seed=seed)


def trained(model: nn.Module) -> nn.Module:
    """The adapters moved away from zero, as training does."""
    for module in model.modules():
        if isinstance(module, Adapter):
            nn.init.constant_(module.up.weight, 0.1)
    return model


def test_the_models_own_parameters_keep_their_names() -> None:
    plain = dict(small_net("group").named_parameters())
    model, sealed = sealed_net()
    added = dict(model.named_parameters()).keys() - plain.keys()
    assert added == {
        f"{name}.{part}.weight"
        for name in ("0.@customer", "3.@customer", "7.@customer", "7.@values")
        for part in ("down", "up")
    }
    assert sealed.parameters == {name: "values" if "values" in name else "customer" for name in added}
    assert adapter_name("0@customer") == "0.@customer"


def test_a_new_adapter_changes_nothing_and_a_trained_one_does() -> None:
    model, _ = sealed_net()
    expected = small_output()
    with switched_on(model, ["customer"]):
        assert torch.equal(model(INPUT), expected)
    trained(model)
    assert torch.equal(model(INPUT), expected)  # off
    with switched_on(model, ["customer"]):
        assert not torch.equal(model(INPUT), expected)
    assert torch.equal(model(INPUT), expected)  # off again


def small_output() -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return small_net("group")(INPUT)


def test_a_linear_adapter_is_the_product_of_its_two_matrices() -> None:
    layer = nn.Sequential(nn.Linear(5, 4)).double()
    seal(layer, [SealedRegion(name="r", branch="open", layers=("0",), rank=2)], seed=0)
    adapter = trained(layer).get_submodule("0.@r")
    assert isinstance(adapter, Adapter)
    rows = torch.randn(3, 5, dtype=torch.float64)
    weight = layer.get_parameter("0.weight") + adapter.up.weight @ adapter.down.weight
    with switched_on(layer, ["r"]):
        torch.testing.assert_close(layer(rows), rows @ weight.T + layer.get_parameter("0.bias"), rtol=0, atol=1e-14)


def test_a_convolutional_adapter_is_a_filter_of_low_rank() -> None:
    layer = nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2)).double()
    seal(layer, [SealedRegion(name="r", branch="open", layers=("0",), rank=2)], seed=0)
    adapter = trained(layer).get_submodule("0.@r")
    assert isinstance(adapter, Adapter)
    images = torch.randn(3, 4, 6, 6, dtype=torch.float64)
    filters = torch.einsum("or,rihw->oihw", adapter.up.weight[:, :, 0, 0], adapter.down.weight)
    expected = layer(images) + nn.functional.conv2d(images, filters, stride=2, padding=1)
    with switched_on(layer, ["r"]):
        torch.testing.assert_close(layer(images), expected, rtol=0, atol=1e-14)


def test_a_region_that_is_off_gets_no_gradient() -> None:
    model, sealed = sealed_net()
    parameters = dict(trained(model).named_parameters())
    with switched_on(model, ["values"]):
        loss = model(INPUT).sum()
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    reached = {name for name, gradient in zip(parameters, gradients, strict=True) if gradient is not None}
    assert {name for name in sealed.parameters if name in reached} == {"7.@values.down.weight", "7.@values.up.weight"}


def test_the_draws_belong_to_the_seed_and_the_name_alone() -> None:
    def down(model: nn.Module) -> Tensor:
        return model.get_parameter("7.@values.down.weight")

    before = torch.get_rng_state()
    both, alone, other = sealed_net()[0], sealed_net(VALUES)[0], sealed_net(VALUES, seed=1)[0]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(down(both), down(alone)) and not torch.equal(down(both), down(other))


def test_a_copy_has_a_switch_of_its_own() -> None:
    model = trained(sealed_net()[0])
    twin = copy.deepcopy(model)
    expected = model(INPUT)
    with switched_on(model, ["customer"]):
        assert torch.equal(twin(INPUT), expected)
    with switched_on(twin, ["customer"]):
        assert not torch.equal(twin(INPUT), expected)


def test_bf16_autocast_runs_through_adapters() -> None:
    model = trained(sealed_net()[0])
    with switched_on(model, ["customer"]), torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(INPUT).dtype == torch.bfloat16


def test_adapters_of_a_residual_network() -> None:
    model = ResNet(depth=8, width=0.5, norm="batch", channels=1, classes=10)
    region = SealedRegion(name="r", branch="open", layers=("stages.2.*",), rank=4)
    sealed = seal(model, [region], seed=0)
    adapted = {name.split(".@")[0] for name in sealed.parameters}
    assert adapted == {"stages.2.0.conv1", "stages.2.0.conv2", "stages.2.0.shortcut.0"}
    with switched_on(trained(model), ["r"]):
        assert model(torch.randn(2, 1, 8, 8)).shape == (2, 10)


# Modules with a path around them


class Beside(nn.Module):
    """A shared path, and one that belongs to a class."""

    def __init__(self, side: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.side, self.head = nn.Linear(3, 3), side or nn.Sequential(nn.Linear(3, 3)), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        return self.head(x + self.side(x))


SIDE = SealedRegion(name="news", branch="open/mit", module="side")
ROWS = torch.ones(2, 3)


def test_a_module_that_is_off_is_not_run() -> None:
    model = Beside()
    whole, names = model(ROWS), list(dict(model.named_parameters()))
    sealed = seal(model, [SIDE], seed=0)
    assert list(dict(model.named_parameters())) == names
    assert sealed.parameters == {"side.0.weight": "news", "side.0.bias": "news"}
    assert torch.equal(model(ROWS), whole)  # new: a pass meets all of the model
    sealed.switch.on = frozenset()
    ran = []
    model.side.get_submodule("0").register_forward_hook(lambda *_: ran.append(1))
    assert torch.equal(model(ROWS), model.head(model.body(ROWS))) and not ran
    with switched_on(model, ["news"]):
        assert torch.equal(model(ROWS), whole) and ran
    assert copy.deepcopy(model)(ROWS).shape == (2, 2)


def test_a_module_of_another_shape_is_refused() -> None:
    model = Beside(side=nn.Linear(3, 1))
    seal(model, [SIDE], seed=0)
    with pytest.raises(RecipeError, match=r"'news': its module turns \(2, 3\) into \(2, 1\); expected the shape"):
        model(ROWS)


def test_no_adapter_in_a_module_that_its_owner_never_enters() -> None:
    model = Beside()
    sealed = seal(model, [SIDE, CUSTOMER], seed=0)
    assert {name.split(".@")[0] for name, region in sealed.parameters.items() if region == "customer"} == {
        "body",
        "head",
    }


# Refusals


@pytest.mark.parametrize(
    ("region", "message"),
    [
        (SealedRegion(name="r", branch="open", layers=("bdy",), rank=2), "'r': bdy: fits none of the model's linear l"),
        (SealedRegion(name="r", branch="open", module="sied"), "'r': unknown module 'sied'; did you mean 'side'"),
        (SealedRegion(name="shared", branch="open", module="side"), "'shared': the name of what all classes share"),
    ],
)
def test_a_region_that_cannot_be_is_refused(region: SealedRegion, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        seal(Beside(), [region], seed=0)


def test_switching_on_what_is_not_there_is_refused() -> None:
    model, _ = sealed_net()
    with (
        pytest.raises(RecipeError, match="unknown sealed region 'custmer'; did you mean 'customer'"),
        switched_on(model, ["custmer"]),
    ):
        pass
    assert switch_of(small_net()) is None
    with pytest.raises(RecipeError, match="known: none"), switched_on(small_net(), ["customer"]):
        pass
    with switched_on(small_net(), []):
        pass

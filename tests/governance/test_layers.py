"""The layers of governed models: names, depths, tensors, adapters."""

from collections import OrderedDict

import pytest
import torch
from torch import Tensor, nn

from explorer.engine.leaves import leaves, leaves_met
from explorer.errors import RecipeError
from explorer.governance.layers import governed_layers
from explorer.governance.routing import Router
from explorer.governance.shared_state import Session
from explorer.models.gpt import GPT, Size
from explorer.provenance.policy import Rule
from explorer.provenance.regions import Layer, SealedRegion
from explorer.provenance.routing_weights import weight
from tests.governance.governed import ADMIT_ALL, SEALED, bits, governed_loop, steps, typing
from tests.provenance.drafts_for_tests import routing


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


def test_statistics_without_gain_and_bias_are_a_layer_of_their_own() -> None:
    """A policy can name them; what never changes, such as a mask, belongs to no layer and is guarded."""

    class Masked(nn.Module):
        mask: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.ones(3, 6, 4))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.mask

    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3, affine=False), Masked(), nn.Flatten(), nn.Linear(72, 3))
    found = governed_layers(model, leaves(model, torch.zeros(2, 2, 6, 4)))
    assert [each.layer.name for each in found] == ["0", "1", "4"]
    assert found[1].parameters == () and found[1].buffers == (
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    )


def test_tensors_of_the_model_itself_are_layers_with_their_names() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(48, 3))
            self.register_buffer("seen", torch.zeros(48))

        def forward(self, x: Tensor) -> Tensor:
            self.seen += 1
            return x.flatten(1) @ self.weight

    found = governed_layers(Bare(), leaves(Bare(), torch.zeros(2, 48)))
    assert [(each.layer.name, each.parameters, each.buffers) for each in found] == [
        ("seen", (), ("seen",)),
        ("weight", ("weight",), ()),
    ]


def test_names_that_no_policy_can_write_are_refused() -> None:
    odd = nn.ModuleDict({"ein Kopf": nn.Linear(4, 3)})
    model = nn.Sequential(nn.Linear(4, 4), odd)
    with pytest.raises(RecipeError, match=r"found a layer named '1\.ein Kopf', with 1\.ein Kopf\.weight"):
        governed_layers(model, leaves_met(model, lambda: odd["ein Kopf"](model[0](torch.zeros(2, 4))), rows=2))


def test_a_parameter_in_no_layer_is_refused_and_named() -> None:
    """The control for all that follows: a discovery that misses an expert does not go unseen."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    found = leaves(model, torch.zeros(2, 4))
    with pytest.raises(RecipeError, match=r"parameter 1\.weight: found in no layer"):
        governed_layers(model, found[:1])


def test_a_tensor_in_a_sealed_region_and_outside_of_it_is_refused() -> None:
    side, head = nn.Linear(4, 4), nn.Linear(4, 4)
    head.weight = side.weight
    model = nn.Sequential(side, head)
    region = SealedRegion(name="news", branch="licensed/news", module="1")
    with pytest.raises(RecipeError, match="0, 1: names of one layer, and not all in one sealed region"):
        governed_layers(model, leaves(model, torch.zeros(2, 4)), (region,))


# Rules that do not fit the model


def refused(*rules: Rule, model: nn.Module | None = None) -> str:
    with pytest.raises(RecipeError) as error:
        governed_loop(routing(*rules), model=model)
    return str(error.value)


def denying(*layers: str, depth: tuple[float, float] | None = None) -> Rule:
    return Rule(classes=("open/bsd",), layers=layers or None, depth=depth, weight=0.0)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            denying("stem"),
            "rules[0].layers[0]: 'stem' fits none of the 4 layers; the model has 0 (0), 1 (0.333",
        ),
        (denying("0", "8*"), "rules[0].layers[1]: '8*' fits none of the 4 layers"),
        (denying("00"), "rules[0].layers[0]: '00' fits none of the 4 layers; nearest: 0;"),
        (
            denying(depth=(0.4, 0.6)),
            "rules[0]: no layer at a depth in [0.4, 0.6); the model has 0 (0), 1 (0.333), 7",
        ),
        (denying("7", depth=(0.0, 0.5)), "rules[0]: 7: no layer at a depth in [0, 0.5); the model has"),
    ],
)
def test_a_rule_that_fits_no_layer_stops_the_run_at_its_start(rule: Rule, message: str) -> None:
    assert message in refused(rule, ADMIT_ALL)
    assert message in refused(ADMIT_ALL, rule).replace("rules[1]", "rules[0]")  # wherever it is, and whatever it weighs


def test_the_nearest_names_are_shown() -> None:
    model = nn.Sequential(OrderedDict(blocks=nn.Sequential(nn.Flatten(), nn.Linear(48, 8)), head=nn.Linear(8, 3)))
    assert "'block.*' fits none of the 2 layers; nearest: blocks.1" in refused(denying("block.*"), model=model)


def test_a_module_and_all_that_is_in_it() -> None:
    """`x` with `x.*` is one way to say it: one of the two has to fit."""
    governed_loop(routing(denying("0", "0.*"), ADMIT_ALL))


def test_a_rule_for_sealed_layers_alone_is_refused() -> None:
    """The region decides before any rule is looked at, so the rule would deny nothing."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 48), nn.Linear(48, 3))
    region = SealedRegion(name="own", branch="personal/customer", module="1")
    with pytest.raises(RecipeError, match=r"rules\[0\]: every layer that it fits is in a sealed region.*: 1"):
        governed_loop(routing(denying("1"), ADMIT_ALL, sealed=(region,)), model=model)


def test_classes_without_examples_are_no_fault() -> None:
    """A policy is written for a taxonomy, and a run has some of its classes: here none of `personal`."""
    governed_loop(routing(Rule(classes=("personal",), weight=0.0), ADMIT_ALL), typing=typing(classes=("open/mit",)))


# Tensors with several names


class Twice(nn.Module):
    """One module under two names, and a head that is tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(48, 3, bias=False)
        self.first = nn.Linear(48, 48)
        self.body = self.first
        self.head = nn.Linear(48, 3, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.head(self.body(self.first(x)).relu()) + self.embed(x)


@pytest.mark.parametrize(
    ("layer", "tensors"), [("body", {"first.weight", "first.bias"}), ("first", {"first.weight", "first.bias"})]
)
@pytest.mark.parametrize("named", ["deny", "attenuate"])
def test_a_rule_acts_under_every_name(layer: str, tensors: set[str], named: str) -> None:
    rule = Rule(classes=("open/bsd",), layers=(layer,), weight=0.0 if named == "deny" else 0.5)
    loop = governed_loop(routing(rule, ADMIT_ALL), model=Twice())
    grant = loop.state.resource(Router).at(0.0, frozenset()).of["open/bsd"]
    everything = {"embed.weight", "first.weight", "first.bias"}
    assert grant.parameters == (everything - tensors if named == "deny" else everything)
    assert grant.weights == ({} if named == "deny" else dict.fromkeys(tensors, 0.5))


def test_a_denial_of_the_tied_head_holds_for_the_embedding() -> None:
    """First use is the head's: the layer is `head`, and `embed` another name of it. Bits, over several steps."""
    for name in ("head", "embed"):
        rule = Rule(classes=("*",), layers=(name,), weight=0.0)
        loop = governed_loop(routing(rule, ADMIT_ALL), model=Twice())
        assert [(leaf.name, leaf.also) for leaf in loop.state.layers] == [("first", ("body",)), ("head", ("embed",))]
        before = {name: tensor.clone() for name, tensor in loop.setting.model.state_dict().items()}
        steps(loop, 3)
        after = loop.setting.model.state_dict()
        still = {name for name, tensor in after.items() if bits(tensor) == bits(before[name])}
        assert still == {"embed.weight", "head.weight"}


def test_the_strictest_name_decides_also_where_no_rule_speaks_of_it() -> None:
    """Default deny holds for every name: who admits a tensor admits it under all of its names."""
    tied = Layer("embed", 0.0, ("head",))
    alone = routing(Rule(classes=("*",), layers=("embed",), weight=1.0))
    both = routing(
        Rule(classes=("*",), layers=("embed",), weight=1.0), Rule(classes=("*",), layers=("head",), weight=0.25)
    )
    assert weight(alone, class_="open/mit", progress=0.0, layer=tied).weight == 0.0
    assert weight(both, class_="open/mit", progress=0.0, layer=tied).weight == 0.25

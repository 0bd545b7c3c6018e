"""The sweep on deletability: its policies are its recipes', fit the model, and keep the class where they say."""

from pathlib import Path

import pytest
import torch
from torch import nn

from explorer.data.distributions import PATHS
from explorer.engine.leaves import leaves
from explorer.governance.layers import governed_layers
from explorer.governance.region_modules import seal
from explorer.models.gpt import AnySpec
from explorer.provenance.policy import RoutingPolicy, read_policy
from explorer.provenance.routing_weights import Admissions, bind
from explorer.provenance.taxonomy import read_taxonomy
from explorer.sweep.spec import load_spec
from explorer.yaml_document import read_document

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CLASS = "open/permissive/bsd"
NAMES = ("open-to-all", "late-bsd", "sealed-bsd")


def policy(name: str) -> RoutingPolicy:
    return read_policy(read_document(NOTEBOOKS / "policies" / f"{name}.policy.yaml"))


def tiny() -> nn.Module:
    """The model of the sweep, narrower."""
    return AnySpec(depth=2, width=8, heads=1).build(example_shape=(16,), classes=256)


def admitted(name: str, progress: float) -> dict[str, set[str]]:
    """The layers that each class may train under a policy, adapters by their region's name."""
    taxonomy = read_taxonomy(read_document(NOTEBOOKS / "policies" / "licences.taxonomy.yaml"))
    model, routing = tiny(), bind(policy(name), taxonomy, where=name)
    if routing.policy.sealed:
        seal(model, routing.policy.sealed, seed=0)
    found = leaves(model, torch.zeros(1, 16, dtype=torch.int64))
    layers = [each.layer for each in governed_layers(model, found, routing.policy.sealed)]
    table = Admissions(routing, classes=PATHS, layers=layers).at(progress, frozenset())
    return {path: {layer for layer, weight in table.row(path).items() if weight} for path in PATHS}


def test_the_recipes_are_named_for_their_policies() -> None:
    spec = load_spec(NOTEBOOKS / "sweeps" / "deletability.yaml")
    assert [recipe.name for recipe in spec.recipes] == [*NAMES] and spec.baseline == NAMES[0]
    routed = [next(method for method in recipe.methods if method.name == "routing") for recipe in spec.recipes]
    assert [getattr(method, "policy", None) for method in routed] == [*NAMES] == [policy(name).name for name in NAMES]


def test_open_to_all_is_open_and_late_is_so_at_the_end() -> None:
    everything = admitted("open-to-all", 0.0)
    assert len({frozenset(layers) for layers in everything.values()}) == 1 and "embed.tokens" in everything[CLASS]
    before, after = admitted("late-bsd", 0.74), admitted("late-bsd", 0.75)
    assert before[CLASS] == set() and after == everything
    assert {path: layers for path, layers in before.items() if path != CLASS} == {
        path: layers for path, layers in everything.items() if path != CLASS
    }


@pytest.mark.parametrize("progress", [0.0, 0.99])
def test_the_sealed_class_has_adapters_and_nothing_else(progress: float) -> None:
    found = admitted("sealed-bsd", progress)
    inner = [f"blocks.{block}.{part}" for block in (0, 1) for part in ("attention.qkv", "attention.out")]
    inner += [f"blocks.{block}.mlp.{part}" for block in (0, 1) for part in ("up", "down")]
    assert found[CLASS] == {f"{layer}@bsd" for layer in inner}
    assert all("@" not in layer for path, layers in found.items() if path != CLASS for layer in layers)


def test_the_example_of_a_sealed_region_fits_the_models_that_there_are() -> None:
    (customer, _) = policy("sealed").sealed
    model = tiny()
    sealed = seal(model, [customer], seed=0)
    assert {name.partition(".@")[0] for name in sealed.parameters} == {
        f"blocks.{block}.attention.{part}" for block in (0, 1) for part in ("qkv", "out")
    }

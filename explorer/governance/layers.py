"""The layers of a governed model: what the layers that a policy speaks of are made of, adapters included."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from explorer.engine.surgery import Leaf
from explorer.errors import RecipeError
from explorer.governance.sealed import adapter_name
from explorer.provenance.layers import NAME, Layer, depths_of
from explorer.provenance.sealed import SealedRegion, with_adapters


@dataclass(frozen=True, kw_only=True, slots=True)
class GovernedLayer:
    """A layer as a policy sees it, and its tensors in the model, by name."""

    layer: Layer
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]


def governed_layers(
    model: nn.Module, leaves: Sequence[Leaf], regions: Sequence[SealedRegion] = ()
) -> tuple[GovernedLayer, ...]:
    """The model's layers in order of execution, and after them the adapters that are in it.

    A parameter belongs to one layer, the first that has it, and is governed there in all its uses; a module that has
    nothing of its own, such as a head tied to the embedding, is no layer.

    Raises `RecipeError` for what no policy could name: tensors in the model itself, and state in a module without
    parameters.
    """
    _check(model, leaves)
    names = {id(parameter): name for name, parameter in model.named_parameters()}  # shared ones once
    shared = depths_of([leaf.name for leaf in leaves])
    found = []
    for layer, leaf in zip(shared, leaves, strict=True):
        own = tuple(filter(None, (names.pop(id(each), None) for each in leaf.module.parameters(recurse=False))))
        if own or leaf.buffers:
            found.append(GovernedLayer(layer=layer, parameters=own, buffers=leaf.buffers))
    modules = dict(model.named_modules())
    for layer in with_adapters(regions, shared)[len(shared) :]:
        name = adapter_name(layer.name)
        if name in modules:  # a region's patterns may fit layers that take none
            parameters = tuple(f"{name}.{own}" for own, _ in modules[name].named_parameters())
            found.append(GovernedLayer(layer=layer, parameters=parameters, buffers=()))
    return tuple(found)


def _check(model: nn.Module, leaves: Sequence[Leaf]) -> None:
    for leaf in leaves:
        if not re.fullmatch(NAME, leaf.name):
            raise RecipeError(
                f"found a layer named {leaf.name!r}: policies name layers by their modules, such as layer3.0.conv2;"
                " expected parameters in named modules only"
            )
    for name, module in model.named_modules():
        state = module._buffers.keys() - module._non_persistent_buffers_set
        if state and not any(True for _ in module.parameters(recurse=False)):
            raise RecipeError(
                f"{name}: found {', '.join(sorted(state))} in a module without parameters: no policy can govern what no"
                " layer owns; expected normalisation with gain and bias, or without running statistics"
            )

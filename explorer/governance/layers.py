"""The layers of a governed model: the tensors of each layer that a policy can name, including adapters."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from explorer.engine.leaves import Beside, Leaf
from explorer.entries.kinds import Shared
from explorer.errors import RecipeError
from explorer.governance.region_modules import adapter_name
from explorer.provenance.regions import MAX_NAME, NAME, Layer, SealedRegion, depths_of, region_of, with_adapters


@dataclass(frozen=True, kw_only=True, slots=True)
class GovernedLayer:
    """Layer as a policy sees it, with the names of its tensors in the model."""

    layer: Layer
    parameters: tuple[str, ...]
    buffers: tuple[str, ...]


def governed_layers(
    model: nn.Module, leaves: Sequence[Leaf], regions: Sequence[SealedRegion] = ()
) -> tuple[GovernedLayer, ...]:
    """Return the model's layers in the order of first use, and after them the adapters that are in it.

    A parameter belongs to one layer, the first that uses it, and is governed there in all its uses, by the rules for
    all its names; a module without tensors of its own, such as a head tied to the embedding, is no layer. Buffers that
    belong to no layer are constant: they are restored after every pass.

    Raises `RecipeError` for a parameter that is in no layer, for names that no policy could write, and for a tensor
    that is both inside and outside of a sealed region.
    """
    _check(model, leaves, regions)
    shared = depths_of([leaf.name for leaf in leaves], {leaf.name: leaf.also for leaf in leaves})
    layers = [
        GovernedLayer(layer=layer, parameters=leaf.parameters, buffers=leaf.buffers)
        for layer, leaf in zip(shared, leaves, strict=True)
    ]
    modules = dict(model.named_modules())
    for layer in with_adapters(regions, shared)[len(shared) :]:
        name = adapter_name(layer.name)
        # A region's patterns may match layers that take no adapter, such as normalisation.
        if name in modules:
            parameters = tuple(f"{name}.{own}" for own, _ in modules[name].named_parameters())
            layers.append(GovernedLayer(layer=layer, parameters=parameters, buffers=()))
    _check_adapters(modules, {name for layer in layers for name in layer.parameters}, regions)
    return tuple(layers)


def shared_names(layers: Iterable[Layer]) -> tuple[Shared, ...]:
    """Return the layers that have several names, as the ledger records them."""
    return tuple(Shared(layer=layer.name, also=layer.also) for layer in layers if layer.also)


def _check(model: nn.Module, leaves: Sequence[Leaf], regions: Sequence[SealedRegion]) -> None:
    for leaf in leaves:
        for name in (leaf.name, *leaf.also):
            if len(name) > MAX_NAME or not re.fullmatch(NAME, name):
                raise RecipeError(
                    f"found a layer named {name!r:.320}, with {', '.join((*leaf.parameters, *leaf.buffers)[:3])}:"
                    f" policies name layers by their modules, such as layer3.0.conv2, in at most {MAX_NAME} letters,"
                    " digits, '_' and '-' between dots; expected modules named so"
                )
        owners = {None if region is None else region.name for region in _regions(regions, leaf)}
        if len(owners) > 1:
            names = ", ".join((leaf.name, *leaf.also))
            raise RecipeError(
                f"{names}: names of one layer, and not all in one sealed region: a region may share no tensor with"
                " layers outside of it"
            )
    owned = {name for leaf in leaves for name in leaf.parameters}
    # A parameter that no forward pass has met would be in no layer's numbers. Adapters are met later, and checked
    # below.
    adapters = tuple(f"{name}." for name, module in model.named_modules() if isinstance(module, Beside))
    for name, _ in model.named_parameters():
        if name not in owned and not name.startswith(adapters):
            raise RecipeError(f"parameter {name}: found in no layer: nothing would train it; expected it in a module")


def _check_adapters(
    modules: Mapping[str, nn.Module], governed: Collection[str], regions: Sequence[SealedRegion]
) -> None:
    """Raise `RecipeError` for an adapter of one of these regions on a module that is no layer: no step would train
    it."""
    names = {region.name for region in regions}
    for name, module in modules.items():
        layer, _, region = name.rpartition(".@")
        if region not in names:
            continue
        if isinstance(module, Beside) and any(f"{name}.{own}" not in governed for own, _ in module.named_parameters()):
            raise RecipeError(
                f"sealed region {region!r}: found an adapter on {layer}, which has no tensor of its own, as a head that"
                " is tied to an embedding has not: nothing would train the adapter; expected patterns of other layers"
            )


def _regions(regions: Sequence[SealedRegion], leaf: Leaf) -> list[SealedRegion | None]:
    return [region_of(regions, name) for name in (leaf.name, *leaf.also)]

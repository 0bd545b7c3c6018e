"""Sealed regions in a model: parameters of one class, which take part only where the region is switched on.

*Adapters* are low-rank maps next to linear layers and convolutions: the layer's output plus `up(down(input))`, where
`up` begins as zero, so that a new adapter changes nothing. They are children of their layer, named `@region`; the
model's own parameters keep their names. *Modules* are parts that the model has already, with a path around them:
switched off, such a module does not run and returns zeros of its input's shape, so only the path around it remains.

In evaluation and at inference every region is off unless the caller says otherwise:

    with switched_on(model, ["customer"]):
        model(inputs)

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, arXiv:2106.09685.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from explorer.data.streams import torch_stream
from explorer.engine.leaves import Beside
from explorer.engine.state import SHARED
from explorer.errors import RecipeError, unknown
from explorer.provenance.regions import ADAPTER, SealedRegion, region_of

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
ADAPTED = (nn.Linear, *CONVOLUTIONS)
Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


@dataclass(slots=True, eq=False)
class Switch:
    """Switch of the regions that take part in a forward pass; a model has one."""

    regions: tuple[str, ...]  # all of them
    on: frozenset[str] = frozenset()


class Adapter(Beside):
    """Low-rank map of its layer's input. `down` is drawn as such a layer is, from the current random stream."""

    def __init__(self, layer: nn.Linear | Convolution, *, rank: int, region: str, switch: Switch) -> None:
        super().__init__()
        self.region, self.switch = region, switch
        self.down, self.up = _linear(layer, rank) if isinstance(layer, nn.Linear) else _convolution(layer, rank)
        nn.init.zeros_(self.up.weight)
        self.to(layer.weight)

    def forward(self, input: Tensor) -> Tensor:
        return self.up(self.down(input))


class Gate(nn.Module):
    """Mix-in for the class of a sealed module: runs the module only where its region is on."""

    sealed: "tuple[str, Switch]"  # its region and the switch

    def forward(self, input: Tensor, *rest: Any, **named: Any) -> Tensor:
        region, switch = self.sealed
        if region not in switch.on:
            return torch.zeros_like(input)
        output: Tensor = super().forward(input, *rest, **named)  # pyright: ignore[reportAttributeAccessIssue]
        if output.shape != input.shape:
            raise RecipeError(
                f"sealed region {region!r}: its module turns {tuple(input.shape)} into"
                f" {tuple(output.shape)}; expected the shape of the input, and a path around it"
            )
        return output


@dataclass(frozen=True, kw_only=True, slots=True)
class Sealed:
    """Switch and parameters of a model's sealed regions."""

    switch: Switch
    parameters: dict[str, str]  # the region of every parameter that is in one, by name


def seal(model: nn.Module, regions: Sequence[SealedRegion], *, seed: int) -> Sealed:
    """Add the regions to a model in place. Raises `RecipeError` for a region that finds nothing in this model.

    The first pass, which meets the model's layers, runs with modules on and adapters off: it meets all of the model's
    own layers and no others. The values of an adapter depend only on the seed and its name.
    """
    switch = Switch(tuple(region.name for region in regions))
    if SHARED in switch.regions:
        raise RecipeError(f"sealed region {SHARED!r}: the name of what all classes share; expected another one")
    switch.on = frozenset(region.name for region in regions if region.module)
    # The names are those from before: adapters are modules too.
    modules = dict(model.named_modules())
    for region in regions:
        if region.module:
            _gate(modules, region, switch)
    for region in regions:
        if region.layers:
            _adapt(modules, region, regions, switch, seed=seed)
    return Sealed(switch=switch, parameters=_owned(model, regions))


@contextmanager
def switched_on(model: nn.Module, regions: Collection[str]) -> Iterator[None]:
    """Run the model with these regions, and afterwards as before. Raises `RecipeError` for one that it lacks."""
    switch = switch_of(model)
    for name in regions:
        if switch is None or name not in switch.regions:
            raise RecipeError(unknown("sealed region", name, switch.regions if switch else ()))
    if switch is None:
        yield
        return
    before, switch.on = switch.on, frozenset(regions)
    try:
        yield
    finally:
        switch.on = before


def switch_of(model: nn.Module) -> Switch | None:
    """Return the switch of a model; None: it has no sealed regions."""
    for module in model.modules():
        if isinstance(module, Adapter):
            return module.switch
        if isinstance(module, Gate):
            return module.sealed[1]
    return None


def adapter_name(layer: str) -> str:
    """Return the name of an adapter's module, from the name that policies give it.

    >>> adapter_name("layer3.0.conv2@customer")
    'layer3.0.conv2.@customer'
    """
    return layer.replace(ADAPTER, f".{ADAPTER}")


def _gate(modules: dict[str, nn.Module], region: SealedRegion, switch: Switch) -> None:
    """Mix `Gate` into the class of the region's module."""
    # The class is exchanged in place, as torch's parametrisations do it: a wrapper would rename every parameter in it.
    assert region.module is not None
    if region.module not in modules:
        raise RecipeError(f"sealed region {region.name!r}: {unknown('module', region.module, modules)}")
    module = modules[region.module]
    kind = type(module)
    module.__class__ = type(kind.__name__, (Gate, kind), {})
    module.sealed = region.name, switch  # pyright: ignore[reportArgumentType]


def _adapt(
    modules: dict[str, nn.Module],
    region: SealedRegion,
    regions: Sequence[SealedRegion],
    switch: Switch,
    *,
    seed: int,
) -> None:
    """Attach an adapter to every linear layer and convolution that the region names."""
    assert region.rank is not None
    chosen = {name: module for name, module in modules.items() if name and isinstance(module, ADAPTED)}
    adapted = [name for name in chosen if region_of(regions, f"{name}{ADAPTER}{region.name}") is region]
    if not adapted:
        raise RecipeError(
            f"sealed region {region.name!r}: {', '.join(region.layers or ())}: fits none of the model's linear layers"
            f" and convolutions: {', '.join(chosen) or 'it has none'}"
        )
    for name in adapted:
        layer = chosen[name]
        # A stream for each adapter: another region, or another layer, changes no draw of this one.
        with torch_stream(torch.device("cpu"), seed, "sealed", region.name, name):
            adapter = Adapter(layer, rank=region.rank, region=region.name, switch=switch)
        if not any(isinstance(child, Adapter) for child in layer.children()):  # one hook for all adapters of a layer
            layer.register_forward_hook(_add_adapters)
        layer.add_module(f"{ADAPTER}{region.name}", adapter)


def _add_adapters(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """Return the layer's output with those of its adapters that are on."""
    for child in layer.children():
        if isinstance(child, Adapter) and child.region in child.switch.on:
            output = output + child(inputs[0])
    return output


def _owned(model: nn.Module, regions: Sequence[SealedRegion]) -> dict[str, str]:
    owned = {}
    for name, _ in model.named_parameters():
        module, adapter, rest = name.partition(f".{ADAPTER}")
        region = region_of(regions, f"{module}{ADAPTER}{rest.partition('.')[0]}" if adapter else module)
        if region is not None:
            owned[name] = region.name
    return owned


def _linear(layer: nn.Linear, rank: int) -> tuple[nn.Linear, nn.Linear]:
    down = nn.Linear(layer.in_features, rank, bias=False)
    return down, nn.Linear(rank, layer.out_features, bias=False)


def _convolution(layer: Convolution, rank: int) -> tuple[Convolution, Convolution]:
    """Return a convolution with the layer's own window down to the rank, and one with a window of side 1 up."""
    kind = next(kind for kind in CONVOLUTIONS if isinstance(layer, kind))
    down = kind(
        layer.in_channels,
        rank,
        layer.kernel_size,  # pyright: ignore[reportArgumentType]
        stride=layer.stride,  # pyright: ignore[reportArgumentType]
        padding=layer.padding,  # pyright: ignore[reportArgumentType]
        dilation=layer.dilation,  # pyright: ignore[reportArgumentType]
        padding_mode=layer.padding_mode,
        bias=False,
    )
    return down, kind(rank, layer.out_channels, 1, bias=False)

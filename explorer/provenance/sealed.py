"""Sealed regions: parameters that belong to one branch of the taxonomy and are absent for everybody else.

A region is either low-rank adapters on shared linear and convolution layers, picked by name pattern, or a module that
the model has with a path around it:

    sealed:
      - {name: customer, branch: personal/customer, layers: ["layer4.*"], rank: 8}
      - {name: news, branch: licensed/news, module: side.news}

In its own region the owner's weight is 1 and everybody else's is 0, in every phase and before any rule is looked at. A
class lives in one region at most, so branches of two regions do not overlap, and neither do their modules.
"""

import itertools
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from explorer.errors import ProvenanceError
from explorer.provenance.branches import Path, covers
from explorer.provenance.layers import ADAPTER, Layer, LayerName, LayerPattern, matches
from explorer.schema import record

MAX_RANK = 65_536

RegionName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)]
Patterns = Annotated[tuple[LayerPattern, ...], Field(min_length=1, max_length=100)]


@record
class SealedRegion:
    """What belongs to one branch: adapters of this rank on the layers that match, or one module."""

    name: RegionName
    branch: Path
    layers: Patterns | None = None
    rank: Annotated[int, Field(ge=1, le=MAX_RANK)] | None = None
    module: LayerName | None = None


def region_of(regions: Sequence[SealedRegion], name: str) -> SealedRegion | None:
    """The region that this layer is part of; None for a shared layer, and for an adapter that no region asks for."""
    shared, _, adapter = name.partition(ADAPTER)
    if not adapter:
        return next((each for each in regions if each.module and _lies_in(name, each.module)), None)
    if region_of(regions, shared) is not None:  # a module that its adapter's owner never enters
        return None
    return next((each for each in regions if each.name == adapter and _adapts(each, shared)), None)


def with_adapters(regions: Sequence[SealedRegion], layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The model's layers, followed by the adapters that each region puts on them."""
    adapters = (Layer(f"{each.name}{ADAPTER}{region.name}", each.depth) for region in regions for each in layers)
    return (*layers, *(adapter for adapter in adapters if region_of(regions, adapter.name)))


def check_regions(regions: Sequence[SealedRegion], where: str) -> None:
    """Check each region and that no two overlap. Raises `ProvenanceError` that begins with `where`."""
    for index, each in enumerate(regions):
        adapters = each.layers is not None and each.rank is not None and each.module is None
        module = each.layers is None and each.rank is None and each.module is not None
        if not adapters and not module:
            raise ProvenanceError(
                f"{where}: sealed[{index}]: expected layers and rank for adapters, or module, and not both"
            )
    for (_, one), (index, other) in itertools.combinations(enumerate(regions), 2):
        here = f"{where}: sealed[{index}]"
        if one.name == other.name:
            raise ProvenanceError(f"{here}.name: {other.name!r} stands twice")
        if covers(one.branch, other.branch) or covers(other.branch, one.branch):
            raise ProvenanceError(
                f"{here}.branch: {other.branch!r} overlaps {one.branch!r} of region {one.name!r}; "
                "a class lives in one region at most"
            )
        if one.module and other.module and (_lies_in(one.module, other.module) or _lies_in(other.module, one.module)):
            raise ProvenanceError(f"{here}.module: {other.module!r} overlaps {one.module!r} of region {one.name!r}")


def _adapts(region: SealedRegion, name: str) -> bool:
    return region.layers is not None and any(matches(pattern, name) for pattern in region.layers)


def _lies_in(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")

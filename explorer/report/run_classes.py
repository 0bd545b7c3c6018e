"""What each class did in a run: how much of each band of the depth it moved, and what deleting it could come to."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from explorer.audit.shares import sums
from explorer.provenance.layers import ADAPTER, depths_of
from explorer.provenance.routing import Routing
from explorer.provenance.sealed import region_of
from explorer.report.run_deletion import Deletability
from explorer.report.run_references import Reference, refer
from explorer.runlog.run_ledger import RunLedger
from explorer.views.ledger.open_run import Steps

BANDS = ("input quarter", "second quarter", "third quarter", "output quarter")
SEALED = "sealed regions"

PARTS = 4  # of the training

Sums = dict[tuple[int, str, str], float]
"""Numerators of shares, by part of the training, class and band."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassLine:
    """A class in the table of what trained what."""

    path: str
    examples: int  # in the batches, with repetition, read or not
    tagged: int | None  # records of the tag table; None: the tags could not be read
    share: float | None  # of the summed gradient over all layers; None: nothing was recorded
    bands: dict[str, float | None]  # the same by band
    over_time: tuple[float | None, ...]  # the same over all layers, by part of the training (see `parts`)
    denied: tuple[str, ...]  # bands in all of whose layers the weight was 0 in all steps
    first_admitted: int | None  # the first step in which it might train some layer
    deletable: Deletability
    reference: Reference


def class_lines(
    run: RunLedger,
    recorded: Steps,
    *,
    routing: Routing | None,
    tagged: dict[str, int] | None,
    deletable: Mapping[str, Deletability],
) -> tuple[ClassLine, ...]:
    """A line for each class. Raises `StoreError` for a spool that is damaged or not this run's."""
    bands = band_of_layers(run, routing)
    shares = _sums(run, bands)
    stretches = range(len(parts(run.steps)))
    everywhere = np.ones(len(bands), bool)
    weights, places = recorded.weights(range(run.begins, run.steps)), np.array(list(bands.values()))
    lines = []
    for index, path in enumerate(run.genesis.classes):
        admitted = recorded.first_admitted(index, everywhere)
        lines.append(
            ClassLine(
                path=path,
                examples=int(recorded.examples[:, index].sum()),
                tagged=None if tagged is None else tagged.get(path, 0),
                share=_share(shares, path),
                bands={band: _share(shares, path, band=band) for band in dict.fromkeys(bands.values())},
                over_time=tuple(_share(shares, path, part=part) for part in stretches),
                denied=tuple(band for band in dict.fromkeys(places) if not weights[index, places == band].any()),
                first_admitted=admitted,
                deletable=deletable[path],
                reference=refer(_entries(run, recorded, admitted)),
            )
        )
    return tuple(lines)


def parts(steps: int) -> tuple[range, ...]:
    """The training in at most four parts that are equally long."""
    count = min(PARTS, steps)
    edges = [-(-part * steps // count) for part in range(count)] + [steps]
    return tuple(map(range, edges[:-1], edges[1:]))


def band_of_layers(run: RunLedger, routing: Routing | None) -> dict[str, str]:
    """The band of each layer, in the order of the genesis: a quarter of the depth, or the sealed regions."""
    names = run.genesis.layers
    regions = () if routing is None else routing.policy.sealed
    depths = {layer.name: layer.depth for layer in depths_of([name for name in names if ADAPTER not in name])}
    found = {}
    for name in names:
        sealed = ADAPTER in name or region_of(regions, name) is not None
        found[name] = SEALED if sealed else BANDS[min(3, int(depths[name] * 4))]
    return found


def _sums(run: RunLedger, bands: dict[str, str]) -> Sums:
    """Those of all classes add up to the denominator of a share."""
    found: Sums = {}
    columns = sums(run, range(run.begins, run.steps), bins=len(parts(run.steps))).columns
    for part, class_, layer in np.argwhere(columns[..., 0]).tolist():
        key = part, run.genesis.classes[class_], bands[run.genesis.layers[layer]]
        found[key] = found.get(key, 0.0) + columns[part, class_, layer, 3]
    return found


def _share(shares: Sums, path: str, *, part: int | None = None, band: str | None = None) -> float | None:
    """The share of a class in one part or all, in one band or all; None where nothing of it was recorded."""
    wanted = {key: value for key, value in shares.items() if part in (None, key[0]) and band in (None, key[2])}
    mine = [value for (_, class_, _), value in wanted.items() if class_ == path]
    whole = sum(wanted.values())
    if not mine or not np.isfinite(whole) or whole == 0:
        return None
    return float(sum(mine) / whole)


def _entries(run: RunLedger, recorded: Steps, admitted: int | None) -> list[int]:
    """The entries behind a class's line: its steps from the first one on that it might train in, and the states."""
    first = 0 if admitted is None else admitted
    return [int(recorded.entries[first]), int(recorded.entries[-1]), *(index for _, index in run.outline.states[-1:])]

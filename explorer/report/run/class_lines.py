"""Classes of a run, one line each: the class's share in every band of the depth, and how far it can be deleted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from explorer.audit.conditions import Outcome
from explorer.audit.shares import sums
from explorer.provenance.regions import ADAPTER, depths_of, region_of
from explorer.provenance.routing_weights import Routing
from explorer.report.run.references import Reference, refer
from explorer.runlog.forecast import learned_before, route_of
from explorer.runlog.influence import Presence, Reach, reach_of
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.views.ledger.open_run import Steps

BANDS = ("input quarter", "second quarter", "third quarter", "output quarter")
SEALED = "sealed regions"

PARTS = 4  # of the training: enough to show a trend, few enough for a page

Sums = dict[tuple[int, str, str], float]
"""Numerators of shares, by part of the training, class and band."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletability:
    """What deleting a class could come to."""

    level: Literal["G2", "G3"] | None  # None: no exact level is established, or there is nothing to delete
    words: str


UNESTABLISHED = Deletability(level=None, words="this record does not establish what was denied: see Integrity")
UNTOLD = Deletability(level=None, words="what was denied cannot be told from this record: see Integrity")
LEFT_OUT = Deletability(level=None, words="left out of this run: its slots were empty, so there is nothing to remove")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClassLine:
    """A class in the table of what trained what."""

    path: str
    examples: int  # in the batches, with repetition, read or not
    tagged: int | None  # records of the tag table; None: the tags are not trusted
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
    """Return a line for every class of the run.

    run        the run's ledger
    recorded   its steps
    routing    the weights of its policy; None: it had no policy, or an untrusted one
    tagged     tagged records by class; None: the tags are not trusted
    deletable  how far a class can be deleted, by class

    Raises `StoreError` for a spool that is damaged or another run's.
    """
    bands = band_of_layers(run, routing)
    shares = _sums(run, bands)
    stretches = range(len(parts(run.steps)))
    everywhere = np.ones(len(bands), bool)
    weights, places = recorded.weights(range(run.begins, run.steps)), np.array(list(bands.values()))
    lines = []
    for index, path in enumerate(run.genesis.classes):
        admitted = recorded.first_admitted(index, everywhere)
        # A line rests on the steps from the first that admits the class, or all if none does, and on the last state.
        entries = [int(recorded.entries[admitted or 0]), int(recorded.entries[-1])]
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
                reference=refer([*entries, *(index for _, index in run.outline.states[-1:])]),
            )
        )
    return tuple(lines)


def parts(steps: int) -> tuple[range, ...]:
    """Divide the training into at most four parts of equal length."""
    count = min(PARTS, steps)
    edges = [-(-part * steps // count) for part in range(count)] + [steps]
    return tuple(map(range, edges[:-1], edges[1:]))


def band_of_layers(run: RunLedger, routing: Routing | None) -> dict[str, str]:
    """Return the band of each layer, in the order of the genesis: a quarter of the depth, or the sealed regions."""
    names = run.genesis.layers
    regions = () if routing is None else routing.policy.sealed
    # An adapter has no depth of its own: it lies in a sealed region, which is shown apart.
    depths = {layer.name: layer.depth for layer in depths_of([name for name in names if ADAPTER not in name])}
    bands = {}
    for name in names:
        sealed = ADAPTER in name or region_of(regions, name) is not None
        bands[name] = SEALED if sealed else BANDS[min(3, int(depths[name] * 4))]
    return bands


def _sums(run: RunLedger, bands: dict[str, str]) -> Sums:
    """Sum the numerators by part, class and band. The numerators of all classes sum to the denominator of a share."""
    numerators: Sums = {}
    columns = sums(run, range(run.begins, run.steps), bins=len(parts(run.steps))).columns
    for part, class_, layer in np.argwhere(columns[..., 0]).tolist():
        key = part, run.genesis.classes[class_], bands[run.genesis.layers[layer]]
        numerators[key] = numerators.get(key, 0.0) + columns[part, class_, layer, 3]
    return numerators


def _share(shares: Sums, path: str, *, part: int | None = None, band: str | None = None) -> float | None:
    """Return the share of a class in one part or all, in one band or all; None where nothing of it was recorded."""
    wanted = {key: value for key, value in shares.items() if part in (None, key[0]) and band in (None, key[2])}
    mine = [value for (_, class_, _), value in wanted.items() if class_ == path]
    whole = sum(wanted.values())
    # Gradients that overflowed, or vanished for all classes, have no shares: a 0% would be a claim.
    if not mine or not np.isfinite(whole) or whole == 0:
        return None
    return float(sum(mine) / whole)


def deletability(run: RunLedger, *, denied: Outcome) -> dict[str, Deletability]:
    """Return by class how far it can be deleted. The level is that of `explorer delete plan`, from the same analysis.

    `denied` is the outcome of the checks on what was denied. Obstacles of one machine (a state that is gone, salts, a
    key) are not on record: the plan names them. Raises as `explorer.runlog.forecast` does.
    """
    # A denial that is not established could hide what the class did, so no level is claimed.
    if denied is not Outcome.HOLDS:
        return dict.fromkeys(run.genesis.classes, UNTOLD if denied is Outcome.UNTOLD else UNESTABLISHED)
    presence = Presence(run)
    return {path: _deletability(presence, path) for path in run.genesis.classes}


def _deletability(presence: Presence, path: str) -> Deletability:
    reached = reach_of(presence, Target(classes=(path,)))
    if before := learned_before(presence.run, reached):
        return Deletability(level=None, words="; ".join(before))
    if path in presence.absent.classes:
        return LEFT_OUT
    return Deletability(level=route_of(presence.run, reached).level, words=_deletion_words(reached))


def _deletion_words(reached: Reach) -> str:
    if reached.first is None:
        return "denied everywhere: nothing in the model has learned from it, so there is nothing to remove"
    if reached.structural:
        return "only in its sealed region: without that region, the model is that of a run without the class"
    reasons = ["reached shared layers"] if reached.shared else []
    reasons += [f"shares region {name} with {', '.join(others)}" for name, others in reached.regions.items() if others]
    if reached.channels:
        reasons.append(f"decisions about other classes looked at it (entry {reached.channels[0].entry})")
    if reached.probed:
        reasons.append("a method may have based a decision on it")
    again = f"from a state before step {reached.first:,}" if reached.first else "from the start"
    return f"{'; '.join(reasons)}: exact only by training again without it, {again}"

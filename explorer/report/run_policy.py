"""The policy of a run: its rules in words, and the weights that were in force, phase by phase."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from explorer.audit.history import Vouchers
from explorer.provenance.intervals import exact
from explorer.provenance.words import QUARANTINE, confidential_words, region_words, rule_words
from explorer.report.run_references import Reference
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tables import InForce, tables


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """Neighbouring layers that are treated alike: the first and the last of them, and the weight of each class."""

    first: str
    last: str
    weights: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseTable:
    """The weights of one stretch of steps, as its entry names them."""

    phase: str
    first: int
    stop: int
    columns: tuple[Column, ...]
    reference: Reference


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyWords:
    """A policy."""

    name: str
    quarantine: str
    rules: tuple[str, ...]
    regions: tuple[str, ...]
    confidential: str | None  # whose numbers are encrypted
    phases: tuple[PhaseTable, ...]


def policy_words(run: RunLedger, found: Vouchers) -> PolicyWords | None:
    """The policy of a run, None if it routes nothing. Raises `LedgerError` where a table in force is missing."""
    if found.rules is None:
        return None
    policy = found.rules.routing.policy
    return PolicyWords(
        name=f"{policy.name} version {policy.version}",
        quarantine=QUARANTINE[policy.quarantine],
        rules=tuple(map(rule_words, policy.rules)),
        regions=tuple(f"{region.name}: {region_words(region)}" for region in policy.sealed),
        confidential=confidential_words(policy.confidential) if policy.confidential else None,
        phases=tuple(_phase(run, table) for table in tables(run)),
    )


def _phase(run: RunLedger, table: InForce) -> PhaseTable:
    return PhaseTable(
        phase=table.phase,
        first=table.first,
        stop=table.stop,
        columns=tuple(_columns(run.genesis.layers, table.weights)),
        reference=Reference(first=table.entry, last=table.entry),
    )


def _columns(layers: tuple[str, ...], weights: np.ndarray) -> Iterator[Column]:
    """From input to output; neighbours that are treated alike share a column."""
    cells = zip(layers, map(tuple, weights.T.tolist()), strict=True)
    for alike, group in itertools.groupby(cells, key=lambda pair: pair[1]):
        names = [name for name, _ in group]
        yield Column(first=names[0], last=names[-1], weights=tuple(map(_weight, alike)))


def _weight(value: float) -> str:
    """0 and 1 are guarantees; what lies between is attenuation."""
    return exact(value) if value in (0, 1) else f"{exact(value)}~"

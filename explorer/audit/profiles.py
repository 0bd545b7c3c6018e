"""The entropy profiles of a run's layers, each time they were measured, from the spool."""

import math
from dataclasses import dataclass
from typing import Any

from explorer.audit.run_ledger import RunLedger
from explorer.audit.shares import place_of
from explorer.store.spool import ALL, entropy_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class DepthProfile:
    """What one layer's outputs on the probes looked like once, for one class or for all together ("*")."""

    step: int
    layer: str
    class_: str
    examples: int
    entropy: float | None  # nats
    effective_rank: float | None
    renyi2: float | None
    chi: float | None  # of all classes together; None for single ones
    chi_null: float | None  # its mean over permutations of the labels: what chance alone gives
    p_value: float | None


def depth_profiles(run: RunLedger) -> tuple[DepthProfile, ...]:
    """All profiles, by step, layer and class. Raises `StoreError` for files that are damaged."""
    layers, classes = run.genesis.layers, (*run.genesis.classes, ALL)
    rows = sorted(
        entropy_rows(run.run),
        key=lambda row: (row[0], place_of(run, "layer", row[1], layers), place_of(run, "class", row[2], classes)),
    )
    names = ("step", "layer", "class_", "examples", "entropy", "effective_rank", "renyi2", "chi", "chi_null", "p_value")
    return tuple(DepthProfile(**dict(zip(names, map(_finite, row), strict=True))) for row in rows)


def _finite(value: Any) -> Any:
    """What is no number is nothing."""
    return None if isinstance(value, float) and not math.isfinite(value) else value

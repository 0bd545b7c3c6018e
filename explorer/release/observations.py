"""The observations beside a model, each admitted, weighted or rejected, and why."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from explorer.errors import ExplorerError, ProvenanceError
from explorer.provenance.envelope import MAX_BYTES
from explorer.provenance.model_attestation import Attested
from explorer.provenance.observation import Observation, Observed, open_observation
from explorer.provenance.observation import Observer as ObserverRole
from explorer.provenance.trust import Trust
from explorer.release.attest import OBSERVATIONS
from explorer.release.gate import Evaluated, Observer
from explorer.rundir import read_bytes

MOST = 1_000
_NAME = re.compile(r"[0-9a-f]{64}\.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Weighed:
    """An observation, and what the gate makes of it."""

    file: str
    verdict: Literal["admitted", "weighted", "rejected"]
    why: str
    weight: float  # 0: rejected
    by: str | None  # whose it is, as far as anybody believes it
    value: Observation | None  # None: not to be believed


def weigh(
    directory: Path, attested: Attested, observers: Sequence[Observer], *, trust: Trust, now: int
) -> tuple[Weighed, ...]:
    """All observations in a model's directory, by file name. What is not one is rejected like the others."""
    place = directory / OBSERVATIONS
    names = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
    found = [_weigh(place / name, attested, observers, trust=trust, now=now) for name in names[:MOST]]
    beyond = [_rejected(name, f"at most {MOST} are read") for name in names[MOST:]]
    return (*found, *beyond)


def metric(found: Sequence[Weighed], asked: Evaluated) -> tuple[float, str] | None:
    """The value of a metric, by which evaluators; None where none of them says one.

    Of each evaluator the newest observation that has the metric counts, of equally new ones the one that speaks most
    against the model. Several evaluators' values are averaged by their weights.
    """
    latest: dict[str, tuple[str, float, float]] = {}
    sign = -1.0 if asked.at_least is not None else 1.0  # the larger, the worse
    for each in found:
        if each.value is None or each.by is None or each.value.role is not ObserverRole.EVALUATOR or not each.weight:
            continue
        if asked.metric in each.value.metrics and asked.by in (None, each.by):
            mine = each.value.issued, sign * each.value.metrics[asked.metric], each.weight
            latest[each.by] = max(latest.get(each.by, mine), mine)
    if not latest:
        return None
    total = sum(weight for _, _, weight in latest.values())
    mean = sum(sign * value * weight for _, value, weight in latest.values()) / total
    return mean, ", ".join(sorted(latest))


def _weigh(path: Path, attested: Attested, observers: Sequence[Observer], *, trust: Trust, now: int) -> Weighed:
    if not _NAME.fullmatch(path.name) or path.is_symlink() or not path.is_file():
        return _rejected(path.name, "not a file that is named for the digest of what was signed")
    try:
        content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
        opened = open_observation(content, trust=trust, now=now, where=path.name)
    except ExplorerError as error:
        return _rejected(path.name, str(error).removeprefix(f"{path.name}: "))
    if fault := next(_faults(path, opened, attested), None):
        return _rejected(path.name, fault)
    names = {one.name for one in opened.authorities}
    listed = [each for each in observers if each.name in names]
    who = max(listed, key=lambda each: each.weight, default=None)
    if who is None or not who.weight:
        why = "the gate gives it weight 0" if who else "not one of the gate's observers"
        by = ", ".join(sorted(names))
        return Weighed(file=path.name, verdict="rejected", why=f"{by}: {why}", weight=0.0, by=by, value=opened.value)
    return Weighed(
        file=path.name,
        verdict="admitted" if who.weight == 1 else "weighted",
        why=f"{who.name}: weight {who.weight:g}",
        weight=who.weight,
        by=who.name,
        value=opened.value,
    )


def _faults(path: Path, opened: Observed, attested: Attested) -> Iterator[str]:
    """Why it is not an observation of this model."""
    if path.stem != opened.digest:
        yield f"named {path.stem}; what was signed has digest {opened.digest}"
    if opened.model != attested.model:
        yield f"of another model, {opened.model}"
    if (opened.value.run, opened.value.ledger) != (attested.value.run, attested.value.ledger):
        yield f"of another run, {opened.value.run}"
    if opened.value.attestation != attested.digest:
        yield f"made when the model had another attestation, {opened.value.attestation}"


def _rejected(name: str, why: str) -> Weighed:
    return Weighed(file=name, verdict="rejected", why=why, weight=0.0, by=None, value=None)

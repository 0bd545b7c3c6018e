"""Observations about a model: signed and stored with it, later admitted, weighted or rejected by a gate."""

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.entries.fields import LedgerState, write_float
from explorer.entries.kinds import Observation as Entry
from explorer.errors import ExplorerError, ProvenanceError, unknown
from explorer.provenance.envelope import MAX_BYTES, Envelope, write_envelope
from explorer.provenance.model_attestation import Attested, Observation, Observed, open_observation, sign_observation
from explorer.provenance.model_attestation import Observer as ObserverRole
from explorer.provenance.spellings import covers, format_time
from explorer.provenance.trust import Trust
from explorer.release.attest import DAYS, OBSERVATIONS
from explorer.release.gate import Evaluated, Observer
from explorer.release.shipped import Shipped
from explorer.rundir import read_bytes

# --- made ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Observing:
    """A signed observation that is not written yet, and the entry of a project's ledger that points to it."""

    envelope: Envelope
    digest: str  # of its payload
    entry: Entry


def observe(
    shipped: Shipped,
    *,
    role: ObserverRole,
    metrics: Mapping[str, float],
    note: str | None,
    admitted: Mapping[str, float],
    keys: Collection[Ed25519PrivateKey],
    trust: Trust,
    now: int,
) -> Observing:
    """Sign what is said about a model whose record is believed (`open_shipped`).

    `admitted` gives weights to classes of the model. Raises `ProvenanceError` for a class that it does not have, for an
    observation that says nothing, and for a key whose role may not make it.
    """
    signed = shipped.attested.value
    known = [claim.path for claim in signed.classes]
    for path in admitted:
        if not any(covers(path, each) for each in known):
            raise ProvenanceError(f"admit: {unknown('class', path, known)}")
    if not (metrics or note or admitted):
        raise ProvenanceError("an observation says something: give a metric, a note, or a class that is admitted")
    value = Observation(
        role=role,
        run=signed.run,
        ledger=signed.ledger,
        attestation=shipped.attested.digest,
        metrics=dict(metrics),
        note=note,
        admitted=dict(admitted),
        issued=format_time(now),
        expires=format_time(now + DAYS * 86_400),
    )
    where = "the observation"
    envelope = sign_observation(value, model=shipped.attested.model, keys=keys, trust=trust, now=now, where=where)
    digest = hashlib.sha256(envelope.payload).hexdigest()
    ledger = LedgerState(origin=signed.ledger.origin, size=signed.ledger.size, root=signed.ledger.root)
    entry = Entry(
        ledger=ledger,
        model=shipped.attested.model,
        role=role.value,
        admitted={path: write_float(weight) for path, weight in admitted.items()},
        statement=digest,
        blobs={},
    )
    return Observing(envelope=envelope, digest=digest, entry=entry)


def keep(shipped: Shipped, observing: Observing) -> Path:
    """Write it next to the model, under its digest; return its path."""
    path = shipped.directory / OBSERVATIONS / f"{observing.digest}.json"
    write_envelope(path, observing.envelope)
    return path


# --- weighed ---

MOST = 1_000
_NAME = re.compile(r"[0-9a-f]{64}\.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Weighed:
    """An observation, and what the gate makes of it."""

    file: str
    verdict: Literal["admitted", "weighted", "rejected"]
    why: str
    weight: float  # 0: rejected
    by: str | None  # whose it is, as far as anyone believes it
    value: Observation | None  # None: not to be believed


def weigh(
    directory: Path, attested: Attested, observers: Sequence[Observer], *, trust: Trust, now: int
) -> tuple[Weighed, ...]:
    """Return all observations in a model's directory, by file name. What is not one is rejected like the others."""
    place = directory / OBSERVATIONS
    names = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
    found = [_weigh(place / name, attested, observers, trust=trust, now=now) for name in names[:MOST]]
    beyond = [_rejected(name, f"at most {MOST} are read") for name in names[MOST:]]
    return (*found, *beyond)


def metric(found: Sequence[Weighed], asked: Evaluated) -> tuple[float, str] | None:
    """Return the value of a metric, by which evaluators; None where none of them says one.

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
    """Yield why it is not an observation of this model."""
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

"""Observations about a model: signed and stored with it; a gate admits, weights or rejects them."""

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

# --- making an observation ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Observing:
    """A signed observation before it is written, and the entry for the project's ledger that names it."""

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
    """Sign an observation about a model.

    Raises `ProvenanceError` for a class that the model does not have, for an empty observation, and for a key whose
    role may not make it.

    Args:
        shipped: the model, whose record is believed (`open_shipped`).
        role: the role in which the observer signs.
        metrics: measured values by name.
        note: free text.
        admitted: weights, from 0 to 1, of classes of the model in a later run.
        keys: the observer's private keys.
        trust: the authorities that count.
        now: the time of issue, in seconds since 1970.
    """
    signed = shipped.attested.value
    known = [claim.path for claim in signed.classes]
    for path in admitted:
        if not any(covers(path, class_) for class_ in known):
            raise ProvenanceError(f"admit: {unknown('class', path, known)}")
    if not (metrics or note or admitted):
        raise ProvenanceError("empty observation: give a metric, a note, or the weight of a class")
    # The observation names the attestation that the observer saw: after a new one it no longer counts.
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
    """Write an observation next to the model, under its digest; return its path."""
    path = shipped.directory / OBSERVATIONS / f"{observing.digest}.json"
    write_envelope(path, observing.envelope)
    return path


# --- weighing observations ---

MOST = 1_000  # files that are read: anyone may add some to a shipped model
_NAME = re.compile(r"[0-9a-f]{64}\.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Weighed:
    """An observation with a gate's verdict."""

    file: str
    verdict: Literal["admitted", "weighted", "rejected"]
    why: str
    weight: float  # 0: rejected
    by: str | None  # the signer; None: no signature is believed
    value: Observation | None  # None: it is not believed


def weigh(
    directory: Path, attested: Attested, observers: Sequence[Observer], *, trust: Trust, now: int
) -> tuple[Weighed, ...]:
    """Return all observations in a model's directory, by file name. Any other file there is shown as rejected."""
    place = directory / OBSERVATIONS
    names = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
    weighed = [_weigh(place / name, attested, observers, trust=trust, now=now) for name in names[:MOST]]
    beyond = [_rejected(name, f"at most {MOST} are read") for name in names[MOST:]]
    return (*weighed, *beyond)


def metric(observations: Sequence[Weighed], asked: Evaluated) -> tuple[float, str] | None:
    """Return the value of a metric and the names of its evaluators; None where none of them gives one.

    The newest observation of each evaluator that has the metric counts; of equally new ones, the one that is least
    favourable to the model, so that an evaluator's own contradiction helps nothing. Several evaluators' values are
    averaged by their weights.
    """
    latest: dict[str, tuple[str, float, float]] = {}  # by evaluator: issued, signed value, weight
    sign = -1.0 if asked.at_least is not None else 1.0  # the larger the signed value, the worse
    for weighed in observations:
        value, by = weighed.value, weighed.by
        if value is None or by is None or value.role is not ObserverRole.EVALUATOR or not weighed.weight:
            continue
        if asked.metric in value.metrics and asked.by in (None, by):
            candidate = value.issued, sign * value.metrics[asked.metric], weighed.weight
            latest[by] = max(latest.get(by, candidate), candidate)
    if not latest:
        return None
    total = sum(weight for _, _, weight in latest.values())
    mean = sum(sign * value * weight for _, value, weight in latest.values()) / total
    return mean, ", ".join(sorted(latest))


def _weigh(path: Path, attested: Attested, observers: Sequence[Observer], *, trust: Trust, now: int) -> Weighed:
    if not _NAME.fullmatch(path.name) or path.is_symlink() or not path.is_file():
        return _rejected(path.name, "expected a file named DIGEST.json, after the digest of the signed payload")
    try:
        content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
        opened = open_observation(content, trust=trust, now=now, where=path.name)
    except ExplorerError as error:
        return _rejected(path.name, str(error).removeprefix(f"{path.name}: "))
    if fault := next(_faults(path, opened, attested), None):
        return _rejected(path.name, fault)
    # Several authorities may sign one observation: it counts once, with the largest of their weights.
    names = {authority.name for authority in opened.authorities}
    listed = [observer for observer in observers if observer.name in names]
    best = max(listed, key=lambda observer: observer.weight, default=None)
    if best is None or not best.weight:
        why = "the gate gives it weight 0" if best else "not one of the gate's observers"
        by = ", ".join(sorted(names))
        return Weighed(file=path.name, verdict="rejected", why=f"{by}: {why}", weight=0.0, by=by, value=opened.value)
    return Weighed(
        file=path.name,
        verdict="admitted" if best.weight == 1 else "weighted",
        why=f"{best.name}: weight {best.weight:g}",
        weight=best.weight,
        by=best.name,
        value=opened.value,
    )


def _faults(path: Path, opened: Observed, attested: Attested) -> Iterator[str]:
    """Yield the reasons why a file is not an observation of this model."""
    if path.stem != opened.digest:
        yield f"named {path.stem}, but the signed payload has digest {opened.digest}"
    if opened.model != attested.model:
        yield f"of another model, {opened.model}"
    if (opened.value.run, opened.value.ledger) != (attested.value.run, attested.value.ledger):
        yield f"of another run, {opened.value.run}"
    if opened.value.attestation != attested.digest:
        yield f"made for another attestation of the model, {opened.value.attestation}"


def _rejected(name: str, why: str) -> Weighed:
    return Weighed(file=name, verdict="rejected", why=why, weight=0.0, by=None, value=None)

"""Saying something about a model: the observation is signed and laid beside it, once its record is believed."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.entries.fields import LedgerState, write_float
from explorer.entries.kinds import Observation as Entry
from explorer.errors import ProvenanceError, unknown
from explorer.provenance.envelope import Envelope, write_envelope
from explorer.provenance.observation import Observation, Observer, sign_observation
from explorer.provenance.spellings import covers, format_time
from explorer.provenance.trust import Trust
from explorer.release.attest import DAYS, OBSERVATIONS
from explorer.release.shipped import Shipped


@dataclass(frozen=True, kw_only=True, slots=True)
class Observing:
    """A signed observation that is not written yet, and the entry of a project's ledger that points to it."""

    envelope: Envelope
    digest: str  # of its payload
    entry: Entry


def observe(
    shipped: Shipped,
    *,
    role: Observer,
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
    """Write it beside the model, under its digest; return its path."""
    path = shipped.directory / OBSERVATIONS / f"{observing.digest}.json"
    write_envelope(path, observing.envelope)
    return path

"""Making a finished run's model one that carries its record: `<run>/model/` is then what one ships.

    model.safetensors  parameters and buffers, under their names in the ledger
    model.json         how to build the module that they belong to
    attestation.json   what went into it, signed (`explorer.provenance.model_attestation`)
    taxonomy.json      the signed documents that the attestation speaks of
    policy.json
    parents/           attestations of the models that this one continues, each by the digest of its payload
    observations/      what others have said about it since

Nothing private is in it, and nothing in it is code.
"""

import hashlib
from collections.abc import Collection
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import rundir
from explorer.errors import LedgerError, ProvenanceError, RunError
from explorer.provenance.deletion_certificate import open_certificate
from explorer.provenance.envelope import MAX_BYTES, Envelope, parse_envelope, write_envelope
from explorer.provenance.model_attestation import open_model, sign_model
from explorer.provenance.spellings import format_time
from explorer.provenance.trust import Trust
from explorer.release.model_claims import CERTIFICATE, claims, deletable_here, deletion_of
from explorer.run_files import LoopRecord
from explorer.rundir import read_bytes
from explorer.runlog.attested import ATTESTATION, PARENTS, ancestors, check_ledger
from explorer.runlog.documents import POLICY_FILE, TAXONOMY_FILE, read_policy
from explorer.runlog.influence import recorded_plan
from explorer.runlog.model_file import CARD, MODEL, ModelCard, ModelFile, differences, read_card
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tensors import owner_of, read_ended

OBSERVATIONS = "observations"
DAYS = 365


def attest(
    run: RunLedger,
    *,
    keys: Collection[Ed25519PrivateKey],
    trust: Trust,
    now: int,
    expires: str | None = None,
) -> Envelope:
    """Sign for the model of a finished run; by default the attestation holds for a year.

    Raises `LedgerError` for a run that is unfinished, does not verify or lacks cosignatures, and for a model that is
    not what its ledger ends with; `ProvenanceError` for what is not believed and for a key that may not sign.
    """
    value = claims(
        run,
        trust=trust,
        now=now,
        issued=format_time(now),
        expires=format_time(now + DAYS * 86_400) if expires is None else expires,
        deletability=deletable_here,
    )
    place = run.run / rundir.MODEL
    check_tensors(run, place / MODEL)
    check_card(run, place / CARD)
    model = ModelFile(place / MODEL).sha256
    check_certificate(run, model, trust=trust, now=now)
    ancestors(value, run.run / rundir.GOVERNANCE / PARENTS, trust=trust)
    envelope = sign_model(
        value,
        model=model,
        card=_card_digest(place / CARD),
        keys=keys,
        trust=trust,
        now=now,
        where=str(place),
    )
    signed = open_model(envelope.content, trust=trust, now=now, where=str(place))
    check_ledger(signed, trust=trust, now=now, where=str(place))  # its trainer's, and no other's
    return envelope


def ship(run: RunLedger, envelope: Envelope, *, trust: Trust, now: int) -> Path:
    """Write the attestation next to the model, after what it speaks of; return its path."""
    place, documents = run.run / rundir.MODEL, run.run / rundir.GOVERNANCE
    for name in (TAXONOMY_FILE, POLICY_FILE):
        content = read_bytes(documents / name, max_bytes=MAX_BYTES, error=ProvenanceError)
        write_envelope(place / name, parse_envelope(content, where=str(documents / name)))
    value = open_model(envelope.content, trust=trust, now=now, where=str(place / ATTESTATION)).value
    for each in ancestors(value, documents / PARENTS, trust=trust):
        write_envelope(place / PARENTS / f"{each.digest}.json", each.envelope)
    write_envelope(place / ATTESTATION, envelope)
    return place / ATTESTATION


def check_tensors(run: RunLedger, path: Path) -> None:
    """Raise `LedgerError` unless the model's tensors are those that the run ended with."""
    tensors = read_ended(run).tensors
    found = list(differences(ModelFile(path).leaves(), {**tensors.parameters, **tensors.buffers}))
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise LedgerError(f"{path}: not the model that the ledger ends with: {found[0]}{more}")


def check_card(run: RunLedger, path: Path) -> None:
    """Raise `LedgerError` for a card of another run, with other sealed regions than policy and tensors have, and of
    another model than the run's recipe, where that is here: with other heads, say, the same tensors make another model.
    """
    record, card = recorded_plan(run), read_card(path)
    if card.run != run.genesis.run:
        raise LedgerError(f"{path}: of run {card.run}; the ledger is of {run.genesis.run}")
    _check_regions(run, card, path)
    if record is None:
        return
    match record.identity:
        case {"recipe": {"model": str(model), "methods": [*methods]}} if isinstance(record, LoopRecord):
            changing = [each for each in methods if each in card.methods]
            if (model, changing) != (card.own, [*card.methods]):
                raise LedgerError(f"{path}: not the model of the loop that the ledger names: {model}")
        case {"recipe": {"task": {"model": model, "dataset": {**dataset}}, "methods": [*methods]}}:
            changing = [each for each in methods if each in card.methods]
            planned = model, changing, [*dataset]
            if planned != (card.model, [*card.methods], [card.dataset]):
                raise LedgerError(f"{path}: not the model of the recipe that the ledger names: {model}, {dataset}")
        case _:
            raise LedgerError(f"{run.run}: its recipe names no model")


def _check_regions(run: RunLedger, card: ModelCard, path: Path) -> None:
    """A region of the policy whose tensors the run ended with is in the card; a module that was deleted is absent."""
    policy = read_policy(run)
    regions = () if policy is None else policy.sealed
    kept = {owner_of(name, regions) for name in read_ended(run).tensors.parameters}
    sealed = [region for region in regions if region.name in kept]
    absent = [region for region in regions if region.name not in kept and region.module]
    if (sealed, absent) != ([*card.sealed], [*card.absent]):
        names = [[each.name for each in listed] for listed in (sealed, absent, card.sealed, card.absent)]
        raise LedgerError(
            f"{path}: sealed regions {names[2]}, absent {names[3]}, or other places of them; the policy and the tensors"
            f" that the ledger ends with have {names[0]}, absent {names[1]}"
        )


def check_certificate(run: RunLedger, model: str, *, trust: Trust, now: int) -> None:
    """Raise `ProvenanceError` unless the certificate of the deletion that made a run is about this model's SHA-256."""
    if deletion_of(run) is None:
        return
    path = run.run / CERTIFICATE
    content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
    opened = open_certificate(content, trust=trust, now=now, where=str(path))
    if opened.model != model:
        raise ProvenanceError(f"{path}: certifies the model {opened.model}; this one is {model}")


def _card_digest(path: Path) -> str:
    """SHA-256 of `model.json`, once it is one. Raises `RunError`."""
    read_card(path)
    return hashlib.sha256(read_bytes(path, max_bytes=rundir.MAX_JSON_BYTES, error=RunError)).hexdigest()

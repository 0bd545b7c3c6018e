"""The shipped form of a finished run's model: `<run>/model/`, the directory that carries its signed record.

    model.safetensors  parameters and buffers, under their names in the ledger
    model.json         how to build the module that they belong to
    attestation.json   the signed claims about its training (`explorer.provenance.model_attestation`)
    taxonomy.json      the signed documents that the attestation names
    policy.json
    parents/           attestations of the models that this one continues, each named by the digest of its payload
    observations/      signed observations that others have added since

It contains nothing private and no code.
"""

import hashlib
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import note, rundir
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
from explorer.runlog.countersign import countersigned
from explorer.runlog.documents import POLICY_FILE, TAXONOMY_FILE, read_policy
from explorer.runlog.influence import recorded_plan
from explorer.runlog.model_file import CARD, MODEL, ModelCard, ModelFile, differences, read_card
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tensors import owner_of, read_ended

OBSERVATIONS = "observations"
DAYS = 365  # that an attestation or observation is valid


def attest(
    run: RunLedger,
    *,
    keys: Collection[Ed25519PrivateKey],
    trust: Trust,
    now: int,
    expires: str | None = None,
) -> Envelope:
    """Sign the attestation of a finished run's model.

    Raises `LedgerError` for a run that is unfinished, does not verify or lacks cosignatures, and for a model that is
    not the one its ledger ends with; `ProvenanceError` for documents that are not believed and keys that may not sign.

    Args:
        run: the run, whose model is in `<run>/model/`.
        keys: the trainer's private keys.
        trust: the authorities that count.
        now: the time of issue, in seconds since 1970.
        expires: the end of validity; None: a year from now.
    """
    value = claims(
        run,
        trust=trust,
        now=now,
        issued=format_time(now),
        expires=format_time(now + DAYS * 86_400) if expires is None else expires,
        deletability=deletable_here,
    )
    # A reader of the attestation may not have the ledger, which is what names a delegation.
    checkpoint = countersigned(note.parse(value.checkpoint.encode()), run.ledger, keys=keys, trust=trust)
    value = replace(value, checkpoint=checkpoint.content.decode())
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
    # Read the attestation back as a recipient would: one that its own trainer could not verify is not written. This
    # also refuses the key of a trainer who did not sign the ledger.
    signed = open_model(envelope.content, trust=trust, now=now, where=str(place))
    check_ledger(signed, trust=trust, now=now, where=str(place))
    return envelope


def ship(run: RunLedger, envelope: Envelope, *, trust: Trust, now: int) -> Path:
    """Write the attestation next to the model; return its path.

    It is written last, so that a crash leaves no attestation whose documents are missing.
    """
    place, documents = run.run / rundir.MODEL, run.run / rundir.GOVERNANCE
    for name in (TAXONOMY_FILE, POLICY_FILE):
        content = read_bytes(documents / name, max_bytes=MAX_BYTES, error=ProvenanceError)
        write_envelope(place / name, parse_envelope(content, where=str(documents / name)))
    value = open_model(envelope.content, trust=trust, now=now, where=str(place / ATTESTATION)).value
    for ancestor in ancestors(value, documents / PARENTS, trust=trust):
        write_envelope(place / PARENTS / f"{ancestor.digest}.json", ancestor.envelope)
    write_envelope(place / ATTESTATION, envelope)
    return place / ATTESTATION


def check_tensors(run: RunLedger, path: Path) -> None:
    """Raise `LedgerError` unless the model's tensors are those that the run ended with."""
    tensors = read_ended(run).tensors
    faults = list(differences(ModelFile(path).leaves(chunk=tensors.chunk), {**tensors.parameters, **tensors.buffers}))
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise LedgerError(f"{path}: not the model that the ledger ends with: {faults[0]}{more}")


def check_card(run: RunLedger, path: Path) -> None:
    """Raise `LedgerError` for a card that does not match its run.

    The run, the sealed regions and, where the run's recipe is here, the model have to agree: the same tensors make
    another model with another number of heads, for example.
    """
    record, card = recorded_plan(run), read_card(path)
    if card.run != run.genesis.run:
        raise LedgerError(f"{path}: found the run {card.run}, expected {run.genesis.run}, which the ledger names")
    _check_regions(run, card, path)
    # Only methods that change the module are in the card; the others in the recipe leave no trace in the model.
    if record is None:
        return
    match record.identity:
        case {"recipe": {"model": str(model), "methods": [*methods]}} if isinstance(record, LoopRecord):
            changing = [method for method in methods if method in card.methods]
            if (model, changing) != (card.own, [*card.methods]):
                raise LedgerError(f"{path}: not the model of the loop that the ledger names: {model}")
        case {"recipe": {"task": {"model": model, "dataset": {**dataset}}, "methods": [*methods]}}:
            changing = [method for method in methods if method in card.methods]
            planned, code = (model, changing, [*dataset]), record.identity.get("code") or {}
            if any(code.get(top) != digest for top, digest in card.code.items()):
                raise LedgerError(f"{path}: not the code of the run that the ledger names: {', '.join(card.code)}")
            if planned != (card.model, [*card.methods], [card.dataset]):
                raise LedgerError(f"{path}: not the model of the recipe that the ledger names: {model}, {dataset}")
        case _:
            raise LedgerError(f"{run.run}: its recipe names no model")


def _check_regions(run: RunLedger, card: ModelCard, path: Path) -> None:
    """Raise `LedgerError` unless the card has the policy's regions: as sealed where the run ended with their tensors,
    as absent where a module of their own was deleted."""
    policy = read_policy(run)
    regions = () if policy is None else policy.sealed
    kept = {owner_of(name, regions) for name in read_ended(run).tensors.parameters}
    sealed = [region for region in regions if region.name in kept]
    absent = [region for region in regions if region.name not in kept and region.module]
    if (sealed, absent) != ([*card.sealed], [*card.absent]):
        names = [[region.name for region in regions] for regions in (sealed, absent, card.sealed, card.absent)]
        raise LedgerError(
            f"{path}: found sealed regions {names[2]}, absent {names[3]}, or these regions in other places; expected"
            f" {names[0]}, absent {names[1]}, by the policy and the tensors that the ledger ends with"
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
    """Return the SHA-256 of `model.json`. Raises `RunError` for a file that is not a card."""
    read_card(path)  # so that no malformed card is ever signed
    return hashlib.sha256(read_bytes(path, max_bytes=rundir.MAX_JSON_BYTES, error=RunError)).hexdigest()

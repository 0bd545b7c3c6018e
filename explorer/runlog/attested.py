"""A model with its attestation, believed: who signed it, that it is about these files, the quorum of its checkpoint.

This is what everybody checks who goes on from a model, before anything else. The ledger itself is not looked at here:
who has it can hold every claim against it (`explorer.release`).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from explorer import note, rundir
from explorer.errors import LedgerError, NoteError, ProvenanceError
from explorer.ledger.trust_anchor import Judgement, judge
from explorer.provenance.envelope import MAX_BYTES
from explorer.provenance.model_attestation import CARD, MODEL, Attested, open_model
from explorer.provenance.named import LedgerName
from explorer.provenance.trust import Authority, Trust
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.model_file import ModelFile

ATTESTATION = "attestation.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelPlace:
    """Where a model, its card and its attestation are."""

    model: Path
    card: Path
    attestation: Path

    @classmethod
    def of(cls, directory: Path) -> "ModelPlace":
        """In the directory that one ships."""
        return cls(model=directory / MODEL, card=directory / CARD, attestation=directory / ATTESTATION)


def read_attested(place: ModelPlace, *, trust: Trust, now: int) -> Attested:
    """The attestation of a model. Raises `ProvenanceError` unless the trust file believes it, it is about these files,
    the checkpoint in it has the quorum that the trust file asks for, and the trainer of that ledger signed both."""
    content = rundir.read_bytes(place.attestation, max_bytes=MAX_BYTES, error=ProvenanceError)
    found = open_model(content, trust=trust, now=now, where=str(place.attestation))
    card = rundir.read_bytes(place.card, max_bytes=rundir.MAX_JSON_BYTES, error=ProvenanceError)
    digests = {place.model: (ModelFile(place.model).sha256, found.model)}
    digests[place.card] = hashlib.sha256(card).hexdigest(), found.card
    for path, (here, attested) in digests.items():
        if here != attested:
            raise ProvenanceError(
                f"{path}: not the file that {place.attestation.name} is about: found {here}, expected {attested}"
            )
    check_ledger(found, trust=trust, now=now, where=str(place.attestation))
    return found


def check_ledger(found: Attested, *, trust: Trust, now: int, where: str) -> Judgement:
    """Why the checkpoint in an attestation is believed. Raises as `check_checkpoint` does."""
    value, by = found.value, found.authorities
    return check_checkpoint(value.checkpoint, ledger=value.ledger, by=by, trust=trust, now=now, where=where)


def check_checkpoint(
    checkpoint: str, *, ledger: LedgerName, by: Sequence[Authority], trust: Trust, now: int, where: str
) -> Judgement:
    """Why the checkpoint in a document that these authorities have signed is believed.

    Raises `ProvenanceError` if it is not, if it is of another ledger than the document names, and if nobody who
    vouches for the document has signed it: a trainer cannot claim another one's ledger for a model of their own.
    """
    try:
        signed = note.parse(checkpoint.encode())
        judged = judge(signed, anchor=anchor_of_trust(trust, origin=ledger.origin), now=now)
    except (NoteError, LedgerError) as error:
        raise ProvenanceError(f"{where}: checkpoint: {error}") from error
    named = ledger.origin, ledger.size, ledger.root
    here = judged.checkpoint.origin, judged.checkpoint.size, judged.checkpoint.root.hex()
    if here != named:
        raise ProvenanceError(
            f"{where}: checkpoint: of {here[0]} at {here[1]} entries; expected {named[0]} at {named[1]}"
        )
    signers = {verifier.public_key for verifier in judged.signed_by}
    if signers.isdisjoint(key.raw for authority in by for key in authority.keys):
        names = ", ".join(authority.name for authority in by)
        raise ProvenanceError(f"{where}: signed by {names}, who did not sign the ledger {ledger.origin}")
    return judged

"""A shipped model: its directory, with every signature and digest checked. No ledger is read here."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from explorer.errors import ProvenanceError
from explorer.ledger.trust_anchor import Judgement
from explorer.provenance.envelope import MAX_BYTES
from explorer.provenance.model_attestation import Attested
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.routing_weights import policy_for
from explorer.provenance.signing import Kind, Signed, open_document
from explorer.provenance.taxonomy import TAXONOMY, Taxonomy
from explorer.provenance.trust import Trust
from explorer.rundir import read_bytes
from explorer.runlog.attested import ATTESTATION, PARENTS, ModelPlace, ancestors, check_ledger, read_attested
from explorer.runlog.documents import POLICY_FILE, TAXONOMY_FILE
from explorer.runlog.model_file import CARD, MODEL, read_card


@dataclass(frozen=True, kw_only=True, slots=True)
class Shipped:
    """A model whose record is believed, as far as its own directory shows."""

    directory: Path
    model: Path
    attested: Attested
    taxonomy: Signed[Taxonomy]
    policy: Signed[RoutingPolicy]
    judgement: Judgement  # who signed the ledger's checkpoint
    ancestors: tuple[Attested, ...]  # models that it continues, the nearest first


def open_shipped(path: Path, *, trust: Trust, now: int) -> Shipped:
    """Open a model's directory, or the model file in it.

    Raises `ProvenanceError`, `LedgerError` or `RunError` for the first failure: a trusted authority has to have signed
    the attestation, which has to name this model file, this card, and the signed taxonomy and policy; the checkpoint
    in it has to be the ledger's and have its quorum. The same holds for the models that it continues.
    """
    directory, model = (path, path / MODEL) if path.is_dir() else (path.parent, path)
    attested = read_attested(replace(ModelPlace.of(directory), model=model), trust=trust, now=now)
    read_card(directory / CARD)
    facts = attested.value.facts
    # Documents are judged as of when the run began, as the run judged them: a policy that expired since does not undo
    # a training that it governed. The policy is read with the taxonomy, whose classes it names.
    taxonomy = _open(directory / TAXONOMY_FILE, TAXONOMY, trust=trust, judged=facts.judged)
    _check_digest(directory / TAXONOMY_FILE, taxonomy.value.digest, facts.taxonomy)
    policy = _open(directory / POLICY_FILE, policy_for(taxonomy.value), trust=trust, judged=facts.judged)
    _check_digest(directory / POLICY_FILE, policy.value.digest, facts.policy)
    return Shipped(
        directory=directory,
        model=model,
        attested=attested,
        taxonomy=taxonomy,
        policy=policy,
        judgement=check_ledger(attested, trust=trust, now=now, where=str(directory / ATTESTATION)),
        ancestors=ancestors(attested.value, directory / PARENTS, trust=trust),
    )


def _open(path: Path, kind: Kind[Any], *, trust: Trust, judged: int) -> Signed[Any]:
    content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
    return open_document(content, kind, trust=trust, now=judged, where=str(path))


def _check_digest(path: Path, digest: str, attested: str) -> None:
    if digest != attested:
        raise ProvenanceError(f"{path}: found digest {digest}, expected {attested}, which the attestation names")

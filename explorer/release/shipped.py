"""A model as it was shipped: its directory, opened as far as signatures and digests go. No ledger is looked at here."""

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
    """A model whose record is believed as far as its own directory goes."""

    directory: Path
    model: Path
    attested: Attested
    taxonomy: Signed[Taxonomy]
    policy: Signed[RoutingPolicy]
    judgement: Judgement  # who signed the ledger's checkpoint
    ancestors: tuple[Attested, ...]  # models that it continues, the nearest first


def open_shipped(path: Path, *, trust: Trust, now: int) -> Shipped:
    """Open a model's directory, or the file in it.

    Raises `ProvenanceError`, `LedgerError` or `RunError` with the first thing that does not hold: some party whom the
    trust file believes has signed the attestation, it is about this file and this card, taxonomy and policy are those
    that it names and are signed, the checkpoint in it is the ledger's and has its quorum, and so for its ancestors.
    """
    directory, model = (path, path / MODEL) if path.is_dir() else (path.parent, path)
    attested = read_attested(replace(ModelPlace.of(directory), model=model), trust=trust, now=now)
    read_card(directory / CARD)
    facts = attested.value.facts
    taxonomy = _open(directory / TAXONOMY_FILE, TAXONOMY, trust=trust, judged=facts.judged)
    _same(directory / TAXONOMY_FILE, taxonomy.value.digest, facts.taxonomy)
    policy = _open(directory / POLICY_FILE, policy_for(taxonomy.value), trust=trust, judged=facts.judged)
    _same(directory / POLICY_FILE, policy.value.digest, facts.policy)
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


def _same(path: Path, found: str, attested: str) -> None:
    if found != attested:
        raise ProvenanceError(f"{path}: has digest {found}; the attestation names {attested}")

"""What a run was governed by: its trust file, taxonomy, policy and tags, checked against each other and its ledger.

A run keeps copies of the signed documents, and the moment at which they were judged when it began. They are believed
if a trust file says so: the one that the caller brings, or else the run's own copy, which only shows that the run is
consistent with itself. The genesis of its ledger names all of them by digest.
"""

from dataclasses import dataclass
from pathlib import Path

from explorer import rundir
from explorer.entries.run import Genesis
from explorer.errors import LedgerError, ProvenanceError
from explorer.provenance.attestation import VerifiedTags, read_attestation, weigh_tags
from explorer.provenance.envelope import MAX_BYTES
from explorer.provenance.routing import Routing, bind, policy_for
from explorer.provenance.signed import Kind, Signed, open_document
from explorer.provenance.taxonomy import TAXONOMY, Taxonomy
from explorer.provenance.trust import Authority, Trust, read_trust

TRUST = "trust.json"
TAXONOMY_FILE = "taxonomy.json"
POLICY = "policy.json"
TABLE = "tags.parquet"
ATTESTATION = "tags.json"
SOURCE = "source.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Basis:
    """Whom to believe about a run, and the taxonomy that everything else speaks of."""

    trust: Trust
    anchored: bool  # the caller brought the trust file
    judged: int  # seconds since 1970: when the run began, as it says itself
    taxonomy: Taxonomy
    by: tuple[Authority, ...]  # who signed the taxonomy


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """The policy of a run."""

    routing: Routing
    by: tuple[Authority, ...]  # who signed it


def read_basis(run: Path, genesis: Genesis, *, trust: Trust | None = None) -> Basis:
    """Read trust file and taxonomy of a run.

    Raises `ProvenanceError` for a document that is not believed, `LedgerError` for one that is not the one in the
    genesis.
    """
    directory = run / rundir.GOVERNANCE
    own = read_trust(directory / TRUST)
    _same("trust file", own.digest, genesis.trust)
    believed, judged = trust or own, genesis.judged or 0
    taxonomy = _open(directory / TAXONOMY_FILE, TAXONOMY, believed, judged)
    _same("taxonomy", taxonomy.value.digest, genesis.taxonomy)
    return Basis(
        trust=believed,
        anchored=trust is not None,
        judged=judged,
        taxonomy=taxonomy.value,
        by=taxonomy.authorities,
    )


def read_rules(run: Path, genesis: Genesis, basis: Basis) -> Rules | None:
    """Read the policy of a run; None: it routes nothing. Raises as `read_basis` does."""
    if genesis.policy is None:
        return None
    path = run / rundir.GOVERNANCE / POLICY
    policy = _open(path, policy_for(basis.taxonomy), basis.trust, basis.judged)
    _same("policy", policy.value.digest, genesis.policy)
    return Rules(routing=bind(policy.value, basis.taxonomy, where=str(path)), by=policy.authorities)


def read_tags(run: Path, genesis: Genesis, basis: Basis) -> VerifiedTags:
    """Read and check the tags of a run. Those that nobody to be believed vouches for are named in `doubts`: the run may
    have set them aside. Raises as `read_basis` does."""
    directory = run / rundir.GOVERNANCE
    tags = weigh_tags(
        directory / TABLE,
        read_attestation(directory / ATTESTATION),
        taxonomy=basis.taxonomy,
        trust=basis.trust,
        now=basis.judged,
        where=str(directory / ATTESTATION),
    )
    named = {(sources.root, sources.attestation) for sources in genesis.tags.values()}
    if (tags.root, tags.attestation) not in named:
        raise LedgerError(f"entry 0: tags: the genesis names {len(named)} tag tables, and {directory / TABLE} is none")
    return tags


def _open(path: Path, kind: Kind, trust: Trust, now: int) -> Signed:
    content = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
    return open_document(content, kind, trust=trust, now=now, where=str(path))


def _same(what: str, found: str, expected: str | None) -> None:
    if found != expected:
        raise LedgerError(f"entry 0: the {what} of the run has digest {found}; the genesis names {expected}")

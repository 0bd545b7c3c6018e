"""The models that a model goes on from, however far back, by their attestations.

They lie in one directory, each named for the digest of its payload. An ancestor is judged for the moment for which the
run that began with its model had judged its documents: it was believed then.
"""

import re
from pathlib import Path

from explorer.errors import ProvenanceError
from explorer.provenance.envelope import MAX_BYTES
from explorer.provenance.model_attestation import Attested, ModelAttestation, open_model
from explorer.provenance.trust import Trust
from explorer.rundir import read_bytes
from explorer.runlog.attested import check_ledger

PARENTS = "parents"  # the directory, beside a model and below a run's `governance/`
MOST = 1_000  # models
_NAME = re.compile(r"[0-9a-f]{64}\.json")


def beside(attestation: Path) -> Path:
    """Where the attestations of a model's ancestors lie: with its own among those that a run keeps, else below it."""
    directory = attestation.parent
    return directory if directory.name == PARENTS else directory / PARENTS


def kept_beside(attestation: Path) -> tuple[Path, ...]:
    """The attestations that lie there, by name, its own not among them; whether they are believed `ancestors` says."""
    names = (path for path in beside(attestation).glob("*.json") if _NAME.fullmatch(path.name))
    return tuple(sorted(path for path in names if path.name != attestation.name)[:MOST])


def ancestors(value: ModelAttestation, directory: Path, *, trust: Trust) -> tuple[Attested, ...]:
    """All of them, the nearest first.

    Raises `ProvenanceError` for one that is not here, is not believed, or is not the one that its descendant names, and
    for one whose ledger lacks the quorum that the trust file asks for.
    """
    found: dict[str, Attested] = {}
    waiting = [value]
    while waiting:
        child = waiting.pop(0)
        for parent in (each for each in child.parents if each.kind == "model"):
            if parent.attestation is None:
                raise ProvenanceError(f"run {child.run} goes on from a model that nobody attested: {parent.model}")
            if parent.attestation in found:
                continue
            if len(found) == MOST:
                raise ProvenanceError(f"{directory}: more than {MOST} models to go on from")
            path = directory / f"{parent.attestation}.json"
            content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
            opened = open_model(content, trust=trust, now=child.facts.judged, where=str(path))
            if (opened.digest, opened.model) != (parent.attestation, parent.model):
                raise ProvenanceError(f"{path}: not the attestation that run {child.run} names")
            if opened.value.ledger != parent.ledger:
                raise ProvenanceError(f"{path}: of another ledger than run {child.run} names")
            check_ledger(opened, trust=trust, now=child.facts.judged, where=str(path))
            found[opened.digest] = opened
            waiting.append(opened.value)
    return tuple(found.values())

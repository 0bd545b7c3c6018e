"""Models that their attestations vouch for: the one at hand, and its ancestors, however far back.

Everything here is checked before training continues from a model: who signed the attestation, that it is about these
files, and that the checkpoint in it has its quorum. The ledger itself is not read here: `explorer.release` checks every
claim against a ledger that is at hand.

Attestations of ancestors lie in one directory, each named for the digest of its payload. An ancestor is judged for the
moment for which the run that began with its model had judged its documents: it was believed then.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from explorer import merkle, note, rundir
from explorer.entries.fields import LedgerState
from explorer.errors import LedgerError, NoteError, ProvenanceError
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.trust_anchor import Judgement, judge
from explorer.provenance.envelope import MAX_BYTES
from explorer.provenance.model_attestation import CARD, MODEL, Attested, ModelAttestation, open_model
from explorer.provenance.spellings import LedgerName
from explorer.provenance.trust import Authority, Trust
from explorer.rundir import read_bytes
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.model_file import ModelFile


def goes_on_from(ledger: LedgerDirectory, named: LedgerState | LedgerName) -> bool:
    """Return whether the ledger has the name, and its first entries are all of those that the named state has.

    A state without entries says nothing of any ledger, and none continues it. Raises `LedgerError` for a damaged
    ledger.
    """
    here = ledger.checkpoint()
    if here.origin != named.origin or not 0 < named.size <= here.size:
        return False
    return merkle.root(named.size, ledger.read_hashes).hex() == named.root


# --- a model and its attestation ---

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
    """Read the attestation of a model. Raises `ProvenanceError` unless the trust file believes it, it is about these
    files, the checkpoint in it has the quorum that the trust file asks for, and the trainer of that ledger signed
    both."""
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
    """Judge the checkpoint in an attestation. Raises as `check_checkpoint` does."""
    value, by = found.value, found.authorities
    return check_checkpoint(value.checkpoint, ledger=value.ledger, by=by, trust=trust, now=now, where=where)


def check_checkpoint(
    checkpoint: str, *, ledger: LedgerName, by: Sequence[Authority], trust: Trust, now: int, where: str
) -> Judgement:
    """Judge the checkpoint in a document that these authorities have signed.

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


# --- its ancestors ---

PARENTS = "parents"  # the directory, next to a model and below a run's `governance/`
MOST = 1_000  # models
_NAME = re.compile(r"[0-9a-f]{64}\.json")


def beside(attestation: Path) -> Path:
    """Return where the attestations of a model's ancestors lie: with its own among those that a run keeps, else below
    it."""
    directory = attestation.parent
    return directory if directory.name == PARENTS else directory / PARENTS


def kept_beside(attestation: Path) -> tuple[Path, ...]:
    """Return the attestations that lie there, by name, its own not among them; whether they are believed `ancestors`
    says."""
    names = (path for path in beside(attestation).glob("*.json") if _NAME.fullmatch(path.name))
    return tuple(sorted(path for path in names if path.name != attestation.name)[:MOST])


def ancestors(value: ModelAttestation, directory: Path, *, trust: Trust) -> tuple[Attested, ...]:
    """Return all of them, the nearest first.

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

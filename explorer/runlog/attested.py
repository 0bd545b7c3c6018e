"""Attested models: a model with its attestation, and its ancestors, however far back.

All of this is checked before training continues from a model: who signed the attestation, that it is about these files,
and that the checkpoint in it has its quorum. Claims are not checked against the ledger, which may be elsewhere:
`explorer.release` does that.

Attestations of ancestors are in one directory, each named for the digest of its payload. An ancestor is judged for the
moment for which the run that began with its model had judged its documents, because it was believed then.
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


def continues_ledger(ledger: LedgerDirectory, named: LedgerState | LedgerName) -> bool:
    """Return whether the ledger has the name of the named state and begins with all of its entries.

    Raises `LedgerError` for a damaged ledger.
    """
    # An empty state would be a prefix of every ledger, so none continues it.
    here = ledger.checkpoint()
    if here.origin != named.origin or not 0 < named.size <= here.size:
        return False
    return merkle.root(named.size, ledger.read_hashes).hex() == named.root


# --- a model and its attestation ---

ATTESTATION = "attestation.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelPlace:
    """Paths of a model, its card and its attestation."""

    model: Path
    card: Path
    attestation: Path

    @classmethod
    def of(cls, directory: Path) -> "ModelPlace":
        """Return the paths in the directory that is shipped."""
        return cls(model=directory / MODEL, card=directory / CARD, attestation=directory / ATTESTATION)


def read_attested(place: ModelPlace, *, trust: Trust, now: int) -> Attested:
    """Read the attestation of a model. Raises `ProvenanceError` unless it is signed by keys of the trust file, it is
    about these files, the checkpoint in it has the quorum that the trust file requires, and the trainer of that ledger
    signed both."""
    content = rundir.read_bytes(place.attestation, max_bytes=MAX_BYTES, error=ProvenanceError)
    attested = open_model(content, trust=trust, now=now, where=str(place.attestation))
    card = rundir.read_bytes(place.card, max_bytes=rundir.MAX_JSON_BYTES, error=ProvenanceError)
    digests = {place.model: (ModelFile(place.model).sha256, attested.model)}
    digests[place.card] = hashlib.sha256(card).hexdigest(), attested.card
    for path, (here, expected) in digests.items():
        if here != expected:
            raise ProvenanceError(
                f"{path}: not the file that {place.attestation.name} is about: found {here}, expected {expected}"
            )
    check_ledger(attested, trust=trust, now=now, where=str(place.attestation))
    return attested


def check_ledger(attested: Attested, *, trust: Trust, now: int, where: str) -> Judgement:
    """Judge the checkpoint in an attestation. Raises the errors of `check_checkpoint`."""
    value, by = attested.value, attested.authorities
    return check_checkpoint(value.checkpoint, ledger=value.ledger, by=by, trust=trust, now=now, where=where)


def check_checkpoint(
    checkpoint: str, *, ledger: LedgerName, by: Sequence[Authority], trust: Trust, now: int, where: str
) -> Judgement:
    """Judge the checkpoint in a signed document.

    Args:
        checkpoint: the signed note.
        ledger: the ledger that the document names.
        by: authorities that signed the document.
        trust: trust file with the keys and the quorum for checkpoints.
        now: time to judge for, in seconds since 1970.
        where: name of the document in messages.

    Raises `ProvenanceError` for a checkpoint that the trust file refuses, that is of another ledger than the document
    names, or that none of `by` has signed: a trainer cannot claim another trainer's ledger for a model of their own.
    """
    try:
        signed = note.parse(checkpoint.encode())
        judged = judge(signed, anchor=anchor_of_trust(trust, origin=ledger.origin), now=now)
    except (NoteError, LedgerError) as error:
        raise ProvenanceError(f"{where}: checkpoint: {error}") from error
    # The document names the ledger in its own fields, which its readers use: both have to be the same.
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


def parents_directory(attestation: Path) -> Path:
    """Return the directory of the attestations of a model's ancestors: that of its own attestation where a run keeps
    them together, else `parents` next to it."""
    directory = attestation.parent
    return directory if directory.name == PARENTS else directory / PARENTS


def kept_attestations(attestation: Path) -> tuple[Path, ...]:
    """Return the attestations of possible ancestors, by name; `ancestors` checks them."""
    names = (path for path in parents_directory(attestation).glob("*.json") if _NAME.fullmatch(path.name))
    return tuple(sorted(path for path in names if path.name != attestation.name)[:MOST])


def ancestors(value: ModelAttestation, directory: Path, *, trust: Trust) -> tuple[Attested, ...]:
    """Return all ancestors of a model, the nearest first.

    Raises `ProvenanceError` for an attestation that is missing, is not believed, or is not the one that its descendant
    names, and for one whose ledger lacks the quorum that the trust file requires.
    """
    # Breadth first, and each ancestor once: two models may begin with the same one.
    opened: dict[str, Attested] = {}
    waiting = [value]
    while waiting:
        child = waiting.pop(0)
        for parent in (parent for parent in child.parents if parent.kind == "model"):
            if parent.attestation is None:
                raise ProvenanceError(f"run {child.run} continues from a model without an attestation: {parent.model}")
            if parent.attestation in opened:
                continue
            # The chain is read from files of other parties: it must end.
            if len(opened) == MOST:
                raise ProvenanceError(f"{directory}: more than {MOST} ancestors")
            path = directory / f"{parent.attestation}.json"
            content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
            attested = open_model(content, trust=trust, now=child.facts.judged, where=str(path))
            if (attested.digest, attested.model) != (parent.attestation, parent.model):
                raise ProvenanceError(f"{path}: not the attestation that run {child.run} names")
            if attested.value.ledger != parent.ledger:
                raise ProvenanceError(f"{path}: of another ledger than run {child.run} names")
            check_ledger(attested, trust=trust, now=child.facts.judged, where=str(path))
            opened[attested.digest] = attested
            waiting.append(attested.value)
    return tuple(opened.values())

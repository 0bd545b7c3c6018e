"""The members of a run's family, each with what there is to believe it by: runs, models, observations.

*Verified* is what the reader's trust file believes: a ledger that verifies whole, an attestation that is signed and
about these files, an observation whose signer may make it. *Here* is what lies here and nobody was asked about;
*refused*, what somebody was asked about and did not believe. The rest is *claimed*, by who names it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from explorer import rundir
from explorer.audit.history import badge
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Observation, Parent
from explorer.errors import ExplorerError, ProvenanceError
from explorer.provenance.envelope import MAX_BYTES, parse_envelope
from explorer.provenance.model_attestation import PREDICATE_TYPE, Attested, open_model
from explorer.provenance.statement import parse_statement
from explorer.provenance.trust import Trust
from explorer.release.attest import OBSERVATIONS
from explorer.release.observations import weigh
from explorer.rundir import read_bytes
from explorer.runlog.attested import ATTESTATION, PARENTS, ModelPlace, read_attested
from explorer.runlog.run_ledger import RunLedger

Standing = Literal["verified", "here", "refused", "claimed"]
UNASKED = "nobody was asked who signed it"
MOST = 1_000  # observations


@dataclass(frozen=True, kw_only=True, slots=True)
class Relative:
    """A run, a model, or an observation."""

    key: str
    what: Literal["run", "model", "observation"]
    name: str
    digest: str  # root of the ledger, SHA-256 of the model's file, digest of the statement; "": not known here
    standing: Standing
    why: str  # in words
    generation: int  # 0: the run itself; less: what it goes on from; more: what goes on from it


@dataclass(frozen=True, kw_only=True, slots=True)
class Reader:
    """Who asks: whom they believe, None: nobody; and when, in seconds since 1970."""

    trust: Trust | None
    now: int


def run_here(place: Path, origin: str, name: str, root: str, generation: int, reader: Reader) -> Relative:
    """A run whose ledger is here, all of it verified if somebody is to be believed."""
    standing, why = _sound(place, reader)
    return Relative(key=origin, what="run", name=name, digest=root, standing=standing, why=why, generation=generation)


def run_named(named: LedgerState, generation: int) -> Relative:
    """A run of which only the name is known here."""
    why = f"no ledger here has its {named.size:,} entries: its name is all that is known"
    key = f"{named.origin} {named.root}"
    return Relative(
        key=key, what="run", name=named.origin, digest=named.root, standing="claimed", why=why, generation=generation
    )


def own_model(run: RunLedger, reader: Reader) -> tuple[Attested | None, Relative]:
    """The model that a run carries with an attestation, and that attestation where it is believed."""
    place = run.run / rundir.MODEL
    name, path = f"model of {run.genesis.run}", place / ATTESTATION
    if reader.trust is None:
        return None, _model(name, _subject(path), "here", UNASKED, 1)
    try:
        attested = read_attested(ModelPlace.of(place), trust=reader.trust, now=reader.now)
    except ExplorerError as error:
        return None, _model(name, _subject(path), "refused", str(error), 1)
    return attested, _model(name, attested.model, "verified", f"attested by {_names(attested)}", 1)


def first_model(run: Path, parent: Parent, judged: int, generation: int, reader: Reader) -> Relative:
    """The model that a run began with, by the attestation of it that the run keeps; it was believed at `judged`."""
    name, model = f"model of {parent.ledger.origin}", parent.model or ""
    path = run / rundir.GOVERNANCE / PARENTS / f"{parent.attestation}.json"
    if parent.attestation is None or not path.exists():
        return _model(name, model, "claimed", "no attestation of it is kept beside the run", generation)
    if reader.trust is None:
        return _model(name, model, "here", UNASKED, generation)
    try:
        content = read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
        opened = open_model(content, trust=reader.trust, now=judged, where=path.name)
    except ExplorerError as error:
        return _model(name, model, "refused", str(error), generation)
    if (opened.digest, opened.model) != (parent.attestation, model):
        return _model(name, model, "refused", "the attestation beside the run is another one", generation)
    return _model(name, model, "verified", f"attested by {_names(opened)}, when the run began", generation)


def observations(place: Path, attested: Attested | None, reader: Reader) -> Iterator[Relative]:
    """What lies beside a model that is believed, or not. Nobody's weight is asked for: that is for a gate to say."""
    if attested is None or reader.trust is None:
        for path in sorted((place / OBSERVATIONS).glob("*.json"))[:MOST]:
            why = UNASKED if reader.trust is None else "of a model whose attestation is not believed"
            yield _observation(path.stem, "a statement", "here", why)
        return
    for each in weigh(place, attested, (), trust=reader.trust, now=reader.now):
        digest = each.file.removesuffix(".json")
        if each.value is None or each.by is None:
            yield _observation(digest, "a statement", "refused", each.why)
        else:
            yield _observation(digest, f"{each.by} as {each.value.role}", "verified", f"signed by {each.by}")


def told(entry: Observation) -> Relative:
    """An observation that the project's ledger names and that is not beside the model."""
    why = "the project's ledger names it; the statement is not here"
    return _observation(entry.statement, f"a statement as {entry.role}", "claimed", why)


def _sound(place: Path, reader: Reader) -> tuple[Standing, str]:
    if reader.trust is None:
        return "here", UNASKED
    try:
        found = badge(RunLedger(place), trust=reader.trust, now=reader.now)
    except ExplorerError as error:
        return "refused", str(error)
    if found.findings:
        return "refused", found.findings[0]
    return "verified", f"its ledger verifies, signed by {', '.join(found.signed_by)}"


def _names(attested: Attested) -> str:
    return ", ".join(one.name for one in attested.authorities)


def _model(name: str, sha256: str, standing: Standing, why: str, generation: int) -> Relative:
    key = f"model {sha256 or name}"
    return Relative(key=key, what="model", name=name, digest=sha256, standing=standing, why=why, generation=generation)


def _observation(digest: str, name: str, standing: Standing, why: str) -> Relative:
    key = f"observation {digest}"
    return Relative(key=key, what="observation", name=name, digest=digest, standing=standing, why=why, generation=2)


def _subject(path: Path) -> str:
    """The model that an attestation speaks of, whoever has signed it; nothing for what is no attestation."""
    try:
        envelope = parse_envelope(read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError), where=str(path))
        return parse_statement(envelope.payload, predicate_type=PREDICATE_TYPE, where=str(path)).subjects[0].sha256
    except ProvenanceError:
        return ""

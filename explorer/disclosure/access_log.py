"""The access log of a run: the grants for which its keys were wrapped, and the reads that were made with them.

An entry of the project's ledger names the grant and the query by digest only. The content of the grant is in the file
of wrapped keys in the run's directory, for as long as that exists, and in the reader's signed request, which is the
entry's blob. Where there is no request, because the keys were in a pack, the query is recovered by trying those that
`explorer read` makes of a grant when no steps are given.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from explorer import rundir
from explorer.disclosure.grants_in_force import check_standing, check_wrapped, covered_classes
from explorer.disclosure.reading import Query
from explorer.disclosure.requests import BLOB, MAX_REQUEST, SignedRequest, parse_request
from explorer.disclosure.wrapped import believe, naming, read_wrapped
from explorer.entries.kinds import Access, GrantUse, Unknown
from explorer.errors import LedgerError, ProvenanceError
from explorer.ledger.storage import blob_path, read_blob
from explorer.project import AUDIT, ProjectEntry, Recorded, read_project, runs_of
from explorer.provenance.encryption import KINDS
from explorer.provenance.grants import Grant, claimed_grant, grant_digest, open_grant
from explorer.provenance.trust import Trust
from explorer.runlog.attested import continues_ledger
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import RunLedger

# --- grants ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """A file of wrapped keys."""

    path: Path
    grant: Grant | None  # as the file claims; None: it cannot be read
    fault: str | None  # why its keys may not be used; None: they may


def wrapped_grants(run: RunLedger, recorded: Collection[Recorded], *, trust: Trust, now: int) -> tuple[Listed, ...]:
    """List a run's files of wrapped keys, by name; `recorded` are the entries of the project's ledger."""
    files = sorted((run.run / rundir.GRANTS).glob("*.json"))
    return tuple(_listed(path, run, recorded, trust, now) for path in files)


def _listed(path: Path, run: RunLedger, recorded: Collection[Recorded], trust: Trust, now: int) -> Listed:
    grant = None
    try:
        file = read_wrapped(path)
        grant = claimed_grant(file.grant, where=str(path))
        name = naming(believe(file, run, trust=trust, now=now, where=str(path)))
        check_standing(recorded, name)
        check_wrapped(recorded, name, origin=file.ledger.origin)
    except ProvenanceError as error:
        return Listed(path=path, grant=grant, fault=str(error).removeprefix(f"{path}: "))
    return Listed(path=path, grant=grant, fault=None)


# --- accesses ---

MOST = 1_000  # files of wrapped keys that are read


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """A grant whose content is here: in a file of wrapped keys, or in a request."""

    grant: Grant
    believed: bool  # it is signed by authorities in the trust file, and in force today
    why: str | None  # why it is not believed; None: it is, or no trust file was given


@dataclass(frozen=True, kw_only=True, slots=True)
class Logged:
    """An entry of the project's ledger about the run."""

    index: int
    action: Literal["wrapped", "read", "revoked"]
    id: str | None  # of the grant, from the entry on its wrapping; None: there is no such entry
    grant: str  # digest of its payload
    known: Known | None  # None: the content of this grant is not here
    query: str | None  # its digest; None: nothing was read
    asked: Query | None  # the query with that digest; None: none of those that were tried
    fits: bool  # it names this very ledger, or an earlier state of it


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessLog:
    """The entries about a run, in the order in which they were recorded."""

    logged: tuple[Logged, ...]
    unknown: tuple[str, ...]  # entries of unknown kinds or versions: they may be about the run


def access_log(run: RunLedger, *, trust: Trust | None, now: int) -> AccessLog:
    """List who may read the run and who did, as recorded. `now` is in seconds since 1970.

    Raises `LedgerError` for a damaged project's ledger; its signatures are for `project_badge` to check.
    """
    recorded = tuple(read_project(runs_of(run.run)))
    unknown = tuple(
        f"entry {item.index}: {item.entry.head.kind} v{item.entry.head.version}"
        for item in recorded
        if isinstance(item.entry, Unknown)
    )
    return AccessLog(logged=tuple(_logged(run, recorded, trust=trust, now=now)), unknown=unknown)


def _logged(run: RunLedger, recorded: Iterable[Recorded], *, trust: Trust | None, now: int) -> Iterator[Logged]:
    origin, recorded = run.ledger.checkpoint().origin, tuple(recorded)
    known = _known(run, recorded, trust=trust, now=now)
    uses = {item.entry.grant: item.entry for item in recorded if isinstance(item.entry, GrantUse)}
    wrapped: set[tuple[str, str]] = set()  # owners and ids of grants whose keys were wrapped for this run
    for item in recorded:
        entry = item.entry
        # A revocation names no run: it concerns this one if keys of it were wrapped for the grant before.
        if isinstance(entry, GrantUse) and entry.ledger is not None and entry.ledger.origin == origin:
            wrapped.add((entry.owner, entry.id))
            action, query, fits = "wrapped", None, continues_ledger(run.ledger, entry.ledger)
        elif isinstance(entry, GrantUse) and entry.action == "revoked" and (entry.owner, entry.id) in wrapped:
            action, query, fits = "revoked", None, True
        elif isinstance(entry, Access) and entry.ledger.origin == origin:
            action, query, fits = "read", entry.query, continues_ledger(run.ledger, entry.ledger)
        else:
            continue
        # The file of wrapped keys comes before the request: it is checked against the run, a request only by itself.
        grant = known.get(entry.grant)
        request = _request(run, entry)
        if grant is None and request is not None:
            grant = _in_request(request, recorded, trust=trust, now=now)
        yield Logged(
            index=item.index,
            action=action,
            id=uses[entry.grant].id if entry.grant in uses else None,
            grant=entry.grant,
            known=grant,
            query=query,
            asked=request.request.asked if request else _asked(run, grant.grant, query) if grant and query else None,
            fits=fits,
        )


def _known(run: RunLedger, recorded: tuple[Recorded, ...], *, trust: Trust | None, now: int) -> dict[str, Known]:
    """Return the grants in the run's directory, by digest; files that cannot be read are skipped."""
    listed = () if trust is None else wrapped_grants(run, recorded, trust=trust, now=now)
    faults = {file.path: file.fault for file in listed}
    known: dict[str, Known] = {}
    for path in sorted((run.run / rundir.GRANTS).glob("*.json"))[:MOST]:
        try:
            envelope = read_wrapped(path).grant
            grant = claimed_grant(envelope, where=str(path))
        except ProvenanceError:
            continue  # entries about its grant are then shown as of a grant that is not here
        fault = faults.get(path)
        known[grant_digest(envelope)] = Known(grant=grant, believed=path in faults and fault is None, why=fault)
    return known


def _request(run: RunLedger, entry: ProjectEntry | Unknown) -> SignedRequest | None:
    """Return the signed request behind an entry; None: it has none, or its blob is gone or is not the request for
    it."""
    blob = entry.blobs.get(BLOB) if isinstance(entry, Access) else None
    directory = runs_of(run.run) / AUDIT
    if blob is None or blob.size > MAX_REQUEST or not (directory / blob_path(blob.sha256)).exists():
        return None
    content = read_blob(directory, blob.sha256)
    try:
        signed = parse_request(content, where=f"the request {blob.sha256}")
    except ProvenanceError:
        return None
    named = (signed.digest, grant_digest(signed.grant), signed.request.asked.digest)
    return signed if isinstance(entry, Access) and named == (blob.sha256, entry.grant, entry.query) else None


def _in_request(signed: SignedRequest, recorded: Iterable[Recorded], *, trust: Trust | None, now: int) -> Known:
    """Return the grant that a request contains, and whether it is in force today."""
    where = "grant"
    try:
        if trust is not None:
            opened = open_grant(signed.grant.content, trust=trust, now=now, where=where)
            check_standing(recorded, naming(opened))
        why = None
    except ProvenanceError as error:
        why = str(error)
    believed = trust is not None and why is None
    return Known(grant=claimed_grant(signed.grant, where=where), believed=believed, why=why)


def _asked(run: RunLedger, grant: Grant, digest: str) -> Query | None:
    return next((query for query in _usual(run, grant) if query.digest == digest), None)


def _usual(run: RunLedger, grant: Grant) -> Iterator[Query]:
    """Yield the queries that `explorer read` makes of a grant when no steps and at most one class are given."""
    try:
        covered = covered_classes(run.genesis, grant)
        steps = run.range_of(None, None)
    except (LedgerError, ProvenanceError):
        return  # the grant does not cover this run, or no step is done: there is no such query
    classes = tuple(path for path in (*run.genesis.classes, JOINT) if path in covered)
    for kind in (kind for kind in KINDS if kind in grant.entries):
        for asked in (classes, *((path,) for path in classes)):
            yield Query(run=run.genesis.run, kind=kind, classes=asked, steps=steps)

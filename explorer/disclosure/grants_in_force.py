"""Grants in force: the part of a run that a grant covers, and whether the grant still counts.

A grant covers classes of the run, and the stretches of their numbers that have reading keys. It counts until the
project's ledger names its revocation or a later grant with its id.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from explorer.entries.kinds import Genesis, GrantUse, Unknown
from explorer.errors import ProvenanceError, unknown
from explorer.project import Recorded
from explorer.provenance.encryption import KINDS
from explorer.provenance.grants import Grant
from explorer.provenance.spellings import covers
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import RunLedger, class_of


def covered_classes(genesis: Genesis, grant: Grant) -> frozenset[str]:
    """Return the classes of the run that the grant opens, with * for numbers over several where it opens all classes.

    Raises `ProvenanceError` for a grant that does not name this run, and for one that names a class or a kind of entry
    that the run does not have.
    """
    where = f"grant {grant.id} of {grant.owner}"
    if genesis.run not in grant.runs:
        raise ProvenanceError(f"{where} does not name this run: {unknown('run', genesis.run, grant.runs)}")
    for kind in grant.entries:
        if kind not in KINDS:
            raise ProvenanceError(f"{where}: {unknown('kind of entry with numbers', kind, KINDS)}")
    for branch in grant.classes:
        if not any(covers(branch, path) for path in genesis.classes):
            raise ProvenanceError(f"{where}: {unknown('class', branch, genesis.classes)}")
    classes = frozenset(path for path in genesis.classes if any(covers(branch, path) for branch in grant.classes))
    # Numbers over several classes give each one away by subtraction: only a grant to all classes opens them.
    return classes | {JOINT} if classes == frozenset(genesis.classes) else classes


def stretches(run: RunLedger, kinds: Collection[str]) -> dict[tuple[str, str], set[int]]:
    """Return the first steps of the stretches in which the run has numbers, by class path (or *) and kind of entry."""
    firsts: dict[tuple[str, str], set[int]] = defaultdict(set)
    # Steps that were executed again are included: a reader may compare them with their repetition.
    for placed in run.with_numbers():
        kind, first = run.stretch(placed)
        for name in placed.entry.blobs if kind in kinds else ():
            path = class_of(name)
            if path in (*run.genesis.classes, JOINT):
                firsts[path, kind].add(first)
    return dict(sorted(firsts.items()))


# --- validity by the project's ledger ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """A grant as the project's ledger names it."""

    owner: str
    id: str
    digest: str  # of its payload


def check_standing(recorded: Iterable[Recorded], grant: Named) -> None:
    """Raise `ProvenanceError` for a grant that is no longer in force.

    A revocation counts for every grant with its owner and id, whatever the content. A grant is replaced by a later one
    with its id. Entries about grants in an unknown version are refused, since they may revoke this one.
    """
    seen = False
    for index, use in grant_uses(recorded):
        if (use.owner, use.id) != (grant.owner, grant.id):
            continue
        if use.action == "revoked":
            raise ProvenanceError(
                f"grant {grant.id} of {grant.owner} was revoked: entry {index} of the project's ledger"
            )
        # Only an entry after this grant's own replaces it: before that, it is this grant that is the later one.
        if use.grant == grant.digest:
            seen = True
        elif seen:
            raise ProvenanceError(
                f"grant {grant.id} of {grant.owner}: replaced by a later grant with this id: entry {index} of the "
                f"project's ledger names {use.grant}, this is {grant.digest}"
            )


def is_revoked(recorded: Iterable[Recorded], grant: Named) -> bool:
    """Return whether a grant was revoked. Raises `ProvenanceError` for entries about grants in an unknown version."""
    uses = [use for _, use in grant_uses(recorded) if (use.owner, use.id) == (grant.owner, grant.id)]
    return any(use.action == "revoked" for use in uses)


def check_wrapped(recorded: Iterable[Recorded], grant: Named, *, origin: str) -> None:
    """Raise `ProvenanceError` unless the project's ledger records that keys of this ledger were wrapped for the
    grant."""
    for _, use in grant_uses(recorded):
        if use.action == "wrapped" and use.grant == grant.digest and use.ledger and use.ledger.origin == origin:
            return
    raise ProvenanceError(
        f"grant {grant.id} of {grant.owner}: the project's ledger records no wrapping of keys of {origin} for it; that "
        "ledger was set back to an earlier state, or this file was made elsewhere"
    )


def named(recorded: Iterable[Recorded], id: str) -> Named:
    """Return the grant with this id, as it was wrapped last.

    Raises `ProvenanceError` for an unknown id, with the nearest one, and for an id that two owners use.
    """
    latest = {(use.owner, use.id): use.grant for _, use in grant_uses(recorded)}
    owners = [owner for owner, known in latest if known == id]
    if not owners:
        raise ProvenanceError(unknown("grant", id, {known for _, known in latest}))
    if len(owners) > 1:
        raise ProvenanceError(f"{' and '.join(sorted(owners))} have grants with the id {id!r}: name a file instead")
    return Named(owner=owners[0], id=id, digest=latest[owners[0], id])


def grant_uses(recorded: Iterable[Recorded]) -> list[tuple[int, GrantUse]]:
    """Return the entries about wrapped and revoked grants, in order.

    Raises `ProvenanceError` for one of an unknown version: it may revoke a grant.
    """
    uses: list[tuple[int, GrantUse]] = []
    for item in recorded:
        if isinstance(item.entry, Unknown) and item.entry.head.kind == GrantUse.KIND:
            raise ProvenanceError(
                f"entry {item.index} of the project's ledger: grant v{item.entry.head.version} is not known here: it "
                "may revoke a grant"
            )
        if isinstance(item.entry, GrantUse):
            uses.append((item.index, item.entry))
    return uses

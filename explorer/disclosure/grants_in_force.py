"""Grants in force: what a grant covers of one run, and whether it still counts.

A grant covers classes of the run and the stretches of their numbers that have reading keys. It counts as long as the
project's ledger names neither its revocation nor a later grant with its id.
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
    """Return the classes of the run that the grant opens; * too, for numbers over several, where it opens all of them.

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
    found = frozenset(path for path in genesis.classes if any(covers(branch, path) for branch in grant.classes))
    return found | {JOINT} if found == frozenset(genesis.classes) else found


def stretches(run: RunLedger, kinds: Collection[str]) -> dict[tuple[str, str], set[int]]:
    """By class path, or *, and kind of entry: the first steps of the stretches in which the run has numbers."""
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    for placed in run.with_numbers():  # of steps that were executed again, too: a reader can look at what they were
        kind, first = run.stretch(placed)
        for name in placed.entry.blobs if kind in kinds else ():
            path = class_of(name)
            if path in (*run.genesis.classes, JOINT):
                found[path, kind].add(first)
    return dict(sorted(found.items()))


# --- standing by the project's ledger ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """A grant as the project's ledger names it."""

    owner: str
    id: str
    digest: str  # of its payload


def check_standing(recorded: Iterable[Recorded], grant: Named) -> None:
    """Raise `ProvenanceError` for a grant that was revoked, whatever its content was then, for one in whose place a
    later grant with its id has come, and where the ledger says something of grants that is not understood here."""
    seen = False
    for index, use in grant_uses(recorded):
        if (use.owner, use.id) != (grant.owner, grant.id):
            continue
        if use.action == "revoked":
            raise ProvenanceError(
                f"grant {grant.id} of {grant.owner} was revoked: entry {index} of the project's ledger"
            )
        if use.grant == grant.digest:
            seen = True
        elif seen:
            raise ProvenanceError(
                f"grant {grant.id} of {grant.owner}: a later grant with this id has taken the place of this one: "
                f"entry {index} of the project's ledger names {use.grant}, this is {grant.digest}"
            )


def is_revoked(recorded: Iterable[Recorded], grant: Named) -> bool:
    """Return whether it was revoked. Raises `ProvenanceError` as `check_standing` does for what is not understood."""
    uses = [use for _, use in grant_uses(recorded) if (use.owner, use.id) == (grant.owner, grant.id)]
    return any(use.action == "revoked" for use in uses)


def check_wrapped(recorded: Iterable[Recorded], grant: Named, *, origin: str) -> None:
    """Raise `ProvenanceError` unless it is on record that keys of this ledger were wrapped for this grant."""
    for _, use in grant_uses(recorded):
        if use.action == "wrapped" and use.grant == grant.digest and use.ledger and use.ledger.origin == origin:
            return
    raise ProvenanceError(
        f"grant {grant.id} of {grant.owner}: the project's ledger knows nothing of keys of {origin} that were wrapped "
        "for it; the ledger was replaced by an earlier state, or somebody else made this file"
    )


def named(recorded: Iterable[Recorded], id: str) -> Named:
    """Return the grant with this id, as it was wrapped last. Raises `ProvenanceError` where none is, with the nearest
    id, and where two owners have given it."""
    found = {(use.owner, use.id): use.grant for _, use in grant_uses(recorded)}
    owners = [owner for owner, known in found if known == id]
    if not owners:
        raise ProvenanceError(unknown("grant", id, {known for _, known in found}))
    if len(owners) > 1:
        raise ProvenanceError(f"{' and '.join(sorted(owners))} have grants with the id {id!r}: name a file instead")
    return Named(owner=owners[0], id=id, digest=found[owners[0], id])


def grant_uses(recorded: Iterable[Recorded]) -> list[tuple[int, GrantUse]]:
    """Return what was done with grants, in order. Raises `ProvenanceError` for a version that is not known here: it may
    revoke one."""
    found: list[tuple[int, GrantUse]] = []
    for each in recorded:
        if isinstance(each.entry, Unknown) and each.entry.head.kind == GrantUse.KIND:
            raise ProvenanceError(
                f"entry {each.index} of the project's ledger: grant v{each.entry.head.version} is not known here: it "
                "may revoke a grant"
            )
        if isinstance(each.entry, GrantUse):
            found.append((each.index, each.entry))
    return found

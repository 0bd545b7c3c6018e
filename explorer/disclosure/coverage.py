"""What a grant covers of one run: its classes, and the stretches of its numbers that have reading keys."""

from collections import defaultdict
from collections.abc import Collection

from explorer.entries.kinds import Genesis
from explorer.errors import ProvenanceError, unknown
from explorer.provenance.encryption import KINDS
from explorer.provenance.grants import Grant
from explorer.provenance.spellings import covers
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import RunLedger, class_of


def covered_classes(genesis: Genesis, grant: Grant) -> frozenset[str]:
    """The classes of the run that the grant opens; * too, for numbers over several, where it opens all of them.

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

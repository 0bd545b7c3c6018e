"""What a governed run adds to its rows: contributions by segment, entropy profiles, decisions, the head of its ledger,
and what deleting each of its classes would take (deletability.py).

Contributions are summed over each segment, so that a database stays small however many steps there were; the spool in
the run directory has every step. The ledger is read here and not verified: `explorer.audit` does that.
"""

from pathlib import Path
from typing import Any

from explorer import rundir
from explorer.entries.fields import read_float
from explorer.entries.kinds import Decision, decode
from explorer.ledger.storage import LedgerDirectory
from explorer.runlog.documents import read_policy
from explorer.runlog.run_ledger import RunLedger
from explorer.store.deletability import deletion_rows, route_rows
from explorer.store.spool import entropy_rows, segment_sums

TABLES = ("contributions", "entropy", "decisions", "ledger_heads", "deletion_routes", "deletions")

_DECISION = b'"kind":"decision"'  # in canonical JSON these bytes are nothing but an entry's kind

Row = tuple[Any, ...]


def governed_rows(run: Path, key: Row) -> dict[str, list[Row]]:
    """The rows of a run by table, each behind `key`; none for a run that keeps no ledger.

    Raises `StoreError`, `LedgerError`, `ProvenanceError` or `RunError` for files that are damaged.
    """
    if not (run / rundir.LEDGER).is_dir():
        return {}
    opened = RunLedger(run)
    checkpoint = opened.ledger.checkpoint()
    return {
        "contributions": [(*key, *row) for row in segment_sums(run)],
        "entropy": [(*key, *row) for row in entropy_rows(run)],
        "decisions": [(*key, *row) for row in _decisions(opened.ledger)],
        "ledger_heads": [(*key, checkpoint.origin, checkpoint.size, checkpoint.root.hex(), _policy(opened))],
        "deletion_routes": [(*key, *row) for row in route_rows(opened)],
        "deletions": [(*key, *row) for row in deletion_rows(run)],
    }


def _policy(run: RunLedger) -> str | None:
    """The name of the policy that the run was governed by; None: it routes nothing."""
    policy = read_policy(run)
    return None if policy is None else f"{policy.name} version {policy.version}"


def _decisions(ledger: LedgerDirectory) -> list[Row]:
    """All decisions, in order; one to re-execute from a step supersedes those that were taken since then."""
    found: list[tuple[int, Decision]] = []
    superseded: set[int] = set()
    for index, leaf in enumerate(ledger.entries()):
        entry = decode(leaf) if _DECISION in leaf else None
        if isinstance(entry, Decision):
            if entry.action == "re-execution":
                superseded |= {at for at, each in found if each.action != entry.action and each.step >= entry.step}
            found.append((index, entry))
    return [
        (
            *(index, each.step, each.action, each.rule),
            {name: read_float(text) for name, text in each.parameters.items()},
            *(list(each.subjects), list(each.layers), sorted(each.evidence), index in superseded),
        )
        for index, each in found
    ]

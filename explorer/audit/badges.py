"""Badges: the soundness of a ledger, its signers, and whether the caller believes them.

A project's ledger (grants, accesses, deletions, observations) has a `ProjectBadge`; a run's ledger has a `Badge` with
more (history.py).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer.ledger.storage import CHECKPOINT, LedgerDirectory
from explorer.ledger.trust_anchor import Anchor, utc
from explorer.ledger.verify import Verification, verify
from explorer.project import AUDIT
from explorer.provenance.trust import Trust
from explorer.runlog.anchor import anchor_of_ledger


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectBadge:
    """Outcome of verifying a project's ledger."""

    directory: Path
    size: int  # entries
    root: str  # hexadecimal
    anchored: bool  # the caller gave a trust file; without one no signer is believed
    signed_by: tuple[str, ...]
    cosigned_by: tuple[str, ...]  # with their times
    findings: tuple[str, ...]  # faults, with the path below the ledger's directory

    @property
    def verified(self) -> bool:
        """Return whether signers that the caller believes have signed it and nothing contradicts it."""
        return self.anchored and not self.findings


def verify_ledger(directory: Path, *, trust: Trust | None, now: int) -> tuple[Verification, dict[str, Any]]:
    """Verify a whole ledger; return the outcome, and the fields of its badge. `now` is in seconds since 1970.

    Raises `ProvenanceError` for a trust file that refuses every checkpoint.
    """
    # Without a trust file the anchor is empty: the ledger's structure is verified, and no signature is believed.
    anchor = Anchor() if trust is None else anchor_of_ledger(LedgerDirectory(directory), trust)
    verification = verify(directory, anchor=anchor, now=now)
    cosignatures = verification.judgement.cosignatures if verification.judgement else ()
    return verification, {
        "size": verification.checkpoint.size,
        "root": verification.checkpoint.root.hex(),
        "anchored": trust is not None,
        "signed_by": verification.judgement.signers if verification.judgement else (),
        "cosigned_by": tuple(f"{one.verifier.name} at {utc(one.time)}" for one in cosignatures if one.fault is None),
        "findings": tuple(f"{finding.path}: {finding.message}" for finding in verification.findings),
    }


def project_badge(runs: Path, *, trust: Trust | None, now: int) -> ProjectBadge | None:
    """Verify a project's ledger; None where it has no entry yet. `now` is in seconds since 1970.

    Raises `LedgerError` for a checkpoint that cannot be read, `ProvenanceError` for a trust file that refuses every
    checkpoint.
    """
    directory = runs / AUDIT
    if not (directory / CHECKPOINT).exists():
        return None
    _, fields = verify_ledger(directory, trust=trust, now=now)
    return ProjectBadge(directory=directory, **fields)

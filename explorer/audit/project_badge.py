"""Whether a project's ledger is to be believed, and by whom: who granted, who read, what was deleted and observed."""

from dataclasses import dataclass
from pathlib import Path

from explorer.ledger.storage import CHECKPOINT, read_checkpoint
from explorer.ledger.trust_anchor import Anchor, utc
from explorer.ledger.verify import verify
from explorer.project import AUDIT
from explorer.provenance.trust import Trust
from explorer.runlog.anchor import anchor_of_trust


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectBadge:
    """What verifying it came to."""

    directory: Path
    size: int  # entries
    root: str  # hexadecimal
    anchored: bool  # somebody's trust file was brought; without one nobody is believed
    signed_by: tuple[str, ...]
    cosigned_by: tuple[str, ...]  # with the time of each
    findings: tuple[str, ...]  # what is wrong, with the path below the ledger's directory

    @property
    def verified(self) -> bool:
        """Signed by those whom the caller believes, and nothing contradicts it."""
        return self.anchored and not self.findings


def project_badge(runs: Path, *, trust: Trust | None, now: int) -> ProjectBadge | None:
    """Verify all of it; None where it was never begun. `now` is in seconds since 1970.

    Raises `LedgerError` where its checkpoint cannot be read, `ProvenanceError` for a trust file that can believe none.
    """
    directory = runs / AUDIT
    if not (directory / CHECKPOINT).exists():
        return None
    _, checkpoint = read_checkpoint(directory)
    anchor = Anchor() if trust is None else anchor_of_trust(trust, origin=checkpoint.origin)
    found = verify(directory, anchor=anchor, now=now)
    cosigned = found.judgement.cosignatures if found.judgement else ()
    return ProjectBadge(
        directory=directory,
        size=found.checkpoint.size,
        root=found.checkpoint.root.hex(),
        anchored=trust is not None,
        signed_by=tuple(each.name for each in (found.judgement.signed_by if found.judgement else ())),
        cosigned_by=tuple(f"{each.verifier.name} at {utc(each.time)}" for each in cosigned if each.fault is None),
        findings=tuple(f"{finding.path}: {finding.message}" for finding in found.findings),
    )

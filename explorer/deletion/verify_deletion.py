"""Verification of a deletion certificate, trusting neither its signer nor the machine that the deletion ran on.

Inputs are the certificate, a trust file, both ledgers and the new run's directory; neither weights of the old run nor
torch are needed. In this order:

1. The certificate: signed by a trainer of the trust file, and well formed. Otherwise no claim is checked.
2. Both ledgers: whole, signed, ended, and the certified ones. All further claims rest on them.
3. Every claim of the level (claims.py), each derived again from the ledgers and checked separately.
4. Completeness: the certificate admits the limits of such a deletion, and lists all numbers to destroy.

"Deleted" may be used only if every claim held. One that failed, or could not be checked, is enough to withhold the
word.

Statements of the signer that two ledgers cannot confirm are listed apart (`Verified.said`). `SEES` lists which leaks
the ledgers reveal, which only the counterfactual reveals, and which neither does.
"""

from dataclasses import dataclass
from pathlib import Path

from explorer.deletion.claims import COMMON, OF_G2, OF_G3, Check, Claim, Outcome, blobs, looked, unseen
from explorer.deletion.evidence import Case, check_named, open_whole, place_of, read_list
from explorer.errors import ProvenanceError
from explorer.provenance.deletion_certificate import ALWAYS, UNREACHED, Certificate, RunAt, Unreached, open_certificate
from explorer.provenance.trust import Trust
from explorer.runlog.run_ledger import RunLedger

OLD = "the old ledger is whole, signed by whom you believe, ended, and the certified one"
NEW = "the new ledger is whole, signed by whom you believe, ended, and the certified one"
SHOWN = 3  # paths of a kind, in words

SEES = {
    "both ledgers": "a target that trained shared layers or decided something; a region that others live in; a tensor"
    " that was added, left out or changed; a start after its first influence; other batches, settings or documents; a"
    " layer that moved in a step that admitted no class to it",
    "the counterfactual": "one clip norm, mean, random stream, learning rate, average or statistics for all; a region"
    " that others saw; rows that were read though they were denied; decay and momentum where there was no gradient;"
    " weights that were changed by hand",
    "neither": "what is listed as not reached; a leak that did not act in this run; two faults that cancel; data that"
    " a custom loop reads apart from the rows that it is given",
}
"""Leaks by the place where they show. The tests plant each of them."""

# --- completeness ---


def unreached(case: Case) -> tuple[Unreached, ...]:
    """Return the limits of this deletion that follow from the ledgers."""
    base: tuple[Unreached, ...] = ("base-model",)
    return (*ALWAYS, *base) if any(parent.kind == "model" for parent in case.old.genesis.parents) else ALWAYS


def admitted_to(case: Case) -> str | None:
    """Check that the certificate admits every limit that follows from the ledgers."""
    stated = {limit.what for limit in case.certificate.not_reached}
    missing = [UNREACHED[what] for what in unreached(case) if what not in stated]
    if missing:
        raise ProvenanceError(f"not_reached leaves out: {', '.join(missing)}")
    return None


def numbers_named(case: Case) -> str | None:
    """Check that the list of files to destroy has every blob with numbers of the deleted classes that the old ledger
    names. Its other files cannot be checked: a reader of the old ledger does not have its run's directory."""
    listed = {(file.path, file.sha256) for file in case.certificate.to_destroy if file.what == "numbers"}
    if missing := [blob.path for blob in blobs(case.old, case.reach) if (blob.path, blob.sha256) not in listed]:
        raise ProvenanceError(f"to_destroy leaves out {len(missing)} blobs with numbers of the target: {missing[0]}")
    return None


CLAIMS: dict[str, tuple[Claim[Case], ...]] = {
    level: (
        *COMMON,
        *own,
        Claim("not reached", "the limits of every deletion of such a run are admitted", admitted_to),
        Claim("numbers", "the list to destroy has all numbers of deleted classes in the old ledger", numbers_named),
    )
    for level, own in (("G2", OF_G2), ("G3", OF_G3))
}


# --- verification ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """A certificate that a trainer has signed, with its claims checked."""

    certificate: Certificate
    digest: str  # SHA-256 of what was signed
    model: str  # SHA-256 of the new model's file
    signed_by: tuple[str, ...]
    checks: tuple[Check, ...]
    remaining: tuple[str, ...]  # files to destroy that still exist next to the old ledger

    @property
    def deleted(self) -> bool:
        """Return whether every claim held. Only then "deleted" may be used."""
        return all(check.outcome is Outcome.HELD for check in self.checks)

    @property
    def said(self) -> tuple[str, ...]:
        """Return the signer's statements that cannot be checked from here."""
        certificate = self.certificate
        lines = [f"not reached: {UNREACHED[limit.what]}: {limit.detail}" for limit in certificate.not_reached]
        kinds: dict[str, list[str]] = {}
        for file in certificate.to_destroy:
            part = "" if file.part is None else f" (the part of {file.part})"
            kinds.setdefault(file.what, []).append(f"{file.path}{part}")
        for what, paths in kinds.items():
            more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
            lines.append(f"to be destroyed: {what}: {', '.join(paths[:SHOWN])}{more}")
        if certificate.request is not None:
            lines.append(f"the request that it answers: commitment {certificate.request}")
        return tuple(lines)


def verify(
    content: bytes,
    *,
    old: Path,
    new: Path,
    trust: Trust,
    now: int,
    records: Path | None = None,
    where: str = "the certificate",
) -> Verified:
    """Check a certificate against both runs.

    Args:
        content: the signed certificate.
        old: directory of the old run, or of its ledger.
        new: directory of the new run.
        trust: trust file whose signers are believed.
        now: time for which signatures are judged, in seconds since 1970.
        records: list of the deleted records that the certificate commits to, where single records were deleted.
        where: name of the certificate in messages.

    Raises `ProvenanceError` for a certificate that no believed trainer has signed, or whose statements contradict its
    level: no claim of it is checked.
    """
    opened = open_certificate(content, trust=trust, now=now, where=where)
    value = opened.value
    claims = CLAIMS[value.level]

    # The ledgers before all else: claims derived from a forged or different ledger would show nothing.
    place = place_of(old)
    first, old_run = _ledger("old ledger", OLD, place, value.old, papers=new, trust=trust, now=now)
    second, new_run = _ledger("new ledger", NEW, new, value.new, papers=new, trust=trust, now=now)
    if old_run is None or new_run is None:
        rest = [unseen(claim, "a ledger that it rests on is missing or refused") for claim in claims]
    else:
        # A list of records opens a commitment. Where the certificate has none, a list that was given proves nothing.
        listed = None if records is None or value.target.records is None else read_list(records)
        case = Case(
            certificate=value,
            model=opened.model,
            old=old_run,
            new=new_run,
            old_place=place,
            trust=trust,
            listed=listed,
        )
        rest = [looked(claim, case) for claim in claims]
    return Verified(
        certificate=value,
        digest=opened.digest,
        model=opened.model,
        signed_by=tuple(authority.name for authority in opened.authorities),
        checks=(first, second, *rest),
        # Parts of a file (no digest) cannot be told from here: the file itself stays.
        remaining=tuple(file.path for file in value.to_destroy if file.sha256 and (place / file.path).exists()),
    )


def _ledger(
    name: str, says: str, place: Path, named: RunAt, *, papers: Path, trust: Trust, now: int
) -> tuple[Check, RunLedger | None]:
    """Check that a ledger is whole, signed and the certified one; return it if it is."""
    runs: list[RunLedger] = []

    def look(place: Path) -> None:
        run = open_whole(place, papers=papers, trust=trust, now=now)
        check_named(run, named)
        runs.append(run)

    check = looked(Claim(name, says, look), place)
    return check, runs[0] if runs else None

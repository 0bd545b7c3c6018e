"""Whether a certificate of a deletion holds, found out by who trusts neither its signer nor the machine it ran on.

It takes the certificate, a trust file, both ledgers and the new run's directory; no weights of the old run, and no
torch. Every claim is derived again and looked at by itself. The word "deleted" is for a certificate of which every one
of them held: one that failed, or that could not be looked at, is enough to keep it back.

What the signer merely says is listed apart: nobody can find out from two ledgers what else there was. Which leaks the
ledgers give away, which only the counterfactual, and which neither, is listed too (`SEES`).
"""

from dataclasses import dataclass
from pathlib import Path

from explorer.deletion.claims import COMMON, OF_G2, OF_G3, Check, Claim, Outcome, blobs, looked, unseen
from explorer.deletion.evidence import Case, check_named, open_whole, place_of, read_list
from explorer.errors import ProvenanceError
from explorer.provenance.deletion_certificate import ALWAYS, UNREACHED, Certificate, RunAt, Unreached, open_certificate
from explorer.provenance.trust import Trust
from explorer.runlog.run_ledger import RunLedger

OLD = "the old ledger is whole, signed by whom you believe, ended, and the one that is certified"
NEW = "the new ledger is whole, signed by whom you believe, ended, and the one that is certified"
SHOWN = 3  # paths of a kind, in words

SEES = {
    "both ledgers": "a target that trained shared layers or decided something; a region that others live in; a tensor"
    " that was added, left out or changed; a start after its first influence; other batches, settings or documents; a"
    " layer that moved in a step that admitted nobody to it",
    "the counterfactual": "one clip norm, mean, random stream, learning rate, average or statistics for all; a region"
    " that others saw; rows that were read though they were denied; decay and momentum where there was no gradient;"
    " weights that were changed by hand",
    "neither": "what is listed as not reached; a leak that did not act in this run; two faults that cancel; data that"
    " a loop of one's own reads past the rows that it is handed",
}
"""Which leaks show where: each is planted in the tests."""


def unreached(case: Case) -> tuple[Unreached, ...]:
    """Return what the ledgers themselves say that this deletion did not reach."""
    base: tuple[Unreached, ...] = ("base-model",)
    return (*ALWAYS, *base) if any(parent.kind == "model" for parent in case.old.genesis.parents) else ALWAYS


def admitted_to(case: Case) -> str | None:
    """Check that what this deletion cannot have reached is said to be not reached."""
    said = {each.what for each in case.certificate.not_reached}
    missing = [UNREACHED[what] for what in unreached(case) if what not in said]
    if missing:
        raise ProvenanceError(f"not_reached leaves out: {', '.join(missing)}")
    return None


def numbers_named(case: Case) -> str | None:
    """Check that all numbers of the deleted classes that the old ledger names are among what is to be destroyed."""
    listed = {(each.path, each.sha256) for each in case.certificate.to_destroy if each.what == "numbers"}
    if missing := [each.path for each in blobs(case.old, case.reach) if (each.path, each.sha256) not in listed]:
        raise ProvenanceError(f"{len(missing)} blobs with numbers of the target are not to be destroyed: {missing[0]}")
    return None


CLAIMS: dict[str, tuple[Claim[Case], ...]] = {
    level: (
        *COMMON,
        *own,
        Claim("not reached", "what no deletion of such a run reaches is said to be not reached", admitted_to),
        Claim("numbers", "what is to be destroyed has all numbers of deleted classes in the old ledger", numbers_named),
    )
    for level, own in (("G2", OF_G2), ("G3", OF_G3))
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """A certificate that a trainer has signed, and what came of each of its claims."""

    certificate: Certificate
    digest: str  # SHA-256 of what was signed
    model: str  # SHA-256 of the new model's file
    signed_by: tuple[str, ...]
    checks: tuple[Check, ...]
    remaining: tuple[str, ...]  # of what is to be destroyed: files that are still next to the old ledger

    @property
    def deleted(self) -> bool:
        """Return whether every claim held. Nothing else is called so."""
        return all(check.outcome is Outcome.HELD for check in self.checks)

    @property
    def said(self) -> tuple[str, ...]:
        """Return what the signer says and nobody can check from here."""
        certificate = self.certificate
        lines = [f"not reached: {UNREACHED[each.what]}: {each.detail}" for each in certificate.not_reached]
        kinds: dict[str, list[str]] = {}
        for each in certificate.to_destroy:
            part = "" if each.part is None else f" (the part of {each.part})"
            kinds.setdefault(each.what, []).append(f"{each.path}{part}")
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
    """Check a certificate against the old run or its ledger, and the new run. `records`: the list that the deleted
    records were committed to, if it was single records; `now` is in seconds since 1970.

    Raises `ProvenanceError` for a certificate that no believed trainer has signed, or that says what none can: of
    such a one no claim is looked at.
    """
    opened = open_certificate(content, trust=trust, now=now, where=where)
    value = opened.value
    claims = CLAIMS[value.level]
    place = place_of(old)
    first, old_run = _ledger("old ledger", OLD, place, value.old, papers=new, trust=trust, now=now)
    second, new_run = _ledger("new ledger", NEW, new, value.new, papers=new, trust=trust, now=now)
    if old_run is None or new_run is None:
        rest = [unseen(claim, "a ledger that it rests on is not here as it should be") for claim in claims]
    else:
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
        remaining=tuple(each.path for each in value.to_destroy if each.sha256 and (place / each.path).exists()),
    )


def _ledger(
    name: str, says: str, place: Path, named: RunAt, *, papers: Path, trust: Trust, now: int
) -> tuple[Check, RunLedger | None]:
    """Return the first two claims, on which all others rest."""
    found: list[RunLedger] = []

    def look(place: Path) -> None:
        run = open_whole(place, papers=papers, trust=trust, now=now)
        check_named(run, named)
        found.append(run)

    check = looked(Claim(name, says, look), place)
    return check, found[0] if found and check.outcome is Outcome.HELD else None

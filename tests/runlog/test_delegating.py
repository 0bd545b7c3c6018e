"""Delegated keys: a ledger that the key of one run signed is believed for that run only, here and by verify.py."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from explorer import rundir
from explorer.audit.history import badge
from explorer.disclosure import verifier
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.tiles import bundles, tiles
from explorer.ledger.verify import verify
from explorer.provenance.spellings import parse_time
from explorer.provenance.trust import Role, Trust, trust_content
from explorer.runlog.anchor import anchor_of_ledger
from explorer.runlog.run_ledger import RunLedger
from tests.audit import governed_run
from tests.audit.governed_run import FAR, TRAINER
from tests.provenance import people
from tests.provenance.people import NOW, RISK, TODAY, YEAR_BEGINS, public
from tests.runlog.delegations import RUN, RUN_KEY, UNTIL, begun_ledger, delegated_run, signer, statement

OTHER = "example.com/other-trainer"


def trusting(**trainer: Any) -> Trust:
    """The trust file of the run, with another key of the trainer, and another trainer."""
    made = governed_run.trust()
    changed = people.authority(TRAINER, Role.TRAINER, public(TRAINER, **{"not_after": FAR, **trainer}))
    others = [one for one in made.authorities if one.name != TRAINER]
    return replace(made, authorities=(*others, changed, people.authority(OTHER, Role.TRAINER, public(OTHER))))


def faults_here(run: Path, trust: Trust, now: int) -> str:
    """What `explorer ledger verify` finds."""
    ledger = run / rundir.LEDGER
    found = verify(ledger, anchor=anchor_of_ledger(LedgerDirectory(ledger), trust), now=now)
    return "; ".join(finding.message for finding in found.findings)


def faults_there(run: Path, trust: Trust, now: int) -> str:
    """What verify.py finds in the same ledger."""
    ledger = LedgerDirectory(run / rundir.LEDGER)
    size = ledger.checkpoint().size
    paths = ["checkpoint", *(part.path for part in (*bundles(size), *tiles(size)))]
    paths += [str(path.relative_to(ledger.path)) for path in ledger.path.glob("blobs/sha256/*/*")]
    files = {f"ledger/{path}": (ledger.path / path).read_bytes() for path in paths}
    findings = verifier.Findings()
    believed = verifier.read_trust(trust_content(trust, where="trust.json"), "trust.json")
    with findings.looking_at(""):
        verifier.check_ledger(files, believed, now, findings)
    return "; ".join(findings.failed)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return delegated_run(tmp_path_factory.mktemp("runs"))


def test_the_key_of_the_run_counts_until_the_delegation_ends(run: Path) -> None:
    assert faults_here(run, trusting(), NOW) == faults_there(run, trusting(), NOW) == ""
    assert faults_here(run, trusting(), parse_time(UNTIL) - 1) == ""
    seal = badge(RunLedger(run), trust=trusting(), now=NOW)
    origin = f"{TRAINER}/{run.name}"
    assert seal.verified
    assert seal.signed_by == (f"{origin}, a key that {TRAINER} delegated for this run until {UNTIL}",)


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A statement, a trust file and a moment, and what both programs say."""

    content: bytes
    trust: Trust
    here: str
    there: str
    now: int = NOW
    key: str = RUN_KEY


CASES = {
    "expired": Refused(
        content=statement(),
        trust=trusting(),
        now=parse_time(UNTIL),
        here=f"the delegation expired {UNTIL}",
        there=f"the delegation expired {UNTIL}",
    ),
    "not yet": Refused(
        content=statement(issued="2026-06-02T00:00:00Z"),
        trust=trusting(),
        here="its key is valid from 2026-06-02",
        there="a key that is not valid",
    ),
    "other run": Refused(
        content=statement(run="resnet8-of-another-sweep"),
        trust=trusting(),
        here="for another run: of the ledger example.com/trainer/resnet8-of-another-sweep",
        there="for another run, of example.com/trainer/resnet8-of-another-sweep",
    ),
    "other plan": Refused(
        content=statement(plan="0" * 64),
        trust=trusting(),
        here=f"for another plan of {RUN.run_id}",
        there=f"for another plan of {RUN.run_id}",
    ),
    "trainer's key was revoked before": Refused(
        content=statement(),
        trust=trusting(revoked=YEAR_BEGINS),
        here=f"revoked: key .* of {TRAINER} is revoked as of",
        there=f"it takes 1 of the role trainer, entitled at .*; signed by {TRAINER}",
    ),
    "trainer's key was revoked since": Refused(
        content=statement(),
        trust=trusting(revoked="2026-05-20T00:00:00Z"),
        here=f"the key of {TRAINER} that delegated it is revoked as of 2026-05-20",
        there=f"the key of {TRAINER} that delegated it expired, or was revoked, as of 2026-05-20",
    ),
    "trainer's key expired since": Refused(
        content=statement(),
        trust=trusting(not_after=TODAY),
        here=f"the key of {TRAINER} that delegated it expired 2026-06-01",
        there=f"the key of {TRAINER} that delegated it expired, or was revoked, as of 2026-06-01",
    ),
    "trust file without the trainer": Refused(
        content=statement(by="a stranger"),
        trust=trusting(),
        here="signed by no key of the trust file",
        there="not signed by any key of the trust file",
    ),
    "signed by another role": Refused(
        content=statement(by=RISK),
        trust=trusting(),
        here=f"wrong role: {RISK} has the role model-risk; needed is trainer",
        there=f"it takes 1 of the role trainer, .*signed by {RISK}",
    ),
    "signed by another trainer": Refused(
        content=statement(by=OTHER),
        trust=trusting(),
        here=f"is not named after {OTHER}",
        there=f"which is not named after {OTHER}",
    ),
    "too long": Refused(
        content=statement(expires="2027-06-01T00:00:00Z"),
        trust=trusting(),
        here="more than 366 days",
        there="more than 366 days",
    ),
    "a key of the trust file": Refused(
        content=statement(key=RISK),
        trust=trusting(),
        key=RISK,
        here=f"the key of {RISK}; a delegation is to a key of its own",
        there="or one in the trust file",
    ),
    "another key": Refused(
        content=statement(key="of another run"),
        trust=trusting(),
        here="no trusted key has signed",
        there="signed by no trainer of the trust file",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_delegated_is_refused_by_name(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    run = begun_ledger(tmp_path, case.content, signs=signer(case.key))
    for pattern, found in (
        (case.here, faults_here(run, case.trust, case.now)),
        (case.there, faults_there(run, case.trust, case.now)),
    ):
        assert re.search(pattern, found), f"{pattern!r} is not in {found!r}"

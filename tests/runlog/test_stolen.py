"""What a stolen worker can forge with all that it was given: the record of its one run, and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from explorer import rundir
from explorer.canonical import digest
from explorer.cli import options
from explorer.errors import LedgerError, ProvenanceError
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.trust_anchor import judge
from explorer.provenance.delegation import open_delegation
from explorer.provenance.deletion_certificate import open_certificate, sign_certificate
from explorer.provenance.envelope import parse_envelope, sign_envelope
from explorer.provenance.grants import open_grant
from explorer.provenance.keys import write_key
from explorer.provenance.model_attestation import open_model
from explorer.provenance.spellings import parse_time
from explorer.provenance.trust import write_trust
from explorer.release.attest import attest
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.countersign import countersign
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import FAR, TRAINER
from tests.cli.command import explorer, refused
from tests.disclosure.packs import faults, governed, opened, packed, signed_again
from tests.provenance.people import NOW, private
from tests.provenance.test_deletion_certificate import G3, MODEL, record
from tests.provenance.test_grants import GOOD, signed
from tests.release.released import gate, judged, release
from tests.runlog.delegations import RUN, RUN_KEY, UNTIL, begun_ledger, delegated_run, signer, statement
from tests.runlog.test_delegating import faults_here, faults_there, trusting

TRUST = trusting()
STOLEN = private(RUN_KEY)
OTHER = "resnet8-digits-fast-ssr1-s9-00000000"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run at home again."""
    return delegated_run(tmp_path_factory.mktemp("runs"))


def test_its_own_run_can_be_forged(tmp_path: Path) -> None:
    forged = begun_ledger(tmp_path, statement(), signs=signer())
    assert faults_here(forged, TRUST, NOW) == faults_there(forged, TRUST, NOW) == ""


@pytest.mark.parametrize("named", [True, False])
def test_no_ledger_of_another_run(tmp_path: Path, named: bool) -> None:
    """Under the name of the other run, whether or not the first entry names the statement about this one."""
    forged = begun_ledger(tmp_path, statement(), signs=signer(run=OTHER), run=OTHER, named=named)
    here, there = faults_here(forged, TRUST, NOW), faults_there(forged, TRUST, NOW)
    assert ("for another run" in here and "for another run" in there) == named
    assert "no trusted key has signed" in here and "signed by no trainer" in there


def test_no_other_run_under_the_name_of_its_own(tmp_path: Path) -> None:
    forged = begun_ledger(tmp_path, statement(), signs=signer(), run=OTHER)
    assert "for another run" in faults_here(forged, TRUST, NOW)
    assert "for another run" in faults_there(forged, TRUST, NOW)


def test_no_other_plan(tmp_path: Path) -> None:
    forged = begun_ledger(tmp_path, statement(), signs=signer(), plan=digest({**RUN.identity, "seed": 99}))
    assert "for another plan" in faults_here(forged, TRUST, NOW)
    assert "for another plan" in faults_there(forged, TRUST, NOW)


def test_no_delegation_of_its_own(tmp_path: Path) -> None:
    """Neither to itself for longer, nor to a further key; the trainer's signature fits no other statement."""
    real, longer = (parse_envelope(content, where="d") for content in (statement(), statement(by=RUN_KEY, expires=FAR)))
    cases = ((longer, "signed by no key of the trust file"), (replace(longer, signatures=real.signatures), "forged or"))
    for envelope, why in cases:
        forged = begun_ledger(tmp_path / why, envelope.content, signs=signer())
        assert f"delegation: {why}" in faults_here(forged, TRUST, NOW)
        assert "not signed by any key of the trust file" in faults_there(forged, TRUST, NOW)


def test_no_attestation_certificate_or_grant(run: Path) -> None:
    """Each is believed as its owner signs it, and refused as the stolen key signs the same bytes."""
    believed: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
        "attestation": (
            attest(RunLedger(run), keys=[private(TRAINER)], trust=TRUST, now=NOW, expires=FAR).content,
            lambda content: open_model(content, trust=TRUST, now=NOW, where="a"),
        ),
        "certificate": (
            sign_certificate(record(G3), model=MODEL, keys=[private(TRAINER)], trust=TRUST, now=NOW).content,
            lambda content: open_certificate(content, trust=TRUST, now=NOW, where="c"),
        ),
        "grant": (signed(GOOD), lambda content: open_grant(content, trust=TRUST, now=NOW, where="g")),
        "delegation": (statement(), lambda content: open_delegation(content, trust=TRUST, where="d")),
    }
    for content, open_one in believed.values():
        open_one(content)
        real = parse_envelope(content, where="real")
        with pytest.raises(ProvenanceError, match="signed by no key of the trust file"):
            open_one(sign_envelope(real.payload, real.payload_type, [STOLEN]).content)
    with pytest.raises(ProvenanceError, match=f"{TRAINER} delegated it: only that trainer's key countersigns it"):
        attest(RunLedger(run), keys=[STOLEN], trust=TRUST, now=NOW, expires=FAR)


def test_no_pack(tmp_path: Path) -> None:
    content = packed(delegated(tmp_path)).content
    assert faults(content) == ""
    assert "no trainer of the trust file has signed it" in faults(signed_again(opened(content), by=RUN_KEY))


# --- at home again ---


def test_what_the_trainer_countersigns_outlives_the_delegation(tmp_path: Path) -> None:
    run, later = delegated(tmp_path), parse_time(UNTIL)
    ledger = LedgerDirectory(run / rundir.LEDGER)
    assert "the delegation expired" in faults_here(run, TRUST, later)
    for keys, why in (([], "only that trainer's key"), ([STOLEN], "only that trainer's key")):
        with pytest.raises(ProvenanceError, match=why):
            countersign(ledger, keys=keys, trust=TRUST, now=NOW)
    with pytest.raises(LedgerError, match="the delegation expired"):  # too late: by then the key may be a thief's
        countersign(ledger, keys=[private(TRAINER)], trust=TRUST, now=later)
    assert countersign(ledger, keys=[private(TRAINER)], trust=TRUST, now=NOW) == TRAINER
    once = (ledger.path / "checkpoint").read_bytes()
    assert countersign(LedgerDirectory(ledger.path), keys=[private(TRAINER)], trust=TRUST, now=NOW) == TRAINER
    assert (ledger.path / "checkpoint").read_bytes() == once
    assert faults_here(run, TRUST, later) == faults_there(run, TRUST, later) == ""
    # A checkpoint without its ledger, which names the delegation, is as good as any other.
    anchor = anchor_of_trust(TRUST, origin=ledger.checkpoint().origin)
    found = judge(LedgerDirectory(ledger.path).note(), anchor=anchor, now=later)
    assert found.signed_by


def test_the_command_that_countersigns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = delegated(tmp_path)
    write_trust(tmp_path / "trust.json", TRUST)
    write_key(tmp_path / "stolen.pem", STOLEN, None)
    monkeypatch.setattr(options, "clock", lambda: NOW)
    told = explorer("ledger", "verify", run / rundir.LEDGER, "--trust", tmp_path / "trust.json").stdout
    assert f"a key that {TRAINER} delegated for this run until {UNTIL}" in " ".join(told.split())
    asked = ("ledger", "countersign", run, "--trust", tmp_path / "trust.json")
    assert "only that trainer's key" in " ".join(refused(*asked, "--key", tmp_path / "stolen.pem").split())
    told = explorer(*asked).stdout
    assert f"signed by {TRAINER}, who had delegated it" in " ".join(told.split())
    assert faults_here(run, TRUST, parse_time(UNTIL)) == ""


def test_only_a_run_that_ended_is_countersigned(tmp_path: Path) -> None:
    begun = LedgerDirectory(begun_ledger(tmp_path, statement(), signs=signer()) / rundir.LEDGER)
    with pytest.raises(LedgerError, match="unfinished: its run may still sign it"):
        countersign(begun, keys=[private(TRAINER)], trust=TRUST, now=NOW)
    own = LedgerDirectory(governed(tmp_path / "home", steps=2) / rundir.LEDGER)
    before = (own.path / "checkpoint").read_bytes()
    assert countersign(own, keys=[private(TRAINER)], trust=TRUST, now=NOW) is None
    assert (own.path / "checkpoint").read_bytes() == before


def test_a_gate_follows_an_attestation_of_a_delegated_run(tmp_path: Path) -> None:
    """With the ledger and without: the attestation has the trainer's own signature under the checkpoint."""
    model = release(delegated(tmp_path))
    for ledger in ("checkpoint", "full"):
        verdict = judged(model, gate(ledger=ledger))
        assert verdict.passes, verdict
        words = f"written with a key that {TRAINER} delegated for this run until {UNTIL}"
        assert any(words in check.why for check in verdict.checks) == (ledger == "full")


def delegated(root: Path) -> Path:
    """A run with the trainer's key where its documents say, as at home."""
    run = delegated_run(root / "runs")
    write_key(run.parent / "trainer.pem", private(TRAINER), None)
    return run

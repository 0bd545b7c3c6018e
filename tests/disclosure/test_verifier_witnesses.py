"""Cosigned ledgers in packs: who has to have seen the checkpoint, and what witnesses saw before."""

from dataclasses import replace
from pathlib import Path

import pytest

from explorer.disclosure.pack import make_pack
from explorer.errors import LedgerError
from explorer.ledger.cosign import cosign
from explorer.note import Algorithm, Signer
from explorer.provenance.trust import Role, Trust
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.run_ledger import RunLedger
from tests.audit import governed_run
from tests.audit.governed_run import TRAINER
from tests.disclosure.packs import REPORT, Files, faults, findings, governed, opened, signed_again
from tests.provenance.people import GOVERNANCE, NOW, RISK, private


def cosigned_trust() -> Trust:
    """A trainer signs, data governance cosigns."""
    usual = governed_run.trust()
    return replace(usual, quorum=replace(usual.quorum, checkpoints={Role.TRAINER: 1, Role.DATA_GOVERNANCE: 1}))


def cosigns(run: Path, name: str, state: Path, *, now: int = NOW) -> None:
    signer = Signer(name=name, algorithm=Algorithm.COSIGNATURE, private_key=private(name))
    anchor = anchor_of_trust(governed_run.trust(), origin=RunLedger(run).ledger.checkpoint().origin)
    assert cosign(run / "ledger", signer=signer, state=state, anchor=anchor, now=now).path


def pack_of(run: Path) -> Files:
    trust = cosigned_trust()
    made = make_pack(RunLedger(run), grants={}, report=REPORT, key=private(TRAINER), trust=trust, now=NOW)
    return opened(made.content)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return governed(tmp_path)


def test_a_cosigned_ledger(run: Path, tmp_path: Path) -> None:
    cosigns(run, GOVERNANCE, tmp_path / "state")
    found = findings(pack_of(run), trust=cosigned_trust())
    assert not found.failed
    assert any(f"cosigned by {GOVERNANCE} at 2026-06-01T00:00:00Z" in what for what in found.checked)
    assert found.checked["notes of witnesses, which the tree extends"] == 1


def test_without_the_cosignature_the_quorum_is_not_met(run: Path, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="the quorum is not met"):
        pack_of(run)
    cosigns(run, GOVERNANCE, tmp_path / "state")
    files = pack_of(run)
    bare = {name: content for name, content in files.items() if not name.startswith("ledger/witness/")}
    assert not faults(signed_again(bare), trust=cosigned_trust())  # it stands under the checkpoint too
    trainer_alone = files["ledger/checkpoint"].decode().splitlines(keepends=True)
    bare["ledger/checkpoint"] = "".join(line for line in trainer_alone if GOVERNANCE not in line).encode()
    assert "cosigned by 0 of the role data-governance" in faults(signed_again(bare), trust=cosigned_trust())


def test_the_cosignature_of_another_role_is_not_enough(run: Path, tmp_path: Path) -> None:
    cosigns(run, RISK, tmp_path / "state")
    with pytest.raises(LedgerError, match="the quorum is not met"):
        pack_of(run)
    usual = governed_run.trust()
    made = make_pack(RunLedger(run), grants={}, report=REPORT, key=private(TRAINER), trust=usual, now=NOW)
    assert "cosigned by 0 of the role" in faults(made.content, trust=cosigned_trust())


def test_a_cosignature_from_the_future_does_not_count(run: Path, tmp_path: Path) -> None:
    cosigns(run, GOVERNANCE, tmp_path / "state", now=NOW + 250)
    files = pack_of(run)
    assert not faults(files, trust=cosigned_trust())
    assert "cosigned by 0" in faults(files, trust=cosigned_trust(), now=NOW - 100)


def test_a_ledger_that_was_rolled_back_behind_its_witness(tmp_path: Path) -> None:
    """The trainer signs an earlier state again; the witness's note says that there was more."""
    run = governed(tmp_path)
    cosigns(run, GOVERNANCE, tmp_path / "state")
    (note,) = (run / "ledger" / "witness").glob("*.note")
    shorter = governed(tmp_path / "shorter", finished=False)
    files = opened(
        make_pack(
            RunLedger(shorter), grants={}, report=REPORT, key=private(TRAINER), trust=governed_run.trust(), now=NOW
        ).content
    )
    assert not faults(files)
    files[f"ledger/witness/{note.name}"] = note.read_bytes()
    assert "rolled back: its witness saw" in faults(signed_again(files))


def test_a_note_that_nobody_who_is_trusted_has_signed_vouches_for_nothing(run: Path, tmp_path: Path) -> None:
    cosigns(run, GOVERNANCE, tmp_path / "state")
    files = pack_of(run)
    lines = files["ledger/checkpoint"].decode().partition("\n\n")[0].split("\n")
    forged = "\n".join([lines[0], "99999", lines[2]]) + "\n\n\u2014 example.com/stranger AAAAAAAAAAAA\n"
    files["ledger/witness/stranger.note"] = forged.encode()
    found = findings(signed_again(files), trust=cosigned_trust())
    assert not found.failed
    assert any("stranger.note: not cosigned by any key of the trust file" in each for each in found.unchecked), (
        found.unchecked
    )


def test_a_false_signature_of_somebody_known_is_refused(run: Path, tmp_path: Path) -> None:
    cosigns(run, GOVERNANCE, tmp_path / "state")
    files = pack_of(run)
    (name,) = [name for name in files if name.startswith("ledger/witness/")]
    line = next(each for each in files[name].decode().splitlines() if GOVERNANCE in each)
    flipped = line[:-6] + ("A" if line[-6] != "A" else "B") + line[-5:]
    files[name] = files[name].replace(line.encode(), flipped.encode())
    assert f"the signature of {GOVERNANCE} does not match" in faults(signed_again(files), trust=cosigned_trust())

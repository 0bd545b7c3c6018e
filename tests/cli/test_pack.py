"""`explorer pack`, as the owner of a run and an auditor meet it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from explorer.entries.kinds import Access
from explorer.project import read_project
from explorer.provenance.keys import write_key
from explorer.provenance.trust import write_trust
from explorer.report.run.forms_section import FRAMEWORKS
from explorer.report.run_report import write_run_report
from explorer.rundir import write_bytes
from tests.audit import governed_run
from tests.audit.governed_run import MIT, NEWS, TRAINER
from tests.cli.command import explorer, refused
from tests.deletion import certified
from tests.disclosure.granted import READER, confidential_run, granted
from tests.disclosure.packs import opened
from tests.provenance.people import NOW, TODAY, private


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = confidential_run(tmp_path_factory.mktemp("pack"))
    granted(run)
    write_trust(run.parent.parent.parent / "trust.json", governed_run.trust())
    return run


@pytest.fixture
def run(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("explorer.cli.options.time", lambda: NOW)
    return made


def accesses(run: Path) -> list[Access]:
    return [each.entry for each in read_project(run.parent.parent) if isinstance(each.entry, Access)]


def verified(pack: Path, *options: str | Path) -> subprocess.CompletedProcess[str]:
    """The pack's own program, by itself."""
    program = pack.with_name("verify.py")
    program.write_bytes(opened(pack.read_bytes())["verify.py"])
    command = [sys.executable, "-I", program, pack, "--now", TODAY, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_owner_packs_and_the_auditor_verifies(run: Path, tmp_path: Path) -> None:
    before, pack = len(accesses(run)), tmp_path / "run.pack"
    done = explorer("pack", run, "--grant", "2026-0007", "-o", pack)
    assert done.returncode == 0, done.stderr
    assert "grants       2026-0007" in done.stdout
    assert "trainer.pem: the private key of example.com/trainer (trainer), readable" in done.stdout
    assert len(accesses(run)) == before + 1
    key = tmp_path / "reader.pem"
    key.write_bytes(READER.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    found = verified(pack, "--trust", run.parent.parent.parent / "trust.json", "--key", key)
    assert found.returncode == 0, found.stdout
    assert f"numbers of {NEWS}, each compared with the commitment of its entry" in found.stdout
    assert f"numbers of {MIT}: sealed" in found.stdout


def test_integrity_alone_needs_no_grant_and_leaves_no_access(run: Path, tmp_path: Path) -> None:
    before = len(accesses(run))
    done = explorer("pack", run, "-o", tmp_path / "run.pack", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["grants"] == [] and said["run"] == run.name and said["host"]["keys"][0]["file"] == "trainer.pem"
    assert said["size"] == (tmp_path / "run.pack").stat().st_size
    assert len(accesses(run)) == before
    assert verified(tmp_path / "run.pack").returncode == 1, "without a trust file nobody is believed"


def test_the_report_in_it_shows_no_number_of_a_confidential_class(run: Path, tmp_path: Path) -> None:
    explorer("pack", run, "--grant", "2026-0007", "-o", tmp_path / "run.pack")
    page = opened((tmp_path / "run.pack").read_bytes())["report.html"].decode()
    assert "python -I verify.py PACK --trust TRUST.json" in page
    assert str(run.parent) not in page and "/tmp" not in page
    write_run_report(run, tmp_path / "own.html", trust=run / "governance" / "trust.json")
    assert shares(page) == [] and len(shares((tmp_path / "own.html").read_text())) > 10


def test_who_has_the_pack_alone_makes_the_same_report(run: Path, tmp_path: Path) -> None:
    explorer("pack", run, "-o", tmp_path / "run.pack")
    files = opened((tmp_path / "run.pack").read_bytes())
    for name, content in files.items():
        write_bytes(tmp_path / "unpacked" / name, content)
    trust = run / "governance" / "trust.json"
    done = explorer(
        "report", tmp_path / "unpacked", "--format", "json", "--trust", trust, "--out", tmp_path / "own.json"
    )
    assert done.returncode == 0, done.stderr
    mine, theirs = (json.loads(each) for each in ((tmp_path / "own.json").read_bytes(), files["report.json"]))
    assert mine.pop("reproduce") != theirs.pop("reproduce")  # one has the directory, the other the pack
    assert mine.pop("made") >= theirs.pop("made")
    assert mine == theirs and len(mine["forms"]) == len(FRAMEWORKS)
    assert str(run.parent) not in files["report.json"].decode()


def shares(page: str) -> list[str]:
    """The shares of classes in the tables of a report."""
    return re.findall(r"<td[^>]*>[0-9.]+%", page)


def test_what_is_refused_writes_nothing_and_leaves_no_access(run: Path, tmp_path: Path) -> None:
    before, out = len(accesses(run)), tmp_path / "run.pack"
    assert "did you mean '2026-0007'" in refused("pack", run, "--grant", "2026-0070", "-o", out)
    assert "no governed run" in refused("pack", tmp_path, "-o", out)
    other = tmp_path / "other.json"
    write_trust(other, governed_run.trust())
    other.write_text(other.read_text().replace("example.com/trainer", "example.com/another"))
    strangers = json.loads(other.read_text())
    strangers["authorities"] = strangers["authorities"][:2]
    other.write_text(json.dumps(strangers))
    assert "trust file" in refused("pack", run, "-o", out, "--trust", other)
    out.write_text("mine")
    assert "it is not replaced" in refused("pack", run, "--grant", "2026-0007", "-o", out)
    assert out.read_text() == "mine"
    assert len(accesses(run)) == before


def test_a_run_that_did_no_step_has_no_report(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a deletion leaves that drops a sealed region and trains nothing again."""
    made = certified.structural(tmp_path / "runs")
    write_key(made.old.parent / "trainer.pem", private(TRAINER), None)
    done = explorer("pack", made.new, "-o", tmp_path / "run.pack")
    assert done.returncode == 0, done.stderr
    assert "report.html" not in opened((tmp_path / "run.pack").read_bytes())
    assert verified(tmp_path / "run.pack", "--trust", run.parent.parent.parent / "trust.json").returncode == 0


def test_the_trainers_passphrase_is_asked_for(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = run.parent / "trainer.pem"
    key.unlink()
    write_key(key, private(TRAINER), "correct horse")
    try:
        monkeypatch.delenv("EXPLORER_PASSPHRASE", raising=False)
        assert "needs its passphrase: set EXPLORER_PASSPHRASE" in refused("pack", run, "-o", tmp_path / "run.pack")
        monkeypatch.setenv("EXPLORER_PASSPHRASE", "correct horse")
        done = explorer("pack", run, "-o", tmp_path / "run.pack")
        assert (
            done.returncode == 0
            and "trainer.pem: the private key of example.com/trainer (trainer), opens with" in done.stdout
        )
    finally:
        key.unlink()
        write_key(key, private(TRAINER), None)

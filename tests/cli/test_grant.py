"""`explorer grant` and `explorer read`, from the draft of a grant to the numbers that it opens, and back."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from explorer.cli import credentials
from explorer.disclosure import reading
from explorer.project import AUDIT, read_project, runs_of
from explorer.provenance.keys import write_key
from explorer.provenance.trust import write_trust
from explorer.schema import to_json
from tests.cli.command import explorer, refused
from tests.disclosure.grantees import EVERYTHING, MIT, NEWS, OTHER, READER, TRUST, envelope_of, grant_of, write_project
from tests.provenance.people import GOVERNANCE, NOW, RISK, private


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A desk: a trust file, keys, a draft and a signed grant, and the project beside them."""
    desk = tmp_path_factory.mktemp("desk")
    run = write_project(desk)
    write_trust(desk / "trust.json", TRUST)
    for name in (GOVERNANCE, RISK):
        write_key(desk / f"{name.rpartition('/')[2]}.pem", private(name), None)
    write_key(desk / "reader.pem", READER, None)
    write_key(desk / "other.pem", OTHER, None)
    (desk / "draft.yaml").write_text(json.dumps(to_json(grant_of(run)), indent=1))
    (desk / "grant.json").write_bytes(envelope_of(grant_of(run)).content)
    wide = replace(grant_of(run, *EVERYTHING), id="wide")
    (desk / "wide.json").write_bytes(envelope_of(wide).content)
    return desk


@pytest.fixture
def desk(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "desk"
    shutil.copytree(template, place)
    set_clock(monkeypatch, NOW)
    monkeypatch.delenv("EXPLORER_PASSPHRASE", raising=False)
    monkeypatch.chdir(place)
    return place


def set_clock(monkeypatch: pytest.MonkeyPatch, now: int) -> None:
    for module in ("credentials", "grant", "read"):
        monkeypatch.setattr(f"explorer.cli.{module}.clock", lambda: now)
    assert credentials.clock() == now


def run_of(desk: Path) -> str:
    (run,) = (desk / "runs" / "digits").glob("*governed*")
    return str(run.relative_to(desk))


def done(*arguments: str) -> Any:
    found = explorer(*arguments, "--json")
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def wrap(desk: Path, grant: str = "grant.json") -> Any:
    return done("grant", "wrap", run_of(desk), grant, "--trust", "trust.json")


def read(desk: Path, *more: str, grant: str = "2026-0007") -> tuple[str, ...]:
    return ("read", run_of(desk), "--grant", grant, "--key", "reader.pem", *more)


def test_a_readers_key(desk: Path) -> None:
    found = done("grant", "key", "-o", "mine.pem", "--unencrypted")
    assert len(found["public_key"]) == 44 and (desk / "mine.pem").stat().st_mode & 0o777 == 0o600
    assert "there is a file already" in refused("grant", "key", "-o", "mine.pem", "--unencrypted")
    assert "a passphrase is needed" in refused("grant", "key", "-o", "locked.pem")
    assert not (desk / "locked.pem").exists()


def test_from_draft_to_numbers(desk: Path) -> None:
    signing = ("--key", "data-governance.pem", "--trust", "trust.json", "-o", "signed.json")
    assert "covers classes licensed/news" in explorer("grant", "sign", "draft.yaml", *signing).stdout
    checked = explorer("grant", "check", "signed.json", "--trust", "trust.json", "--run", run_of(desk))
    assert f"signed by {GOVERNANCE}" in checked.stdout and "opens licensed/news of" in checked.stdout
    said = explorer("grant", "wrap", run_of(desk), "signed.json", "--trust", "trust.json").stdout
    assert "step keys of licensed/news: 2" in said and "entry 0 of the project's ledger" in said
    shown = explorer(*read(desk, "--trust", "trust.json"))
    assert shown.returncode == 0, shown.stderr
    for words in ("norm", NEWS, "checked: 7 contents agree", "recorded: entry 1 of the", "ledger: verified"):
        assert words in shown.stdout
    listed = done("grant", "list", run_of(desk), "--trust", "trust.json")
    assert [(each["id"], each["holds"]) for each in listed] == [("2026-0007", True)]


def test_in_json_and_in_files(desk: Path) -> None:
    wrap(desk)
    found = done(*read(desk, "--steps", "5:7"))
    assert found["verified"] is None and found["unread"] == [] and found["query"]["steps"] == [5, 7]
    assert found["columns"][:6] == ["entry", "step", "layer", "class", "weight", "norm"]
    assert {row[1] for row in found["rows"]} == {5, 6}
    assert done(*read(desk, "--out", "rows.parquet"))["rows"] is None
    table = pq.read_table(desk / "rows.parquet").to_pylist()
    assert [list(row.values()) for row in table if row["step"] in (5, 6)] == found["rows"]
    assert explorer(*read(desk, "--out", "rows.csv")).returncode == 0
    assert (desk / "rows.csv").read_text().count("\n") == len(table) + 1
    assert "unknown format 'txt'" in refused(*read(desk, "--out", "rows.txt"))


def test_kinds_and_classes(desk: Path) -> None:
    wrap(desk, "wide.json")
    assert {row[3] for row in done(*read(desk, "--class", MIT, grant="wide"))["rows"]} == {MIT}
    assert {row[3] for row in done(*read(desk, "--kind", "profile", grant="wide"))["rows"]} >= {"*", NEWS, MIT}
    assert len(done(*read(desk, "--kind", "decision", grant="wide"))["rows"]) == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--class", MIT), "class open/mit: outside of the grant: grant 2026-0007 of"),
        (("--class", "*"), "numbers over several classes: outside of the grant"),
        (("--kind", "stepp"), "did you mean 'step'?"),
        (("--steps", "5"), "expected A:B"),
        (("--key", "other.pem"), "this is not the key of example.com/auditor"),
        (("--key", "data-governance.pem"), "this is not the key of example.com/auditor"),
        (("--grant", "2026-0070"), "unknown grant '2026-0070'; did you mean '2026-0007'?"),
        (("--grant", "grant.json"), "grant.json"),
    ],
)
def test_what_is_refused(desk: Path, more: tuple[str, ...], message: str) -> None:
    wrap(desk)
    assert message in refused(*read(desk, *more))
    assert len(list(read_project(desk / "runs"))) == 1  # nothing was read


def lose_key(desk: Path, _: pytest.MonkeyPatch) -> None:
    """The trainer's key, which records the read, is not here."""
    source = desk / run_of(desk) / "governance" / "source.json"
    value = json.loads(source.read_bytes())
    source.write_text(json.dumps(value | {"private": str(desk / "nowhere")}))


def another_ledger(desk: Path, _: pytest.MonkeyPatch) -> None:
    checkpoint = desk / "runs" / AUDIT / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes().replace(b"trainer", b"trainor"))


def in_use(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr("explorer.project.PATIENCE", 0.05)
    lock = os.open(desk / "runs" / AUDIT / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)


@pytest.mark.parametrize(
    ("how", "message"),
    [(lose_key, "cannot open"), (another_ledger, "checkpoint"), (in_use, "is in use by")],
)
def test_a_read_that_cannot_be_recorded_shows_nothing(
    desk: Path, monkeypatch: pytest.MonkeyPatch, how: Callable[[Path, pytest.MonkeyPatch], None], message: str
) -> None:
    wrap(desk)
    how(desk, monkeypatch)
    assert message in refused(*read(desk))
    assert not (desk / "rows.csv").exists() and message in refused(*read(desk, "--out", "rows.csv"))
    assert not (desk / "rows.csv").exists()


def test_whoever_interrupts_a_read_has_been_recorded(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrap(desk)

    def interrupt(**_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(reading, "Contents", interrupt)
    found = explorer(*read(desk))
    assert (found.returncode, found.stdout) == (130, "")
    assert len(list(read_project(runs_of(desk / run_of(desk))))) == 2


def test_revoked(desk: Path) -> None:
    kept = desk / "kept.json"
    wrapped = Path(wrap(desk)["file"])
    shutil.move(desk / wrapped, kept)
    assert "no keys of this run were wrapped for the grant '2026-0007'" in refused(*read(desk))
    shutil.copy(kept, desk / wrapped)
    assert done(*read(desk, grant="kept.json"))["rows"]
    said = explorer("grant", "revoke", run_of(desk), "2026-0007", "--trust", "trust.json").stdout
    assert "revoked: entry 2 of the project's ledger" in said and "removed" in said
    for verb in (read(desk, grant="kept.json"), ("grant", "wrap", run_of(desk), "grant.json", "--trust", "trust.json")):
        assert "was revoked: entry 2 of the project's ledger" in refused(*verb)
    checking = ("grant", "check", "grant.json", "--trust", "trust.json")
    assert "was revoked" in refused(*checking, "--run", run_of(desk))
    assert "was revoked: entry 2 of the project's ledger" in refused(*read(desk))
    again = done("grant", "revoke", run_of(desk), "grant.json", "--trust", "trust.json")
    assert again["entry"] is None and again["removed"] == []
    unknown = refused("grant", "revoke", run_of(desk), "2026-0008", "--trust", "trust.json")
    assert "unknown grant '2026-0008'; did you mean '2026-0007'?" in unknown


def test_expired(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrap(desk)
    set_clock(monkeypatch, NOW + 10**7 * 2)
    for verb in (("grant", "check", "grant.json"), ("grant", "wrap", run_of(desk), "grant.json")):
        assert "expired 2026-12-01" in refused(*verb, "--trust", "trust.json")
    assert "expired 2026-12-01" in refused(*read(desk))
    listed = done("grant", "list", run_of(desk), "--trust", "trust.json")
    assert [each["holds"] for each in listed] == [False] and "expired" in listed[0]["fault"]


def test_signed_by_the_wrong_role(desk: Path) -> None:
    signing = ("--key", "model-risk.pem", "--trust", "trust.json", "-o", "signed.json")
    assert "wrong role: example.com/model-risk" in refused("grant", "sign", "draft.yaml", *signing)
    assert not (desk / "signed.json").exists()
    forged = envelope_of(grant_of(desk / run_of(desk)), RISK)
    (desk / "forged.json").write_bytes(forged.content)
    for verb in (("grant", "check"), ("grant", "wrap", run_of(desk))):
        assert "wrong role" in refused(*verb, "forged.json", "--trust", "trust.json")


def test_steps_without_numbers_are_called_so(desk: Path) -> None:
    wrap(desk)
    found = done(*read(desk))
    bare = min({*range(*found["query"]["steps"])} - {row[1] for row in found["rows"]})
    shown = explorer(*read(desk, "--steps", f"{bare}:{bare + 1}"))
    assert shown.returncode == 0 and "no numbers on record in these steps" in shown.stdout


def test_what_was_not_read_is_no_success(desk: Path) -> None:
    wrap(desk)
    (blob,) = {
        path
        for path in (desk / run_of(desk) / "ledger" / "blobs").rglob("*")
        if path.is_file() and news_blob(desk) in path.name
    }
    blob.unlink()
    found = explorer(*read(desk))
    assert found.returncode == 1
    assert "not read: licensed/news, steps 5 to 9: not here" in found.stderr and "checked: 2" in found.stdout


def news_blob(desk: Path) -> str:
    from explorer.recorded.run_ledger import RunLedger

    return list(RunLedger(desk / run_of(desk)).segments())[1].state.entry.blobs[f"numbers/{NEWS}"].sha256


def test_the_runs_own_trust_file_has_to_be_the_pinned_one(desk: Path) -> None:
    wrap(desk)
    own = desk / run_of(desk) / "governance" / "trust.json"
    own.write_bytes(own.read_bytes().replace(b'"example.com/lab"', b'"example.com/lob"'))
    assert "the run's ledger pins" in refused(*read(desk))


def test_a_passphrase_of_the_readers_key(desk: Path) -> None:
    wrap(desk)
    (desk / "reader.pem").unlink()
    write_key(desk / "reader.pem", READER, "correct horse")
    assert "a passphrase is needed" in refused(*read(desk))
    secret = desk / "secret"
    secret.write_text("correct horse\n")
    secret.chmod(0o600)
    assert done(*read(desk, "--passphrase-file", "secret"))["rows"]

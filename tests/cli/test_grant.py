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

from explorer.cli import options
from explorer.disclosure import requests
from explorer.entries.kinds import Step
from explorer.project import AUDIT, read_project, runs_of
from explorer.provenance.keys import write_key
from explorer.provenance.trust import write_trust
from explorer.schema import to_json
from tests.audit.governed_run import sign_again
from tests.cli.command import explorer, refused
from tests.disclosure.grantees import (
    EVERYTHING,
    MIT,
    NEWS,
    OTHER_SEED,
    READER_SEED,
    TRUST,
    envelope_of,
    grant_of,
    write_project,
)
from tests.provenance.people import GOVERNANCE, NOW, RISK, private


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A desk: a trust file, keys, a draft and a signed grant, and the project beside them."""
    desk = tmp_path_factory.mktemp("desk")
    run = write_project(desk)
    write_trust(desk / "trust.json", TRUST)
    for name in (GOVERNANCE, RISK):
        write_key(desk / f"{name.rpartition('/')[2]}.pem", private(name), None)
    write_key(desk / "reader.pem", READER_SEED, None)
    write_key(desk / "other.pem", OTHER_SEED, None)
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
    for variable in ("EXPLORER_PASSPHRASE", "EXPLORER_READER_PASSPHRASE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(place)
    return place


def set_clock(monkeypatch: pytest.MonkeyPatch, now: int) -> None:
    monkeypatch.setattr("explorer.cli.options.time", lambda: now)
    assert options.clock() == now


def run_of(desk: Path) -> str:
    (run,) = (desk / "runs" / "digits").glob("*governed*")
    return str(run.relative_to(desk))


def done(*arguments: str) -> Any:
    found = explorer(*arguments, "--json")
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def wrap(desk: Path, grant: str = "grant.json") -> Any:
    return done("grant", "wrap", run_of(desk), grant, "--trust", "trust.json")


def request(desk: Path, *more: str, grant: str = "grant.json") -> tuple[str, ...]:
    (desk / "request.json").unlink(missing_ok=True)
    return ("read", run_of(desk), "--grant", grant, "--key", "reader.pem", "--request", "request.json", *more)


def answer(desk: Path) -> tuple[str, ...]:
    return ("grant", "answer", run_of(desk), "request.json", "--trust", "trust.json", "-o", "answer.json")


def read(desk: Path, *more: str, keys: str = "answer.json") -> tuple[str, ...]:
    return ("read", run_of(desk), "--answer", keys, "--key", "reader.pem", *more)


def answered(desk: Path, *asked: str, grant: str = "grant.json") -> Any:
    """Ask, be answered, and read."""
    done(*request(desk, *asked, grant=grant))
    done(*answer(desk))
    return done(*read(desk))


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
    asked = explorer(*request(desk, grant="signed.json"))
    assert asked.returncode == 0, asked.stderr
    assert "next, for the owner of the grant: explorer grant answer RUN request.json" in asked.stdout
    said = explorer(*answer(desk)).stdout
    assert "step keys of licensed/news: 2" in said and "entry 1 of the project's ledger" in said
    shown = explorer(*read(desk, "--trust", "trust.json"))
    assert shown.returncode == 0, shown.stderr
    recorded = "recorded: entry 1 of example.com/trainer/_audit, of 2 entries; query"
    for words in ("norm", NEWS, "checked: 7 contents agree", recorded, "ledger: verified"):
        assert words in shown.stdout
    explorer("grant", "wrap", run_of(desk), "signed.json", "--trust", "trust.json")
    listed = done("grant", "list", run_of(desk), "--trust", "trust.json")
    assert [(each["id"], each["holds"]) for each in listed] == [("2026-0007", True)]


def test_estimates_are_said(desk: Path) -> None:
    assert "estimates" not in answered(desk)
    sign_again(
        desk / run_of(desk),
        lambda _, entry: replace(entry, estimated=entry.step % 2 == 1) if isinstance(entry, Step) else entry,
    )
    words = "steps the numbers are estimates, from sketches of 64 numbers a layer"
    (desk / "answer.json").unlink()
    assert words in answered(desk)["estimates"]
    assert words in " ".join(explorer(*read(desk)).stdout.split())


def test_three_files_go_between_two_machines_and_no_key(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader's machine has a copy of the run, the grant and the reader's key; the owner's has all the others."""
    owner, reader = desk, desk.parent / "reader"
    reader.mkdir()
    copy = reader / Path(run_of(desk)).name
    shutil.copytree(desk / run_of(desk), copy, ignore=shutil.ignore_patterns("private"))
    shutil.move(owner / "reader.pem", reader / "reader.pem")
    shutil.copy(owner / "grant.json", reader / "grant.json")
    assert [path.name for path in reader.rglob("*.pem")] == ["reader.pem"]
    assert not (reader / "_audit").exists() and not list(reader.rglob("secrets"))
    monkeypatch.chdir(reader)
    own = ("read", copy.name, "--key", "reader.pem")
    done(*own, "--grant", "grant.json", "--request", "request.json")
    shutil.move(reader / "request.json", owner / "request.json")
    monkeypatch.chdir(owner)
    assert not list(owner.rglob("reader.pem"))
    done(*answer(owner))
    assert (owner / "answer.json").stat().st_mode & 0o777 == 0o600
    shutil.move(owner / "answer.json", reader / "answer.json")
    monkeypatch.chdir(reader)
    found = done(*own, "--answer", "answer.json")
    assert found["rows"] and found["access"] == 1 and found["unread"] == []


def test_in_json_and_in_files(desk: Path) -> None:
    found = answered(desk, "--steps", "5:7")
    assert found["verified"] is None and found["unread"] == [] and found["query"]["steps"] == [5, 7]
    assert found["columns"][:6] == ["entry", "step", "layer", "class", "weight", "norm"]
    assert {row[1] for row in found["rows"]} == {5, 6}
    answered(desk)
    assert done(*read(desk, "--out", "rows.parquet"))["rows"] is None
    table = pq.read_table(desk / "rows.parquet").to_pylist()
    assert [list(row.values()) for row in table if row["step"] in (5, 6)] == found["rows"]
    assert explorer(*read(desk, "--out", "rows.csv")).returncode == 0
    assert (desk / "rows.csv").read_text().count("\n") == len(table) + 1
    assert "unknown format 'txt'" in refused(*read(desk, "--out", "rows.txt"))


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_decrypted_numbers_are_for_whoever_reads_alone(desk: Path, name: str) -> None:
    """Written new, over a file that others could read, and in place of a link."""
    answered(desk)
    before = os.umask(0)
    try:
        for prepare in (lambda: None, lambda: (desk / name).chmod(0o666), lambda: link(desk / name)):
            prepare()
            assert explorer(*read(desk, "--out", name)).returncode == 0
            assert (desk / name).stat().st_mode & 0o777 == 0o600 and not (desk / name).is_symlink()
    finally:
        os.umask(before)
    assert (desk / "elsewhere").read_text() == ""
    assert not [path for path in desk.iterdir() if path.name.endswith(".tmp")]


def link(path: Path) -> None:
    path.unlink()
    path.with_name("elsewhere").touch()
    path.symlink_to(path.with_name("elsewhere"))


def test_kinds_and_classes(desk: Path) -> None:
    assert {row[3] for row in answered(desk, "--class", MIT, grant="wide.json")["rows"]} == {MIT}
    profiles = answered(desk, "--kind", "profile", grant="wide.json")["rows"]
    assert {row[3] for row in profiles} >= {"*", NEWS, MIT}
    assert len(answered(desk, "--kind", "decision", grant="wide.json")["rows"]) == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--class", MIT), "class open/mit: outside the grant: grant 2026-0007 of"),
        (("--class", "*"), "numbers over several classes: outside the grant"),
        (("--kind", "stepp"), "did you mean 'step'?"),
        (("--steps", "5"), "expected A:B"),
        (("--key", "other.pem"), "not the key of example.com/auditor"),
        (("--key", "data-governance.pem"), "not the key of example.com/auditor"),
        (("--grant", "absent.json"), "cannot read absent.json"),
        (("--grant", "trust.json"), "trust.json"),
        (("--out", "rows.csv"), "no --out"),
        (("--answer", "answer.json"), "expected either --request FILE with --grant GRANT"),
    ],
)
def test_what_is_refused(desk: Path, more: tuple[str, ...], message: str) -> None:
    assert message in refused(*request(desk, *more))
    assert not (desk / "request.json").exists()
    assert list(read_project(desk / "runs")) == []  # nobody was told anything


def test_a_request_is_written_once_and_an_answer_is_to_what_was_asked(desk: Path) -> None:
    done(*request(desk))
    again = ("read", run_of(desk), "--grant", "grant.json", "--key", "reader.pem", "--request", "request.json")
    assert "there is a file already" in refused(*again)
    done(*answer(desk))
    assert "this request was answered before: entry 1" in refused(*answer(desk))
    assert "the answer to one request" in refused(*read(desk, "--class", NEWS))
    assert "expected either --request FILE with --grant GRANT" in refused("read", run_of(desk), "--key", "reader.pem")
    assert "--request: expected the signed grant" in refused(
        "read", run_of(desk), "--key", "reader.pem", "--request", "other.json"
    )


def lose_key(desk: Path, _: pytest.MonkeyPatch) -> None:
    """The trainer's key, which records the answer, is not here."""
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
def test_a_request_that_cannot_be_recorded_is_not_answered(
    desk: Path, monkeypatch: pytest.MonkeyPatch, how: Callable[[Path, pytest.MonkeyPatch], None], message: str
) -> None:
    wrap(desk)
    done(*request(desk))
    how(desk, monkeypatch)
    assert message in refused(*answer(desk))
    assert not (desk / "answer.json").exists()


def test_an_answer_that_is_interrupted_has_been_recorded(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done(*request(desk))

    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(requests, "wrap", interrupt)
    found = explorer(*answer(desk))
    assert (found.returncode, found.stdout) == (130, "")
    assert len(list(read_project(runs_of(desk / run_of(desk))))) == 2
    assert not (desk / "answer.json").exists()


def test_revoked(desk: Path) -> None:
    kept = desk / "kept.json"
    shutil.copy(desk / Path(wrap(desk)["file"]), kept)
    ahead = done(*read(desk, keys="kept.json"))
    assert ahead["rows"] and ahead["access"] is None
    done(*request(desk))
    said = explorer("grant", "revoke", run_of(desk), "2026-0007", "--trust", "trust.json").stdout
    assert "revoked: entry 1 of the project's ledger" in said and "removed" in said
    wrapping = ("grant", "wrap", run_of(desk), "grant.json", "--trust", "trust.json")
    for verb in (read(desk, keys="kept.json"), answer(desk), wrapping):
        assert "was revoked: entry 1 of the project's ledger" in refused(*verb)
    checking = ("grant", "check", "grant.json", "--trust", "trust.json")
    assert "was revoked" in refused(*checking, "--run", run_of(desk))
    again = done("grant", "revoke", run_of(desk), "grant.json", "--trust", "trust.json")
    assert again["entry"] is None and again["removed"] == []
    unknown = refused("grant", "revoke", run_of(desk), "2026-0008", "--trust", "trust.json")
    assert "unknown grant '2026-0008'; did you mean '2026-0007'?" in unknown


def test_keys_that_were_wrapped_ahead_say_that_they_leave_no_entry(desk: Path) -> None:
    file = wrap(desk)["file"]
    shown = explorer(*read(desk, keys=file))
    assert shown.returncode == 0, shown.stderr
    assert "reading with them is not recorded" in shown.stdout
    assert len(list(read_project(desk / "runs"))) == 1
    assert "not the key of" in refused(*read(desk, "--key", "other.pem", keys=file))


def test_a_grant_that_was_answered_by_request_can_be_revoked_by_its_id(desk: Path) -> None:
    answered(desk)
    said = explorer("grant", "revoke", run_of(desk), "2026-0007", "--trust", "trust.json").stdout
    assert "revoked: entry 2 of the project's ledger" in said
    done(*request(desk))
    assert "was revoked" in refused(*answer(desk))


def test_expired(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrap(desk)
    set_clock(monkeypatch, NOW + 10**7 * 2)
    for verb in (("grant", "check", "grant.json"), ("grant", "wrap", run_of(desk), "grant.json")):
        assert "expired 2026-12-01" in refused(*verb, "--trust", "trust.json")
    assert "expired 2026-12-01" in refused(*request(desk))
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
    found = answered(desk)
    bare = min({*range(*found["query"]["steps"])} - {row[1] for row in found["rows"]})
    answered(desk, "--steps", f"{bare}:{bare + 1}")
    shown = explorer(*read(desk))
    assert shown.returncode == 0 and "no recorded numbers in these steps" in shown.stdout


def test_what_was_not_read_is_no_success(desk: Path) -> None:
    answered(desk)
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
    from explorer.runlog.run_ledger import RunLedger

    return list(RunLedger(desk / run_of(desk)).segments())[1].state.entry.blobs[f"numbers/{NEWS}"].sha256


def test_the_runs_own_trust_file_has_to_be_the_pinned_one(desk: Path) -> None:
    own = desk / run_of(desk) / "governance" / "trust.json"
    own.write_bytes(own.read_bytes().replace(b'"example.com/lab"', b'"example.com/lob"'))
    assert "as in the ledger" in refused(*request(desk))


def test_the_readers_passphrase_has_a_name_of_its_own(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signing keys' variable opens no reader's key, nor the other way round."""
    (desk / "reader.pem").unlink()
    write_key(desk / "reader.pem", READER_SEED, "correct horse")
    monkeypatch.setenv("EXPLORER_PASSPHRASE", "correct horse")
    assert "a passphrase is needed: give --passphrase-file FILE or set EXPLORER_READER_PASSPHRASE" in refused(
        *request(desk)
    )
    monkeypatch.setenv("EXPLORER_READER_PASSPHRASE", "correct horse")
    done(*request(desk))
    write_key(desk / "signs.pem", private(GOVERNANCE), "correct horse")
    monkeypatch.delenv("EXPLORER_PASSPHRASE")
    signing = ("grant", "sign", "draft.yaml", "--key", "signs.pem", "--trust", "trust.json", "-o", "signed.json")
    assert "set EXPLORER_PASSPHRASE" in refused(*signing)
    monkeypatch.delenv("EXPLORER_READER_PASSPHRASE")
    secret = desk / "secret"
    secret.write_text("correct horse\n")
    secret.chmod(0o600)
    done(*request(desk, "--passphrase-file", "secret"))

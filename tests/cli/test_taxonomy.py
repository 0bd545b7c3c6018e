"""`explorer taxonomy` as a person meets it."""

import json
from pathlib import Path

import pytest

from explorer.provenance.keys import write_key
from explorer.provenance.trust import write_trust
from tests.cli.test_cli import explorer, refused
from tests.provenance import people
from tests.provenance.drafts_for_tests import EXAMPLES, example_taxonomy

DRAFT = EXAMPLES / "licences.taxonomy.yaml"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a trust file and the keys of two authorities, on a fixed day."""
    monkeypatch.setattr("explorer.cli.options.time", lambda: people.NOW)
    write_trust(tmp_path / "trust.json", people.trust(people.governance(), people.risk()))
    write_key(tmp_path / "governance.pem", people.private(people.GOVERNANCE), None)
    write_key(tmp_path / "risk.pem", people.private(people.RISK), None)
    return tmp_path


@pytest.fixture
def signed(desk: Path) -> Path:
    done = explorer(
        "taxonomy", "sign", DRAFT, "--key", "governance.pem", "--trust", "trust.json", "--out", "t.json", cwd=desk
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("t.json: signed with key ")
    return desk / "t.json"


def test_show_draws_the_tree_of_a_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    lines = explorer("taxonomy", "show", DRAFT).stdout.splitlines()
    assert lines[:2] == ["taxonomy licences version 1: unsigned draft", f"sha256 {example_taxonomy().digest}"]
    rows = [" ".join(line.split()) for line in lines[6:]]
    assert rows[0] == "0 quarantine - - Built in: examples without a voucher. It never trains."
    assert rows[2].startswith("2 └─ news yes licensed Newspaper articles")
    assert [row.split(" ", 1)[1].split(" no ")[0] for row in rows[3:14]] == [
        "open",
        "├─ copyleft",
        *("│ ├─ agpl", "│ ├─ epl", "│ ├─ gpl", "│ ├─ lgpl", "│ └─ mpl"),
        "├─ mixed",
        "├─ permissive",
        "│ ├─ apache",
        "│ ├─ boost",
    ]


def test_show_says_who_signed_and_the_same_as_json(desk: Path, signed: Path) -> None:
    shown = explorer("taxonomy", "show", signed, "--trust", desk / "trust.json").stdout
    assert shown.startswith("taxonomy licences version 1: signed by example.com/data-governance\n")
    told = json.loads(explorer("taxonomy", "show", signed, "--trust", desk / "trust.json", "--json").stdout)
    assert told["signed_by"] == [people.GOVERNANCE]
    assert told["codes"]["quarantine"] == 0
    assert told["taxonomy"]["classes"][0]["path"] == "open"
    assert json.loads(explorer("taxonomy", "show", DRAFT, "--json").stdout) == {**told, "signed_by": []}


def test_verify_believes_what_is_signed_and_nothing_else(desk: Path, signed: Path) -> None:
    trust = ("--trust", desk / "trust.json")
    assert explorer("taxonomy", "verify", signed, *trust).stdout.splitlines() == [
        "taxonomy licences version 1: signed by example.com/data-governance",
        f"sha256 {example_taxonomy().digest}",
        "23 classes, issued 2026-01-01T00:00:00Z, expires 2031-01-01T00:00:00Z",
    ]
    assert json.loads(explorer("taxonomy", "verify", signed, *trust, "--json").stdout)["classes"] == 23
    assert (
        refused("taxonomy", "verify", DRAFT, *trust)
        == f"explorer: {DRAFT}: found an unsigned draft; expected a signed taxonomy"
    )
    content = signed.read_bytes()
    at = content.index(b'"payload":"') + 20
    signed.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    assert "forged or changed" in refused("taxonomy", "verify", signed, *trust)


def test_a_signed_file_is_not_read_without_a_trust_file(signed: Path) -> None:
    assert refused("taxonomy", "show", signed).endswith("signed; say whose signatures are believed with --trust FILE")


def test_an_expired_taxonomy_is_refused(desk: Path, signed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.cli.options.time", lambda: people.NOW + 5 * 366 * 86400)
    assert "expired 2031-01-01T00:00:00Z" in refused("taxonomy", "verify", signed, "--trust", desk / "trust.json")


def test_the_key_of_another_role_does_not_sign_and_nothing_is_written(desk: Path) -> None:
    done = refused("taxonomy", "sign", DRAFT, "--key", "risk.pem", "--trust", "trust.json", "--out", "t.json", cwd=desk)
    assert "wrong role: example.com/model-risk has the role model-risk; needed is data-governance" in done
    assert not (desk / "t.json").exists()


def test_a_fault_in_a_draft_is_named_with_its_line(desk: Path) -> None:
    (desk / "bad.yaml").write_text(DRAFT.read_text().replace("path: open/copyleft", "path: closed/copyleft"))
    message = refused("taxonomy", "show", "bad.yaml", cwd=desk)
    assert message == (
        "explorer: bad.yaml:49: classes[10].path: 'closed/copyleft' lies below 'closed', which is not defined"
    )


@pytest.mark.parametrize("name", ["governance.pem", "trust.json"])
def test_a_signed_file_is_not_written_over_a_key_or_a_trust_file(desk: Path, name: str) -> None:
    before = (desk / name).read_bytes()
    asked = ("taxonomy", "sign", DRAFT, "--key", "governance.pem", "--trust", "trust.json", "--out", name)
    assert "there is a file already" in refused(*asked, cwd=desk)
    assert (desk / name).read_bytes() == before


def test_an_empty_file_is_said_to_be_empty(desk: Path) -> None:
    (desk / "empty.yaml").write_text("\n")
    assert "empty.yaml: empty; expected a taxonomy, a draft (YAML) or a signed file" in refused(
        "taxonomy", "show", "empty.yaml", cwd=desk
    )

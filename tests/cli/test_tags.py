"""`explorer tags` as a person meets it."""

import json
import os
from pathlib import Path

import pytest

from explorer.canonical import canonical
from explorer.data.digits import Digits
from explorer.data.sources import load
from explorer.provenance.commitments import commit, read_salts
from explorer.provenance.envelope import sign_envelope
from explorer.provenance.keys import write_key
from explorer.provenance.tags_file import TagFile
from explorer.provenance.taxonomy import TAXONOMY as KIND
from explorer.provenance.trust import Role, write_trust
from explorer.schema import to_json
from tests.cli.command import Done, explorer, refused
from tests.provenance import people
from tests.provenance.tables import DESCRIPTION, TAXONOMY

NEWS = "example.com/news-desk"
RECORDS = [
    {"text": "one", "class": "open/mit", "source": "example 1.0"},
    {"file": "articles/2.txt", "class": "open", "source": ""},
    {"text": "three", "class": "quarantine", "source": "unknown", "authority": people.GOVERNANCE},
]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with records, a signed taxonomy, a description, a trust file and keys, on a fixed day."""
    monkeypatch.setattr("explorer.cli.options.time", lambda: people.NOW)
    news = people.authority(NEWS, Role.DATA_GOVERNANCE, branches=("licensed",))
    write_trust(tmp_path / "trust.json", people.trust(people.governance(), news))
    for name, key in (("governance", people.GOVERNANCE), ("news", NEWS)):
        write_key(tmp_path / f"{name}.pem", people.private(key), None)
    envelope = sign_envelope(canonical(to_json(TAXONOMY)), KIND.payload_type, [people.private(people.GOVERNANCE)])
    (tmp_path / "taxonomy.json").write_bytes(envelope.content)
    (tmp_path / "description.yaml").write_text(
        json.dumps({k: v for k, v in to_json(DESCRIPTION).items() if v is not None})
    )
    (tmp_path / "articles").mkdir()
    (tmp_path / "articles" / "2.txt").write_bytes(b"two")
    write_records(tmp_path, *RECORDS)
    return tmp_path


def write_records(desk: Path, *records: object) -> None:
    (desk / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


MAKE = ("tags", "make", "records.jsonl", "-o", "t.parquet", "--salts", "t.salts", "--authority", people.GOVERNANCE)


def make(desk: Path) -> None:
    done = explorer(*MAKE, cwd=desk)
    assert done.returncode == 0, done.stderr


TAXONOMY_AND_TRUST = ("--taxonomy", "taxonomy.json", "--trust", "trust.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class": "Open MIT"}, "the record of slot 2: class: string should match pattern"),
        ({"class": "open//mit"}, "the record of slot 2: class: string should match pattern"),
        ({"class": "open/mit\n"}, "the record of slot 2: class: string should match pattern"),
        ({"class": "a" * 201}, "the record of slot 2: class: string should have at most 200 characters"),
        ({"authority": "news desk"}, "the record of slot 2: authority: string should match pattern"),
    ],
)
def test_what_nobody_could_sign_is_not_made(desk: Path, change: dict[str, str], message: str) -> None:
    """`tags sign` refuses such names, after the work."""
    write_records(desk, *RECORDS[:2], {**RECORDS[2], **change})
    said = refused(*MAKE, cwd=desk)
    assert message in said
    assert not (desk / "t.parquet").exists() and not (desk / "t.salts").exists()


SIGN = ("tags", "sign", "t.parquet", *TAXONOMY_AND_TRUST)
VERIFY = ("tags", "verify", "t.parquet", "--attestation", "t.json", *TAXONOMY_AND_TRUST)
WITH_RECORDS = ("--records", "records.jsonl", "--salts", "t.salts")


def sign(desk: Path) -> Done:
    arguments = ("--description", "description.yaml", "--key", "governance.pem", "--out", "t.json")
    return explorer(*SIGN, *arguments, cwd=desk)


@pytest.fixture
def signed(desk: Path) -> Path:
    make(desk)
    done = sign(desk)
    assert (done.returncode, done.stdout) == (0, "t.json: 1 signature\n"), done.stderr
    return desk


def test_from_records_to_a_table_that_is_believed(signed: Path) -> None:
    assert (signed / "t.salts").stat().st_mode & 0o777 == 0o600
    lines = explorer(*VERIFY, *WITH_RECORDS, cwd=signed).stdout.splitlines()
    assert lines[0] == f"t.parquet: 3 tags, all valid: signed by {people.GOVERNANCE}"
    assert lines[2] == f"dataset   A small dataset ({people.GOVERNANCE})"
    rows = [line.split() for line in lines[7:10]]
    assert rows == [
        ["open", "1", "33.3%", people.GOVERNANCE],
        ["open/mit", "1", "33.3%", people.GOVERNANCE],
        ["quarantine", "1", "33.3%", people.GOVERNANCE],
    ]
    assert lines[-1] == "records   3 match their tags"


def test_the_same_as_json(signed: Path) -> None:
    told = json.loads(explorer(*VERIFY, "--json", cwd=signed).stdout)
    assert told["signed_by"] == [people.GOVERNANCE]
    assert told["histogram"] == {"open": 1, "open/mit": 1, "quarantine": 1}
    assert told["taxonomy"] == TAXONOMY.digest
    assert told["description"]["title"] == "A small dataset"
    assert told["expires"] == "2027-06-01T00:00:00Z"
    assert told["checked"] is None
    checked = json.loads(explorer(*VERIFY, *WITH_RECORDS, "--json", cwd=signed).stdout)
    assert checked == {**told, "checked": {"matching": 3, "destroyed": 0}}


def test_an_erased_record_leaves_the_table_as_it_was(signed: Path) -> None:
    before = (signed / "t.parquet").read_bytes()
    assert explorer("tags", "erase", "t.salts", "--slot", "1", cwd=signed).returncode == 0
    (signed / "articles" / "2.txt").write_bytes(b"")
    lines = explorer(*VERIFY, *WITH_RECORDS, cwd=signed).stdout.splitlines()
    assert lines[-1] == "records   2 match their tags, 1 whose salts were destroyed"
    assert (signed / "t.parquet").read_bytes() == before
    assert "no slot 3; it holds 3 salts" in refused("tags", "erase", "t.salts", "--slot", "3", cwd=signed)


def test_other_records_are_not_those_of_the_table(signed: Path) -> None:
    changes = {
        "the record of slot 0: the content does not belong": [{**RECORDS[0], "text": "One"}, *RECORDS[1:]],
        "the record of slot 1: class 'open/mit', and its tag says 'open'": [
            RECORDS[0],
            {**RECORDS[1], "class": "open/mit"},
            RECORDS[2],
        ],
        "2 records, and the table has 3 tags": RECORDS[:2],
        "the record of slot 3: the table ends before it": [*RECORDS, RECORDS[2]],
    }
    for message, records in changes.items():
        write_records(signed, *records)
        assert message in refused(*VERIFY, *WITH_RECORDS, cwd=signed)
    (signed / "t.salts").unlink()
    write_records(signed, *RECORDS[:2])
    arguments = ("--out", "other.parquet", "--salts", "t.salts", "--authority", people.GOVERNANCE)
    assert explorer("tags", "make", "records.jsonl", *arguments, cwd=signed).returncode == 0
    assert "2 salts, and the table has 3 tags" in refused(*VERIFY, *WITH_RECORDS, cwd=signed)


def test_a_table_that_nobody_signed_as_it_is_now(signed: Path) -> None:
    content = bytearray((signed / "t.parquet").read_bytes())
    content[100] ^= 1
    (signed / "t.parquet").write_bytes(content)
    assert "t.parquet: not the file that was signed" in refused(*VERIFY, cwd=signed)


def test_two_authorities_one_after_the_other(desk: Path) -> None:
    write_records(desk, *RECORDS, {"text": "4", "class": "licensed/news", "source": "n", "authority": NEWS})
    make(desk)
    assert f"still to sign: {NEWS}, with explorer tags sign --attestation t.json" in sign(desk).stdout
    message = refused(*VERIFY, cwd=desk)
    assert message.startswith(f"explorer: t.json: the tag of slot 3 (licensed/news, by {NEWS}): {NEWS} has not signed")
    join = ("--attestation", "t.json", "--key", "news.pem", "--out", "t.json")
    assert explorer(*SIGN, *join, cwd=desk).stdout == "t.json: 2 signatures\n"
    assert json.loads(explorer(*VERIFY, "--json", cwd=desk).stdout)["signed_by"] == [people.GOVERNANCE, NEWS]


def test_an_authority_signs_for_its_branches_alone(desk: Path) -> None:
    write_records(desk, {"text": "1", "class": "personal", "source": "n"})
    make(desk)
    arguments = ("--description", "description.yaml", "--key", "governance.pem", "--out", "t.json")
    message = refused(*SIGN, *arguments, cwd=desk)
    assert message.startswith(f"explorer: t.parquet: the tag of slot 0 (personal, by {people.GOVERNANCE}): cannot sign")
    assert not (desk / "t.json").exists()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"class": "open", "source": "s"}, "expected text or file, one of the two"),
        ({"text": "a", "file": "b", "class": "open", "source": "s"}, "expected text or file, one of the two"),
        ({"text": "a", "source": "s"}, "class is missing"),
        ({"text": 1, "class": "open", "source": "s"}, "text: expected text"),
        ({"text": "\ud800", "class": "open", "source": "s"}, "text: holds a lone surrogate"),
        ({"text": "a", "clas": "open", "source": "s"}, "unknown key 'clas'; did you mean 'class'"),
        ({"file": "../secret", "class": "open", "source": "s"}, "file: '../secret' is not below ."),
        ({"file": "link", "class": "open", "source": "s"}, "file: 'link' is not below ."),
        ({"file": "/etc/passwd", "class": "open", "source": "s"}, "file: '/etc/passwd' is not below ."),
        ({"file": "absent", "class": "open", "source": "s"}, "file: 'absent' is not a regular file"),
        ({"file": "articles", "class": "open", "source": "s"}, "file: 'articles' is not a regular file"),
        ({"file": "pipe", "class": "open", "source": "s"}, "file: 'pipe' is not a regular file"),
        ({"file": "a\u0000b", "class": "open", "source": "s"}, "file: cannot read 'a\\x00b'"),
        (["a"], "expected a JSON object with text or file, class and source"),
    ],
)
def test_records_that_are_none(desk: Path, record: object, message: str) -> None:
    (desk / "link").symlink_to("/etc/passwd")
    os.mkfifo(desk / "pipe")
    write_records(desk, RECORDS[0], record)
    arguments = ("--out", "t.parquet", "--salts", "t.salts", "--authority", people.GOVERNANCE)
    found = refused("tags", "make", "records.jsonl", *arguments, cwd=desk)
    assert found.startswith(f"explorer: records.jsonl:2: {message}")
    assert not (desk / "t.parquet").exists() and not (desk / "t.salts").exists()


def test_nothing_is_written_over_and_nothing_is_half_made(desk: Path) -> None:
    arguments = ("--out", "t.parquet", "--salts", "t.salts")
    assert "records.jsonl:1: authority is missing" in refused("tags", "make", "records.jsonl", *arguments, cwd=desk)
    make(desk)
    again = refused("tags", "make", "records.jsonl", *arguments, "--authority", people.GOVERNANCE, cwd=desk)
    assert "t.parquet: there is a file already" in again
    (desk / "t.parquet").unlink()
    (desk / "t.parquet").symlink_to("nowhere")
    assert "t.parquet: there is a file already" in refused("tags", "make", "records.jsonl", *arguments, cwd=desk)
    (desk / "t.parquet").unlink()
    nowhere = ("--out", "t.parquet", "--salts", "absent/t.salts", "--authority", people.GOVERNANCE)
    assert "cannot write absent/t.salts" in refused("tags", "make", "records.jsonl", *nowhere, cwd=desk)
    assert not (desk / "t.parquet").exists()


@pytest.mark.parametrize("name", ["governance.pem", "trust.json", "taxonomy.json", "t.parquet"])
def test_an_attestation_is_written_over_nothing_else(signed: Path, name: str) -> None:
    before = (signed / name).read_bytes()
    asked = ("--description", "description.yaml", "--key", "governance.pem", "--out", name)
    assert f"{name}: there is a file already" in refused(*SIGN, *asked, cwd=signed)
    assert (signed / name).read_bytes() == before


def test_what_has_to_be_said(signed: Path) -> None:
    key = ("--key", "governance.pem", "--out", "u.json")
    assert "expected one of --description FILE" in refused(*SIGN, *key, cwd=signed)
    late = ("--attestation", "t.json", "--expires", "2030-01-01T00:00:00Z")
    assert "--expires: found with --attestation" in refused(*SIGN, *key, *late, cwd=signed)
    assert "expected both --records and --salts" in refused(*VERIFY, "--salts", "t.salts", cwd=signed)
    (signed / "draft.yaml").write_text(json.dumps(to_json(TAXONOMY)))
    draft = [argument if argument != "taxonomy.json" else "draft.yaml" for argument in VERIFY]
    assert "draft.yaml: found an unsigned draft" in refused(*draft, cwd=signed)


DATASET = (
    "tags",
    "dataset",
    "recipe.yaml",
    "--out",
    "d.parquet",
    "--salts",
    "d.salts",
    "--authority",
    "example.com/dg",
)


def test_a_dataset_is_tagged_as_it_says(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("task: {dataset: {digits: {simulated_classes: 2}}, model: resnet8}\n")
    done = explorer(*DATASET, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "d.parquet: 899 tags; d.salts: their salts, mode 0600"
    with TagFile(tmp_path / "d.parquet") as file:
        (batch,) = file.batches()
    assert sorted(batch.classes.values) == ["simulated/class-00", "simulated/class-01"]
    assert batch.authorities.values == ("example.com/dg",)
    salts = read_salts(tmp_path / "d.salts")
    split = load(Digits(simulated_classes=2), None).train
    salt = salts.of(898)
    assert salt is not None and commit(salt, split.content(898)) == batch.commitments[898 * 32 :]
    assert "d.parquet: there is a file already" in refused(*DATASET, cwd=tmp_path)


def test_a_dataset_without_provenance_leaves_nothing(tmp_path: Path) -> None:
    message = refused("tags", "dataset", "digits", *DATASET[3:], cwd=tmp_path)
    assert "dataset 'digits' does not know where its examples come from" in message
    assert list(tmp_path.iterdir()) == []

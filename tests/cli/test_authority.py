"""`explorer authority`: what it writes, what it prints, what it never prints, and that it writes both files or none."""

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from explorer import rundir
from explorer.cli import signing
from explorer.errors import ProvenanceError, RunError
from explorer.note import Verifier
from explorer.provenance.keys import is_encrypted, new_key, public_text, read_key
from explorer.provenance.spellings import format_time, parse_time
from explorer.provenance.trust import Role, read_trust
from tests.cli.command import Done, explorer, refused
from tests.provenance.agents import Agent, needs_agent

GOVERNANCE = "example.com/data-governance"
TIMES = ("--not-before", "2026-01-01T00:00:00Z", "--not-after", "2027-01-01T00:00:00Z")
NOW = parse_time("2026-06-01T00:00:00Z")
SECRET = "a passphrase nobody sees"


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.cli.options.time", lambda: NOW + 0.5)
    monkeypatch.delenv(signing.PASSPHRASE, raising=False)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def new(*more: str, name: str = GOVERNANCE, role: str = "data-governance", key: str = "dg.pem") -> tuple[str, ...]:
    return ("authority", "new", name, "--role", role, "--key", key, "--trust", "trust.json", *more)


def done(*arguments: str) -> Done:
    found = explorer(*arguments)
    assert found.returncode == 0, found.stderr
    assert found.stderr == ""
    return found


def listed() -> dict[str, object]:
    return json.loads(done("authority", "list", "trust.json", "--json").stdout)


def test_a_first_authority(here: Path) -> None:
    printed = done(*new("--branch", "open", "--branch", "licensed/news", "--unencrypted", *TIMES)).stdout
    trust = read_trust(here / "trust.json")
    (authority,) = trust.authorities
    (key,) = authority.keys
    assert (trust.name, authority.name, authority.role) == ("trust", GOVERNANCE, Role.DATA_GOVERNANCE)
    assert authority.branches == ("open", "licensed/news")
    assert (key.not_before, key.not_after, key.revoked) == (TIMES[1], TIMES[3], None)
    assert trust.quorum.documents == {Role.DATA_GOVERNANCE: 1} == trust.quorum.checkpoints
    assert key.public_key == public_text(read_key(here / "dg.pem", None))
    assert stat.S_IMODE((here / "dg.pem").stat().st_mode) == 0o600
    assert sorted(path.name for path in here.iterdir()) == ["dg.pem", "dg.pem.cosigned", "trust.json"]
    assert f"public key  {key.public_key}" in printed
    vkey = next(line.split()[-1] for line in printed.splitlines() if "in ledgers" in line)
    assert (Verifier.parse(vkey).name, Verifier.parse(vkey).public_key) == (GOVERNANCE, key.raw)
    assert "dg.pem (not encrypted)" in printed
    assert "explorer taxonomy sign" in printed


def test_the_span_begins_now_and_lasts_a_year(here: Path) -> None:
    done(*new("--unencrypted"))
    (key,) = read_trust(here / "trust.json").authorities[0].keys
    assert (key.valid_from, key.valid_until) == (NOW, NOW + 365 * 86_400)
    assert key.not_before == format_time(NOW)


def test_rotation_adds_a_key_and_nothing_else(here: Path) -> None:
    done(*new("--branch", "open", "--unencrypted", *TIMES))
    done(*new("--unencrypted", key="dg2.pem"))
    (authority,) = read_trust(here / "trust.json").authorities
    assert authority.branches == ("open",)
    assert [key.public_key for key in authority.keys] == [
        public_text(read_key(here / name, None)) for name in ("dg.pem", "dg2.pem")
    ]


def from_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    (here / "secret").write_text(SECRET + "\n")
    (here / "secret").chmod(0o600)
    return ("--passphrase-file", "secret")


def from_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setenv(signing.PASSPHRASE, SECRET)
    return ()


def from_the_terminal(here: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(signing.getpass, "getpass", lambda question: SECRET)
    return ()


@pytest.mark.parametrize("how", [from_file, from_environment, from_the_terminal])
def test_a_passphrase_from_three_places(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: Callable[[Path, pytest.MonkeyPatch], tuple[str, ...]],
) -> None:
    printed = done(*new(*how(here, monkeypatch)))
    assert SECRET not in printed.stdout
    assert SECRET.encode() not in (here / "dg.pem").read_bytes() + (here / "trust.json").read_bytes()
    assert is_encrypted(here / "dg.pem")
    secret = here / "secret" if how is from_file else None
    assert (
        signing.load_key(here / "dg.pem", secret).private_bytes_raw()
        == read_key(here / "dg.pem", SECRET).private_bytes_raw()
    )


def test_a_passphrase_that_is_typed_is_typed_twice(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["one", "two"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(signing.getpass, "getpass", lambda question: next(typed))
    assert refused(*new()) == "explorer: the two passphrases differ; nothing was written"
    assert list(here.iterdir()) == []


def test_nobody_is_asked_where_nobody_sits(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert refused(*new()) == (
        "explorer: a passphrase is needed: give --passphrase-file FILE or set EXPLORER_PASSPHRASE"
    )
    assert list(here.iterdir()) == []


def test_a_key_file_of_an_earlier_version_is_encrypted_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = BestAvailableEncryption(SECRET.encode())
    key = new_key()
    (here / "old.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
    (here / "old.pem").chmod(0o600)
    monkeypatch.setenv(signing.PASSPHRASE, SECRET)
    assert "set EXPLORER_NEW_PASSPHRASE" in refused("authority", "passphrase", "old.pem", cwd=here)
    monkeypatch.setenv("EXPLORER_NEW_PASSPHRASE", "another")
    said = done("authority", "passphrase", "old.pem").stdout
    assert said == "old.pem: encrypted with 600000 rounds of PBKDF2; it had 2048\n"
    assert read_key(here / "old.pem", "another").private_bytes_raw() == key.private_bytes_raw()
    assert "wrong passphrase" in refused("authority", "passphrase", "old.pem", cwd=here)


@needs_agent
def test_a_key_of_an_ssh_agent_is_added_and_stays_there(here: Path, real_agent: Agent) -> None:
    key = new_key()
    fingerprint = real_agent.add(key, "dg")
    said = done(*new(key="ssh-agent:dg")).stdout
    assert "ssh-agent:dg (in an SSH agent)" in said and f"public key  {public_text(key)}" in said
    (here / "pointer.pem").write_text(f"ssh-agent:{fingerprint}\n")
    (here / "pointer.pem").chmod(0o600)
    (here / "trust.json").unlink()
    done(*new(key="pointer.pem"))
    (authority,) = read_trust(here / "trust.json").authorities
    assert authority.keys[0].public_key == public_text(key)
    assert sorted(path.name for path in here.iterdir()) == ["pointer.pem", "pointer.pem.cosigned", "trust.json"]
    assert "a key in an SSH agent signs, and does nothing else" in refused("authority", "passphrase", "ssh-agent:dg")
    assert "the agent has no such key" in refused(*new(key="ssh-agent:nobody"))


def test_a_key_file_without_a_passphrase_gets_one(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done(*new("--unencrypted"))
    monkeypatch.setenv("EXPLORER_NEW_PASSPHRASE", SECRET)
    assert done("authority", "passphrase", "dg.pem").stdout.endswith("; it was not encrypted\n")
    assert is_encrypted(here / "dg.pem") and stat.S_IMODE((here / "dg.pem").stat().st_mode) == 0o600


def test_no_option_takes_a_passphrase() -> None:
    helped = explorer("authority", "new", "--help").stdout
    assert "--passphrase-file" in helped and "--passphrase " not in helped


@pytest.mark.parametrize(
    ("mode", "content", "message"),
    [
        (0o644, SECRET.encode(), "others can read or write it (mode 0644); first: chmod 600 secret"),
        (0o600, b"", "a passphrase has 1 to 1000 bytes, found 0"),
        (0o600, b"\xff", "bytes that are not UTF-8; expected a passphrase"),
        (0o600, b"one\ntwo\n", "found several lines; expected one"),
        (0o600, b"x" * 10_001, "found more than 10,000 bytes; expected a passphrase"),
    ],
)
def test_a_passphrase_file_that_is_refused(here: Path, mode: int, content: bytes, message: str) -> None:
    (here / "secret").write_bytes(content)
    (here / "secret").chmod(mode)
    assert message in refused(*new("--passphrase-file", "secret"))
    assert [path.name for path in here.iterdir()] == ["secret"]


def test_a_passphrase_comes_through_a_pipe(here: Path) -> None:
    read, write = os.pipe()
    os.write(write, SECRET.encode())
    os.close(write)
    done(*new("--passphrase-file", f"/dev/fd/{read}"))
    os.close(read)
    assert read_key(here / "dg.pem", SECRET)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (new("--unencrypted"), "dg.pem: there is a file already"),
        (new("--unencrypted", key="nowhere/x.pem"), "cannot write nowhere/x.pem"),
        (new("--unencrypted", key="x.pem", role="trainer"), "has the role data-governance already"),
        (new("--unencrypted", "--branch", "personal", key="x.pem"), "a further key does not change that"),
        (new("--unencrypted", key="x.pem", name="a b"), "authorities[1].name: string should match pattern"),
        (new("--unencrypted", "--branch", "a//b", key="x.pem", name="b"), "authorities[1].branches[0]: string should"),
        (new("--unencrypted", "--not-before", "tomorrow", key="x.pem"), "not a time: 'tomorrow'"),
        (new("--unencrypted", "--not-after", "2020-01-01T00:00:00Z", key="x.pem"), "is not before not_after"),
    ],
)
def test_what_is_refused_changes_nothing(here: Path, arguments: tuple[str, ...], message: str) -> None:
    done(*new("--branch", "open", "--unencrypted"))
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    assert message in refused(*arguments)
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


def test_a_damaged_trust_file_is_refused_and_kept(here: Path) -> None:
    (here / "trust.json").write_text("{")
    assert "trust.json: not JSON" in refused(*new("--unencrypted"))
    assert (here / "trust.json").read_text() == "{"
    assert not (here / "dg.pem").exists()


def test_a_full_disk_leaves_neither_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise RunError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr("explorer.cli.governed.authority.write_bytes", full)
    assert "cannot write trust.json: No space left on device" in refused(*new("--unencrypted"))
    assert list(here.iterdir()) == []


def test_an_interruption_leaves_neither_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path, content: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("explorer.cli.governed.authority.write_bytes", interrupted)
    assert explorer(*new("--unencrypted")).returncode == 130
    assert list(here.iterdir()) == []


def test_a_disk_that_fails_after_the_trust_file_is_there_leaves_both(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(directory: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(rundir, "flush_directory", failing)
    assert "cannot write trust.json: Input/output error" in refused(*new("--unencrypted"))
    (key,) = read_trust(here / "trust.json").authorities[0].keys
    assert key.public_key == public_text(read_key(here / "dg.pem", None))


def test_key_and_trust_file_are_two_files(here: Path) -> None:
    assert "found one path for the key and the trust file" in refused(*new("--unencrypted", key="./trust.json"))
    assert list(here.iterdir()) == []


def test_a_revocation_through_a_link_is_refused(here: Path) -> None:
    """It would not reach those who read the file behind it."""
    done(*new("--unencrypted"))
    (here / "link.json").symlink_to("trust.json")
    asked = ("authority", "revoke", GOVERNANCE, "--reason", "stolen", "--trust", "link.json")
    assert "link.json: a link; name the file itself" in refused(*asked)
    assert (here / "link.json").is_symlink()
    done("authority", "list", "link.json")


def test_a_key_at_a_link_to_itself_is_refused(here: Path) -> None:
    (here / "loop.pem").symlink_to("loop.pem")
    assert "loop.pem: there is a file already" in refused(*new("--unencrypted", key="loop.pem"))
    assert not (here / "trust.json").exists()


def test_list(here: Path) -> None:
    done(*new("--branch", "open", "--unencrypted", *TIMES))
    done(*new("--unencrypted", "--not-before", "2026-12-01T00:00:00Z", key="dg2.pem"))
    done(*new("--unencrypted", *TIMES, name="example.com/run", role="trainer", key="run.pem"))
    table = done("authority", "list", "trust.json").stdout
    trust = read_trust(here / "trust.json")
    assert trust.digest in table
    assert f"\n{GOVERNANCE}  data-governance  open\n" in table
    assert "  from 2026-01-01T00:00:00Z until 2027-01-01T00:00:00Z  valid\n" in table
    assert "  not yet valid\n" in table
    assert "quorum of trainer: 1 for a document, 1 for a checkpoint\n" in table
    found = listed()
    assert (found["name"], found["digest"]) == ("trust", trust.digest)
    first, second = found["authorities"]  # pyright: ignore[reportGeneralTypeIssues]
    assert [key["now"] for key in first["keys"]] == ["valid", "not yet valid"]
    assert first["keys"][0]["public_key"] == trust.authorities[0].keys[0].public_key
    assert Verifier.parse(first["keys"][0]["cosigner"]).name == GOVERNANCE
    assert second["keys"][0]["cosigner"] is None


def test_the_list_of_nobody(here: Path) -> None:
    nobody = {
        "format": "explorer/trust/v1",
        "name": "n",
        "authorities": [],
        "quorum": {"documents": {}, "checkpoints": {}},
    }
    (here / "trust.json").write_text(json.dumps(nobody))
    assert "no authority: this trust file refuses everything" in done("authority", "list", "trust.json").stdout


def test_revoke(here: Path) -> None:
    done(*new("--unencrypted", *TIMES))
    printed = done("authority", "revoke", GOVERNANCE, "--trust", "trust.json", "--reason", "stolen").stdout
    assert f"revoked as of 2026-06-01T00:00:00Z: {GOVERNANCE} in trust.json" in printed
    (key,) = read_trust(here / "trust.json").authorities[0].keys
    assert key.revoked is not None and (key.revoked.at, key.revoked.reason) == ("2026-06-01T00:00:00Z", "stolen")
    table = done("authority", "list", "trust.json").stdout
    assert "2027-01-01T00:00:00Z  revoked\n" in table
    assert "revoked as of 2026-06-01T00:00:00Z: stolen\n" in table


def test_revoke_one_of_two_as_of_a_day(here: Path) -> None:
    done(*new("--unencrypted", *TIMES))
    done(*new("--unencrypted", *TIMES, key="dg2.pem"))
    revoke = ("authority", "revoke", GOVERNANCE, "--trust", "trust.json", "--reason", "lost")
    assert f"which key of {GOVERNANCE}? it has: " in refused(*revoke)
    public = public_text(read_key(here / "dg2.pem", None))
    done(*revoke, "--key", public, "--at", "2026-02-01T00:00:00Z")
    first, second = read_trust(here / "trust.json").authorities[0].keys
    assert first.revoked is None
    assert second.revoked is not None and second.revoked.at == "2026-02-01T00:00:00Z"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("example.com/data-gouvernance",),
            f"unknown authority 'example.com/data-gouvernance'; did you mean '{GOVERNANCE}'",
        ),
        ((GOVERNANCE, "--key", "ffff"), "key 'ffff' names 0 keys of"),
        ((GOVERNANCE, "--at", "yesterday"), "not a time: 'yesterday'"),
        ((GOVERNANCE, "--reason", "two\nlines"), "revoked.reason: expected one line of printable text"),
    ],
)
def test_a_revocation_that_is_refused_changes_nothing(here: Path, arguments: tuple[str, ...], message: str) -> None:
    done(*new("--unencrypted", *TIMES))
    before = (here / "trust.json").read_bytes()
    assert message in refused("authority", "revoke", "--trust", "trust.json", "--reason", "lost", *arguments)
    assert (here / "trust.json").read_bytes() == before


def test_quorum(here: Path) -> None:
    done(*new("--unencrypted"))
    printed = done("authority", "quorum", "data-governance", "--documents", "2", "--trust", "trust.json").stdout
    assert printed == "quorum of data-governance in trust.json: 2 for a document, 1 for a checkpoint\n"
    assert read_trust(here / "trust.json").quorum.documents == {Role.DATA_GOVERNANCE: 2}
    assert "greater than or equal to 1" in refused(
        "authority", "quorum", "data-governance", "--documents", "0", "--trust", "trust.json"
    )


def test_a_key_file_is_loaded_without_a_question_where_none_is_needed(here: Path) -> None:
    done(*new("--unencrypted"))
    assert signing.load_key(here / "dg.pem", here / "no such file")
    done(*new("--passphrase-file", *from_file(here, pytest.MonkeyPatch())[1:], key="dg2.pem"))
    (here / "wrong").write_text("wrong")
    (here / "wrong").chmod(0o600)
    with pytest.raises(ProvenanceError, match="wrong passphrase, or a damaged file"):
        signing.load_key(here / "dg2.pem", here / "wrong")


DRAFT = """
format: explorer/taxonomy/v1
name: licences
version: 1
issued: 2026-05-01T00:00:00Z
expires: 2026-12-01T00:00:00Z
classes:
  - {path: open, definition: Published under an open licence., personal_data: false, source: public}
"""


def test_rotation_and_revocation_as_people_meet_them(here: Path) -> None:
    """What the old key signed holds until it expires; when it is stolen, only what it signed before still holds."""
    (here / "draft.yaml").write_text(DRAFT)
    trusting = ("--trust", "trust.json")
    done(*new("--unencrypted", *TIMES))
    done("taxonomy", "sign", "draft.yaml", "--key", "dg.pem", *trusting, "--out", "old.json")
    done(*new("--unencrypted", "--not-before", "2026-05-01T00:00:00Z", key="dg2.pem"))
    done("taxonomy", "sign", "draft.yaml", "--key", "dg2.pem", *trusting, "--out", "new.json")
    for signed in ("old.json", "new.json"):
        done("taxonomy", "verify", signed, *trusting)

    old = public_text(read_key(here / "dg.pem", None))
    revoke = ("authority", "revoke", GOVERNANCE, *trusting, "--reason", "stolen", "--key", old)
    done(*revoke, "--at", "2026-05-15T00:00:00Z")
    for signed in ("old.json", "new.json"):  # issued on 1 May
        done("taxonomy", "verify", signed, *trusting)
    message = refused("taxonomy", "sign", "draft.yaml", "--key", "dg.pem", *trusting, "--out", "late.json")
    assert "revoked as of 2026-05-15T00:00:00Z (stolen)" in message
    assert not (here / "late.json").exists()

    done(*revoke, "--at", "2026-04-15T00:00:00Z")
    assert "revoked as of 2026-04-15T00:00:00Z (stolen)" in refused("taxonomy", "verify", "old.json", *trusting)
    done("taxonomy", "verify", "new.json", *trusting)


def test_a_clock_set_back_signs_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "draft.yaml").write_text(DRAFT)
    done(*new("--unencrypted", *TIMES))
    sign = ("taxonomy", "sign", "draft.yaml", "--key", "dg.pem", "--trust", "trust.json", "--out", "signed.json")
    monkeypatch.setattr("explorer.cli.options.time", lambda: parse_time("2025-06-01T00:00:00Z"))
    assert "cannot sign at 2025-06-01T00:00:00Z: key not yet valid" in refused(*sign)
    assert not (here / "signed.json").exists()
    monkeypatch.setattr("explorer.cli.options.time", lambda: NOW)
    done(*sign)

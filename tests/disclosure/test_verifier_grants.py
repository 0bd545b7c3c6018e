"""What a reader's key opens through a pack, what it does not, and every way to make a grant that does not hold."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from explorer.disclosure import verifier
from explorer.disclosure.wrapped import believe, open_keys, parse_wrapped
from explorer.entries.kinds import Entry, Profile
from explorer.errors import ExplorerError
from explorer.provenance import encryption
from explorer.provenance.encryption import KINDS
from explorer.provenance.envelope import sign_envelope
from explorer.provenance.keys import reader_key, reader_public_text, write_key
from explorer.provenance.spellings import parse_time
from explorer.runlog.run_keys import own_keys
from explorer.runlog.run_ledger import RunLedger
from tests.audit import governed_run
from tests.audit.governed_run import MIT, NEWS, OPEN
from tests.disclosure.granted import ALL, OTHER, READER, confidential_run, granted
from tests.disclosure.packs import Files, faults, findings, governed, opened, packed, signed_again
from tests.provenance.people import EXPIRES, GOVERNANCE, NOW, RISK, private

GRANT = "grants/2026-0007.json"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return confidential_run(tmp_path_factory.mktemp("granted"))


@pytest.fixture(scope="module")
def content(run: Path) -> bytes:
    return packed(run, grants={"2026-0007": granted(run)}).content


@pytest.fixture
def files(content: bytes) -> Files:
    return opened(content)


def test_without_a_key_the_rest_holds_and_what_is_granted_is_named(content: bytes) -> None:
    found = findings(content)
    assert not found.failed
    assert any(what.startswith("grant 2026-0007: example.com/auditor may read licensed/news") for what in found.checked)
    said = "\n".join(found.unchecked)
    assert "what the grant 2026-0007 opens: no reader's key was given" in said
    assert "that the grant 2026-0007 was not revoked since" in said
    for path in (NEWS, MIT, "several classes together"):
        assert f"numbers of {path}: sealed" in said


def test_a_grant_opens_its_class_and_nothing_else(content: bytes, run: Path) -> None:
    found = findings(content, key=READER)
    assert not found.failed
    opened_ = found.checked[f"numbers of {NEWS}, each compared with the commitment of its entry"]
    recorded = RunLedger(run)
    steps = sum(
        placed.entry.numbers[0] is not None for placed in recorded.read_steps(range(recorded.begins, recorded.steps))
    )
    sketches = sum(segment.state.entry.sketches[0] is not None for segment in recorded.segments())
    assert opened_ == steps + sketches + len(recorded.outline.profiles) + len(recorded.outline.decisions)
    assert not any(MIT in what and "tags" not in what for what in found.checked)
    said = "\n".join(found.unchecked)
    assert f"numbers of {MIT}: sealed" in said and "several classes together: sealed" in said
    assert f"numbers of {NEWS}" not in said


def test_a_grant_for_everything_opens_what_several_classes_made(run: Path) -> None:
    content = packed(run, grants={"all": granted(run, "all", classes=ALL)}).content
    found = findings(content, key=READER)
    assert not found.failed and not any("sealed" in each for each in found.unchecked)
    assert found.checked["numbers of several classes together, each compared with the commitment of its entry"]


def test_a_grant_for_one_kind_of_entry_opens_that_kind(run: Path) -> None:
    content = packed(run, grants={"one": granted(run, "one", entries=("profile",))}).content
    found = findings(content, key=READER)
    count = found.checked[f"numbers of {NEWS}, each compared with the commitment of its entry"]
    assert not found.failed and count == len(RunLedger(run).outline.profiles)
    assert any(each.startswith(f"numbers of {NEWS}: sealed") for each in found.unchecked)


def test_somebody_elses_key_opens_nothing(content: bytes) -> None:
    found = findings(content, key=OTHER)
    assert not found.failed
    assert any("is not to the key that was given" in each for each in found.unchecked)
    assert not any("compared with the commitment" in what for what in found.checked)


def test_numbers_that_the_policy_has_sealed_and_that_are_not(tmp_path: Path) -> None:
    """A trainer that leaves them open, under a policy that asks for more than the ledger kept."""
    run = governed(tmp_path, policy=replace(governed_run.policy(), confidential=(NEWS,)))
    ledger = RunLedger(run)
    keys = own_keys(run, ledger.genesis)

    def bared(index: int, entry: Entry) -> Entry:
        if not isinstance(entry, Profile):
            return entry
        blob = entry.blobs[f"numbers/{NEWS}"]
        key = keys.of(NEWS, "profile", entry.step)
        assert key is not None
        place: Any = {"kind": "profile", "name": f"numbers/{NEWS}", "first": entry.step}
        plain = encryption.open_sealed(key, ledger.ledger.blob(blob.sha256), **place)
        return governed_run.with_blob(run, entry, place["name"], plain)

    governed_run.sign_again(run, bared)
    assert "not sealed, and the policy has it sealed" in faults(packed(run).content)


def test_no_grant_no_key(run: Path) -> None:
    files = opened(packed(run).content)
    assert not any(name.startswith("grants/") for name in files)
    assert not any("compared with the commitment" in what for what in findings(files, key=READER).checked)


def test_nothing_private_is_in_a_pack(run: Path, files: Files) -> None:
    keys = own_keys(run, RunLedger(run).genesis)
    whole = b"".join(files.values())
    for path in (NEWS, OPEN, MIT, "*"):
        for kind in KINDS:
            for first in range(13):
                key = keys.of(path, kind, first)
                assert key is not None and key not in whole
    assert (run / "private" / "secrets").read_bytes()[32:] not in whole
    assert not any("private" in name or "source.json" in name for name in files)


def wrapped_with(files: Files, **changes: Any) -> Files:
    """The pack with other wrapped keys, signed by the trainer again."""
    return signed_again({**files, GRANT: verifier.canonical({**json.loads(files[GRANT]), **changes}, "") + b"\n"})


def regranted(files: Files, *, by: str = GOVERNANCE, **changes: Any) -> Files:
    """The pack with another grant around the same keys."""
    value = json.loads(files[GRANT])
    envelope = verifier.open_envelope(value["grant"], "", "application/vnd.explorer.grant.v1+json")
    grant = {**json.loads(envelope.payload), **changes}
    made = sign_envelope(verifier.canonical(grant, ""), envelope.kind, [private(by)])
    return wrapped_with(files, grant=json.loads(made.content))


def ours(files: Files, run: Path) -> str:
    """What Explorer's own reading says against the grant in a pack; empty: it opens."""
    try:
        file, found = parse_wrapped(files[GRANT], where="grant"), RunLedger(run)
        signed = believe(file, found, trust=governed_run.trust(), now=NOW, where="grant")
        open_keys(file, signed.value, READER, where="grant")
    except ExplorerError as error:
        return str(error)
    return ""


def test_both_open_what_is_sound(files: Files, run: Path) -> None:
    assert faults(wrapped_with(files), key=READER) == ours(wrapped_with(files), run) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"by": RISK}, "role data-governance"),
        ({"by": "somebody"}, "not signed by any key of the trust file"),
        ({"classes": ["personal"]}, "entitled"),
        ({"classes": [NEWS, "licensed"]}, "entitled"),
        ({"classes": [OPEN]}, "does not grant"),
        ({"runs": ["another"]}, "another run"),
        ({"entries": ["step"]}, "does not grant"),
        ({"expires": "2026-05-02T00:00:00Z"}, "valid from"),
        ({"issued": "2026-06-02T00:00:00Z"}, "valid from"),
        ({"issued": "2025-01-01T00:00:00Z"}, "entitled at 2025"),
        ({"owner": "example.com/other"}, "has not signed it"),
        ({"format": "explorer/grant/v2"}, "another version"),
        ({"more": 1}, "unknown key more"),
        ({"grantee": {"name": "x", "public_key": "AAAA"}}, "bytes, expected 32"),
        ({"id": "2026-0008"}, "holds the grant"),
        ({"classes": [NEWS, NEWS]}, "each once"),
    ],
)
def test_a_grant_that_does_not_hold_opens_nothing(files: Files, run: Path, change: dict[str, Any], said: str) -> None:
    changed = regranted(files, **change)
    found = findings(changed, key=READER)
    assert said in "\n".join(found.failed)
    assert not any("compared with the commitment" in what for what in found.checked)
    assert ours(changed, run) or change.keys() <= {"id", "classes"}


def test_a_grant_around_other_keys_does_not_open_them(files: Files, run: Path) -> None:
    """The keys are bound to the grant that they were wrapped for: another one of the same owner is not that."""
    changed = regranted(files, expires="2026-11-01T00:00:00Z")
    assert "do not open" in faults(changed, key=READER) and ours(changed, run)


def test_after_its_end_a_grant_opens_nothing(content: bytes) -> None:
    found = findings(content, key=READER, now=parse_time(EXPIRES))
    assert "2026-12-01T00:00:00Z" in "\n".join(found.failed) and "grants/" in "\n".join(found.failed)
    assert not any("compared with the commitment" in what for what in found.checked)


def test_swapped_flipped_and_repeated_keys(files: Files, run: Path) -> None:
    keys = json.loads(files[GRANT])["keys"]
    first, second = ({**keys[0], "wrapped": keys[1]["wrapped"]}, {**keys[1], "wrapped": keys[0]["wrapped"]})
    raw = keys[0]["wrapped"]
    for changed, said in (
        ([first, second, *keys[2:]], "do not open"),
        ([*keys, keys[0]], "is there twice"),
        ([{**keys[0], "class": MIT}, *keys[1:]], "does not grant"),
        ([{**keys[0], "class": "*"}, *keys[1:]], "does not grant"),
        ([{**keys[0], "wrapped": raw[:60] + ("A" if raw[60] != "A" else "B") + raw[61:]}, *keys[1:]], "do not open"),
        ([{**keys[0], "wrapped": "A" * 43 + "="}, *keys[1:]], "X25519"),
        ([{**keys[0], "wrapped": "AAAA"}, *keys[1:]], "X25519"),
        ([{**keys[0], "wrapped": 7}, *keys[1:]], "expected text"),
    ):
        again = wrapped_with(files, keys=changed)
        assert said in faults(again, key=READER), said
        assert ours(again, run), said


def test_keys_of_another_run_are_refused(files: Files, run: Path, tmp_path: Path) -> None:
    other = confidential_run(tmp_path, steps=9)
    foreign = granted(other, runs=(other.name, run.name)).content
    changed = signed_again({**files, GRANT: foreign})
    assert "for another run" in faults(changed, key=READER) and ours(changed, run)
    value = json.loads(foreign)
    assert "another ledger" in faults(wrapped_with(files, **{**value, "run": run.name}), key=READER)
    ledger = {"run": run.name, "ledger": json.loads(files[GRANT])["ledger"]}
    changed = wrapped_with(files, **{**value, **ledger})
    assert "do not open" in faults(changed, key=READER) and ours(changed, run)


def test_a_flipped_ciphertext_is_noticed_with_the_key_and_without(files: Files) -> None:
    sealed = next(name for name, content in files.items() if content.startswith(verifier.SEALED))
    changed = signed_again({**files, sealed: files[sealed][:-1] + bytes([files[sealed][-1] ^ 1])})
    assert "altered" in faults(changed) and "altered" in faults(changed, key=READER)


@pytest.mark.parametrize("at", [0, 5, 20, 40, 51, 70, -1])
def test_every_part_of_a_seal_counts(at: int) -> None:
    key, place = bytes(range(32)), ("step", "numbers/open", 3)
    content = encryption.seal(key, b"numbers", kind="step", name="numbers/open", first=3)
    assert verifier._unseal(key, content, *place, "entry 4") == b"numbers"
    changed = bytearray(content)
    changed[at] ^= 1
    if at < len(verifier.SEALED) and at >= 0:
        assert not bytes(changed).startswith(verifier.SEALED)
        return
    with pytest.raises(verifier.Refused, match="the seal is broken"):
        verifier._unseal(key, bytes(changed), *place, "entry 4")
    for other in (("profile", *place[1:]), ("step", "numbers/open/mit", 3), (*place[:2], 4)):
        with pytest.raises(verifier.Refused, match="the seal is broken"):
            verifier._unseal(key, content, *other, "entry 4")


@pytest.mark.parametrize("length", [0, 1, 40, 400])
def test_hpke_opens_what_the_library_wraps_and_nothing_else(length: int) -> None:
    suite, message, info = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM), bytes(length), b"what for"
    wrapped = suite.encrypt(message, READER.public_key(), info)
    assert verifier.hpke_open(wrapped, READER, info) == message
    for content, key, purpose in (
        (wrapped, OTHER, info),
        (wrapped, READER, b"what else"),
        (wrapped[:-1], READER, info),
        (wrapped[:40], READER, info),
        (bytes([wrapped[0] ^ 1]) + wrapped[1:], READER, info),
        (bytes(32) + wrapped[32:], READER, info),  # a point of small order
        (b"", READER, info),
    ):
        with pytest.raises(verifier.Refused):
            verifier.hpke_open(content, key, purpose)


def test_hpke_answers_rfc_9180() -> None:
    """Appendix A.1, the key schedule's inputs aside: the encapsulated secret of base mode, by its own key pair."""
    private_key = "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8"
    sent = "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
    reader = X25519PrivateKey.from_private_bytes(bytes.fromhex(private_key))
    shared = reader.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(sent)))
    both = bytes.fromhex(sent) + reader.public_key().public_bytes_raw()
    extracted = verifier.hmac.digest(b"", b"HPKE-v1" + verifier.KEM + b"eae_prk" + shared, "sha256")
    info = (32).to_bytes(2) + b"HPKE-v1" + verifier.KEM + b"shared_secret" + both
    assert verifier.hkdf_expand(extracted, info).hex() == (
        "fe0e18c9f024ce43799ae393c7e8fe8fce9d218875e8227b0187c04e7d2ea1fc"
    )


def test_the_verifier_opens_with_both_kinds_of_readers_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of today, encrypted, under the reader's own variable, and one of an earlier version."""
    signs = Ed25519PrivateKey.from_private_bytes(b"\x07" * 32)
    opens = reader_key(signs).opens
    write_key(tmp_path / "new.pem", signs, "correct horse")
    write_key(tmp_path / "old.pem", opens, None)
    monkeypatch.setenv("EXPLORER_PASSPHRASE", "correct horse")
    monkeypatch.delenv("EXPLORER_READER_PASSPHRASE", raising=False)
    with pytest.raises(verifier.Refused, match="no private key can be read"):
        verifier._read_key(tmp_path / "new.pem")
    monkeypatch.setenv("EXPLORER_READER_PASSPHRASE", "correct horse")
    for name in ("new.pem", "old.pem"):
        found = verifier._read_key(tmp_path / name)
        assert reader_public_text(found) == reader_public_text(opens)

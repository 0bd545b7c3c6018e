"""DSSE envelopes: what is signed, what is read, and who counts."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st
from securesystemslib import dsse
from securesystemslib.signer import CryptoSigner, SSlibKey  # pyright: ignore[reportPrivateImportUsage]

from explorer.errors import ProvenanceError
from explorer.provenance.envelope import (
    MAX_BYTES,
    MAX_SIGNATURES,
    Envelope,
    EnvelopeSignature,
    add_signatures,
    key_id,
    parse_envelope,
    sign_envelope,
    signers,
    write_envelope,
)
from explorer.provenance.keys import public_bytes
from tests.provenance.people import private

ANN, BOB = private("ann"), private("bob")
BOTH = [public_bytes(ANN), public_bytes(BOB)]
TYPE = "http://example.com/HelloWorld"
SIGNED = sign_envelope(b"hello world", TYPE, [ANN])


def parsed(value: Any) -> Envelope:
    return parse_envelope(json.dumps(value).encode(), where="e.json")


def as_json(envelope: Envelope) -> dict[str, Any]:
    return json.loads(envelope.content)


def library_key(envelope_key_id: str | None = None) -> SSlibKey:
    return SSlibKey.from_crypto(ANN.public_key(), keyid=envelope_key_id)


def test_what_is_signed_is_the_example_of_the_specification() -> None:
    assert SIGNED.signed == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    ANN.public_key().verify(SIGNED.signatures[0].sig, SIGNED.signed)


def test_lengths_are_in_bytes() -> None:
    assert Envelope(payload="é".encode(), payload_type="t", signatures=()).signed == b"DSSEv1 1 t 2 \xc3\xa9"


def test_there_and_back() -> None:
    envelope = add_signatures(SIGNED, [BOB])
    assert parse_envelope(envelope.content, where="e.json") == envelope
    assert signers(envelope, BOTH) == set(BOTH)
    assert signers(SIGNED, BOTH) == {public_bytes(ANN)}
    assert signers(SIGNED, [public_bytes(BOB)]) == set()


def test_signing_twice_adds_nothing() -> None:
    assert add_signatures(SIGNED, [ANN, ANN]) == SIGNED


def test_the_library_reads_ours_and_we_read_the_library_s() -> None:
    assert set(dsse.Envelope.from_dict(as_json(SIGNED)).verify([library_key()], 1)) == {key_id(public_bytes(ANN))}
    theirs = dsse.Envelope(b"hello world", TYPE, {})
    theirs.sign(CryptoSigner(ANN))
    assert parsed(theirs.to_dict()) == SIGNED


def test_one_key_under_two_ids_is_one_signer() -> None:
    """The library's own count, which is of ids, is the control: it takes the same envelope for two signers."""
    sig = SIGNED.signatures[0].sig
    twice = Envelope(
        payload=SIGNED.payload,
        payload_type=TYPE,
        signatures=(EnvelopeSignature(keyid="one", sig=sig), EnvelopeSignature(keyid="two", sig=sig)),
    )
    assert signers(twice, BOTH) == {public_bytes(ANN)}
    assert len(dsse.Envelope.from_dict(as_json(twice)).verify([library_key("one"), library_key("two")], 2)) == 2


@pytest.mark.parametrize("hint", ["", "somebody else", key_id(public_bytes(BOB)), None])
def test_the_key_id_is_a_hint(hint: str | None) -> None:
    value = as_json(SIGNED)
    value["signatures"][0]["keyid"] = hint
    assert signers(parsed(value), BOTH) == {public_bytes(ANN)}
    del value["signatures"][0]["keyid"]
    assert signers(parsed(value), BOTH) == {public_bytes(ANN)}


def test_a_bad_signature_beside_a_good_one_takes_nothing_away() -> None:
    bad = EnvelopeSignature(keyid=key_id(public_bytes(BOB)), sig=bytes(64))
    both = Envelope(payload=SIGNED.payload, payload_type=TYPE, signatures=(bad, *SIGNED.signatures))
    assert signers(both, BOTH) == {public_bytes(ANN)}


def test_nobody_has_signed_with_a_key_that_anybody_can_sign_with() -> None:
    """R the neutral point and S = 0 fits every message under a key of small order; the control is the library alone."""
    forged = (EnvelopeSignature(keyid="", sig=b"\x01" + bytes(63)),)
    for point in ("01" + "00" * 31, "01" + "00" * 30 + "80", "ee" + "ff" * 30 + "7f"):
        weak = bytes.fromhex(point)
        matching = 0
        for number in range(64):
            envelope = Envelope(payload=b"%d" % number, payload_type=TYPE, signatures=forged)
            assert not signers(envelope, [weak])
            try:
                Ed25519PublicKey.from_public_bytes(weak).verify(forged[0].sig, envelope.signed)
                matching += 1
            except InvalidSignature:
                continue
        assert matching == 64 or weak[0] != 1 or weak[-1]


def test_names_that_dsse_does_not_know_are_passed_over() -> None:
    value: dict[str, Any] = {**as_json(SIGNED), "extra": {"a": 1}}
    value["signatures"][0]["cert"] = "..."
    assert parsed(value) == SIGNED


def test_the_payload_is_used_as_it_was_signed() -> None:
    payload = b'{ "b": 1,\n "a": 1.0 }\n'
    assert parse_envelope(sign_envelope(payload, "t", [ANN]).content, where="e.json").payload == payload


def test_both_alphabets_of_base64() -> None:
    envelope = sign_envelope(bytes(range(248, 256)) * 3, "t", [ANN])
    value = as_json(envelope)
    assert "+" in value["payload"] or "/" in value["payload"]
    value["payload"] = base64.urlsafe_b64encode(envelope.payload).decode()
    value["signatures"][0]["sig"] = base64.urlsafe_b64encode(envelope.signatures[0].sig).decode()
    assert parsed(value) == envelope


def test_every_flipped_bit_of_what_is_signed_is_seen() -> None:
    sig = SIGNED.signatures[0].sig
    for at in range(len(SIGNED.payload) * 8):
        changed = _flip(SIGNED.payload, at)
        assert not signers(Envelope(payload=changed, payload_type=TYPE, signatures=SIGNED.signatures), BOTH)
    for at in range(len(sig) * 8):
        forged = (EnvelopeSignature(keyid="", sig=_flip(sig, at)),)
        assert not signers(Envelope(payload=SIGNED.payload, payload_type=TYPE, signatures=forged), BOTH)
    for kind in (TYPE.upper(), TYPE[:-1], TYPE + "d", ""):
        assert not signers(Envelope(payload=SIGNED.payload, payload_type=kind, signatures=SIGNED.signatures), BOTH)


def _flip(content: bytes, bit: int) -> bytes:
    return bytes(byte ^ (1 << bit % 8 if at == bit // 8 else 0) for at, byte in enumerate(content))


def test_bytes_do_not_move_between_type_and_payload() -> None:
    moved = Envelope(payload=b"world", payload_type=f"{TYPE} 11 hello", signatures=SIGNED.signatures)
    assert not signers(moved, BOTH)


@pytest.mark.parametrize("size", [0, 1, 63, 65, 10_000])
def test_signatures_of_another_length_match_nothing(size: int) -> None:
    odd = (EnvelopeSignature(keyid="", sig=bytes(size)),)
    assert not signers(Envelope(payload=b"", payload_type="t", signatures=odd), BOTH)


GOOD = {"payload": "aGk=", "payloadType": "t", "signatures": [{"sig": "AAAA"}]}


def test_the_smallest_envelope_is_read() -> None:
    """The control of the table below."""
    assert parsed(GOOD).payload == b"hi"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"payload": None}, "payload: expected text"),
        ({"payload": ...}, "payload is missing"),
        ({"payload": "aGk"}, "payload: not base64"),
        ({"payload": "aGl="}, "payload: not canonical base64"),
        ({"payload": "a G k ="}, "payload: not base64"),
        ({"payload": "é"}, "payload: not base64"),
        ({"payload": "+-+_"}, "payload: not base64"),
        ({"payloadType": ...}, "payloadType is missing"),
        ({"payloadType": 1}, "payloadType: expected text"),
        ({"payloadType": ""}, "payloadType: expected 1 to 200 printable ASCII characters"),
        ({"payloadType": "t" * 201}, "payloadType: expected 1 to 200 printable ASCII characters"),
        ({"payloadType": "t\x1b[2J"}, "payloadType: expected 1 to 200 printable ASCII characters"),
        ({"payloadType": "é"}, "payloadType: expected 1 to 200 printable ASCII characters"),
        ({"signatures": ...}, "signatures: expected a list"),
        ({"signatures": {}}, "signatures: expected a list"),
        ({"signatures": []}, "signatures: expected 1 to 32, found 0"),
        ({"signatures": [{"sig": "AAAA"}] * (MAX_SIGNATURES + 1)}, "signatures: expected 1 to 32, found 33"),
        ({"signatures": ["AAAA"]}, r"signatures\[0\]: expected a JSON object with sig"),
        ({"signatures": [{"sig": "AAAA"}, {}]}, r"signatures\[1\]: sig is missing"),
        ({"signatures": [{"sig": "A"}]}, r"signatures\[0\]: sig: not base64"),
        ({"signatures": [{"sig": "AAAA", "keyid": 5}]}, r"signatures\[0\]: keyid: expected at most 1000"),
        ({"signatures": [{"sig": "AAAA", "keyid": "x" * 1001}]}, r"signatures\[0\]: keyid: expected at most 1000"),
        ({"signatures": [{"sig": "AAAA", "keyid": "\x1b[2J"}]}, r"signatures\[0\]: keyid: expected at most 1000"),
        ({"signatures": [{"sig": "AAAA", "keyid": "\ud800"}]}, r"signatures\[0\]: keyid: expected at most 1000"),
    ],
)
def test_what_is_no_envelope(change: dict[str, Any], message: str) -> None:
    value = {name: part for name, part in (GOOD | change).items() if part is not ...}
    with pytest.raises(ProvenanceError, match=f"^e.json: {message}"):
        parsed(value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty; expected a signed envelope"),
        (b"[]", "not a signed envelope"),
        (b"\xff", "not JSON"),
        (b'{"payload": "aGk=", "payload": "aGk="}', "twice in one object"),
        (b'{"payload": NaN}', "NaN is not JSON"),
        (b"[" * 100_000, "nested"),
        (b"1" + b" " * MAX_BYTES, "too large"),
    ],
)
def test_what_is_not_even_json(content: bytes, message: str) -> None:
    with pytest.raises(ProvenanceError, match=f"^e.json: .*{message}"):
        parse_envelope(content, where="e.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["AAAA", "aGk=", "t", "-_-_"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["payload", "payloadType", "signatures", "sig", "keyid", "x"]), inner, max_size=5
        )
    ),
    max_leaves=12,
)


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=150, deadline=None)
def test_anything_is_an_envelope_or_refused(content: bytes) -> None:
    try:
        envelope = parse_envelope(content, where="e.json")
    except ProvenanceError as error:
        assert str(error).startswith("e.json: ")
    else:
        assert parse_envelope(envelope.content, where="again") == envelope
        assert signers(envelope, BOTH) == set()


def test_no_signature_is_added_that_could_not_be_read() -> None:
    strangers = tuple(EnvelopeSignature(keyid="", sig=bytes([at])) for at in range(MAX_SIGNATURES))
    full = Envelope(payload=b"hello world", payload_type=TYPE, signatures=strangers[:-1])
    last = add_signatures(full, [ANN])
    assert signers(parse_envelope(last.content, where="e.json"), BOTH) == {public_bytes(ANN)}
    with pytest.raises(ProvenanceError, match="33 signatures; at most 32 of an envelope are read"):
        add_signatures(last, [BOB])


def test_an_envelope_is_written_over_one_of_its_type(tmp_path: Path) -> None:
    path = tmp_path / "e.json"
    write_envelope(path, SIGNED)
    both = add_signatures(SIGNED, [BOB])
    write_envelope(path, both)
    assert path.read_bytes() == both.content


@pytest.mark.parametrize(
    "content",
    [b"-----BEGIN PRIVATE KEY-----", b"", sign_envelope(b"hello world", "http://example.com/other", [ANN]).content],
    ids=["a key", "an empty file", "an envelope of another type"],
)
def test_an_envelope_is_written_over_nothing_else(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "e.json"
    path.write_bytes(content)
    with pytest.raises(ProvenanceError, match="there is a file already, and it does not hold 'http:"):
        write_envelope(path, SIGNED)
    assert path.read_bytes() == content


def test_an_envelope_replaces_no_directory_and_no_link_into_the_void(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("directory", "link"):
        with pytest.raises(ProvenanceError, match="there is a file already"):
            write_envelope(tmp_path / name, SIGNED)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "link"]

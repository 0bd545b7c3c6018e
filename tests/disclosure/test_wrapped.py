"""Files of wrapped keys: what stands in one, and what is none."""

import base64
import json
import struct
from typing import Any

import pytest

from explorer.canonical import canonical
from explorer.disclosure.wrapped import WrappedKeys, decode_bundle, encode_bundle, parse_wrapped, words
from explorer.entries.fields import LedgerState
from explorer.errors import ExplorerError, ProvenanceError
from explorer.provenance.envelope import sign_envelope
from explorer.provenance.grants import GRANT, grant_digest
from tests.fuzz.mutate import inputs
from tests.provenance.people import GOVERNANCE, private

GRANT_ENVELOPE = sign_envelope(b"{}", GRANT.payload_type, [private(GOVERNANCE)])
STATE = LedgerState(origin="example.com/trainer/run", size=7, root="a" * 64)
FILE = WrappedKeys(
    grant=GRANT_ENVELOPE,
    run="run",
    ledger=STATE,
    keys={("licensed/news", "step"): b"wrapped", ("*", "profile"): b"more"},
)
VALUE: dict[str, Any] = json.loads(FILE.content)


def parsed(value: Any) -> WrappedKeys:
    return parse_wrapped(canonical(value), where="k.json")


def test_there_and_back() -> None:
    assert parse_wrapped(FILE.content, where="k.json") == FILE
    assert {
        "format": "explorer/wrapped-keys/v1",
        "grant": json.loads(GRANT_ENVELOPE.content),
        "run": "run",
        "ledger": {"origin": "example.com/trainer/run", "size": 7, "root": "a" * 64},
        "keys": [
            {"class": "licensed/news", "kind": "step", "wrapped": base64.b64encode(b"wrapped").decode()},
            {"class": "*", "kind": "profile", "wrapped": base64.b64encode(b"more").decode()},
        ],
    } == VALUE


def test_what_a_bundle_is_bound_to() -> None:
    expected = (
        '{"class":"licensed/news","format":"explorer/wrapped-keys/v1","grant":"' + grant_digest(GRANT_ENVELOPE) + '",'
        '"kind":"step","ledger":"example.com/trainer/run","run":"run"}'
    )
    assert FILE.info("licensed/news", "step").decode() == expected


def test_a_bundle() -> None:
    bundle = {40: b"b" * 32, 0: b"a" * 32}
    content = encode_bundle(bundle)
    assert content == struct.pack(">Q", 0) + b"a" * 32 + struct.pack(">Q", 40) + b"b" * 32
    assert decode_bundle(content, where="b") == bundle
    for broken in (b"", content[:-1], content + b"\0", content[40:] + content[:40], content[:40] * 2):
        with pytest.raises(ProvenanceError, match=r"^b: a bundle"):
            decode_bundle(broken, where="b")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "explorer/wrapped-keys/v2"}, "format: input should be 'explorer/wrapped-keys/v1'"),
        ({"grant": None}, "grant: input should be an object"),
        ({"grant": {}}, "grant: payloadType is missing"),
        ({"run": "a\nb"}, "run: string should match pattern"),
        ({"ledger": {"origin": "o", "size": -1, "root": "a" * 64}}, "ledger.size: input should be greater"),
        ({"keys": []}, "keys: tuple should have at least 1 item"),
        ({"keys": [VALUE["keys"][0]] * 2}, "keys: a class and kind stand twice"),
        ({"keys": [VALUE["keys"][0] | {"class": "../x"}]}, r"keys\[0\]\.class"),
        ({"keys": [VALUE["keys"][0] | {"class_": "open"}]}, r"keys\[0\]\.class_: unknown key"),
        ({"keys": [VALUE["keys"][0] | {"wrapped": "?"}]}, "step keys of licensed/news: not base64"),
        ({"more": 1}, "more: unknown key"),
    ],
)
def test_what_is_no_file_of_wrapped_keys(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProvenanceError, match=f"^k.json: {message}"):
        parsed(VALUE | change)


def test_nothing_is_left_to_be_guessed() -> None:
    for name in VALUE:
        with pytest.raises(ProvenanceError, match=f"{name}: is missing"):
            parsed({key: value for key, value in VALUE.items() if key != name})


def test_hostile_input_is_refused_in_words() -> None:
    for content in inputs([FILE.content], count=200, seed=7):
        try:
            parse_wrapped(content, where="k.json")
        except ExplorerError as error:
            assert str(error).startswith("k.json: ")


def test_in_words() -> None:
    assert words("open", "step") == "step keys of open"
    assert words("*", "step") == "step keys of the numbers over several classes"

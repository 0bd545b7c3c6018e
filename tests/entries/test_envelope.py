"""Entries are canonical JSON in bounds, whatever their kind; everything else is refused in one way."""

import json
import math
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.entries.fields import read_float, write_float
from explorer.entries.heads import MAX_BYTES, read_head, write_entry
from explorer.entries.kinds import decode, encode
from explorer.errors import LedgerError
from tests.entries.examples import EXAMPLES

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(max_codepoint=127)), inner),
    max_leaves=12,
)
HEAD: dict[str, Any] = {"blobs": {}, "kind": "test", "version": 1}


def leaf(**fields: Any) -> bytes:
    return write_entry({**HEAD, **fields})


@given(VALUES)
def test_the_bytes_are_those_of_rfc_8785(value: Any) -> None:
    entry = {**HEAD, "value": value}
    written = write_entry(entry)
    assert written == rfc8785.dumps(entry)
    assert read_head(written).fields == {"value": value}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "expected a JSON object, found list"),
        (b'{"blobs":{},"kind":"a","version":1} ', "not in canonical form"),
        (b'{"kind":"a","blobs":{},"version":1}', "not in canonical form"),
        (b'{"blobs":{},"kind":"a","kind":"a","version":1}', "not in canonical form"),
        (b'{"blobs":{},"kind":"\\u0061","version":1}', "not in canonical form"),
        (b'{"blobs":{},"kind":"a","version":-0}', "not in canonical form"),
        (b'{"blobs":{},"kind":"a","version":1.0}', "1.0 is not a whole number; fractions are written as float.hex"),
        (b'{"blobs":{},"kind":"a","version":1e0}', "1e0 is not a whole number"),
        (b'{"blobs":{},"kind":"a","version":NaN}', "NaN is not a whole number"),
        (b'{"blobs":{},"kind":"a","version":9007199254740992}', "a whole number beyond"),
        (b'{"blobs":{},"kind":"a","version":' + b"9" * 60_000 + b"}", "not JSON"),
        (b'{"blobs":{},"kind":"a","version":0}', "version: expected a whole number from 1, found 0"),
        (b'{"blobs":{},"kind":"a","version":true}', "version: expected a whole number from 1, found True"),
        (b'{"blobs":{},"kind":"A","version":1}', "kind: expected a lower-case name, found 'A'"),
        (b'{"blobs":{},"kind":"a\\n","version":1}', "kind: expected a lower-case name"),
        (b'{"blobs":{},"kind":7,"version":1}', "kind: expected a lower-case name, found 7"),
        (b'{"blobs":{},"version":1}', "kind is missing"),
        (b'{"kind":"a","version":1}', "blobs is missing"),
        (b'{"blobs":[],"kind":"a","version":1}', "blobs: expected at most"),
        (b'{"blobs":{"x":{"sha256":"00"}},"kind":"a","version":1}', "blobs.x: expected sha256"),
        (b'{"blobs":{},"kind":"a","version":1,"\xc3\xa9":1}', "a key that is not ASCII"),
        (b'{"a":' + b"[" * 30_000, "nested too deep|not JSON"),
        (b'{"a":' + b"[" * 12 + b"]" * 12 + b',"blobs":{},"kind":"a","version":1}', "nested deeper than 8"),
        (b" " * (MAX_BYTES + 1), "an entry of 65536 bytes; at most 65535 are read"),
    ],
)
def test_what_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(LedgerError, match=message):
        read_head(content)


@pytest.mark.parametrize("key", ["sha256", "size"])
@pytest.mark.parametrize("value", ["", 1.5, -1, True, None, "A" * 64, "a" * 64 + "\n", 2**60])
def test_blob_references_that_are_none(key: str, value: Any) -> None:
    blob = {"sha256": "a" * 64, "size": 1, key: value}
    content = json.dumps({**HEAD, "blobs": {"x": blob}}, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(LedgerError):
        read_head(content)


def test_too_many_blobs() -> None:
    blob = {"sha256": "a" * 64, "size": 1}
    assert len(read_head(leaf(blobs={f"{n:03}": blob for n in range(256)})).blobs) == 256
    with pytest.raises(LedgerError, match="at most 256"):
        read_head(leaf(blobs={f"{n:03}": blob for n in range(257)}))


def test_the_largest_entry_is_read_and_one_byte_more_is_not_written() -> None:
    room = MAX_BYTES - len(leaf(x=""))
    assert len(read_head(leaf(x="y" * room)).fields["x"]) == room
    with pytest.raises(LedgerError, match="put the bulk into a blob"):
        leaf(x="y" * (room + 1))


@given(st.binary(max_size=200) | st.text().map(str.encode))
@settings(max_examples=300)
def test_any_bytes_are_an_entry_or_a_ledger_error(content: bytes) -> None:
    for read in (read_head, decode):
        try:
            read(content)
        except LedgerError:
            continue


@given(st.sampled_from(EXAMPLES), st.data())
@settings(max_examples=400)
def test_any_changed_byte_gives_another_entry_or_a_ledger_error(entry: Any, data: st.DataObject) -> None:
    whole = bytearray(encode(entry))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        found = decode(bytes(whole))
    except LedgerError:
        return
    assert found != entry


@given(st.floats())
def test_numbers_are_exact(number: float) -> None:
    again = read_float(write_float(number))
    assert again == number or (math.isnan(again) and math.isnan(number))
    assert math.copysign(1, again) == math.copysign(1, number) or math.isnan(number)


@pytest.mark.parametrize("text", ["1", "1.5", "0x1p0", "0X1.8p+1", "infinity", " inf", "", "0x1.0p+9999", "NaN", "1\n"])
def test_numbers_have_one_spelling(text: str) -> None:
    with pytest.raises(LedgerError, match="not a number of an entry"):
        read_float(text)

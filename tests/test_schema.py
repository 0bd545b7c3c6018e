"""JSON from somebody we do not know: what is read, and what is refused with the place and the reason."""

import json

import pytest

from explorer.errors import SpecError
from explorer.schema import MAX_DEPTH, parse_json


def read(content: bytes, max_bytes: int = 100_000) -> object:
    return parse_json(content, where="f.json", error=SpecError, max_bytes=max_bytes)


@pytest.mark.parametrize("value", [None, True, 0, -1, 1.5, 1e308, 5e-324, "\u00e9", [], {"a": [{}]}])
def test_a_value_comes_back_as_it_is(value: object) -> None:
    assert read(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": 1e999}', "1e999 is too large for a number"),
        (b'{"a": -1.0e400}', "-1.0e400 is too large for a number"),
        (b"9" * 5_000, "4300 digits"),
        (b'{"a": 1, "a": 1}', "found the key 'a' twice in one object"),
        (b"{} {}", "Extra data"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"\xff", "can't decode byte 0xff"),
        (b"", "Expecting value"),
        (b"[" * 100_000, "nested too deep"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH} levels"),
    ],
)
def test_what_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(SpecError) as caught:
        read(content)
    assert str(caught.value).startswith("f.json: ")
    assert reason in str(caught.value)


def test_size_is_bounded_before_anything_is_read() -> None:
    assert read(b"[1]", max_bytes=3) == [1]
    with pytest.raises(SpecError, match="too large: 4 bytes, at most 3 are read"):
        read(b"\xff\xff\xff\xff", max_bytes=3)

"""Canonical JSON: the known answers of RFC 8785, and what has no canonical form."""

import hashlib
import math

import pytest

from explorer.canonical import canonical, digest
from explorer.errors import ExplorerError

# RFC 8785, section 3.2.2 and 3.2.3 (sample input and its canonical form), and appendix B (numbers).
RFC_INPUT = {
    "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
    "string": '\u20ac$\u000f\nA\'B"\\\\"/',
    "literals": [None, True, False],
}
RFC_OUTPUT = (
    '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
    '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
)
RFC_NUMBERS = {
    0.0: "0",
    5e-324: "5e-324",
    1.7976931348623157e308: "1.7976931348623157e+308",
    9007199254740992.0: "9007199254740992",
    295147905179352830000.0: "295147905179352830000",
    1e21: "1e+21",
    9.999999999999997e22: "9.999999999999997e+22",
    1e23: "1e+23",
    0.000001: "0.000001",
    333333333.3333332: "333333333.3333332",
    -0.0000033333333333333333: "-0.0000033333333333333333",
}


def test_the_sample_of_the_rfc() -> None:
    assert canonical(RFC_INPUT).decode() == RFC_OUTPUT


@pytest.mark.parametrize("number", RFC_NUMBERS)
def test_the_numbers_of_the_rfc(number: float) -> None:
    assert canonical(number).decode() == RFC_NUMBERS[number]


def test_zero_has_no_sign() -> None:
    assert canonical(-0.0) == canonical(0) == b"0"


def test_keys_are_sorted_as_utf16() -> None:
    """RFC 8785, section 3.2.3: a surrogate pair sorts before U+FB33, though its code point is larger."""
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    expected = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    found = canonical({key: 0 for key in keys}).decode()
    positions = [found.index(key if key != "\r" else "\\r") for key in expected]
    assert positions == sorted(positions)


def test_the_same_value_has_the_same_name() -> None:
    assert digest({"a": 1, "b": [2.0, None]}) == digest({"b": [2, None], "a": 1.0})
    assert digest({"a": 1}) != digest({"a": 2})
    assert digest([1, 2]) != digest([2, 1])
    assert digest({}) == hashlib.sha256(b"{}").hexdigest()


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, 2**53 + 1, -(2**53) - 1, "\ud800", {1: 2}, {"a": {1}}, b"bytes", object()],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_canonical_form(value: object) -> None:
    with pytest.raises(ExplorerError, match="no canonical JSON for"):
        canonical({"deep": [value]})

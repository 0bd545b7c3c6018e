"""Canonical bytes of a JSON value and their digest: equal values always have equal digests.

RFC 8785 (JSON Canonicalization Scheme). Whole floats are written as integers, so `1` and `1.0` are one value.
"""

import hashlib
from typing import Any

import rfc8785

from explorer.errors import ExplorerError


def canonical(value: Any) -> bytes:
    """Return the canonical UTF-8 bytes of `value`.

    >>> canonical({"b": 1.0, "a": [True, None, 0.5]})
    b'{"a":[true,null,0.5],"b":1}'

    Raises `ExplorerError` for values without canonical form: NaN, infinity, integers beyond 2**53, lone surrogates,
    keys that are not text, and types that JSON does not have.
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise ExplorerError(f"no canonical JSON for {value!r:.200}: {error}") from error


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical bytes, in hexadecimal (64 characters)."""
    return hashlib.sha256(canonical(value)).hexdigest()

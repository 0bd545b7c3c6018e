"""Grants: what one says, and that it cannot say "everything"."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.errors import ProvenanceError
from explorer.provenance.grants import Grant, parse_grant
from explorer.schema import to_json

GOOD: dict[str, Any] = {
    "format": "explorer/grant/v1",
    "id": "2026-0007",
    "owner": "example.com/data-governance",
    "grantee": {"name": "example.com/auditor", "public_key": "B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw="},
    "runs": ["resnet8-digits-fast-ssr0.5-s1-3f9c2a7d"],
    "classes": ["licensed/news"],
    "entries": ["step", "profile"],
    "issued": "2026-01-01T00:00:00Z",
    "expires": "2026-07-01T00:00:00Z",
}


def parsed(value: Any) -> Grant:
    return parse_grant(json.dumps(value).encode(), where="g.json")


def test_there_and_back() -> None:
    grant = parsed(GOOD)
    assert grant.grantee.name == "example.com/auditor"
    assert to_json(grant) == GOOD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "explorer/grant/v2"}, "format: input should be 'explorer/grant/v1'"),
        ({"id": "a/b"}, "id: string should match pattern"),
        ({"owner": ""}, "owner: string should match pattern"),
        ({"grantee": {"name": "example.com/auditor"}}, "grantee.public_key: is missing"),
        ({"grantee": {"name": "example.com/auditor", "public_key": "AAAA"}}, "grantee.public_key: expected a public"),
        ({"runs": []}, "runs: tuple should have at least 1 item"),
        ({"runs": ["*"]}, r"runs\[0\]: string should match pattern"),
        ({"runs": ["../secret"]}, r"runs\[0\]: string should match pattern"),
        ({"classes": []}, "classes: tuple should have at least 1 item"),
        ({"classes": ["*"]}, r"classes\[0\]: string should match pattern"),
        ({"entries": []}, "entries: tuple should have at least 1 item"),
        ({"entries": ["*"]}, r"entries\[0\]: string should match pattern"),
        ({"expires": "2026-01-01T00:00:00Z"}, "it expires 2026-01-01T00:00:00Z, which is not after it was issued"),
        ({"expired": "2026-01-01T00:00:00Z"}, "expired: unknown key; did you mean 'expires'"),
    ],
)
def test_what_is_no_grant(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProvenanceError, match=f"^g.json: {message}"):
        parsed(GOOD | change)


@pytest.mark.parametrize("name", sorted(GOOD))
def test_nothing_is_left_to_be_guessed(name: str) -> None:
    with pytest.raises(ProvenanceError, match=f"{name}: is missing"):
        parsed({key: value for key, value in GOOD.items() if key != name})


@given(
    st.binary(max_size=100)
    | st.fixed_dictionaries({name: st.sampled_from([part, None, [], {}, "", 1]) for name, part in GOOD.items()}).map(
        lambda value: json.dumps(value).encode()
    )
)
@settings(max_examples=100, deadline=None)
def test_anything_is_a_grant_or_refused(content: bytes) -> None:
    try:
        assert to_json(parse_grant(content, where="g.json")) == GOOD
    except ProvenanceError as error:
        assert str(error).startswith("g.json: ")

"""in-toto statements: what they look like, what is refused, and that a subject is its digest."""

import json
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.errors import ProvenanceError
from explorer.provenance.statement import (
    FORMER,
    MAX_SUBJECTS,
    Statement,
    Subject,
    make_statement,
    parse_statement,
    type_of,
)

A, B = "a" * 64, "b" * 64
CLAIM = "https://explorer.example/claim/v1"
GOOD: dict[str, Any] = {
    "_type": "https://in-toto.io/Statement/v1",
    "subject": [{"name": "table", "digest": {"sha256": A}}],
    "predicateType": CLAIM,
    "predicate": {"rows": 3},
}


def parsed(value: Any) -> Statement:
    return parse_statement(json.dumps(value).encode(), predicate_type=CLAIM, where="s.json")


def test_the_exact_bytes() -> None:
    made = make_statement([Subject(name="table", sha256=A)], predicate_type=CLAIM, predicate={"rows": 3})
    assert made.payload == (
        b'{"_type":"https://in-toto.io/Statement/v1","predicate":{"rows":3},'
        b'"predicateType":"https://explorer.example/claim/v1",'
        b'"subject":[{"digest":{"sha256":"' + A.encode() + b'"},"name":"table"}]}'
    )
    assert parse_statement(made.payload, predicate_type=CLAIM, where="s.json") == made
    assert parsed(GOOD) == made


def test_a_subject_is_its_digest() -> None:
    made = parsed(
        GOOD | {"subject": [{"digest": {"sha256": A, "sha512": "..."}}, {"name": A, "digest": {"sha256": B}}]}
    )
    assert made.is_about(A) and made.is_about(B)
    assert not made.is_about("c" * 64)
    assert not parsed(GOOD | {"subject": [{"name": A, "digest": {"sha256": B}}]}).is_about(A)


def test_names_that_the_specification_does_not_know_are_passed_over() -> None:
    value = GOOD | {"extra": 1, "subject": [{"name": "table", "uri": "x", "digest": {"sha256": A}}]}
    assert parsed(value) == parsed(GOOD)


@pytest.mark.parametrize("claim", ["tag-table/v1", "model/v1", "deletion/v1", "observation/v1"])
def test_statements_of_earlier_versions_are_read_as_what_they_are(claim: str) -> None:
    former = f"https://explorer.example/{claim}"
    content = json.dumps(GOOD | {"predicateType": former}).encode()
    read = parse_statement(content, predicate_type=type_of(claim), where="s.json")
    assert read.predicate_type == former and json.loads(read.payload)["predicateType"] == former
    for other in (*FORMER.values(), type_of("usage/v1"), CLAIM):
        if other != type_of(claim):
            with pytest.raises(ProvenanceError, match="predicateType: found"):
                parse_statement(content, predicate_type=other, where="s.json")


def test_types_are_names_that_nobody_has_to_own() -> None:
    name, _, claim = type_of("model/v1").partition("#")
    assert uuid.UUID(name.removeprefix("urn:uuid:")).urn == name and claim == "model/v1"
    with pytest.raises(ProvenanceError, match="predicateType"):  # what was never written is not read either
        former = json.dumps(GOOD | {"predicateType": "https://explorer.example/usage/v1"}).encode()
        parse_statement(former, predicate_type=type_of("usage/v1"), where="s.json")


def test_a_claim_may_be_empty() -> None:
    assert parsed({name: part for name, part in GOOD.items() if name != "predicate"}).predicate == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"_type": "https://in-toto.io/Statement/v0.1"}, "not an in-toto statement"),
        ({"predicateType": "https://explorer.example/claim/v2"}, "predicateType: found 'https://explorer.example/cla"),
        ({"predicateType": None}, "predicateType: found None"),
        ({"subject": []}, "subject: expected a list of 1 to 10000"),
        ({"subject": {}}, "subject: expected a list"),
        ({"subject": [{"digest": {"sha256": A}}] * (MAX_SUBJECTS + 1)}, "subject: expected a list"),
        ({"subject": [A]}, r"subject\[0\]: digest: a sha256"),
        ({"subject": [{"name": "table"}]}, r"subject\[0\]: digest: a sha256"),
        ({"subject": [{"digest": {"sha512": "a" * 128}}]}, r"subject\[0\]: digest: a sha256"),
        ({"subject": [{"digest": {"sha256": A.upper()}}]}, r"subject\[0\]: digest: a sha256"),
        ({"subject": [{"digest": {"sha256": A + "\n"}}]}, r"subject\[0\]: digest: a sha256"),
        ({"subject": [{"name": 1, "digest": {"sha256": A}}]}, r"subject\[0\]: name: expected text"),
        ({"predicate": [1]}, "predicate: expected a JSON object"),
    ],
)
def test_what_is_no_statement(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProvenanceError, match=f"^s.json: {message}"):
        parsed(GOOD | change)


def test_what_could_not_be_read_is_not_made() -> None:
    with pytest.raises(ProvenanceError, match="subject: expected"):
        make_statement([], predicate_type=CLAIM, predicate={})
    with pytest.raises(ProvenanceError, match="a sha256"):
        make_statement([Subject(name="", sha256="")], predicate_type=CLAIM, predicate={})


@given(
    st.binary(max_size=100)
    | st.fixed_dictionaries(
        {name: st.sampled_from([part, None, [], {}, [{}], "x", 1]) for name, part in GOOD.items()}
    ).map(lambda value: json.dumps(value).encode())
)
@settings(max_examples=100, deadline=None)
def test_anything_is_a_statement_or_refused(content: bytes) -> None:
    try:
        made = parse_statement(content, predicate_type=CLAIM, where="s.json")
    except ProvenanceError as error:
        assert str(error).startswith("s.json: ")
    else:
        assert made.is_about(A)

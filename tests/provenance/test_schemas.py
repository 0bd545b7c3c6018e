"""The published schemas: made from the records, in the package, and of one mind with the code."""

import json
from functools import cache
from importlib import resources
from typing import Any
from uuid import UUID, uuid5

import jsonschema
import pytest

from explorer.errors import ProvenanceError
from explorer.provenance import provenance_schemas
from explorer.schema import from_json, to_json
from tests.provenance import test_grants, test_trust, test_usage


@pytest.mark.parametrize("name", sorted(provenance_schemas.SCHEMAS))
def test_what_is_published_is_what_the_code_says(name: str) -> None:
    """After a record has changed: `python -m explorer.provenance.provenance_schemas`."""
    assert provenance_schemas.file_of(name).read_bytes() == provenance_schemas.content_of(name)


def test_nothing_else_is_published() -> None:
    assert {path.name for path in provenance_schemas.DIRECTORY.iterdir()} == {
        provenance_schemas.file_of(name).name for name in provenance_schemas.SCHEMAS
    }


@pytest.mark.parametrize("name", sorted(provenance_schemas.SCHEMAS))
def test_a_schema_says_which_it_is(name: str) -> None:
    schema = json.loads(resources.files("explorer.provenance").joinpath(f"schemas/{name}.v1.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    namespace = UUID("5c06314d-e92a-42ff-b8a5-d7b8024b3f28")
    assert schema["$id"] == f"urn:uuid:{uuid5(namespace, f'schemas/provenance/{name}.v1.json')}"
    assert schema["additionalProperties"] is False


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(provenance_schemas.content_of(name)))


def agree(name: str, value: Any) -> bool:
    """Whether a document is accepted; schema and code must say the same."""
    try:
        from_json(provenance_schemas.SCHEMAS[name], value, where="d", error=ProvenanceError)
    except ProvenanceError:
        by_code = False
    else:
        by_code = True
    assert by_code == validator(name).is_valid(value), value
    return by_code


def broken(value: Any) -> list[Any]:
    """The value with one thing in it taken out or replaced, in every place."""
    if isinstance(value, dict):
        return [
            *({k: v for k, v in value.items() if k != name} for name in value),
            *(value | {name: other} for name in value for other in (None, 1, "", "?", [], {}, *broken(value[name]))),
            value | {"more": 1},
        ]
    if isinstance(value, list):
        return [[*value[:at], other, *value[at + 1 :]] for at, old in enumerate(value) for other in broken(old)]
    return [-1, True, "\n"]


GOOD = {
    "trust": to_json(test_trust.LAB),
    "grant": test_grants.GOOD,
    "usage-party": to_json(test_usage.PARTY_FILE) | {"statement": {}},  # of an envelope the schema says nothing more
    "usage-whole": to_json(test_usage.WHOLE_FILE) | {"statement": {}},
}


@pytest.mark.parametrize(("name", "good"), GOOD.items())
def test_schema_and_code_are_of_one_mind(name: str, good: Any) -> None:
    assert agree(name, good)
    verdicts = [agree(name, json.loads(json.dumps(value))) for value in broken(good)]
    assert len(verdicts) > 50 and verdicts.count(False) > len(verdicts) / 2

"""The forms of entries in the verifier are those of the published schemas, and its canonical JSON is RFC 8785."""

import json
import random
import re
import struct
from typing import Any

import pytest

from explorer.canonical import canonical
from explorer.disclosure import verifier
from explorer.entries.entry_schemas import DIRECTORY, schema_name
from explorer.entries.heads import PROJECT, RUN
from explorer.entries.kinds import KINDS
from explorer.errors import ExplorerError

RECORDS = {"Blob": "blob", "LedgerState": "ledger", "Shared": "same", "TrainingState": "training"}
"""What the verifier calls some records; the others have their own name in lower case."""
HEAD = ("kind", "version", "blobs")


def form_of(schema: dict[str, Any]) -> str:
    """A schema as the verifier writes it."""
    match schema:
        case {"$ref": str(place)}:
            name = place.rpartition("/")[2]
            return RECORDS.get(name, name.lower())
        case {"anyOf": [{"type": str()} | {"$ref": str()} as first, {"type": "null"}]}:
            return f"{form_of(first)}?"
        case {"enum": list(words)}:
            return "|".join(words)
        case {"type": "string", "pattern": str(pattern), "maxLength": int(longest)}:
            bounds = pattern.removeprefix("^").removesuffix("$"), longest
            return next(name for name, each in verifier.TEXTS.items() if each == bounds)
        case {"type": "integer", "minimum": 0, "maximum": 9007199254740991}:
            return "whole"
        case {"type": "boolean"}:
            return "flag"
        case {"type": "array", "items": dict(items)}:
            return f"[{form_of(items)}]{'+' * schema.get('minItems', 0)}"
        case {"type": "object", "additionalProperties": dict(value), "propertyNames": {"enum": list(words)}}:
            return f"{{{'|'.join(words)}:{form_of(value)}}}"
        case {"type": "object", "patternProperties": dict(inner), "propertyNames": {"maxLength": int(longest)}}:
            ((pattern, value),) = inner.items()
            key = form_of({"type": "string", "pattern": pattern, "maxLength": longest})
            return f"{{{key}:{form_of(value)}}}"
    raise AssertionError(f"the verifier has no words for {schema}")


def fields_of(schema: dict[str, Any], *, without: tuple[str, ...] = ()) -> str:
    required = schema.get("required", ())
    pairs = [(name, each) for name, each in schema["properties"].items() if name not in without]
    return " ".join(f"{name}:{form_of(each)}{'=' * (name not in required)}" for name, each in pairs)


def published(kind: str) -> dict[str, Any]:
    (found,) = (each for (name, version), each in KINDS.items() if (name, version) == (kind, 1))
    return json.loads((DIRECTORY / schema_name(found)).read_bytes())


def test_the_kinds_are_those_of_the_schemas() -> None:
    assert verifier.KINDS.keys() == RUN and {*verifier.PROJECT} == PROJECT


@pytest.mark.parametrize("kind", sorted(verifier.KINDS))
def test_the_fields_of_a_kind_are_those_of_its_schema(kind: str) -> None:
    """Where this fails the schema has changed: write what it expects into `KINDS` or `RECORDS` of verifier.py."""
    schema = published(kind)
    assert verifier.KINDS[kind] == fields_of(schema, without=HEAD)
    assert form_of({**schema["properties"]["blobs"]}) == "{blob-name:blob}"
    for name, record in schema["$defs"].items():
        assert verifier.RECORDS[RECORDS.get(name, str(name).lower())] == fields_of(record)


@pytest.mark.parametrize("kind", sorted(verifier.GONE))
def test_entries_that_say_what_is_gone_are_those_of_their_schemas(kind: str) -> None:
    assert verifier.GONE[kind] == fields_of(published(kind), without=HEAD)


def test_no_form_is_left_over() -> None:
    used = {*re.findall(r"[a-z-]+", " ".join((*verifier.KINDS.values(), *verifier.RECORDS.values())))}
    assert {*verifier.RECORDS, *verifier.TEXTS} - used == {"blob", "blob-name"}  # of the head of every entry


def test_canonical_json_of_names_and_numbers_of_every_sort() -> None:
    draw = random.Random(5)
    numbers = [struct.unpack("<d", draw.randbytes(8))[0] for _ in range(3_000)]
    numbers += [10.0**power for power in range(-30, 30)] + [0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1 + 0.2]
    numbers += [draw.randrange(2**53) / 10 ** draw.randrange(20) for _ in range(1_000)]
    for each in numbers:
        if each - each == 0:
            assert verifier.canonical(each, "") == canonical(each), each
    keys = ["a", "\u00e9", "\ue000", "\U0001f600", "\uffff", "\x1f", '"', "\\", "\u2028", "\x7f", ""]
    for _ in range(200):
        value = {"".join(draw.choices(keys, k=3)): draw.choice(numbers[3_000:3_060]) for _ in range(8)}
        assert verifier.canonical([value], "") == canonical([value]), value


def test_what_has_no_canonical_form_is_refused_by_both() -> None:
    for value in ("\ud800", {"\ud800": 1}):
        with pytest.raises(verifier.Refused):
            verifier.canonical(value, "")
        with pytest.raises(ExplorerError):
            canonical(value)

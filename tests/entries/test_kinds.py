"""Every kind of entry goes there and back; what its schema refuses, the code refuses, and the other way round."""

import dataclasses
import json
import re
import subprocess
import sys
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

import explorer.entries
from explorer.entries.entry_schemas import entry_schema, schema_name
from explorer.entries.fields import Blob
from explorer.entries.heads import MAX_BYTES, Head, read_head, write_entry
from explorer.entries.kinds import KINDS, Decision, Entry, Step, Unknown, decode, encode
from explorer.errors import ExplorerError, LedgerError
from tests.entries.examples import EXAMPLES, mutants

SCHEMAS = files("explorer.entries") / "schemas"
NAMES = [entry.KIND for entry in EXAMPLES]

# Where None is allowed, a flag string may be empty, and which digest may be absent, the kinds say so.
OPTIONAL = {".taxonomy: None", ".policy: None", ".trust: None", ".weights: None", ".updated: ''"}
OPTIONAL |= {".numbers[0]: None", ".sketches[0]: None", "step.joint: None", "grant.ledger: None"}
OPTIONAL |= {"statewithout sketches", "genesis.start: None", "parents[0].model: None", "parents[0].attestation: None"}


def validator(entry: Entry) -> Any:
    return jsonschema.Draft202012Validator(json.loads((SCHEMAS / schema_name(type(entry))).read_text()))


def test_there_is_an_example_of_every_kind() -> None:
    assert {(entry.KIND, entry.VERSION) for entry in EXAMPLES} == set(KINDS)


def test_the_published_schemas_are_those_of_the_records() -> None:
    """If this fails: python -m explorer.entries.entry_schemas"""
    published = {path.name: json.loads(path.read_text()) for path in SCHEMAS.iterdir()}
    assert published == {schema_name(kind): entry_schema(kind) for kind in KINDS.values()}
    for schema in published.values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("entry", EXAMPLES, ids=NAMES)
def test_an_entry_goes_there_and_back_and_meets_its_schema(entry: Entry) -> None:
    leaf = encode(entry)
    assert decode(leaf) == entry
    assert encode(entry) == leaf
    head = read_head(leaf)
    assert (head.kind, head.version) == (entry.KIND, entry.VERSION)
    assert {name: (blob.sha256, blob.size) for name, blob in head.blobs.items()} == {
        name: (blob.sha256, blob.size) for name, blob in entry.blobs.items()
    }
    validator(entry).validate(json.loads(leaf))


@pytest.mark.parametrize("entry", EXAMPLES, ids=NAMES)
def test_what_is_wrong_is_wrong_for_code_and_schema_alike(entry: Entry) -> None:
    value = json.loads(encode(entry))
    schema = validator(entry)
    wrong = [*mutants(value), *((f"without {key}", {k: v for k, v in value.items() if k != key}) for key in value)]
    assert len(wrong) > 40
    for name, mutant in wrong:
        allowed = any(f"{entry.KIND}{name}".endswith(one) for one in OPTIONAL)
        refused_by_schema = not schema.is_valid(mutant)
        try:
            refused_by_code = isinstance(decode(write_entry(mutant)), Unknown)
        except LedgerError:
            refused_by_code = True
        assert refused_by_code == refused_by_schema == (not allowed), name


def test_an_unknown_kind_or_version_is_kept_with_its_blobs() -> None:
    value = {"blobs": {"more": {"sha256": "d" * 64, "size": 7}}, "kind": "weather", "text": "h\u00e9", "version": 1}
    newer = {**json.loads(encode(EXAMPLES[1])), "version": 2, "novelty": [1]}
    for each in (value, newer):
        leaf = write_entry(each)
        found = decode(leaf)
        assert isinstance(found, Unknown) and found.leaf == leaf
        assert (found.head.kind, found.head.version) == (each["kind"], each["version"])
        assert found.head.blobs.keys() == each["blobs"].keys()


def test_a_known_kind_with_wrong_fields_names_the_field_and_the_nearest_name() -> None:
    value = json.loads(encode(EXAMPLES[1]))
    with pytest.raises(LedgerError, match=r"step entry: step: input should be greater than or equal to 0, found -1"):
        decode(write_entry({**value, "step": -1}))
    with pytest.raises(LedgerError, match=r"step entry: fase: unknown key; did you mean 'phase'\?"):
        decode(write_entry({**value, "fase": "warm-up"}))


def test_what_does_not_fit_is_sent_to_a_blob() -> None:
    step = EXAMPLES[1]
    assert isinstance(step, Step)
    with pytest.raises(LedgerError, match=rf"at most {MAX_BYTES} fit; put the bulk into a blob"):
        encode(dataclasses.replace(EXAMPLES[0], layers=tuple(f"layer{number:04}" for number in range(6000))))
    fitting = dataclasses.replace(step, updated="1" * 20_000)
    assert decode(encode(fitting)) == fitting


@pytest.mark.parametrize("wrong", [{"step": 1.0}, {"step": b"1"}, {"phase": "\ud800"}, {"slots": "A" * 64}])
def test_a_record_made_wrong_is_not_written(wrong: dict[str, Any]) -> None:
    with pytest.raises(LedgerError):
        encode(dataclasses.replace(EXAMPLES[1], **wrong))  # pyright: ignore


def test_blob_names_are_checked_in_the_record_as_in_the_head() -> None:
    for name in ("../../etc", "/etc", "a//b", "A", "", "a/.b", "x" * 221):
        with pytest.raises(ExplorerError, match="not a blob's name"):
            encode(dataclasses.replace(EXAMPLES[3], blobs={name: Blob(sha256="a" * 64, size=1)}))


def test_reading_heads_loads_no_pydantic() -> None:
    code = "import sys, explorer.entries.heads, explorer.entries.heads; assert 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_commitments_not_numbers() -> None:
    """Of a class, a step says how many examples there were, and commits to the rest; no field is a fraction."""
    fields = entry_schema(Step)["properties"]
    assert fields["examples"]["items"]["type"] == "integer"
    assert [each.get("pattern", each["type"]) for each in fields["numbers"]["items"]["anyOf"]] == [
        "^[0-9a-f]{64}$",
        "null",
    ]
    assert '"type": "number"' not in json.dumps([entry_schema(kind) for kind in KINDS.values()])


def test_a_step_of_16_layers_and_8_classes_is_at_most_a_kilobyte() -> None:
    step = Step(
        step=10**7,
        phase="progress [0.3333333333333333, 0.6666666666666666)",
        slots="a" * 64,
        examples=(128,) * 8,
        numbers=("b" * 64,) * 8,
        joint="c" * 64,
        quarantined=128,
        weights="d" * 64,
        updated="1" * 16,
        blobs={},
    )
    assert len(encode(step)) <= 1024


def test_the_example_of_the_package() -> None:
    example = re.search(r"    (\{.*)\n    (.*\})\n", explorer.entries.__doc__ or "")
    entry = Decision(
        step=40,
        action="re-execution",
        rule="other-bits",
        parameters={},
        condition=None,
        subjects=(),
        layers=(),
        evidence={},
        blobs={},
    )
    assert example and encode(entry).decode() == example[1] + example[2]


def test_heads_are_frozen() -> None:
    head = read_head(encode(EXAMPLES[3]))
    assert isinstance(head, Head)
    with pytest.raises(AttributeError):
        head.kind = "step"  # pyright: ignore

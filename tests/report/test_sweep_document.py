"""The JSON of a sweep's report: it is what its published schema says, and nothing else is."""

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from explorer.report.report_schemas import content_of, file_of
from explorer.report.sweep_report import as_json, read_sweep
from explorer.store.ingest import ingest
from tests.builders import run_record, write_failure, write_run, write_sweep


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    published = json.loads(file_of("sweep_report.v3").read_bytes())
    jsonschema.Draft202012Validator.check_schema(published)
    return jsonschema.Draft202012Validator(published)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A sweep that has some of everything: a winner, a loser, a control, a failed run."""
    runs = tmp_path_factory.mktemp("document")
    qualities = {
        "baseline": {0.5: (0.80, 0.81), 1.0: (0.85, 0.86)},
        "fast": {0.5: (0.86, 0.87), 1.0: (0.90, 0.905)},
        "worse": {0.5: (0.70, 0.71), 1.0: (0.75, 0.76)},
    }
    write_sweep(runs, qualities, step_seconds={"fast": 0.02})
    for seed in range(2):
        record = replace(run_record(ssr=2.0, seed=seed), control="rescaled-baseline", control_of=("fast",))
        write_run(runs, record, metrics={"accuracy": 0.87 + seed / 100, "nll": 0.5})
    write_failure(runs, run_record(recipe="worse", ssr=1.5), message="out of memory")
    ingest(runs)
    return json.loads(as_json(read_sweep(runs, "digits")))


def test_the_published_schema_is_that_of_the_records() -> None:
    assert file_of("sweep_report.v3").read_bytes() == content_of("sweep_report.v3")


@pytest.mark.slow
def test_a_report_is_what_the_schema_says(document: dict[str, Any], schema: jsonschema.Draft202012Validator) -> None:
    schema.validate(document)
    section = document["sections"][0]
    assert section["equal_quality"] and section["controls"] and section["recipes"] and document["negatives"]


def test_a_report_of_failed_runs_follows_the_schema(tmp_path: Path, schema: jsonschema.Draft202012Validator) -> None:
    write_failure(tmp_path, run_record(), message="out of memory")
    ingest(tmp_path)
    found = json.loads(as_json(read_sweep(tmp_path, "digits")))
    schema.validate(found)
    assert found["sections"] == [] and found["answer"].startswith("no run has finished (1 failed)")
    (negative,) = found["negatives"]
    assert negative["topic"] == "run without a result" and negative["words"].endswith("failed, out of memory")


def mutants(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The document with one thing in it changed."""
    for key, value in document.items():
        yield f"without {key}", {name: other for name, other in document.items() if name != key}
        yield f"{key} of another type", document | {key: [1] if isinstance(value, str | int | dict) else 7}
    yield "one more", document | {"more": 1}
    yield "another format", document | {"format": 1}
    for place in ("equal_quality", "controls", "recipes"):
        for name in document["sections"][0][place][0]:
            changed = copy.deepcopy(document)
            del changed["sections"][0][place][0][name]
            yield f"{place}[0] without {name}", changed
    for name in document["sections"][0]["equal_quality"][0]["result"]:
        changed = copy.deepcopy(document)
        changed["sections"][0]["equal_quality"][0]["result"][name] = {"a": "b"}
        yield f"result with another {name}", changed
    changed = copy.deepcopy(document)
    changed["negatives"][0]["topic"] = "a matter of taste"
    yield "another topic", changed


def test_any_other_document_is_refused(document: dict[str, Any], schema: jsonschema.Draft202012Validator) -> None:
    found = dict(mutants(document))
    assert len(found) > 60
    assert [name for name, each in found.items() if schema.is_valid(each)] == []


def test_negative_results_name_what_did_not_work(document: dict[str, Any]) -> None:
    found = {(each["subject"], each["topic"]) for each in document["negatives"] if "accuracy" in each["where"]}
    assert ("worse", "does not reach the baseline") in found
    assert not {topic for subject, topic in found if subject == "fast"} & {"does not reach the baseline"}
    failed = [each for each in document["negatives"] if each["topic"] == "run without a result"]
    assert ["out of memory" in each["words"] for each in failed] == [True]

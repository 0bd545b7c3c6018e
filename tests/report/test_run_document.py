"""The JSON of a run's report: it is what its published schema says, and nothing else is."""

import copy
import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from explorer import rundir
from explorer.report import report_schemas
from explorer.report.run.reported_run import ReportedRun
from explorer.report.run_report import as_json, read_run
from tests.governed_sample import CLASSES, LAYERS, Sample, write_governed_run
from tests.provenance.people import NOW


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> ReportedRun:
    run = write_governed_run(tmp_path_factory.mktemp("document") / "runs")
    return read_run(run, trust=run / rundir.GOVERNANCE / "trust.json", now=NOW)


@pytest.fixture(scope="module")
def document(content: ReportedRun) -> dict[str, Any]:
    return json.loads(as_json(content))


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    published = json.loads(resources.files("explorer.report").joinpath("schemas/run_report.v2.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(published)
    return jsonschema.Draft202012Validator(published)


@pytest.mark.parametrize("name", sorted(report_schemas.SCHEMAS))
def test_the_published_schema_is_that_of_the_code(name: str) -> None:
    """After a record has changed: `python -m explorer.report.report_schemas`."""
    assert report_schemas.file_of(name).read_bytes() == report_schemas.content_of(name)
    assert {path.name for path in report_schemas.DIRECTORY.iterdir()} == {
        f"{each}.json" for each in report_schemas.SCHEMAS
    }


@pytest.mark.slow
def test_a_report_is_what_the_schema_says(document: dict[str, Any], schema: jsonschema.Draft202012Validator) -> None:
    schema.validate(document)
    assert document["format"] == 2


def test_a_sparse_report_follows_the_schema(tmp_path: Path, schema: jsonschema.Draft202012Validator) -> None:
    """Unfinished, without documents, without numbers that could be opened."""
    run = write_governed_run(tmp_path / "runs", sample=Sample(confidential=("*",)), steps=20)
    for name in ("tags.json", "trust.json"):
        (run / rundir.GOVERNANCE / name).unlink()
    (run / rundir.PRIVATE).rename(tmp_path / "elsewhere")
    found = json.loads(as_json(read_run(run, trust=None, now=NOW)))
    schema.validate(found)
    assert found["dataset"] is found["policy"] is None and found["taxonomy"] == []
    assert {line["share"] for line in found["classes"]} == {None}


def mutants(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The document with one thing in it changed, of many kinds and in many places."""
    for key in document:
        yield f"without {key}", {name: value for name, value in document.items() if name != key}
    for key, value in document.items():
        yield f"{key} of another type", document | {key: [1] if isinstance(value, str | int | dict) else 7}
    yield "one more", document | {"more": 1}
    for key in ("classes", "layers", "forms", "entries", "vouchers", "decisions", "taxonomy", "documents", "counts"):
        for name in document[key][0]:
            changed = copy.deepcopy(document)
            del changed[key][0][name]
            yield f"{key}[0] without {name}", changed
        changed = copy.deepcopy(document)
        changed[key][0]["more"] = 1
        yield f"{key}[0] with one more", changed
    for status in ("guessed", None):
        changed = copy.deepcopy(document)
        changed["forms"][0]["fields"][0]["status"] = status
        yield f"status {status}", changed
    yield "another format", document | {"format": 1}


def test_any_other_document_is_refused(document: dict[str, Any], schema: jsonschema.Draft202012Validator) -> None:
    small = {key: value[:1] if isinstance(value, list) else value for key, value in document.items()}
    small["profiles"] = {**document["profiles"], "rows": [], "layers": []}
    small["forms"] = [{**document["forms"][0], "fields": document["forms"][0]["fields"][:1]}]
    schema.validate(small)
    found = dict(mutants(small))
    assert len(found) > 100
    assert [name for name, each in found.items() if schema.is_valid(each)] == []


def test_the_document_has_what_the_page_has_no_room_for(content: ReportedRun, document: dict[str, Any]) -> None:
    assert [line["layer"] for line in document["layers"]][: len(LAYERS)] == list(LAYERS)
    for line in document["layers"]:
        measured = [cell["share"] for cell in line["cells"] if cell["share"]]
        assert [cell["class_"] for cell in line["cells"]] == list(CLASSES)
        assert sum(measured) == pytest.approx(1) or not measured
    last = {row["layer"]: row for row in document["profiles"]["rows"] if row["class_"] == "*" and row["step"] == 48}
    assert {line["layer"]: line["last"]["chi"] for line in document["profiles"]["layers"]} == {
        name: row["chi"] for name, row in last.items()
    }
    assert document["made"] == "2026-06-01T00:00:00Z"
    assert [each["role"] for each in document["trust"]["keys"]] == ["data-governance", "model-risk", "trainer"]

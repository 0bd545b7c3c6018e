"""The published JSON Schemas of the reports: `schemas/<name>.v<version>.json`, generated from the records.

After a change of a record, `python -m explorer.report.report_schemas` writes them again; a test compares the two.
"""

import json
from pathlib import Path
from typing import Any

from explorer import rundir
from explorer.report import run_report, sweep_report
from explorer.schema import json_schema

DIRECTORY = Path(__file__).parent / "schemas"

SCHEMAS: dict[str, type[Any]] = {
    "run_report.v2": run_report.report_type(),
    "sweep_report.v3": sweep_report.report_type(),
}

MOVED = {"explorer__report__sweep__metrics_section__Confirmed": "explorer__report__sweep_document__Confirmed"}
"""Published names of records that share a name, which include the module's name and stay when the module moves."""


def file_of(name: str) -> Path:
    """Return the file that a schema is published in."""
    return DIRECTORY / f"{name}.json"


def content_of(name: str) -> bytes:
    """Return the bytes of a published schema, which names every key of a report and requires all of them."""
    schema = _closed(json_schema(SCHEMAS[name], name=f"report/{name}.json"))
    # Names with module paths are published: a module that moves must not change the bytes of the schema.
    text = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
    for now, published in MOVED.items():
        text = text.replace(now, published)
    return text.encode()


def _closed(schema: Any) -> Any:
    """Return the schema with every object closed: it has exactly the keys that are named."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _closed(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict) and made.get("type") == "object":
        made |= {"additionalProperties": False, "required": sorted(made["properties"])}
    return made


if __name__ == "__main__":
    for known in SCHEMAS:
        rundir.write_bytes(file_of(known), content_of(known))

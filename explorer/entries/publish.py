"""The published JSON Schemas of the entries: `schemas/<kind>.v<version>.json` beside this file, made from the records.

After a record has changed, `python -m explorer.entries.publish` writes them anew; a test compares the two.
"""

from pathlib import Path
from typing import Any

from explorer.entries.envelope import MAX_BYTES
from explorer.entries.kinds import KINDS, Entry
from explorer.rundir import write_json
from explorer.schema import json_schema

DIRECTORY = Path(__file__).parent / "schemas"


def schema_name(kind: type[Entry]) -> str:
    """The name of the file in which the schema is published."""
    return f"{kind.KIND}.v{kind.VERSION}.json"


def entry_schema(kind: type[Entry]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of an entry of this kind. It says nothing of canonical form and of size."""
    made = json_schema(kind, id=f"https://explorer.example/schemas/entries/{schema_name(kind)}")
    head = {"kind": {"const": kind.KIND}, "version": {"const": kind.VERSION}}
    return {
        **made,
        "$comment": f"RFC 8785 form, at most {MAX_BYTES} bytes, no fractions",
        "properties": {**head, **made["properties"]},
        "required": [*head, *made["required"]],
    }


def main() -> None:
    """Write the schema files of the package."""
    for kind in KINDS.values():
        write_json(DIRECTORY / schema_name(kind), entry_schema(kind))


if __name__ == "__main__":
    main()

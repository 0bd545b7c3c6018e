"""Published JSON Schemas of provenance, `schemas/<name>.v1.json`, generated from the records.

`python -m explorer.provenance.provenance_schemas` writes them after a change of a record; a test compares the two.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from explorer import rundir
from explorer.provenance.delegation import Delegation
from explorer.provenance.deletion_certificate import Certificate
from explorer.provenance.grants import Grant
from explorer.provenance.model_attestation import ModelAttestation, Observation
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.shards_attestation import ShardsAttestation
from explorer.provenance.tags import TagTable
from explorer.provenance.taxonomy import Taxonomy
from explorer.provenance.trust import Trust
from explorer.provenance.usage import PartyFile, Usage, WholeFile
from explorer.schema import json_schema

DIRECTORY = Path(__file__).parent / "schemas"

SCHEMAS: dict[str, type[Any]] = {
    "delegation": Delegation,
    "deletion": Certificate,
    "grant": Grant,
    "model": ModelAttestation,
    "observation": Observation,
    "policy": RoutingPolicy,
    "shards": ShardsAttestation,
    "tag-table": TagTable,
    "taxonomy": Taxonomy,
    "trust": Trust,
    "usage": Usage,
    "usage-party": PartyFile,
    "usage-whole": WholeFile,
}


def file_of(name: str) -> Path:
    """Return the path of a published schema."""
    return DIRECTORY / f"{name}.v1.json"


@cache
def content_of(name: str) -> bytes:
    """Return the published bytes of a schema."""
    schema = json_schema(SCHEMAS[name], name=f"provenance/{name}.v1.json")
    return (json.dumps(schema, indent=1, ensure_ascii=False) + "\n").encode()


if __name__ == "__main__":
    for known in SCHEMAS:
        rundir.write_bytes(file_of(known), content_of(known))

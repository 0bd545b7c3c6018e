"""Attestations of sharded data: in-toto statements about an index, which has the digest of every shard.

    subject    index.json, by its SHA-256
    predicate  how many examples each class has; issued and expires

    {"examples": {"open/mit": 1200, "licensed/news": 300}, "issued": ..., "expires": ...}

Data governance signs it, with a key that may vouch for all of its classes. It says where the bytes come from; what an
example is says its own tag, with which a governed run compares it (`tags.py`).
"""

from typing import Annotated

from pydantic import Field

from explorer.provenance.signing import Kind, check_span
from explorer.provenance.spellings import ClassPath, Time
from explorer.provenance.trust import Role
from explorer.schema import record

INDEX = "index.json"  # the name of its subject
FILE = "index.attestation.json"  # next to the index
MAX_BYTES = 2**20


@record
class ShardsAttestation:
    """The predicate of the statement."""

    examples: Annotated[dict[ClassPath, Annotated[int, Field(ge=1)]], Field(max_length=10_000)]  # none without tags
    issued: Time
    expires: Time


ATTESTATION = Kind(
    name="shards/v1",
    record=ShardsAttestation,
    role=Role.DATA_GOVERNANCE,
    check=check_span,
    branches=lambda value: tuple(value.examples),
    about=(INDEX,),
)

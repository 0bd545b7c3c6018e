"""in-toto statements, version 1 (github.com/in-toto/attestation): a claim about things that are named by digest.

    {"_type": "https://in-toto.io/Statement/v1",
     "subject": [{"name": "train", "digest": {"sha256": "..."}}],
     "predicateType": "urn:uuid:5c06314d-e92a-42ff-b8a5-d7b8024b3f28#tag-table/v1",
     "predicate": {...}}

The types of claims are fragments of one URN (RFC 9562), which needs no domain. Earlier versions wrote
https://explorer.example/tag-table/v1, a name that can never resolve: these are still read.

A subject is matched by its digest only; its name is for people. Names that the specification does not know are ignored,
as it requires.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from explorer.canonical import canonical
from explorer.errors import ProvenanceError
from explorer.schema import NAMESPACE, parse_json

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
TYPES = f"{NAMESPACE.urn}#"
FORMER = {  # the types that earlier versions wrote
    f"https://explorer.example/{claim}": f"{TYPES}{claim}"
    for claim in ("tag-table/v1", "model/v1", "deletion/v1", "observation/v1")
}
MAX_BYTES = 8 * 2**20
MAX_SUBJECTS = 10_000
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A thing that a statement is about."""

    name: str  # for people; may be empty
    sha256: str  # 64 hexadecimal digits, lower case


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """A claim, not checked: whether to believe it depends on its signers."""

    subjects: tuple[Subject, ...]
    predicate_type: str
    predicate: dict[str, Any]

    @property
    def payload(self) -> bytes:
        """The bytes to sign: canonical JSON."""
        return canonical(
            {
                "_type": STATEMENT,
                "subject": [
                    {"digest": {"sha256": one.sha256}, **({"name": one.name} if one.name else {})}
                    for one in self.subjects
                ],
                "predicateType": self.predicate_type,
                "predicate": self.predicate,
            }
        )

    def is_about(self, sha256: str) -> bool:
        """Return whether one of its subjects has this digest."""
        return any(one.sha256 == sha256 for one in self.subjects)


def type_of(claim: str) -> str:
    """Return the predicate type of one of the project's own claims, such as "model/v1"."""
    return f"{TYPES}{claim}"


def make_statement(subjects: Sequence[Subject], *, predicate_type: str, predicate: dict[str, Any]) -> Statement:
    """Return a statement. Raises `ProvenanceError` for one that could not be read back."""
    # Read back at once: a statement that its own reader refuses must not get signed.
    made = Statement(subjects=tuple(subjects), predicate_type=predicate_type, predicate=predicate)
    return parse_statement(made.payload, predicate_type=predicate_type, where="the statement")


def parse_statement(payload: bytes, *, predicate_type: str, where: str) -> Statement:
    """Read a statement of this type of claim. Raises `ProvenanceError` for anything else."""
    value = parse_json(payload, where=where, error=ProvenanceError, max_bytes=MAX_BYTES)
    if not isinstance(value, dict) or value.get("_type") != STATEMENT:
        raise ProvenanceError(f'{where}: not an in-toto statement: expected "_type": "{STATEMENT}"')
    type_found = value.get("predicateType")
    if not isinstance(type_found, str) or predicate_type not in (type_found, FORMER.get(type_found)):
        raise ProvenanceError(f"{where}: predicateType: found {type_found!r:.200}, expected {predicate_type!r}")
    subjects = value.get("subject")
    if not isinstance(subjects, list) or not 0 < len(subjects) <= MAX_SUBJECTS:
        raise ProvenanceError(f"{where}: subject: expected a list of 1 to {MAX_SUBJECTS}")
    predicate = value.get("predicate", {})
    if not isinstance(predicate, dict):
        raise ProvenanceError(f"{where}: predicate: expected a JSON object")
    return Statement(
        subjects=tuple(_subject(one, f"{where}: subject[{at}]") for at, one in enumerate(subjects)),
        predicate_type=type_found,
        predicate=predicate,
    )


def _subject(value: Any, where: str) -> Subject:
    digest = value.get("digest") if isinstance(value, dict) else None
    sha256 = digest.get("sha256") if isinstance(digest, dict) else None
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ProvenanceError(f"{where}: digest: a sha256 of 64 hexadecimal digits is needed")
    name = value.get("name", "")
    if not isinstance(name, str):
        raise ProvenanceError(f"{where}: name: expected text")
    return Subject(name=name, sha256=sha256)

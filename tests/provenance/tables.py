"""A small tag table, the taxonomy it is for, and the people who vouch for it."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.provenance.description import Days, Description
from explorer.provenance.envelope import Envelope
from explorer.provenance.tag_attestation import VerifiedTags, attest, verify_tags
from explorer.provenance.tags_file import Row, write_table
from explorer.provenance.taxonomy import FORMAT, Source, Taxonomy, TaxonomyClass
from explorer.provenance.trust import Trust
from tests.provenance.people import EXPIRES, GOVERNANCE, ISSUED, YEAR_BEGINS, YEAR_ENDS, governance, private, trust
from tests.provenance.people import NOW as NOW

PATHS = ("licensed", "licensed/news", "open", "open/mit", "personal")
TAXONOMY = Taxonomy(
    format=FORMAT,
    name="licences",
    version=1,
    issued=YEAR_BEGINS,
    expires=YEAR_ENDS,
    classes=tuple(
        TaxonomyClass(path=path, definition=f"All that is {path}.", personal_data=False, source=Source.PUBLIC)
        for path in PATHS
    ),
)
DESCRIPTION = Description(
    standards_version="1.0.0",
    title="A small dataset",
    identifier="urn:example:dataset:1",
    location="https://data.example.com/1",
    issuer=GOVERNANCE,
    description="Five records.",
    origin_geography="EU",
    issue_date="2026-04-01",
    generated=Days(first="2026-01-01", last="2026-03-31"),
    method="written by hand",
    format="UTF-8 text",
    confidentiality="public",
    licence="MIT",
    intended_use="tests",
    proprietary=False,
)
TRUST = trust(governance())


def commitment(number: int) -> bytes:
    """32 bytes that stand for a commitment."""
    return hashlib.sha256(f"commitment {number}".encode()).digest()


def row(number: int, class_path: str = "open/mit", source: str = "example 1.0", authority: str = GOVERNANCE) -> Row:
    return Row(commitment(number), class_path, source, authority)


ROWS = (
    row(0),
    row(1, "licensed/news", "news.example.com"),
    row(2, "open", ""),
    row(3, "open/mit", "b\u00fccher.example"),
    row(4, "quarantine"),
)


def table(directory: Path, *rows: Row) -> Path:
    """A table of these rows, or of the usual ones."""
    path = directory / "train.parquet"
    write_table(path, rows or ROWS)
    return path


def signed(path: Path, *keys: Ed25519PrivateKey, **changes: Any) -> Envelope:
    """The attestation of a table by data governance, unless told otherwise."""
    usual: dict[str, Any] = {
        "taxonomy": TAXONOMY,
        "description": DESCRIPTION,
        "issued": ISSUED,
        "expires": EXPIRES,
        "trust": TRUST,
        "now": NOW,
    }
    return attest(path, keys=keys or (private(GOVERNANCE),), **{**usual, **changes})


def verified(path: Path, envelope: Envelope, *, trust: Trust) -> VerifiedTags:
    """The table, if these people are believed."""
    return verify_tags(path, envelope.content, taxonomy=TAXONOMY, trust=trust, now=NOW, where="train.json")


def with_class(taxonomy: Taxonomy, path: str) -> Taxonomy:
    """The next version, with one more class."""
    added = replace(taxonomy.classes[0], path=path)
    return replace(taxonomy, version=taxonomy.version + 1, classes=(*taxonomy.classes, added))

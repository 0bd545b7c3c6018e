"""Makes the files in `bad/`: credentials with one fault each, and beside them what is accepted.

`python -m tests.provenance.make_bad` writes them. Ed25519 repeats itself, so the same code writes the same bytes, and a
test compares them. Only the Parquet files are taken as they are: other versions of pyarrow write
other bytes.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from explorer.canonical import canonical
from explorer.provenance.envelope import Envelope, EnvelopeSignature, key_id, sign_envelope
from explorer.provenance.keys import public_bytes
from explorer.provenance.policy import POLICY, Quarantine, RoutingPolicy, Rule, TaxonomyReference
from explorer.provenance.signing import Kind
from explorer.provenance.tag_attestation import attest
from explorer.provenance.tags_file import write_table
from explorer.provenance.taxonomy import QUARANTINE, TAXONOMY, Source, Taxonomy, TaxonomyClass
from explorer.provenance.trust import Role, Trust, trust_content
from explorer.schema import to_json
from tests.provenance.people import (
    EXPIRES,
    GOVERNANCE,
    ISSUED,
    NOW,
    RISK,
    YEAR_BEGINS,
    YEAR_ENDS,
    authority,
    governance,
    private,
    public,
    risk,
    trust,
)
from tests.provenance.tables import DESCRIPTION, ROWS, row

HERE = Path(__file__).parent / "bad"
TABLES = {"good_tags": ROWS, "out_of_branch": (*ROWS, row(5, "personal"))}
"""The rows of the tables, by the name of the attestation: `good_tags.json` is about `good_tags.parquet`."""

BOARD = "example.com/board"
REVOKED = "2026-04-01T00:00:00Z"  # the moment as of which the key "lost" of model risk is revoked
EARLY, LATE = "2026-03-01T00:00:00Z", "2026-07-01T00:00:00Z"

TREE = Taxonomy(
    format="explorer/taxonomy/v1",
    name="licences",
    version=1,
    issued=YEAR_BEGINS,
    expires=YEAR_ENDS,
    classes=tuple(
        TaxonomyClass(path=path, definition=f"All that is {path}.", personal_data=False, source=Source.PUBLIC)
        for path in ("licensed", "licensed/news", "open", "open/mit", "personal")
    ),
)
ROUTING = RoutingPolicy(
    format="explorer/policy/v1",
    name="open-only",
    version=1,
    issued=ISSUED,
    expires=EXPIRES,
    taxonomy=TaxonomyReference(name=TREE.name, version=TREE.version, digest=TREE.digest),
    quarantine=Quarantine.REFUSE,
    rules=(Rule(classes=("open",), weight=1.0),),
)

LAB = trust(
    governance(),
    risk(
        public(RISK),
        public("lost", revoked=REVOKED),
        public("late", not_before="2026-05-15T00:00:00Z"),
        public("early", not_after=REVOKED),
    ),
)
TWO = trust(governance(), risk(), authority(BOARD, Role.MODEL_RISK), documents={Role.MODEL_RISK: 2})
"""Two authorities of model risk, and both must sign."""

WEAK = "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="  # the neutral point


WIDE = trust(authority(GOVERNANCE, Role.DATA_GOVERNANCE, branches=("open", "licensed", "personal")))
"""A trust file that lets data governance vouch for more than the common one does."""


def files() -> dict[str, bytes]:
    """Every file but the table, by name."""
    policy = signed(ROUTING)
    good = {
        "good_policy": policy,
        "good_policy_by_two": signed(ROUTING, RISK, BOARD),
        "good_policy_before_revocation": signed(replace(ROUTING, issued=EARLY), "lost"),
        "good_taxonomy": signed(TREE, GOVERNANCE, kind=TAXONOMY),
        "good_tags": tags("good_tags"),
    }
    bad = {
        "forged": replace(policy, payload=policy.payload.replace(b'"weight":1', b'"weight":0')),
        "forged_kind": replace(policy, payload_type=TAXONOMY.payload_type),
        "unknown_key": signed(ROUTING, "stranger"),
        "expired": signed(replace(ROUTING, expires="2026-05-15T00:00:00Z")),
        "not_yet_valid": signed(replace(ROUTING, issued=LATE)),
        "expired_before_issued": signed(replace(ROUTING, expires=ISSUED)),
        "revoked": signed(ROUTING, "lost"),
        "key_not_yet_valid": signed(ROUTING, "late"),
        "key_expired": signed(ROUTING, "early"),
        "wrong_role": signed(ROUTING, GOVERNANCE),
        "out_of_branch": tags("out_of_branch"),
        "threshold_not_met": signed(ROUTING, RISK),
        "one_key_twice": replace(policy, signatures=(*policy.signatures, under_another_id(policy))),
        "not_canonical": sign_envelope(b" " + policy.payload, policy.payload_type, [private(RISK)]),
        "unknown_field": envelope({**to_json(ROUTING), "wieght": 1}),
        "quarantine_defined": signed(with_quarantine(), GOVERNANCE, kind=TAXONOMY),
        "policy_empty": signed(replace(ROUTING, rules=())),
    }
    trusts = {
        "trust": trust_content(LAB, where="trust"),
        "trust_two": trust_content(TWO, where="trust_two"),
        "trust_nobody": trust_content(trust(), where="trust_nobody"),
        "trust_without_quorum": trust_content(replace(LAB, quorum=trust().quorum), where="trust_without_quorum"),
        "trust_empty": b"",
        "trust_same_key_twice": unchecked(replace(LAB, authorities=(governance(public(RISK)), risk()))),
        "trust_same_name_twice": unchecked(replace(LAB, authorities=(risk(), risk(public("other"))))),
        "trust_weak_key": unchecked(replace(LAB, authorities=(risk(replace(public(RISK), public_key=WEAK)),))),
        "trust_span_of_nothing": unchecked(replace(LAB, authorities=(risk(public(RISK, not_after=YEAR_BEGINS)),))),
    }
    unsigned = {
        "unsigned": canonical({"payload": "e30=", "payloadType": POLICY.payload_type, "signatures": []}),
        "draft": canonical(to_json(ROUTING)),
        "empty": b"",
    }
    envelopes = {name: made.content for name, made in {**good, **bad}.items()}
    return {f"{name}.json": content for name, content in {**envelopes, **trusts, **unsigned}.items()}


def signed(value: RoutingPolicy | Taxonomy, *seeds: str, kind: Kind[Any] = POLICY) -> Envelope:
    """Sign whatever it is: `sign_document` would refuse most of this."""
    return envelope(to_json(value), *seeds, kind=kind)


def envelope(payload: Any, *seeds: str, kind: Kind[Any] = POLICY) -> Envelope:
    return sign_envelope(canonical(payload), kind.payload_type, map(private, seeds or (RISK,)))


def tags(name: str) -> Envelope:
    """The attestation of a table."""
    return attest(
        HERE / f"{name}.parquet",
        taxonomy=TREE,
        description=DESCRIPTION,
        issued=ISSUED,
        expires=EXPIRES,
        keys=[private(GOVERNANCE)],
        trust=WIDE,
        now=NOW,
    )


def under_another_id(envelope: Envelope) -> EnvelopeSignature:
    """Its signature again, under the id of another authority's key."""
    return EnvelopeSignature(keyid=key_id(public_bytes(private(BOARD))), sig=envelope.signatures[0].sig)


def with_quarantine() -> Taxonomy:
    return replace(TREE, classes=(*TREE.classes, replace(TREE.classes[0], path=QUARANTINE)))


def unchecked(value: Trust) -> bytes:
    """A trust file that `trust_content` would refuse."""
    return (json.dumps(to_json(value), indent=1) + "\n").encode()


if __name__ == "__main__":
    for table, rows in TABLES.items():
        if not (HERE / f"{table}.parquet").exists():
            write_table(HERE / f"{table}.parquet", rows)
    for name, content in files().items():
        (HERE / name).write_bytes(content)

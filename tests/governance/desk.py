"""A governance directory for tests: twelve examples of three classes, and the people who vouch for them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from explorer.data.dataset import Split
from explorer.provenance.commitments import Salts, write_salts
from explorer.provenance.envelope import Envelope, write_envelope
from explorer.provenance.keys import write_key
from explorer.provenance.policy import FORMAT, POLICY, Quarantine, RoutingPolicy, Rule, TaxonomyReference
from explorer.provenance.signing import Kind, sign_document
from explorer.provenance.tag_records import Record, tag_records
from explorer.provenance.tags_file import write_table
from explorer.provenance.taxonomy import TAXONOMY as TAXONOMY_KIND
from explorer.provenance.trust import Role, Trust, write_trust
from explorer.runlog.documents import Documents, read_documents
from tests.provenance import people
from tests.provenance.people import EXPIRES, GOVERNANCE, ISSUED, NOW, RISK, private
from tests.provenance.tables import TAXONOMY, signed

TRAINER = "example.com/trainer"
CLASSES = ("open/mit", "open", "licensed/news")  # of the examples, in turn
_PEOPLE = people.trust(people.governance(), people.risk(), people.authority(TRAINER, Role.TRAINER))
TRUST = replace(_PEOPLE, quorum=replace(_PEOPLE.quorum, checkpoints={Role.TRAINER: 1}))  # no cosignature is needed
SPLIT = Split(
    inputs=torch.arange(12 * 4, dtype=torch.uint8).reshape(12, 1, 2, 2), labels=torch.arange(12, dtype=torch.int64)
)


def classes_of(number: int = len(SPLIT)) -> list[str]:
    return [CLASSES[at % len(CLASSES)] for at in range(number)]


def policy(**changes: Any) -> RoutingPolicy:
    """Open classes may train everything; examples that no authority vouches for are refused."""
    usual = RoutingPolicy(
        format=FORMAT,
        name="usual",
        version=1,
        issued=ISSUED,
        expires=EXPIRES,
        taxonomy=TaxonomyReference(name=TAXONOMY.name, version=TAXONOMY.version, digest=TAXONOMY.digest),
        quarantine=Quarantine.REFUSE,
        rules=(Rule(classes=("open",), weight=1.0),),
    )
    return replace(usual, **changes)


LENIENT = policy(name="lenient", quarantine=Quarantine.WEIGHT_ZERO)


def document(value: Any, kind: Kind[Any], by: str) -> Envelope:
    """A document signed by the role that may sign it."""
    return sign_document(value, kind, [private(by)], trust=TRUST, now=NOW, where=value.name)


def tag(directory: Path, classes: Sequence[str], *, authority: str = GOVERNANCE, split: Split = SPLIT) -> None:
    """Tag the first examples with these classes, unsigned yet."""
    made = bytearray()
    records = (Record(split.content(at), path, "example 1.0", authority) for at, path in enumerate(classes))
    write_table(directory / "tags.parquet", tag_records(records, made))
    (directory / "salts").unlink(missing_ok=True)
    write_salts(directory / "salts", Salts(content=bytes(made)))


def attest(directory: Path, *, by: str = GOVERNANCE, trust: Trust = TRUST) -> None:
    write_envelope(directory / "tags.json", signed(directory / "tags.parquet", private(by), trust=trust))


def make(directory: Path, classes: Sequence[str] | None = None, *, trust: Trust = TRUST, split: Split = SPLIT) -> Path:
    """All documents, and `trust` as the trust file."""
    (directory / "policies").mkdir(parents=True)
    write_trust(directory / "trust.json", trust)
    write_envelope(directory / "taxonomy.json", document(TAXONOMY, TAXONOMY_KIND, GOVERNANCE))
    for value in (policy(), LENIENT):
        write_envelope(directory / "policies" / f"{value.name}.json", document(value, POLICY, RISK))
    tag(directory, classes_of() if classes is None else classes, split=split)
    attest(directory)
    write_key(directory / "trainer.pem", private(TRAINER), None)
    return directory


def read(directory: Path, policy: str | None = "usual", *, now: int = NOW) -> Documents:
    return read_documents(directory, policy=policy, now=now)

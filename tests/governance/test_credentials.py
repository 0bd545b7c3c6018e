"""A run starts only on documents and examples that are believed; what is not is refused or set aside, by the policy."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from explorer.canonical import canonical
from explorer.errors import ProvenanceError
from explorer.governance.credentials import Credentials, check
from explorer.provenance.commitments import destroy_salt, new_salts, write_salts
from explorer.provenance.envelope import parse_envelope, sign_envelope, write_envelope
from explorer.provenance.policy import POLICY
from explorer.provenance.spellings import parse_time
from explorer.provenance.tag_attestation import Absent, Reason
from explorer.provenance.tags_file import write_table
from explorer.provenance.trust import Role, write_trust
from explorer.schema import to_json
from tests.governance import desk
from tests.governance.desk import LENIENT, SPLIT, TRUST
from tests.provenance import people
from tests.provenance.people import EXPIRES, GOVERNANCE, ISSUED, RISK, TODAY, private, public
from tests.provenance.tables import TAXONOMY, with_class

CODES = TAXONOMY.codes
NEWS = "example.com/news-desk"


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    return desk.make(tmp_path / "governance")


def checked(directory: Path, policy: str | None = "usual", *, now: int = people.NOW) -> Credentials:
    return check(desk.read(directory, policy, now=now), SPLIT)


def test_what_is_believed(documents: Path) -> None:
    found = checked(documents)
    assert found.codes.tolist() == [CODES[path] for path in desk.classes_of()]
    assert found.classes == ("licensed/news", "open", "open/mit")
    assert found.names[0] == "quarantine" and found.quarantine == {}
    assert found.routing is not None and found.routing.policy == desk.policy()
    assert [one.name for one in found.tags.authorities] == [GOVERNANCE]
    assert found.identity == {
        "trust": TRUST.digest,
        "taxonomy": TAXONOMY.digest,
        "tags": found.tags.root,
        "attestation": found.tags.attestation,
        "policy": desk.policy().digest,
        "quarantine": None,
    }


def test_without_a_policy_the_tags_hold_all_the_same(documents: Path) -> None:
    found = checked(documents, None)
    assert found.routing is None and found.identity["policy"] is None
    desk.tag(documents, [*desk.classes_of(11), "quarantine"])
    desk.attest(documents)
    with pytest.raises(ProvenanceError, match=r"slot 11 \(quarantine\): it is tagged as quarantine"):
        checked(documents, None)


def other_content(documents: Path) -> None:
    """Two rows commit to other bytes."""
    changed = SPLIT.inputs.index_fill(0, torch.tensor([4, 7]), 255)
    desk.tag(documents, desk.classes_of(), split=replace(SPLIT, inputs=changed))


def no_tag(documents: Path) -> None:
    desk.tag(documents, desk.classes_of(10))


def erased(documents: Path) -> None:
    destroy_salt(documents / "salts", 5)


def tagged(documents: Path) -> None:
    desk.tag(documents, [*desk.classes_of(3), "quarantine", *desk.classes_of(12)[4:]])


SET_ASIDE: dict[str, tuple[Callable[[Path], None], dict[str, tuple[int, ...]], str]] = {
    "other content": (
        other_content,
        {"other-content": (4, 7)},
        r"slot 4 \(open\): its content is not .*; so it is of 1",
    ),
    "no tag": (
        no_tag,
        {"no-tag": (10, 11)},
        r"slot 10 \(the table ends at slot 9\): it has no tag; so it is of 1 more",
    ),
    "erased": (erased, {"erased": (5,)}, r"slot 5 \(licensed/news\): its salt was destroyed: the example was erased"),
    "tagged": (tagged, {"tagged-quarantine": (3,)}, r"slot 3 \(quarantine\): it is tagged as quarantine"),
}


@pytest.mark.parametrize("name", SET_ASIDE)
def test_an_example_that_nobody_vouches_for(documents: Path, name: str) -> None:
    change, expected, message = SET_ASIDE[name]
    change(documents)
    if name != "erased":
        desk.attest(documents)
    with pytest.raises(ProvenanceError, match=message):
        checked(documents)
    found = checked(documents, "lenient")
    assert found.quarantine == expected
    numbers = [number for group in expected.values() for number in group]
    wanted = [CODES[path] for path in desk.classes_of()]
    for number in numbers:
        wanted[number] = 0
    assert found.codes.tolist() == wanted
    assert found.identity["quarantine"] is not None


def test_the_quarantine_is_part_of_the_identity(documents: Path) -> None:
    before = checked(documents, "lenient").identity
    erased(documents)
    after = checked(documents, "lenient").identity
    assert after == before | {"quarantine": after["quarantine"]} and before["quarantine"] is None


def test_tags_in_doubt_are_refused_or_set_aside(documents: Path) -> None:
    narrow = people.authority(GOVERNANCE, Role.DATA_GOVERNANCE, branches=("open",))
    write_trust(documents / "trust.json", replace(TRUST, authorities=(narrow, *TRUST.authorities[1:])))
    with pytest.raises(ProvenanceError, match=r"the tag of slot 2 \(licensed/news, by .*: out of branch"):
        checked(documents)
    found = checked(documents, "lenient")
    assert found.quarantine == {Reason.OUT_OF_BRANCH: (2, 5, 8, 11)}
    assert found.classes == ("open", "open/mit")


def test_an_authority_that_is_not_known_is_refused_or_set_aside(tmp_path: Path) -> None:
    """Two authorities sign; the run's trust file lists one of them, and later not even that one."""
    documents = desk.make(tmp_path / "governance")
    second = people.authority(NEWS, Role.DATA_GOVERNANCE, branches=("licensed",))
    both = replace(TRUST, authorities=(*TRUST.authorities, second))
    records = [
        desk.Record(SPLIT.content(at), path, "", NEWS if path == "licensed/news" else GOVERNANCE)
        for at, path in enumerate(desk.classes_of())
    ]
    made = bytearray()
    write_table(documents / "tags.parquet", desk.tag_records(records, made))
    (documents / "salts").unlink()
    write_salts(documents / "salts", desk.Salts(content=bytes(made)))
    envelope = desk.signed(documents / "tags.parquet", private(GOVERNANCE), private(NEWS), trust=both)
    write_envelope(documents / "tags.json", envelope)
    with pytest.raises(ProvenanceError, match=rf"slot 2 \(licensed/news, by {NEWS}\): unknown authority"):
        checked(documents)
    assert checked(documents, "lenient").quarantine == {Reason.UNKNOWN_AUTHORITY: (2, 5, 8, 11)}
    revoking = people.authority(NEWS, Role.DATA_GOVERNANCE, public(NEWS, revoked=ISSUED), branches=("licensed",))
    write_trust(documents / "trust.json", replace(both, authorities=(*TRUST.authorities, revoking)))
    with pytest.raises(ProvenanceError, match=r"revoked: key .*the laptop was stolen"):
        checked(documents)
    assert checked(documents, "lenient").quarantine == {Reason.REVOKED: (2, 5, 8, 11)}
    write_trust(documents / "trust.json", both)
    assert checked(documents).quarantine == {}


def forged_row(documents: Path) -> None:
    """A row says another class than the one that was signed."""
    desk.tag(documents, ["open", *desk.classes_of(12)[1:]])


def stripped_table(documents: Path) -> None:
    desk.tag(documents, desk.classes_of(6))


def forged_attestation(documents: Path) -> None:
    envelope = parse_envelope((documents / "tags.json").read_bytes(), where="test")
    payload = envelope.payload.replace(b"A small dataset", b"A large dataset")
    write_envelope(documents / "tags.json", replace(envelope, payload=payload))


def unsigned_tags(documents: Path) -> None:
    (documents / "tags.json").unlink()


def by_a_stranger(documents: Path) -> None:
    envelope = parse_envelope((documents / "tags.json").read_bytes(), where="test")
    write_envelope(
        documents / "tags.json", sign_envelope(envelope.payload, envelope.payload_type, [private("a stranger")])
    )


def policy_by_governance(documents: Path) -> None:
    for name in ("usual", "lenient"):
        path = documents / "policies" / f"{name}.json"
        envelope = parse_envelope(path.read_bytes(), where="test")
        write_envelope(path, sign_envelope(envelope.payload, envelope.payload_type, [private(GOVERNANCE)]))


def changed_policy(documents: Path) -> None:
    for name in ("usual", "lenient"):
        path = documents / "policies" / f"{name}.json"
        envelope = parse_envelope(path.read_bytes(), where="test")
        write_envelope(path, replace(envelope, payload=envelope.payload.replace(b'"open"', b'"licensed"')))


def expired_policy(documents: Path) -> None:
    for value in (desk.policy(expires=TODAY), replace(LENIENT, expires=TODAY)):
        envelope = sign_envelope(canonical(to_json(value)), POLICY.payload_type, [private(RISK)])
        write_envelope(documents / "policies" / f"{value.name}.json", envelope)


def revoked_policy_key(documents: Path) -> None:
    risk = people.risk(public(RISK, revoked=ISSUED))
    write_trust(documents / "trust.json", replace(TRUST, authorities=(people.governance(), risk)))


def newer_taxonomy(documents: Path) -> None:
    newer = with_class(TAXONOMY, "synthetic")
    write_envelope(documents / "taxonomy.json", desk.document(newer, desk.TAXONOMY_KIND, GOVERNANCE))
    for value in (desk.policy(), LENIENT):
        reference = replace(value.taxonomy, version=newer.version, digest=newer.digest)
        fitting = replace(value, taxonomy=reference)
        write_envelope(documents / "policies" / f"{value.name}.json", desk.document(fitting, POLICY, RISK))


def smaller_taxonomy(documents: Path) -> None:
    """One that lacks a class of the table."""
    smaller = replace(TAXONOMY, classes=tuple(one for one in TAXONOMY.classes if one.path != "open/mit"))
    write_envelope(documents / "taxonomy.json", desk.document(smaller, desk.TAXONOMY_KIND, GOVERNANCE))
    for value in (desk.policy(), LENIENT):
        fitting = replace(value, taxonomy=replace(value.taxonomy, digest=smaller.digest))
        write_envelope(documents / "policies" / f"{value.name}.json", desk.document(fitting, POLICY, RISK))


def more_tags(documents: Path) -> None:
    longer = replace(SPLIT, inputs=torch.cat([SPLIT.inputs] * 2), labels=torch.cat([SPLIT.labels] * 2))
    desk.tag(documents, desk.classes_of(13), split=longer)
    desk.attest(documents)


def other_salts(documents: Path) -> None:
    (documents / "salts").unlink()
    write_salts(documents / "salts", new_salts(11))


def all_salts_wrong(documents: Path) -> None:
    (documents / "salts").unlink()
    write_salts(documents / "salts", new_salts(12))


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "forged row": (forged_row, "tags.parquet: not the file that was signed"),
    "stripped table": (stripped_table, "tags.parquet: not the file that was signed"),
    "forged attestation": (forged_attestation, f"tags.json: forged or changed: .*{GOVERNANCE} does not match"),
    "no attestation": (unsigned_tags, "cannot read .*tags.json: No such file"),
    "a stranger's attestation": (by_a_stranger, "tags.json: signed by no key of the trust file"),
    "policy by another role": (policy_by_governance, f"policy: wrong role: {GOVERNANCE} has the role data-governance"),
    "changed policy": (changed_policy, f"policy: forged or changed: .*{RISK} does not match"),
    "expired policy": (expired_policy, f"policy: expired {TODAY}"),
    "revoked key of the policy": (revoked_policy_key, "policy: revoked: key .* of example.com/model-risk is revoked"),
    "newer taxonomy": (newer_taxonomy, "tags.json: made for the taxonomy with digest"),
    "class outside the taxonomy": (smaller_taxonomy, "tags.json: the tag of slot 0: unknown class 'open/mit'"),
    "more tags than examples": (more_tags, "13 tags for 12 training examples: made for another dataset"),
    "salts of another table": (other_salts, "11 salts for 12 tags: they belong to another table"),
}


@pytest.mark.parametrize("policy", ["usual", "lenient"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_forged_or_made_for_something_else_is_refused_either_way(
    documents: Path, name: str, policy: str
) -> None:
    change, message = REFUSED[name]
    checked(documents, policy)
    change(documents)
    with pytest.raises(ProvenanceError, match=message):
        checked(documents, policy)


def test_a_run_of_which_nothing_is_left_is_refused(documents: Path) -> None:
    all_salts_wrong(documents)
    with pytest.raises(ProvenanceError, match=r"every training example is in quarantine \(12 other-content\)"):
        checked(documents, "lenient")


def test_they_are_judged_at_the_moment_that_the_documents_carry(documents: Path) -> None:
    late = parse_time(EXPIRES)
    with pytest.raises(ProvenanceError, match=f"policy: expired {EXPIRES}"):
        checked(documents, now=late)
    assert checked(documents, now=late - 1).classes


def test_the_content_of_absent_classes_is_not_looked_at(documents: Path) -> None:
    """Their payload may be gone; everybody else's is still checked."""
    gone = replace(SPLIT, inputs=SPLIT.inputs.index_fill(0, torch.tensor([2, 5, 8, 11]), 0))
    found = check(desk.read(documents), gone, absent=Absent(classes=("licensed/news",)))
    assert found.codes.tolist() == checked(documents).codes.tolist()
    with pytest.raises(
        ProvenanceError, match=r"slot 2 \(licensed/news\): its content is not the one that was tagged"
    ) as said:
        check(desk.read(documents), gone)
    assert "; its tag names 'example 1.0'; put" in str(said.value)
    assert "put the content back that was tagged, or tag the data again with `explorer tags dataset`" in str(said.value)
    with pytest.raises(ProvenanceError, match=r"slot 2 \(licensed/news\)"):
        check(desk.read(documents), gone, absent=Absent(classes=("open",)))

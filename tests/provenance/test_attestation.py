"""A tag table is believed only if those who vouch for its tags may, and only as it was when they signed it."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from explorer.errors import ProvenanceError, SpecError
from explorer.provenance import tags_file
from explorer.provenance.description import read_description
from explorer.provenance.envelope import Envelope, sign_envelope
from explorer.provenance.spellings import parse_time
from explorer.provenance.statement import PAYLOAD_TYPE
from explorer.provenance.tag_attestation import (
    PREDICATE_TYPE,
    Reason,
    VerifiedTags,
    add_signature,
    read_attestation,
    still_to_sign,
    verify_tags,
    weigh_tags,
)
from explorer.provenance.tags import TagTable
from explorer.provenance.taxonomy import Taxonomy
from explorer.provenance.trust import Role, Trust
from explorer.schema import from_json, to_json
from explorer.yaml_document import parse_document, read_document
from tests.provenance.drafts_for_tests import EXAMPLES
from tests.provenance.people import (
    EXPIRES,
    GOVERNANCE,
    ISSUED,
    RISK,
    TODAY,
    authority,
    governance,
    private,
    public,
    risk,
    trust,
)
from tests.provenance.tables import DESCRIPTION, NOW, ROWS, TAXONOMY, TRUST, row, signed, table, with_class
from tests.provenance.test_schemas import agree, broken

NEWS = "example.com/news-desk"
OTHER = authority(NEWS, Role.DATA_GOVERNANCE, branches=("licensed",))
BOTH = trust(governance(), OTHER)
SHARED = (row(0), row(1, "licensed", "news.example.com", NEWS), row(2, "open", authority=GOVERNANCE))


def verify(
    path: Path,
    envelope: Envelope | bytes,
    *,
    taxonomy: Taxonomy = TAXONOMY,
    trust: Trust = TRUST,
    now: int = NOW,
) -> VerifiedTags:
    content = envelope if isinstance(envelope, bytes) else envelope.content
    return verify_tags(path, content, taxonomy=taxonomy, trust=trust, now=now, where="train.json")


def changed(envelope: Envelope, change: Callable[[dict[str, Any]], object], *, by: str = GOVERNANCE) -> Envelope:
    """The statement with something changed, signed anew: what a signer could have signed."""
    value = json.loads(envelope.payload)
    change(value)
    return sign_envelope(json.dumps(value).encode(), PAYLOAD_TYPE, [private(by)])


def test_a_table_that_is_vouched_for(tmp_path: Path) -> None:
    path = table(tmp_path)
    envelope = signed(path)
    verified = verify(path, envelope)
    assert verified.root == "fa3a1d2c0a14ebd32c608d12fdc3d5d78d0a0c25eee4ef5a27d8e92f99095a7d"
    assert [one.name for one in verified.authorities] == [GOVERNANCE]
    assert verified.table.histogram == {"licensed/news": 1, "open": 1, "open/mit": 2, "quarantine": 1}
    assert [verified.codes[one.class_path] for one in ROWS] == verified.tags.classes.tolist()
    assert verified.table.description == DESCRIPTION
    statement = json.loads(envelope.payload)
    assert [one["digest"]["sha256"] for one in statement["subject"]] == [verified.file, verified.root]
    assert signed(path) == envelope


def test_it_holds_until_it_expires(tmp_path: Path) -> None:
    path = table(tmp_path)
    envelope = signed(path)
    for now in (parse_time(ISSUED), parse_time(EXPIRES) - 1):
        assert verify(path, envelope, now=now)
    for now, message in (
        (parse_time(ISSUED) - 1, "not yet valid: issued"),
        (parse_time(EXPIRES), "expired 2026-12-01"),
    ):
        with pytest.raises(ProvenanceError, match=f"the tag of slot 0 .open/mit, by {GOVERNANCE}.: {message}"):
            verify(path, envelope, now=now)


BELIEVED: dict[str, tuple[Trust, str]] = {
    "nobody": (trust(), "lists no authority and so refuses everything"),
    "somebody else": (trust(OTHER), "train.json: signed by no key of the trust file"),
    "another key of the same name": (trust(governance(public("other"))), "signed by no key of the trust file"),
    "no quorum": (trust(governance(), documents={}), "names no quorum for documents of the role data-governance"),
    "wrong role": (
        trust(authority(GOVERNANCE, Role.MODEL_RISK, branches=("open", "licensed"))),
        rf"the tag of slot 0 \(open/mit, by {GOVERNANCE}\): wrong role",
    ),
    "out of branch": (
        trust(authority(GOVERNANCE, Role.DATA_GOVERNANCE, branches=("licensed", "open/mit"))),
        rf"the tag of slot 2 \(open, by {GOVERNANCE}\): out of branch: {GOVERNANCE} may vouch for licensed, open/mit",
    ),
    "revoked before": (trust(governance(public(GOVERNANCE, revoked=ISSUED))), "revoked: key .*the laptop was stolen"),
    "key too young": (trust(governance(public(GOVERNANCE, not_before=TODAY))), "key not yet valid"),
    "key too old": (trust(governance(public(GOVERNANCE, not_after=ISSUED))), "key expired"),
    "threshold": (
        trust(governance(), OTHER, documents={Role.DATA_GOVERNANCE: 2}),
        "threshold not met: 1 of 2 authorities",
    ),
}


@pytest.mark.parametrize("name", BELIEVED)
def test_whoever_is_not_to_be_believed_is_not(tmp_path: Path, name: str) -> None:
    path = table(tmp_path)
    believed, message = BELIEVED[name]
    with pytest.raises(ProvenanceError, match=message):
        verify(path, signed(path), trust=believed)


def test_what_was_signed_before_a_revocation_stays(tmp_path: Path) -> None:
    path = table(tmp_path)
    assert verify(path, signed(path), trust=trust(governance(public(GOVERNANCE, revoked=TODAY))))


def test_another_taxonomy_or_none_of_its_classes(tmp_path: Path) -> None:
    path = table(tmp_path)
    envelope = signed(path)
    newer = with_class(TAXONOMY, "synthetic")
    with pytest.raises(ProvenanceError, match=r"made for the taxonomy with digest .*, licences version 2, has"):
        verify(path, envelope, taxonomy=newer)
    without = dataclasses.replace(TAXONOMY, classes=tuple(c for c in TAXONOMY.classes if c.path != "open/mit"))
    with pytest.raises(ProvenanceError, match="the tag of slot 0: unknown class 'open/mit'"):
        verify(path, envelope, taxonomy=without)


@pytest.mark.slow
def test_any_changed_byte_of_the_file_is_noticed_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(tmp_path)
    envelope, whole = signed(path), path.read_bytes()
    monkeypatch.setattr(tags_file.TagFile, "_parquet", None)  # to parse is to fail
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ProvenanceError, match="not the file that was signed: its SHA-256 is"):
            verify(path, envelope)
    path.write_bytes(whole)
    with pytest.raises(TypeError):
        verify(path, envelope)


def test_any_changed_byte_of_the_attestation_is_noticed(tmp_path: Path) -> None:
    """But for a key id and its name, a hint that nothing covers, and for the newline at the end."""
    path = table(tmp_path)
    whole = signed(path).content
    name = whole.index(b'keyid":"')
    value = name + len(b'keyid":"')
    uncovered = {*range(name, name + 5), *range(value, value + 64), len(whole) - 1}
    for at in {*range(0, len(whole), 3), *range(len(whole) - 400, len(whole))} - uncovered:
        damaged = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        with pytest.raises(ProvenanceError):
            verify(path, damaged)
    for at in (name, value):
        assert verify(path, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])


COLUMNS = {
    "class": lambda one: one._replace(class_path="open"),
    "source": lambda one: one._replace(source="elsewhere"),
    "commitment": lambda one: one._replace(commitment=bytes(32)),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_the_root_notices_what_the_file_digest_would_let_pass(tmp_path: Path, column: str) -> None:
    """Signed with the digest of the changed file and the root of the old rows, and the other way round."""
    old = signed(table(tmp_path))
    path = table(tmp_path, COLUMNS[column](ROWS[0]), *ROWS[1:])
    new = signed(path)
    subjects = [json.loads(each.payload)["subject"] for each in (old, new)]
    mixed = changed(old, lambda value: value.update(subject=[subjects[1][0], subjects[0][1]]))
    with pytest.raises(ProvenanceError, match=r"the root of its rows is .*, signed is fa3a1d2c"):
        verify(path, mixed)
    mixed = changed(new, lambda value: value.update(subject=[subjects[0][0], subjects[1][1]]))
    with pytest.raises(ProvenanceError, match="not the file that was signed"):
        verify(path, mixed)


def vouchers(value: dict[str, Any]) -> dict[str, Any]:
    return value["predicate"]["vouchers"][0]["classes"]


CLAIMS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "too many": (
        lambda v: vouchers(v)["open"].update(records=2),
        "vouches for 1 from slot 2 of open, signed are 2 from slot 2",
    ),
    "another first": (lambda v: vouchers(v)["open"].update(first=1), "signed are 1 from slot 1"),
    "a class that is not there": (
        lambda v: vouchers(v).update({"licensed": {"records": 1, "first": 0}}),
        "vouches for none of licensed, signed are 1 from slot 0|out of branch",
    ),
    "a class left out": (lambda v: vouchers(v).pop("open"), "vouches for 1 from slot 2 of open, signed are none"),
    "another number": (lambda v: v["predicate"].update(records=6), "it has 5 records, signed are 6"),
    "nobody": (lambda v: v["predicate"].update(vouchers=[]), "predicate: vouchers: "),
    "somebody twice": (
        lambda v: v["predicate"]["vouchers"].append(v["predicate"]["vouchers"][0]),
        "each authority once",
    ),
    "an unknown authority": (
        lambda v: v["predicate"]["vouchers"][0].update(authority="example.com/data"),
        r"the tag of slot 0 \(open/mit, by example.com/data\): unknown authority 'example.com/data'; did you mean",
    ),
    "an unknown class": (
        lambda v: vouchers(v).update({"open/mti": {"records": 1, "first": 3}}),
        "the tag of slot 3: unknown class 'open/mti'; did you mean 'open/mit'",
    ),
    "an unknown key": (lambda v: v["predicate"].update(more=1), "predicate: more: unknown key"),
    "no description": (lambda v: v["predicate"].pop("description"), "predicate: description: is missing"),
    "a fraction of a record": (lambda v: v["predicate"].update(records=5.0), "predicate: records: "),
    "one subject": (lambda v: v["subject"].pop(), "1 subjects; expected a file and the root of its rows"),
    "three subjects": (lambda v: v["subject"].append(v["subject"][0]), "3 subjects; expected"),
    "another claim": (lambda v: v.update(predicateType="https://example.com/x"), f"expected '{PREDICATE_TYPE}'"),
    "no statement": (lambda v: v.pop("_type"), "not an in-toto statement"),
    "expires first": (lambda v: v["predicate"].update(expires=ISSUED), "which is not after it was issued"),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_that_do_not_hold_though_they_are_signed(tmp_path: Path, name: str) -> None:
    path = table(tmp_path)
    change, message = CLAIMS[name]
    with pytest.raises(ProvenanceError, match=message):
        verify(path, changed(signed(path), change))


def test_a_signature_by_nobody_known_lets_nothing_be_read(tmp_path: Path) -> None:
    path = table(tmp_path)
    with pytest.raises(ProvenanceError, match=r"train.json: signed by no key of the trust file"):
        verify(path, changed(signed(path), lambda v: v.clear(), by="a stranger"))


def test_another_kind_of_envelope(tmp_path: Path) -> None:
    path = table(tmp_path)
    other = sign_envelope(signed(path).payload, "application/json", [private(GOVERNANCE)])
    with pytest.raises(ProvenanceError, match=r"holds 'application/json', expected 'application/vnd.in-toto"):
        verify(path, other)


def test_several_authorities_each_for_its_branches(tmp_path: Path) -> None:
    path = table(tmp_path, *SHARED)
    first = signed(path, trust=BOTH)
    assert still_to_sign(first, trust=BOTH, where="train.json") == (NEWS,)
    with pytest.raises(ProvenanceError, match=rf"slot 1 \(licensed, by {NEWS}\): {NEWS} has not signed"):
        verify(path, first, trust=BOTH)
    both = joined(path, first, NEWS, trust=BOTH)
    assert still_to_sign(both, trust=BOTH, where="train.json") == ()
    verified = verify(path, both, trust=BOTH)
    assert [one.name for one in verified.authorities] == [GOVERNANCE, NEWS]
    assert verified.tags.authorities.tolist() == [0, 1, 0]
    swapped = trust(
        authority(GOVERNANCE, Role.DATA_GOVERNANCE, branches=("licensed",)),
        authority(NEWS, Role.DATA_GOVERNANCE, branches=("open",)),
    )
    with pytest.raises(ProvenanceError, match=rf"slot 0 \(open/mit, by {GOVERNANCE}\): out of branch"):
        verify(path, both, trust=swapped)


def joined(path: Path, envelope: Envelope, name: str, *, trust: Trust) -> Envelope:
    return add_signature(
        path, envelope.content, taxonomy=TAXONOMY, keys=[private(name)], trust=trust, now=NOW, where="train.json"
    )


def test_a_quorum_of_two(tmp_path: Path) -> None:
    second = authority(NEWS, Role.DATA_GOVERNANCE, branches=("licensed", "open"))
    two = trust(governance(), second, documents={Role.DATA_GOVERNANCE: 2})
    path = table(tmp_path)
    once = signed(path, trust=two)
    with pytest.raises(ProvenanceError, match="threshold not met: 1 of 2"):
        verify(path, once, trust=two)
    assert len(verify(path, joined(path, once, NEWS, trust=two), trust=two).authorities) == 2
    again = joined(path, once, GOVERNANCE, trust=two)
    with pytest.raises(ProvenanceError, match="threshold not met: 1 of 2"):
        verify(path, again, trust=two)


def test_one_key_of_two_authorities_meets_no_quorum(tmp_path: Path) -> None:
    """A control on whoever counts: the second name has not signed, though the table says so."""
    path = table(tmp_path, *SHARED)
    with pytest.raises(ProvenanceError, match=f"{NEWS} has not signed"):
        verify(path, joined(path, signed(path, trust=BOTH), GOVERNANCE, trust=BOTH), trust=BOTH)


def test_nobody_joins_what_is_not_so(tmp_path: Path) -> None:
    path = table(tmp_path, *SHARED)
    first = signed(path, trust=BOTH)
    table(tmp_path, *SHARED[::-1])
    with pytest.raises(ProvenanceError, match="not the file that was signed"):
        joined(path, first, NEWS, trust=BOTH)


SIGNERS: dict[str, tuple[str, Trust, str]] = {
    "a stranger": ("a stranger", TRUST, "is not in the trust file"),
    "another role": (RISK, trust(governance(), risk()), "wrong role"),
    "out of branch": (
        GOVERNANCE,
        trust(authority(GOVERNANCE, Role.DATA_GOVERNANCE, branches=("open",))),
        r"the tag of slot 1 \(licensed/news, by .*: cannot sign at .*: out of branch",
    ),
    "not named, out of branch": (NEWS, BOTH, "cannot sign at .*: out of branch"),
    "revoked": (GOVERNANCE, trust(governance(public(GOVERNANCE, revoked=ISSUED))), "cannot sign at .*: revoked"),
}


@pytest.mark.parametrize("name", SIGNERS)
def test_nobody_signs_what_would_not_be_believed(tmp_path: Path, name: str) -> None:
    who, believed, message = SIGNERS[name]
    with pytest.raises(ProvenanceError, match=message):
        signed(table(tmp_path), private(who), trust=believed)


def test_a_time_to_live_ends_after_it_begins(tmp_path: Path) -> None:
    for expires, message in (
        (ISSUED, "is not after issued"),
        ("2026-13-01T00:00:00Z", "expires: expected a moment in UTC"),
    ):
        with pytest.raises(ProvenanceError, match=message):
            signed(table(tmp_path), expires=expires)


def test_the_quarantine_is_open_to_all_and_to_nothing_else(tmp_path: Path) -> None:
    path = table(tmp_path, row(0, "quarantine"), row(1, "quarantine"))
    narrow = trust(authority(GOVERNANCE, Role.DATA_GOVERNANCE))
    assert verify(path, signed(path, trust=narrow), trust=narrow).tags.classes.tolist() == [0, 0]
    path = table(tmp_path, row(0, "quarantine"), row(1, "open"))
    with pytest.raises(ProvenanceError, match=rf"slot 1 \(open, by {GOVERNANCE}\): .*out of branch"):
        signed(path, trust=narrow)


def test_code_and_schema_are_of_one_mind(tmp_path: Path) -> None:
    good = json.loads(signed(table(tmp_path)).payload)["predicate"]
    assert agree("tag-table", good)
    verdicts = [agree("tag-table", json.loads(json.dumps(value))) for value in broken(good)]
    assert len(verdicts) > 100 and verdicts.count(False) > len(verdicts) / 2


def test_a_description_is_written_as_yaml_and_faults_have_their_line() -> None:
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in to_json(DESCRIPTION).items() if value is not None)
    assert read_description(parse_document(text, where="d.yaml")) == DESCRIPTION
    for old, new, message in (
        (
            "issue_date",
            "isue_date",
            r"d.yaml:\d+: isue_date: unknown key; did you mean 'issue_date'|issue_date: is missing",
        ),
        ("2026-04-01", "2026-02-30", "d.yaml:8: issue_date: expected a day such as 2026-01-31, found '2026-02-30'"),
        ("MIT", "\\u001b[31m", r"d.yaml:\d+: licence: expected one line of printable text"),
    ):
        with pytest.raises(SpecError, match=message):
            read_description(parse_document(text.replace(old, new), where="d.yaml"))


def test_the_example_has_all_of_the_22_fields() -> None:
    example = read_description(read_document(EXAMPLES / "news.description.yaml"))
    values = {field.name: getattr(example, field.name) for field in dataclasses.fields(example)}
    assert len(values) == 22 and None not in values.values()


def test_what_is_no_attestation(tmp_path: Path) -> None:
    with pytest.raises(ProvenanceError, match=r"cannot read .*: No such file"):
        read_attestation(tmp_path / "absent")
    path = table(tmp_path)
    for content in (
        b"",
        b"{}",
        b"[]",
        b"\xff",
        path.read_bytes(),
        b'{"payload":"", "payloadType":"a", "signatures":[]}',
    ):
        with pytest.raises(ProvenanceError, match=r"train.json: "):
            verify(path, content)


def test_the_predicate_is_published(tmp_path: Path) -> None:
    good = json.loads(signed(table(tmp_path)).payload)["predicate"]
    assert from_json(TagTable, good, where="p", error=ProvenanceError).histogram["open/mit"] == 2
    content = (Path(tags_file.__file__).parent / "schemas" / "tag-table.v1.json").read_bytes()
    jsonschema.Draft202012Validator(json.loads(content)).validate(good)


def weigh(path: Path, envelope: Envelope, *, trust: Trust = TRUST, now: int = NOW) -> dict[tuple[str, str], Reason]:
    found = weigh_tags(path, envelope.content, taxonomy=TAXONOMY, trust=trust, now=now, where="train.json")
    return {pair: doubt.reason for pair, doubt in found.doubts.items()}


ALL = ("licensed/news", "open", "open/mit", "quarantine")
WEIGHED: dict[str, tuple[str, tuple[str, ...], Reason]] = {
    "no quorum": ("no quorum", ALL, Reason.NOT_ENTITLED),
    "wrong role": ("wrong role", ALL, Reason.NOT_ENTITLED),
    "out of branch": ("out of branch", ("open",), Reason.OUT_OF_BRANCH),
    "revoked before": ("revoked before", ALL, Reason.REVOKED),
    "key too young": ("key too young", ALL, Reason.NOT_ENTITLED),
    "key too old": ("key too old", ALL, Reason.NOT_ENTITLED),
    "threshold": ("threshold", ALL, Reason.NOT_ENTITLED),
}


@pytest.mark.parametrize("name", WEIGHED)
def test_what_is_in_doubt_is_named_class_by_class(tmp_path: Path, name: str) -> None:
    case, classes, reason = WEIGHED[name]
    path = table(tmp_path)
    believed, message = BELIEVED[case]
    assert weigh(path, signed(path), trust=believed) == {(GOVERNANCE, one): reason for one in classes}
    found = weigh_tags(path, signed(path).content, taxonomy=TAXONOMY, trust=believed, now=NOW, where="train.json")
    assert all(re.search(message.rpartition(": ")[2], doubt.words) for doubt in found.doubts.values())


def test_nothing_is_in_doubt_where_all_is_believed(tmp_path: Path) -> None:
    path = table(tmp_path)
    assert weigh(path, signed(path)) == {}
    assert set(weigh(path, signed(path), now=parse_time(EXPIRES)).values()) == {Reason.NOT_ENTITLED}


def test_doubts_about_one_authority_are_not_about_another(tmp_path: Path) -> None:
    path = table(tmp_path, *SHARED)
    first = signed(path, trust=BOTH)
    assert weigh(path, first, trust=BOTH) == {(NEWS, "licensed"): Reason.UNSIGNED}
    both = joined(path, first, NEWS, trust=BOTH)
    assert weigh(path, both, trust=BOTH) == {}
    assert weigh(path, both, trust=TRUST) == {(NEWS, "licensed"): Reason.UNKNOWN_AUTHORITY}


@pytest.mark.parametrize("name", ["nobody", "somebody else", "another key of the same name"])
def test_what_nobody_known_has_signed_is_refused_and_not_weighed(tmp_path: Path, name: str) -> None:
    path = table(tmp_path)
    believed, message = BELIEVED[name]
    with pytest.raises(ProvenanceError, match=message):
        weigh(path, signed(path), trust=believed)


def test_a_forged_row_is_refused_and_not_weighed(tmp_path: Path) -> None:
    """Of a table that nobody signed as it is, nobody can say which of its tags are true."""
    envelope = signed(table(tmp_path))
    with pytest.raises(ProvenanceError, match="not the file that was signed"):
        weigh(table(tmp_path, COLUMNS["class"](ROWS[0]), *ROWS[1:]), envelope)
    with pytest.raises(ProvenanceError, match="not the file that was signed"):
        weigh(table(tmp_path, *ROWS[:-1]), envelope)

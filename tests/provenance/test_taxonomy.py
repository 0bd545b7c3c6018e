"""The taxonomy: what a tree is, how faults in a draft are named, and that only a signed one is believed."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.canonical import canonical
from explorer.errors import ExplorerError, ProvenanceError, SpecError
from explorer.provenance.signing import open_document, open_file, sign_document, sign_file
from explorer.provenance.taxonomy import TAXONOMY, Taxonomy, check_taxonomy, read_taxonomy
from explorer.provenance.trust import Role
from explorer.schema import to_json
from explorer.yaml_document import MAX_BYTES, parse_document
from tests.provenance import people
from tests.provenance.drafts_for_tests import EXAMPLES, example_taxonomy, taxonomy
from tests.provenance.test_schemas import agree, broken

DRAFT = """format: explorer/taxonomy/v1
name: small
version: 3
issued: 2026-05-01T00:00:00Z
expires: 2026-12-01T00:00:00Z
classes:
  - {path: open, definition: Free to use., personal_data: false, source: public}
  - {path: open/bsd-3, definition: Under BSD., personal_data: false, source: third-party}
  - path: personal
    definition: "About people: identified ones."
    personal_data: true
    source: user
"""


def read(text: str) -> Taxonomy:
    return read_taxonomy(parse_document(text, where="t.yaml"))


def test_a_draft_says_what_its_author_wrote() -> None:
    found = read(DRAFT)
    assert (found.name, found.version) == ("small", 3)
    assert [(each.path, each.personal_data, each.source.value) for each in found.classes] == [
        ("open", False, "public"),
        ("open/bsd-3", False, "third-party"),
        ("personal", True, "user"),
    ]


def test_codes_follow_the_sorted_paths_and_the_quarantine_is_zero() -> None:
    assert taxonomy("b", "a", "a/x", "a-b").codes == {"quarantine": 0, "a": 1, "a-b": 2, "a/x": 3, "b": 4}


def test_a_branch_is_cut_at_whole_segments() -> None:
    tree = taxonomy("open", "open/mit", "open-data", "open/mit/old")
    assert tree.branch("open") == ("open", "open/mit", "open/mit/old")
    assert tree.branch("open/mit") == ("open/mit", "open/mit/old")
    with pytest.raises(ProvenanceError, match="taxonomy 'small': unknown class 'opn'; did you mean 'open'"):
        tree.branch("opn")


def test_the_digest_is_that_of_the_canonical_json() -> None:
    content = (
        b'{"classes":[{"definition":"What is a.","path":"a","personal_data":false,"source":"public"}],'
        b'"expires":"2026-12-01T00:00:00Z","format":"explorer/taxonomy/v1","issued":"2026-05-01T00:00:00Z",'
        b'"name":"small","version":1}'
    )
    assert taxonomy("a").digest == hashlib.sha256(content).hexdigest()
    assert taxonomy("a", version=2).digest != taxonomy("a").digest


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("open/bsd-3", "opne/bsd-3", "t.yaml:8: classes[1].path: 'opne/bsd-3' lies below 'opne', which is not defined"),
        ("open/bsd-3", "open", "t.yaml:8: classes[1].path: 'open' is given twice, first in classes[0]"),
        ("open/bsd-3", "open/", "t.yaml:8: classes[1].path: string should match pattern"),
        ("open/bsd-3", "Open", "t.yaml:8: classes[1].path: string should match pattern"),
        ("open/bsd-3", "quarantine", "t.yaml:8: classes[1].path: 'quarantine' is built in and cannot be defined"),
        ("open/bsd-3", "quarantine/a", "t.yaml:8: classes[1].path: 'quarantine' is built in and cannot be defined"),
        ("open/bsd-3", "a" * 201, "t.yaml:8: classes[1].path: string should have at most 200 characters"),
        ("Under BSD.", "''", "t.yaml:8: classes[1].definition: expected one line of printable text, found ''"),
        (
            "Under BSD.",
            r'"a\nb"',
            r"t.yaml:8: classes[1].definition: expected one line of printable text, without '\n'",
        ),
        (
            "Under BSD.",
            r'"\u202eb"',
            "t.yaml:8: classes[1].definition: expected one line of printable text, without '\\u2",
        ),
        (
            "personal_data: true",
            "personal_data: 1",
            "t.yaml:11: classes[2].personal_data: input should be a valid bool",
        ),
        (
            "source: user",
            "source: users",
            "t.yaml:12: classes[2].source: input should be 'public', 'licensed', 'third-",
        ),
        ("source: user", "sources: user", "t.yaml:9: classes[2].source: is missing"),
        ("version: 3", "version: 0", "t.yaml:3: version: input should be greater than or equal to 1, found 0"),
        ("2026-12", "2026-13", "t.yaml:5: expires: "),
        ("2026-12", "2026-05", "t.yaml:5: expires: 2026-05-01T00:00:00Z is not after issued, 2026-05-01T00:00:00Z"),
        ("taxonomy/v1", "taxonomy/v2", "t.yaml:1: format: input should be 'explorer/taxonomy/v1', found 'explorer/tax"),
        ("format: explorer/taxonomy/v1", "", "t.yaml: format: is missing"),
        ("name: small", "nam: small", "t.yaml:2: name: is missing"),
    ],
)
def test_a_fault_is_named_with_line_and_key(before: str, after: str, message: str) -> None:
    assert before in DRAFT
    with pytest.raises(SpecError) as caught:
        read(DRAFT.replace(before, after))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("text", ["", "[]", "taxonomy", "{}", "classes: []"])
def test_what_is_no_taxonomy_at_all_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"^t.yaml"):
        read(text)


def test_a_signed_taxonomy_is_believed_with_its_signers() -> None:
    trust = people.trust(people.governance())
    key = people.private(people.GOVERNANCE)
    signed = sign_document(example_taxonomy(), TAXONOMY, [key], trust=trust, now=people.NOW, where="t")
    assert signed.payload == canonical(to_json(example_taxonomy()))
    opened = open_document(signed.content, TAXONOMY, trust=trust, now=people.NOW, where="t")
    assert opened.value == example_taxonomy()
    assert [authority.name for authority in opened.authorities] == [people.GOVERNANCE]


def test_model_risk_does_not_sign_taxonomies() -> None:
    trust = people.trust(people.governance(), people.risk())
    with pytest.raises(ProvenanceError, match=r"t: .*wrong role: example.com/model-risk has the role model-risk"):
        sign_document(
            example_taxonomy(), TAXONOMY, [people.private(people.RISK)], trust=trust, now=people.NOW, where="t"
        )


def test_a_faulty_tree_is_not_signed() -> None:
    trust = people.trust(people.governance())
    with pytest.raises(ProvenanceError, match=r"t: classes\[0\].path: 'a/b' lies below 'a', which is not defined"):
        sign_document(
            taxonomy("a/b"), TAXONOMY, [people.private(people.GOVERNANCE)], trust=trust, now=people.NOW, where="t"
        )
    check_taxonomy(taxonomy("a", "a/b"), "t")


def test_a_file_is_a_draft_or_signed_and_a_second_signature_can_be_added(tmp_path) -> None:
    second = people.authority("example.com/second", Role.DATA_GOVERNANCE)
    trust = people.trust(people.governance(), second, documents={Role.DATA_GOVERNANCE: 2})
    source, half, whole = EXAMPLES / "licences.taxonomy.yaml", tmp_path / "half.json", tmp_path / "whole.json"

    draft = open_file(source, TAXONOMY, trust=trust, now=people.NOW)
    assert draft.authorities == () and draft.draft is not None

    keys = [people.private(people.GOVERNANCE)]
    half.write_bytes(sign_file(source, TAXONOMY, keys, trust=trust, now=people.NOW).content)
    with pytest.raises(ProvenanceError, match="threshold not met: 1 of 2"):
        open_file(half, TAXONOMY, trust=trust, now=people.NOW)

    keys = [people.private("example.com/second")]
    whole.write_bytes(sign_file(half, TAXONOMY, keys, trust=trust, now=people.NOW).content)
    opened = open_file(whole, TAXONOMY, trust=trust, now=people.NOW)
    assert opened.draft is None and len(opened.authorities) == 2 and opened.value == draft.value
    with pytest.raises(ProvenanceError, match="signed; say whose signatures are believed with --trust FILE"):
        open_file(whole, TAXONOMY, trust=None, now=people.NOW)


def test_files_that_cannot_be_read(tmp_path) -> None:
    with pytest.raises(ProvenanceError, match=r"cannot read .*absent.yaml: No such file"):
        open_file(tmp_path / "absent.yaml", TAXONOMY, trust=None, now=people.NOW)
    (tmp_path / "large.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(SpecError, match="too large for a specification"):
        open_file(tmp_path / "large.yaml", TAXONOMY, trust=None, now=people.NOW)


@given(
    at=st.integers(0, len(DRAFT)), gone=st.integers(0, 20), new=st.text(max_size=12) | st.sampled_from(("{", "\n- "))
)
def test_no_text_raises_anything_but_our_errors(at: int, gone: int, new: str) -> None:
    try:
        found = read(DRAFT[:at] + new + DRAFT[at + gone :])
    except ExplorerError as error:
        assert str(error).startswith("t.yaml")
    else:
        check_taxonomy(found, "t")
        assert len(found.codes) == len(found.classes) + 1
        assert len(found.digest) == 64


@pytest.mark.slow
def test_the_published_schema_accepts_what_the_code_accepts() -> None:
    good = to_json(example_taxonomy())
    assert agree("taxonomy", good)
    verdicts = [agree("taxonomy", value) for value in broken(good)]
    assert len(verdicts) > 50 and verdicts.count(False) > len(verdicts) / 2

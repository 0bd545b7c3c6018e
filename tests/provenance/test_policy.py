"""Drafts of routing policies: what they say, and how each fault in one is named."""

import fnmatch
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from explorer.errors import ExplorerError, ProvenanceError, SpecError
from explorer.provenance.policy import POLICY, Quarantine, RoutingPolicy, check_policy, read_policy
from explorer.provenance.regions import (
    check_layers,
    depths_of,
    inside,
    matches,
    parse_layers,
    partition,
    read_layers,
    recorded_layers,
    write_layers,
    written,
)
from explorer.provenance.routing_weights import bind, phases, policy_for
from explorer.provenance.signing import open_document, read_draft, sign_document
from explorer.schema import from_json, to_json
from explorer.yaml_document import parse_document
from tests.provenance import people
from tests.provenance.drafts_for_tests import CLASSES, TREE, policy, taxonomy
from tests.provenance.test_schemas import agree, broken

DRAFT = f"""format: explorer/policy/v1
name: half
version: 1
issued: 2026-05-01T00:00:00Z
expires: 2026-12-01T00:00:00Z
taxonomy: {{name: small, version: 1, digest: "{TREE.digest}"}}
quarantine: refuse
conditions: [settled]
confidential: [personal]
sealed:
  - {{name: customer, branch: personal/customer, layers: ["body.*"], rank: 8}}
  - {{name: news, branch: open/mit, module: side.news}}
rules:
  - {{classes: [open/bsd], layers: ["embed*"], weight: 0}}
  - {{classes: [open/bsd], depth: [0.5, 1], progress: [0.25, 1], weight: 1}}
  - {{classes: ["*"], condition: settled, weight: 0.25}}
"""


def read(text: str) -> RoutingPolicy:
    return read_draft(policy_for(TREE), parse_document(text, where="p.yaml"))


def test_a_draft_says_what_its_author_wrote() -> None:
    found = read(DRAFT)
    assert found.quarantine is Quarantine.REFUSE
    assert found.rules[1].depth == (0.5, 1.0) and found.rules[1].progress == (0.25, 1.0)
    assert [rule.weight for rule in found.rules] == [0, 1, 0.25]
    assert found.is_confidential("personal/customer") and not found.is_confidential("open/mit")
    assert replace(found, confidential=("*",)).is_confidential("open/mit") and not policy().is_confidential("personal")
    assert (found.sealed[0].rank, found.sealed[1].module) == (8, "side.news")
    assert from_json(RoutingPolicy, to_json(found), where="again", error=ProvenanceError) == found


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "condition: settled",
            "condition: setled",
            "16: rules[2].condition: unknown condition 'setled'; did you mean 's",
        ),
        ("[settled]", "[settled, settled]", "8: conditions[1]: 'settled' is given twice"),
        ("[settled]", "[a, b, c, d, e, f, g]", "8: conditions: tuple should have at most 6 items"),
        ("[0.5, 1]", "[1, 0.5]", "15: rules[1].depth: [1.0, 0.5] holds nothing; expected [from, to]"),
        ("[0.25, 1]", "[0.25, 0.25]", "15: rules[1].progress: [0.25, 0.25] holds nothing"),
        ("[0.25, 1]", "[0.25, 1.5]", "15: rules[1].progress[1]: input should be less than or equal to 1, found 1.5"),
        ("[0.25, 1]", "[0.25]", "15: rules[1].progress[1]: is missing"),
        ("weight: 0.25", "weight: 1.25", "16: rules[2].weight: input should be less than or equal to 1, found 1.25"),
        ("weight: 0.25", "weight: -1", "16: rules[2].weight: input should be greater than or equal to 0, found -1"),
        ("weight: 0.25", "weight: .nan", "16: rules[2].weight: input should be a valid number, found '.nan'"),
        ("weight: 0.25", "weight: true", "16: rules[2].weight: input should be a valid number, found True"),
        ("condition: settled, weight", "wieght", "16: rules[2].weight: is missing"),
        ("depth:", "dept:", "15: rules[1].dept: unknown key; did you mean 'depth'?"),
        ('["embed*"]', '["embed[0]"]', "14: rules[0].layers[0]: string should match pattern"),
        ('["embed*"]', "[]", "14: rules[0].layers: tuple should have at least 1 item"),
        ('["*"]', "[]", "16: rules[2].classes: tuple should have at least 1 item"),
        ('["*"]', '["open/*"]', "16: rules[2].classes[0]: string should match pattern"),
        ('["*"]', "[quarantine]", "16: rules[2].classes[0]: 'quarantine' never trains, and no rule can change that"),
        (
            '["*"]',
            "[opn]",
            "16: rules[2].classes[0]: unknown class 'opn'; did you mean 'open'? known: open, open-data, o",
        ),
        (
            "branch: open/mit",
            "branch: open/mt",
            "12: sealed[1].branch: unknown class 'open/mt'; did you mean 'open/mit'",
        ),
        ("branch: open/mit", "branch: quarantine", "12: sealed[1].branch: 'quarantine' never trains"),
        ("branch: open/mit", "branch: personal", "12: sealed[1].branch: 'personal' overlaps 'personal/customer' of"),
        ("name: news", "name: customer", "12: sealed[1].name: 'customer' is given twice"),
        ("name: news", "name: a@b", "12: sealed[1].name: string should match pattern"),
        ("rank: 8", "module: a", "11: sealed[0]: expected layers and rank for adapters, or module, and not both"),
        (", rank: 8", "", "11: sealed[0]: expected layers and rank for adapters, or module, and not both"),
        ("rank: 8", "rank: 0", "11: sealed[0].rank: input should be greater than or equal to 1, found 0"),
        (
            'layers: ["body.*"], rank: 8',
            "module: side",
            "12: sealed[1].module: 'side.news' overlaps 'side' of region 'cu",
        ),
        ("[personal]", "[personal, personal]", "9: confidential[1]: 'personal' is given twice"),
        ("[personal]", "[quarantine]", "9: confidential[0]: 'quarantine' never trains"),
        ("[personal]", "[persnal]", "9: confidential[0]: unknown class 'persnal'; did you mean 'personal'"),
        ("refuse", "weight_zero", "7: quarantine: input should be 'refuse' or 'weight-zero', found 'weight_zero'"),
        ("format: explorer/policy/v1", "", " format: is missing"),
        ("quarantine: refuse\n", "", " quarantine: is missing"),
        (TREE.digest, "0" * 64, "6: taxonomy: the policy was written for small version 1, sha256 00000000"),
        ("name: small", "name: smal", "6: taxonomy: the policy was written for smal version 1, sha256 "),
        ("small, version: 1", "small, version: 2", "6: taxonomy: the policy was written for small version 2, sha256 "),
        (TREE.digest, "abc", "6: taxonomy.digest: string should match pattern '^[0-9a-f]{64}$', found 'abc'"),
        ("2026-12", "2026-01", "5: expires: 2026-01-01T00:00:00Z is not after issued, 2026-05-01T00:00:00Z"),
    ],
)
def test_a_fault_is_named_with_line_and_key(before: str, after: str, message: str) -> None:
    assert before in DRAFT
    with pytest.raises(SpecError) as caught:
        read(DRAFT.replace(before, after))
    assert str(caught.value).startswith(f"p.yaml:{message}")


def test_a_policy_without_rules_is_a_policy_and_an_empty_file_is_none() -> None:
    start, _, _ = DRAFT.partition("rules:")
    assert read(f"{start}rules: []").rules == ()
    with pytest.raises(SpecError, match=r"p.yaml: rules: is missing"):
        read(start)
    with pytest.raises(SpecError, match=r"p.yaml"):
        read("")


def test_another_taxonomy_is_refused_by_its_digest() -> None:
    other = taxonomy(*CLASSES, "more")
    with pytest.raises(ProvenanceError, match=f"p: taxonomy: .* sha256 {TREE.digest}; found .* sha256 {other.digest}"):
        bind(policy(), other, where="p")
    assert bind(policy(), TREE, where="p").taxonomy is TREE


def test_a_signed_policy_is_believed_from_model_risk_alone() -> None:
    trust = people.trust(people.governance(), people.risk())
    draft, kind = read(DRAFT), policy_for(TREE)
    signed = sign_document(draft, kind, [people.private(people.RISK)], trust=trust, now=people.NOW, where="p")
    opened = open_document(signed.content, kind, trust=trust, now=people.NOW, where="p")
    assert opened.value == draft
    with pytest.raises(ProvenanceError, match="wrong role"):
        sign_document(draft, kind, [people.private(people.GOVERNANCE)], trust=trust, now=people.NOW, where="p")
    with pytest.raises(ProvenanceError, match="p: taxonomy: the policy was written for small version 1"):
        open_document(signed.content, policy_for(taxonomy(version=2)), trust=trust, now=people.NOW, where="p")


def test_a_policy_made_in_python_is_checked_when_it_is_signed() -> None:
    trust, bad = people.trust(people.risk()), replace(policy(), conditions=("a", "a"))
    with pytest.raises(ProvenanceError, match=r"p: conditions\[1\]: 'a' is given twice"):
        sign_document(bad, POLICY, [people.private(people.RISK)], trust=trust, now=people.NOW, where="p")


@given(pattern=st.text("ab.*", max_size=8), name=st.text("ab.", max_size=10))
@example(pattern="a*a", name="a")
@example(pattern="*ab*b", name="ab")
@example(pattern="*a*a*", name="ba")
def test_patterns_agree_with_the_shells(pattern: str, name: str) -> None:
    assert matches(pattern, name) == fnmatch.fnmatchcase(name, pattern)


def test_a_pattern_is_never_dear() -> None:
    assert not matches("*a" * 150, "a" * 149 + "b")  # exponential in a matcher that tries every way


@given(value=st.floats(0, 1), ends=st.lists(st.floats(0, 1), min_size=2, max_size=2, unique=True).map(sorted))
def test_intervals_side_by_side_hold_every_value_once(value: float, ends: list[float]) -> None:
    parts = partition([(ends[0], ends[1])])
    assert sum(inside(value, part) for part in parts) == 1
    assert parts[0][0] == 0 and parts[-1][1] == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1.1])
def test_what_lies_outside_is_in_no_interval(value: float) -> None:
    assert not inside(value, (0.0, 1.0))


def test_intervals_are_written_with_the_end_they_hold() -> None:
    assert (written((0.0, 0.5)), written((0.5, 1.0))) == ("[0, 0.5)", "[0.5, 1]")


def test_depths_are_even_from_input_to_output() -> None:
    assert [layer.depth for layer in depths_of(["a", "b", "c", "d", "e"])] == [0, 0.25, 0.5, 0.75, 1]
    assert [layer.depth for layer in depths_of(["a"])] == [0]
    assert depths_of([]) == ()


def test_further_names_of_a_layer_are_on_its_line() -> None:
    tied = depths_of(["embed", "head"], {"embed": ("lm_head", "output")})
    assert parse_layers(b"embed lm_head output\nhead", where="l") == tied
    assert parse_layers(write_layers(tied).encode(), where="l") == tied
    assert tied[0].names == ("embed", "lm_head", "output") and tied[1].names == ("head",)


def test_recorded_layers_have_the_depths_of_their_layers() -> None:
    found = recorded_layers(["embed", "head", "embed@news"], {"embed": ("tied",)})
    assert [(layer.name, layer.depth, layer.also) for layer in found] == [
        ("embed", 0.0, ("tied",)),
        ("head", 1.0, ()),
        ("embed@news", 0.0, ()),
    ]
    with pytest.raises(ProvenanceError, match="an adapter of a layer that is not there: body@news"):
        recorded_layers(["embed", "body@news"], {})


def test_layer_names_come_from_lines_or_json(tmp_path) -> None:
    assert parse_layers(b"embed\n\n  body.0 \nhead", where="l") == depths_of(["embed", "body.0", "head"])
    assert parse_layers(b' ["embed", "body.0"]', where="l") == depths_of(["embed", "body.0"])
    (tmp_path / "l.txt").write_text("embed\nhead\n")
    assert read_layers(tmp_path / "l.txt") == depths_of(["embed", "head"])
    with pytest.raises(ProvenanceError, match=r"cannot read .*absent"):
        read_layers(tmp_path / "absent")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "l: 0 layer names; expected 1 to 100000"),
        (b"[]", "l: 0 layer names; expected 1 to 100000"),
        (b"a\nb\na", "l: [2]: 'a' is listed twice"),
        (b"a b/c", "l: [0]: not a layer name: 'b/c'"),
        (b"a..b", "l: [0]: not a layer name: 'a..b'"),
        (b"a@b", "l: [0]: not a layer name: 'a@b'"),
        (b"\xff", "l: [0]: not a layer name: "),
        (b"[1]", "l: [0]: not a layer name: 1"),
        (b"[", "l: not JSON: "),
        (b"a" * 301, "l: [0]: not a layer name: "),
        (b"a\n" * 2**20, "l: too large"),
        (b"a\n" * 2**18, "l: 262144 layer names; expected 1 to 100000"),
    ],
)
def test_faulty_layer_names_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(ProvenanceError) as caught:
        parse_layers(content, where="l")
    assert str(caught.value).startswith(message)
    assert check_layers(["a.b", "c"], where="l") == depths_of(["a.b", "c"])


@given(
    at=st.integers(0, len(DRAFT)), gone=st.integers(0, 20), new=st.text(max_size=12) | st.sampled_from(("{", "\n- "))
)
def test_no_text_raises_anything_but_our_errors(at: int, gone: int, new: str) -> None:
    try:
        found = read_policy(parse_document(DRAFT[:at] + new + DRAFT[at + gone :], where="p.yaml"))
    except ExplorerError as error:
        assert str(error).startswith("p.yaml")
    else:
        check_policy(found, "p")
        assert len(found.digest) == 64
        assert phases(found)


def test_the_published_schema_accepts_what_the_code_accepts() -> None:
    good = to_json(read(DRAFT))
    assert agree("policy", good)
    verdicts = [agree("policy", value) for value in broken(good)]
    assert len(verdicts) > 50 and verdicts.count(False) > len(verdicts) / 2

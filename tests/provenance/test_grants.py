"""Grants: what one says, that it cannot say "everything", and whose signature makes it hold."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.canonical import canonical
from explorer.errors import ExplorerError, ProvenanceError, SpecError
from explorer.provenance.envelope import Envelope, sign_envelope
from explorer.provenance.grants import GRANT, Grant, grant_digest, open_grant, sign_grant
from explorer.provenance.spellings import parse_time
from explorer.provenance.trust import Role, Trust
from explorer.schema import to_json
from tests.provenance import people
from tests.provenance.people import GOVERNANCE, NOW, RISK, private, public

GOOD: dict[str, Any] = {
    "format": "explorer/grant/v1",
    "id": "2026-0007",
    "owner": GOVERNANCE,
    "grantee": {"name": "example.com/auditor", "public_key": "B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw="},
    "runs": ["resnet8-digits-fast-ssr0.5-s1-3f9c2a7d"],
    "classes": ["licensed/news"],
    "entries": ["step", "profile"],
    "issued": "2026-01-01T00:00:00Z",
    "expires": "2026-07-01T00:00:00Z",
}
SECOND = "example.com/second-office"
TRUST = people.trust(people.governance(), people.risk())
ZERO = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="


def signed(value: Any, *seeds: str) -> bytes:
    """As whoever holds these keys would sign it, allowed or not."""
    return sign_envelope(
        canonical(value), GRANT.payload_type, [private(seed) for seed in seeds or (GOVERNANCE,)]
    ).content


def opened(value: Any, *seeds: str, trust: Trust = TRUST, now: int = NOW) -> Grant:
    return open_grant(signed(value, *seeds), trust=trust, now=now, where="g.json").value


def draft(directory: Path, value: Any) -> Path:
    path = directory / "grant.yaml"
    path.write_text(json.dumps(value))
    return path


def test_there_and_back(tmp_path: Path) -> None:
    envelope = sign_grant(draft(tmp_path, GOOD), [private(GOVERNANCE)], trust=TRUST, now=NOW)
    found = open_grant(envelope.content, trust=TRUST, now=NOW, where="g.json")
    assert to_json(found.value) == GOOD
    assert [each.name for each in found.authorities] == [GOVERNANCE]
    assert grant_digest(envelope) == grant_digest(found.envelope)
    assert found.value.words == (
        "grant 2026-0007 of example.com/data-governance covers classes licensed/news; entries step, profile; "
        "runs resnet8-digits-fast-ssr0.5-s1-3f9c2a7d; until 2026-07-01T00:00:00Z"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "explorer/grant/v2"}, "format: input should be 'explorer/grant/v1'"),
        ({"id": "a/b"}, "id: string should match pattern"),
        ({"owner": ""}, "owner: string should match pattern"),
        ({"grantee": {"name": "example.com/auditor"}}, "grantee.public_key: is missing"),
        ({"grantee": {"name": "example.com/auditor", "public_key": "AAAA"}}, "grantee.public_key: expected a public"),
        ({"grantee": {"name": "example.com/auditor", "public_key": ZERO}}, "grantee.public_key: weak: everybody"),
        ({"runs": []}, "runs: tuple should have at least 1 item"),
        ({"runs": ["*"]}, r"runs\[0\]: string should match pattern"),
        ({"runs": ["../secret"]}, r"runs\[0\]: string should match pattern"),
        ({"classes": []}, "classes: tuple should have at least 1 item"),
        ({"classes": ["*"]}, r"classes\[0\]: string should match pattern"),
        ({"entries": []}, "entries: tuple should have at least 1 item"),
        ({"entries": ["*"]}, r"entries\[0\]: string should match pattern"),
        ({"expires": "2026-01-01T00:00:00Z"}, "expires: 2026-01-01T00:00:00Z is not after issued"),
        ({"expired": "2026-01-01T00:00:00Z"}, "expired: unknown key; did you mean 'expires'"),
    ],
)
def test_what_is_no_grant(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProvenanceError, match=f"^g.json: {message}"):
        opened(GOOD | change)


@pytest.mark.parametrize("name", sorted(GOOD))
def test_nothing_is_left_to_be_guessed(name: str) -> None:
    with pytest.raises(ProvenanceError, match=f"{name}: is missing"):
        opened({key: value for key, value in GOOD.items() if key != name})


def with_second(*branches: str, role: Role = Role.DATA_GOVERNANCE, documents: int = 1) -> Trust:
    more = people.authority(SECOND, role, branches=branches)
    needed = {Role.DATA_GOVERNANCE: documents, Role.MODEL_RISK: 1, Role.TRAINER: 1}
    return people.trust(people.governance(), people.risk(), more, documents=needed)


@pytest.mark.parametrize(
    ("value", "seeds", "trust", "message"),
    [
        (GOOD, [RISK], TRUST, "wrong role: example.com/model-risk has the role model-risk; needed is data-governance"),
        (GOOD, [SECOND], with_second(role=Role.TRAINER), "wrong role: .* has the role trainer"),
        (GOOD, ["nobody"], TRUST, "signed by no key of the trust file"),
        (GOOD | {"classes": ["personal"]}, [], TRUST, "out of branch: .* may vouch for open, licensed/news, and not"),
        (GOOD | {"classes": ["open", "licensed"]}, [], TRUST, "out of branch: .* and not for licensed"),
        (GOOD, [SECOND], with_second("licensed"), "not signed by its owner example.com/data-governance; signed by"),
        (GOOD | {"owner": SECOND}, [], with_second("licensed"), "not signed by its owner example.com/second-office"),
        (GOOD, [], with_second("licensed", documents=2), "threshold not met: 1 of 2"),
        (GOOD, [GOVERNANCE, SECOND], with_second("open", documents=2), "threshold not met: 1 of 2"),
        (GOOD, [], people.trust(people.risk()), "signed by no key of the trust file"),
        (GOOD, [], people.trust(people.governance(), documents={}), "names no quorum for documents of the role"),
    ],
)
def test_whose_signature_makes_no_grant(value: Any, seeds: list[str], trust: Trust, message: str) -> None:
    with pytest.raises(ProvenanceError, match=f"^g.json: .*{message}"):
        opened(value, *seeds, trust=trust)


def test_a_quorum_takes_all_of_them_and_the_owner() -> None:
    trust = with_second("licensed", documents=2)
    assert opened(GOOD, GOVERNANCE, SECOND, trust=trust).owner == GOVERNANCE


@pytest.mark.parametrize(
    ("moment", "message"),
    [("2025-12-31T23:59:59Z", "not yet valid: issued"), ("2026-07-01T00:00:00Z", "expired 2026-07-01T00:00:00Z")],
)
def test_outside_of_its_time(moment: str, message: str) -> None:
    with pytest.raises(ProvenanceError, match=message):
        opened(GOOD, now=parse_time(moment))


def test_of_a_key_that_was_revoked() -> None:
    revoked = people.trust(people.governance(public(GOVERNANCE, revoked="2025-12-01T00:00:00Z")))
    with pytest.raises(ProvenanceError, match="revoked: key"):
        opened(GOOD, trust=revoked)


def test_another_kind_of_document_or_other_bytes() -> None:
    other = sign_envelope(canonical(GOOD), "application/vnd.explorer.policy.v1+json", [private(GOVERNANCE)])
    with pytest.raises(ProvenanceError, match=r"holds 'application/vnd\.explorer\.policy"):
        open_grant(other.content, trust=TRUST, now=NOW, where="g.json")
    true = sign_envelope(canonical(GOOD), GRANT.payload_type, [private(GOVERNANCE)])
    wider = Envelope(
        payload=canonical(GOOD | {"classes": ["open"]}), payload_type=true.payload_type, signatures=true.signatures
    )
    with pytest.raises(ProvenanceError, match="forged or changed"):
        open_grant(wider.content, trust=TRUST, now=NOW, where="g.json")


@pytest.mark.parametrize(
    ("value", "seed", "message"),
    [
        (GOOD, RISK, "wrong role"),
        (GOOD | {"classes": ["personal"]}, GOVERNANCE, "cannot sign at .*: out of branch"),
        (GOOD, SECOND, "its owner example.com/data-governance signs first; the key given is another authority's"),
        (GOOD | {"owner": "example.com/data-governanse"}, GOVERNANCE, "did you mean 'example.com/data-governance'"),
        (GOOD | {"expires": "2026-05-01T00:00:00Z"}, GOVERNANCE, "expired 2026-05-01T00:00:00Z"),
    ],
)
def test_what_nobody_signs(tmp_path: Path, value: Any, seed: str, message: str) -> None:
    with pytest.raises(ProvenanceError, match=message):
        sign_grant(draft(tmp_path, value), [private(seed)], trust=with_second("licensed"), now=NOW)


def test_a_fault_in_a_draft_is_named_with_its_line(tmp_path: Path) -> None:
    path = draft(tmp_path, GOOD)
    path.write_text(json.dumps(GOOD | {"runs": []}, indent=1))
    with pytest.raises(SpecError, match=r"grant\.yaml:9: runs: tuple should have at least 1 item"):
        sign_grant(path, [private(GOVERNANCE)], trust=TRUST, now=NOW)


def test_a_second_authority_adds_its_signature(tmp_path: Path) -> None:
    trust = with_second("licensed", documents=2)
    path = tmp_path / "grant.json"
    path.write_bytes(sign_grant(draft(tmp_path, GOOD), [private(GOVERNANCE)], trust=trust, now=NOW).content)
    both = sign_grant(path, [private(SECOND)], trust=trust, now=NOW)
    assert len(open_grant(both.content, trust=trust, now=NOW, where="g").authorities) == 2


@given(
    st.binary(max_size=100)
    | st.fixed_dictionaries({name: st.sampled_from([part, None, [], {}, "", 1]) for name, part in GOOD.items()}).map(
        lambda value: json.dumps(value).encode()
    )
)
@settings(max_examples=100, deadline=None)
def test_anything_is_a_grant_or_refused(content: bytes) -> None:
    made = sign_envelope(content, GRANT.payload_type, [private(GOVERNANCE)])
    try:
        assert to_json(open_grant(made.content, trust=TRUST, now=NOW, where="g.json").value) == GOOD
    except ExplorerError as error:
        assert str(error).startswith("g.json: ")


def test_a_grant_is_frozen() -> None:
    grant = opened(GOOD)
    assert replace(grant, id="2").id == "2"
    with pytest.raises(AttributeError):
        grant.id = "2"  # pyright: ignore

"""Trust files: what they say, what is no trust file, and who is believed because of one."""

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.errors import ProvenanceError
from explorer.provenance.envelope import Envelope, EnvelopeSignature, key_id, sign_envelope
from explorer.provenance.keys import public_bytes
from explorer.provenance.signing import check_signed, check_signer, require
from explorer.provenance.spellings import parse_time
from explorer.provenance.trust import MAX_BYTES, Role, Trust, parse_trust, read_trust, trust_content, write_trust
from explorer.schema import to_json
from tests.provenance.people import (
    EXPIRES,
    GOVERNANCE,
    ISSUED,
    NOW,
    RISK,
    TODAY,
    YEAR_BEGINS,
    YEAR_ENDS,
    authority,
    governance,
    private,
    public,
    risk,
    trust,
)

LAB = trust(governance(), risk())


def signed(*seeds: str, payload: bytes = b"{}") -> Envelope:
    return sign_envelope(payload, "application/vnd.explorer.test.v1+json", map(private, seeds))


def believed(
    envelope: Envelope,
    whom: Trust,
    *,
    role: Role = Role.DATA_GOVERNANCE,
    issued: str = ISSUED,
    expires: str = EXPIRES,
    now: int = NOW,
    branches: Collection[str] = (),
) -> tuple[str, ...]:
    """The names of those who vouch for it."""
    found = require(
        envelope, trust=whom, role=role, issued=issued, expires=expires, now=now, branches=branches, where="d.json"
    )
    return tuple(one.name for one in found)


def refused(envelope: Envelope, whom: Trust, **said: Any) -> str:
    with pytest.raises(ProvenanceError) as caught:
        believed(envelope, whom, **said)
    message = str(caught.value)
    assert message.startswith("d.json: ")
    return message.removeprefix("d.json: ")


# The file


def test_there_and_back(tmp_path: Path) -> None:
    write_trust(tmp_path / "trust.json", LAB)
    assert read_trust(tmp_path / "trust.json") == LAB
    assert parse_trust(trust_content(LAB, where="t"), where="t") == LAB


def test_the_digest_is_of_what_it_says_and_not_of_how() -> None:
    spaced = json.dumps(to_json(LAB), indent=7).encode()
    shorter = to_json(LAB)
    for one in shorter["authorities"]:
        for key in one["keys"]:
            del key["revoked"]  # null says the same
    assert parse_trust(spaced, where="t").digest == LAB.digest
    assert parse_trust(json.dumps(shorter).encode(), where="t").digest == LAB.digest
    assert replace(LAB, name="example.com/other").digest != LAB.digest
    assert LAB.digest == "3314a01909326d702e72501aba2d9b5e6eff3cb432978c2689b328e59f07d898"


def changed(path: str, value: Any) -> bytes:
    """The trust file with one thing in it replaced; `...` takes it out."""
    content = to_json(LAB)
    at: Any = content
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in way:
        at = at[part]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return json.dumps(content).encode()


RISK_KEY = to_json(public(RISK))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", "explorer/trust/v2", "format: input should be 'explorer/trust/v1'"),
        ("name", "a b", "name: string should match pattern"),
        ("quorum", ..., "quorum: is missing"),
        ("quorum.documents", ..., "quorum.documents: is missing"),
        ("quorum.checkpoints", None, "quorum.checkpoints: "),
        ("quorum.documents.data-governance", 0, "quorum.documents.data-governance: input should be greater than or eq"),
        ("quorum.documents.data-governance", True, "quorum.documents.data-governance: input should be a valid integer"),
        ("quorum.documents.everybody", 1, "quorum.documents.everybody"),
        ("quorom", {}, "quorom: unknown key; did you mean 'quorum'?"),
        ("authorities.0.name", "../../etc/passwd", "authorities[0].name: string should match pattern"),
        ("authorities.0.name", "a\x1b[2J", "authorities[0].name: string should match pattern"),
        ("authorities.0.name", RISK, f"authorities[1]: the name '{RISK}' is given twice"),
        ("authorities.0.name", "none", "authorities[0]: the name 'none' means that no cosignature is required"),
        ("authorities.0.role", "king", "authorities[0].role: input should be 'data-governance', 'model-risk'"),
        ("authorities.0.branches", ["open/"], "authorities[0].branches[0]: string should match pattern"),
        ("authorities.0.branches", ["*"], "authorities[0].branches[0]: string should match pattern"),
        ("authorities.0.branches", "open", "authorities[0].branches: input should be a valid"),
        ("authorities.0.keys", [], "authorities[0].keys: tuple should have at least 1 item"),
        ("authorities.0.keys", [RISK_KEY] * 2, "authorities[0].keys[1]: the public key"),
        ("authorities.0.keys.0.public_key", RISK_KEY["public_key"], "authorities[1].keys[0]: the public key"),
        ("authorities.0.keys.0.public_key", "AAAA", "authorities[0].keys[0].public_key: expected a public key"),
        ("authorities.0.keys.0.public_key", "A" * 43 + "=", "authorities[0].keys[0]: the public key AAAAAAAAAA"),
        (
            "authorities.0.keys.0.not_before",
            "2026-01-01",
            "authorities[0].keys[0].not_before: expected a moment in UTC",
        ),
        (
            "authorities.0.keys.0.not_after",
            YEAR_BEGINS,
            "authorities[0].keys[0]: not_before 2026-01-01T00:00:00Z is not",
        ),
        ("authorities.0.keys.0.not_after", ..., "authorities[0].keys[0].not_after: is missing"),
        ("authorities.0.keys.0.revoked", {"at": TODAY}, "authorities[0].keys[0].revoked.reason: is missing"),
        (
            "authorities.0.keys.0.revoked",
            {"at": TODAY, "reason": "a\nb"},
            "authorities[0].keys[0].revoked.reason: expected one line of printable text, without '\\n'",
        ),
        (
            "authorities.0.keys.0.revoked",
            {"at": TODAY, "reason": "\u202egnp.txt"},
            "authorities[0].keys[0].revoked.reason: expected one line of printable text, without '\\u202e'",
        ),
    ],
)
def test_what_is_no_trust_file(path: str, value: Any, message: str) -> None:
    with pytest.raises(ProvenanceError) as caught:
        parse_trust(changed(path, value), where="t.json")
    assert str(caught.value).startswith(f"t.json: {message}")


def test_the_unchanged_file_is_one() -> None:
    """The control of the table above."""
    assert parse_trust(changed("name", LAB.name), where="t.json") == LAB


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty; an empty trust file refuses everything"),
        (b" \n", "empty; an empty trust file refuses everything"),
        (b"{}", "format: is missing"),
        (b"[]", "the whole: "),
        (b"\xff", "not JSON"),
        (b'{"name": "a", "name": "b"}', "twice in one object"),
        (b"[" * 100_000, "nested"),
        (b" " * MAX_BYTES + b"{}", "too large: 1048578 bytes, at most 1048576 are read"),
    ],
)
def test_what_is_not_even_a_record(content: bytes, message: str) -> None:
    with pytest.raises(ProvenanceError, match=f"^t.json: .*{message}"):
        parse_trust(content, where="t.json")


def test_too_many_keys_to_try_each() -> None:
    many = trust(*(authority(f"example.com/{n}", Role.TRAINER) for n in range(201)))
    with pytest.raises(ProvenanceError, match="t: 201 keys; at most 200 are read"):
        trust_content(many, where="t")


def test_an_absent_file(tmp_path: Path) -> None:
    with pytest.raises(ProvenanceError, match=r"cannot read .*nowhere\.json: No such file"):
        read_trust(tmp_path / "nowhere.json")


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ProvenanceError, match="is given twice"):
        write_trust(tmp_path / "trust.json", trust(risk(), risk()))
    assert list(tmp_path.iterdir()) == []


# Who is believed


def test_the_right_signature_is_believed() -> None:
    assert believed(signed(GOVERNANCE), LAB) == (GOVERNANCE,)
    assert believed(signed(RISK), LAB, role=Role.MODEL_RISK) == (RISK,)
    assert believed(signed(GOVERNANCE), LAB, branches=["open", "open/mit", "licensed/news"]) == (GOVERNANCE,)


def test_an_empty_trust_file_refuses_everything() -> None:
    assert refused(signed(GOVERNANCE), trust()) == (
        "the trust file 'example.com/lab' lists no authority and so refuses everything"
    )


def test_a_role_without_quorum_is_never_enough() -> None:
    silent = trust(governance(), risk(), documents={Role.MODEL_RISK: 1})
    assert refused(signed(GOVERNANCE), silent) == (
        "the trust file 'example.com/lab' names no quorum for documents of the role data-governance and so refuses "
        "them; named: model-risk"
    )


def test_forged() -> None:
    envelope = signed(GOVERNANCE, payload=b'{"weight": 0}')
    forged = replace(envelope, payload=b'{"weight": 1}')
    message = refused(forged, LAB)
    assert message == f"forged or changed: the signature that claims to be of {GOVERNANCE} does not match the content"
    with pytest.raises(ProvenanceError, match="forged or changed"):
        check_signed(forged, trust=LAB, where="d.json")


def test_unknown_key() -> None:
    stranger = key_id(public_bytes(private("stranger")))[:16]
    assert refused(signed("stranger"), LAB) == (
        f"signed by no key of the trust file 'example.com/lab': found key '{stranger}'; "
        f"trusted are {GOVERNANCE}, {RISK}"
    )


def test_expired_and_not_yet_valid() -> None:
    envelope = signed(GOVERNANCE)
    assert refused(envelope, LAB, now=parse_time(EXPIRES)) == (
        "expired 2026-12-01T00:00:00Z, and now it is 2026-12-01T00:00:00Z"
    )
    assert believed(envelope, LAB, now=parse_time(EXPIRES) - 1)
    assert refused(envelope, LAB, now=parse_time(ISSUED) - 1) == (
        "not yet valid: issued 2026-05-01T00:00:00Z, and now it is 2026-04-30T23:59:59Z"
    )
    assert believed(envelope, LAB, now=parse_time(ISSUED))
    assert "which is not after it was issued" in refused(envelope, LAB, expires=ISSUED)


def test_wrong_role() -> None:
    assert refused(signed(RISK), LAB) == f"wrong role: {RISK} has the role model-risk; needed is data-governance"


@pytest.mark.parametrize("branch", ["personal", "openish", "licensed", "licensed/newspapers", "quarantine"])
def test_out_of_branch(branch: str) -> None:
    assert refused(signed(GOVERNANCE), LAB, branches=["open/mit", branch]) == (
        f"out of branch: {GOVERNANCE} may vouch for open, licensed/news, and not for {branch}"
    )


def test_no_branch_vouches_for_no_class() -> None:
    bare = trust(authority(GOVERNANCE, Role.DATA_GOVERNANCE))
    assert believed(signed(GOVERNANCE), bare) == (GOVERNANCE,)
    assert "may vouch for no branch, and not for open" in refused(signed(GOVERNANCE), bare, branches=["open"])


def test_a_key_outside_its_span() -> None:
    span = trust(governance(public(GOVERNANCE, not_before=ISSUED, not_after=TODAY)))
    who = f"key {key_id(public_bytes(private(GOVERNANCE)))[:16]} of {GOVERNANCE}"
    envelope = signed(GOVERNANCE)
    assert believed(envelope, span, issued=ISSUED)
    assert refused(envelope, span, issued="2026-04-30T23:59:59Z") == (
        f"key not yet valid: {who} may sign from {ISSUED}, issued 2026-04-30T23:59:59Z"
    )
    assert believed(envelope, span, issued="2026-05-31T23:59:59Z", now=NOW)
    assert refused(envelope, span, issued=TODAY) == f"key expired: {who} may sign until {TODAY}, issued {TODAY}"


def test_revocation_holds_from_its_moment_on() -> None:
    revoked = trust(governance(public(GOVERNANCE, revoked="2026-04-01T00:00:00Z")))
    who = f"key {key_id(public_bytes(private(GOVERNANCE)))[:16]} of {GOVERNANCE}"
    envelope = signed(GOVERNANCE)
    assert believed(envelope, revoked, issued="2026-03-31T23:59:59Z")
    for after in ("2026-04-01T00:00:00Z", ISSUED):
        assert refused(envelope, revoked, issued=after) == (
            f"revoked: {who} is revoked as of 2026-04-01T00:00:00Z (the laptop was stolen), issued {after}"
        )


def test_revoked_as_of_its_beginning_it_is_believed_in_nothing() -> None:
    revoked = trust(governance(public(GOVERNANCE, revoked=YEAR_BEGINS)))
    for issued in (YEAR_BEGINS, ISSUED):
        assert "revoked" in refused(signed(GOVERNANCE), revoked, issued=issued)


def test_rotation() -> None:
    """Two keys whose spans overlap: each is believed in its own, both in the overlap, as one authority."""
    old = public("old", not_after="2026-06-01T00:00:00Z")
    new = public("new", not_before="2026-05-01T00:00:00Z")
    rotating = trust(governance(old, new))
    for seed, issued, expected in (
        ("old", "2026-04-01T00:00:00Z", True),
        ("new", "2026-04-01T00:00:00Z", False),
        ("old", "2026-05-15T00:00:00Z", True),
        ("new", "2026-05-15T00:00:00Z", True),
        ("old", "2026-06-15T00:00:00Z", False),
        ("new", "2026-06-15T00:00:00Z", True),
    ):
        said = {"issued": issued, "now": parse_time("2026-07-01T00:00:00Z")}
        if expected:
            assert believed(signed(seed), rotating, **said) == (GOVERNANCE,), (seed, issued)
        else:
            assert "key" in refused(signed(seed), rotating, **said), (seed, issued)
    both = trust(governance(old, new), documents={Role.DATA_GOVERNANCE: 2})
    assert "threshold not met: 1 of 2" in refused(signed("old", "new"), both, issued="2026-05-15T00:00:00Z")


def test_threshold() -> None:
    second = authority("example.com/legal", Role.DATA_GOVERNANCE)
    two = trust(governance(), second, risk(), documents={Role.DATA_GOVERNANCE: 2})
    assert believed(signed(GOVERNANCE, second.name), two) == (GOVERNANCE, second.name)
    assert refused(signed(GOVERNANCE), two) == (
        f"threshold not met: 1 of 2 authorities with the role data-governance have signed: {GOVERNANCE}"
    )
    assert refused(signed(GOVERNANCE, RISK), two) == (
        f"threshold not met: 1 of 2 authorities with the role data-governance have signed: {GOVERNANCE}; "
        f"wrong role: {RISK} has the role model-risk; needed is data-governance"
    )


def test_one_key_under_two_ids_does_not_meet_a_threshold_of_two() -> None:
    second = authority("example.com/legal", Role.DATA_GOVERNANCE)
    two = trust(governance(), second, documents={Role.DATA_GOVERNANCE: 2})
    once = signed(GOVERNANCE)
    other_id = EnvelopeSignature(keyid=key_id(second.keys[0].raw), sig=once.signatures[0].sig)
    twice = replace(once, signatures=(*once.signatures, other_id))
    assert "threshold not met: 1 of 2" in refused(twice, two)


def test_two_roles_are_two_quorums() -> None:
    """Data governance and model risk each sign what is theirs; neither replaces the other."""
    both = signed(GOVERNANCE, RISK)
    assert believed(both, LAB, role=Role.DATA_GOVERNANCE) == (GOVERNANCE,)
    assert believed(both, LAB, role=Role.MODEL_RISK) == (RISK,)
    assert "wrong role" in refused(signed(GOVERNANCE), LAB, role=Role.MODEL_RISK)


# Whoever is about to sign


def test_who_may_sign_now() -> None:
    def may(seed: str, *, issued: str = TODAY, now: int = NOW, branches: Collection[str] = ()) -> str:
        return check_signer(
            public_bytes(private(seed)),
            trust=LAB,
            role=Role.DATA_GOVERNANCE,
            issued=issued,
            now=now,
            branches=branches,
            where="d.json",
        ).name

    assert may(GOVERNANCE, branches=["open"]) == GOVERNANCE
    refusals = {
        "is not in the trust file 'example.com/lab'": lambda: may("stranger"),
        "cannot sign at 2026-06-01T00:00:00Z: wrong role": lambda: may(RISK),
        "cannot sign at 2026-06-01T00:00:00Z: out of branch": lambda: may(GOVERNANCE, branches=["personal"]),
        "cannot sign at 2025-12-31T23:59:59Z: key not yet valid": lambda: may(
            GOVERNANCE, now=parse_time(YEAR_BEGINS) - 1
        ),
        "cannot sign at 2027-01-01T00:00:00Z: key expired": lambda: may(GOVERNANCE, now=parse_time(YEAR_ENDS)),
        "cannot sign at 2025-12-31T00:00:00Z: key not yet valid": lambda: may(
            GOVERNANCE, issued="2025-12-31T00:00:00Z"
        ),
    }
    for message, attempt in refusals.items():
        with pytest.raises(ProvenanceError) as caught:
            attempt()
        assert message in str(caught.value)


# Anything else


VALUES = st.sampled_from([None, [], {}, "", "x", 1, -1, TODAY, YEAR_BEGINS, ISSUED, 1e300, [[]], {"a": 1}])
PATHS = [
    "format",
    "name",
    "authorities",
    "quorum",
    "quorum.documents",
    "authorities.0",
    "authorities.0.name",
    "authorities.0.role",
    "authorities.0.branches",
    "authorities.1.keys",
    "authorities.1.keys.0",
    "authorities.1.keys.0.public_key",
    "authorities.1.keys.0.not_before",
    "authorities.1.keys.0.not_after",
    "authorities.1.keys.0.revoked",
]


@given(st.binary(max_size=100) | st.builds(changed, st.sampled_from(PATHS), VALUES))
@settings(max_examples=150, deadline=None)
def test_anything_is_a_trust_file_or_refused(content: bytes) -> None:
    try:
        found = parse_trust(content, where="t.json")
    except ProvenanceError as error:
        assert str(error).startswith("t.json: ")
    else:
        assert parse_trust(trust_content(found, where="again"), where="again") == found

"""Signed documents: made, read, co-signed, and refused before a byte of the payload is believed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from explorer.canonical import canonical
from explorer.errors import ProvenanceError
from explorer.provenance.envelope import Envelope, sign_envelope
from explorer.provenance.signing import MAX_PAYLOAD, Kind, Signed, cosign_document, open_document, sign_document
from explorer.provenance.spellings import Time, parse_time
from explorer.provenance.trust import Role, Trust
from explorer.schema import record, to_json
from tests.provenance.people import (
    EXPIRES,
    GOVERNANCE,
    NOW,
    RISK,
    TODAY,
    YEAR_BEGINS,
    authority,
    governance,
    private,
    risk,
    trust,
)


@record
class Rule:
    """A record like those that are signed."""

    issued: Time = TODAY
    expires: Time = EXPIRES
    weight: float = 1.0


def never_heavy(value: Rule, where: str) -> None:
    if value.weight > 1:
        raise ProvenanceError(f"{where}: weight: found {value.weight}, at most 1")


RULE = Kind(name="rule", record=Rule, role=Role.MODEL_RISK, check=never_heavy)
OTHER = Kind(name="other", record=Rule, role=Role.MODEL_RISK)
LAB = trust(governance(), risk())


def sign(value: Rule, *seeds: str, whom: Trust = LAB, now: int = NOW) -> Envelope:
    return sign_document(value, RULE, [private(seed) for seed in seeds], trust=whom, now=now, where="r.json")


def read(envelope: Envelope, *, kind: Kind[Rule] = RULE, whom: Trust = LAB, now: int = NOW) -> Signed[Rule]:
    return open_document(envelope.content, kind, trust=whom, now=now, where="r.json")


def signed_payload(payload: bytes, *, kind: Kind[Any] = RULE, seed: str = RISK) -> Envelope:
    """What somebody signs who does not use this code."""
    return sign_envelope(payload, kind.payload_type, [private(seed)])


def test_there_and_back() -> None:
    envelope = sign(Rule(weight=0.5), RISK)
    assert envelope.payload_type == "application/vnd.explorer.rule.v1+json"
    assert envelope.payload == b'{"expires":"2026-12-01T00:00:00Z","issued":"2026-06-01T00:00:00Z","weight":0.5}'
    opened = read(envelope)
    assert opened.value == Rule(weight=0.5)
    assert [one.name for one in opened.authorities] == [RISK]
    assert opened.envelope == envelope


def test_what_has_expired_is_not_signed() -> None:
    """It would look like a success, and everybody would refuse the file."""
    moment = parse_time(EXPIRES)
    assert sign(Rule(), RISK, now=moment - 1)
    with pytest.raises(ProvenanceError, match=f"expired {EXPIRES}, and now it is {EXPIRES}"):
        sign(Rule(), RISK, now=moment)


def test_signing_is_repeatable() -> None:
    assert sign(Rule(), RISK).content == sign(Rule(), RISK).content


def test_two_sign_the_same_document() -> None:
    second = authority("example.com/board", Role.MODEL_RISK)
    two = trust(risk(), second, documents={Role.MODEL_RISK: 2})
    first = sign(Rule(), RISK, whom=two)
    with pytest.raises(ProvenanceError, match="threshold not met: 1 of 2"):
        read(first, whom=two)
    both = cosign_document(first, RULE, [private(second.name)], trust=two, now=NOW, where="r.json")
    assert both.payload == first.payload
    assert [one.name for one in read(both, whom=two).authorities] == [second.name, RISK]


@pytest.mark.parametrize(
    ("seeds", "now", "message"),
    [
        ([GOVERNANCE], NOW, "wrong role"),
        ([RISK, "stranger"], NOW, "is not in the trust file"),
        ([RISK], parse_time(YEAR_BEGINS) - 1, "cannot sign at 2025-12-31T23:59:59Z: key not yet valid"),
    ],
    ids=["wrong role", "stranger", "clock set back"],
)
def test_who_may_not_sign_does_not(seeds: Sequence[str], now: int, message: str) -> None:
    with pytest.raises(ProvenanceError, match=message):
        sign(Rule(), *seeds, now=now)


def test_a_faulty_document_is_not_signed() -> None:
    with pytest.raises(ProvenanceError, match=r"^r.json: weight: found 2.0, at most 1"):
        sign(Rule(weight=2.0), RISK)


def test_one_kind_does_not_pass_for_another() -> None:
    envelope = sign(Rule(), RISK)
    with pytest.raises(ProvenanceError, match=r"holds 'application/vnd.explorer.rule.v1\+json', expected '.*other"):
        read(envelope, kind=OTHER)
    relabelled = replace(envelope, payload_type=OTHER.payload_type)
    with pytest.raises(ProvenanceError, match="forged or changed"):
        read(relabelled, kind=OTHER)


def test_an_unsigned_payload_is_not_even_read() -> None:
    """The same damaged payload: nobody's signature stops it first, a known key's lets the reader see the damage."""
    for payload in (b"{", b"[" * 100_000, b"[]"):
        with pytest.raises(ProvenanceError, match="signed by no key of the trust file"):
            read(signed_payload(payload, seed="stranger"))
        with pytest.raises(ProvenanceError, match=r"not JSON|the whole|nested"):
            read(signed_payload(payload))


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (canonical({**to_json(Rule()), "weight": 2}), "weight: found 2.0, at most 1"),
        (canonical({**to_json(Rule()), "wait": 1}), "wait: unknown key; did you mean 'weight'?"),
        (canonical({**to_json(Rule()), "issued": "today"}), "issued: expected a moment in UTC"),
        (canonical({**to_json(Rule()), "expires": TODAY}), "which is not after it was issued"),
        (canonical({"weight": 1}), "not in canonical form"),
        (b" " + canonical(to_json(Rule())), "not in canonical form"),
        (canonical(to_json(Rule())).replace(b":1}", b":1.0}"), "not in canonical form"),
        (b" " * (MAX_PAYLOAD + 1), "too large"),
    ],
)
def test_what_is_signed_and_still_not_believed(payload: bytes, message: str) -> None:
    with pytest.raises(ProvenanceError, match=f"^r.json: .*{message}"):
        read(signed_payload(payload))


def test_the_control_of_the_table_above() -> None:
    assert read(signed_payload(canonical(to_json(Rule())))).value == Rule()

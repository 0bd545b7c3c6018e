"""The form of a certificate of deletion: what can be written in it, what cannot, and who may sign it."""

import copy
from typing import Any

import pytest

from explorer.errors import ProvenanceError
from explorer.provenance.deletion_certificate import (
    ALWAYS,
    FORMAT,
    MEANS,
    PREDICATE_TYPE,
    UNREACHED,
    Certificate,
    open_certificate,
    sign_certificate,
)
from explorer.provenance.envelope import parse_envelope
from explorer.provenance.statement import parse_statement
from explorer.provenance.trust import Role
from explorer.schema import from_json, to_json
from tests.provenance import people
from tests.provenance.people import EXPIRES, GOVERNANCE, ISSUED, NOW, private
from tests.provenance.test_schemas import agree, broken

TRAINER = "example.com/trainer"
TRUST = people.trust(people.governance(), people.authority(TRAINER, Role.TRAINER))
MODEL = "5" * 64
SOME = "a" * 64


def run(name: str) -> dict[str, Any]:
    return {"run": name, "ledger": {"origin": f"example.com/trainer/{name}", "size": 9, "root": SOME}}


G3: dict[str, Any] = {
    "format": FORMAT,
    "level": "G3",
    "means": MEANS["G3"],
    "old": run("old"),
    "new": run("new"),
    "target": {"classes": [], "authorities": [], "records": {"commitment": SOME, "number": 2}},
    "request": SOME,
    "structure": None,
    "replay": {
        "begins": 5,
        "start": {"parameters": SOME, "buffers": SOME, "optimizer": SOME, "random": SOME},
        "steps": 7,
        "influence": 5,
    },
    "not_reached": [{"what": what, "detail": "as ever"} for what in ALWAYS],
    "to_destroy": [
        {"what": "model", "path": "model/model.safetensors", "sha256": SOME, "part": None},
        {"what": "secret", "path": "private/secrets", "sha256": None, "part": "licensed/news"},
    ],
    "taxonomy": SOME,
    "policy": SOME,
    "trust": SOME,
    "issued": ISSUED,
    "expires": EXPIRES,
}
G2: dict[str, Any] = {
    **G3,
    "level": "G2",
    "means": MEANS["G2"],
    "target": {"classes": ["licensed/news"], "authorities": [], "records": None},
    "structure": {"dropped": ["a", "b"], "kept": {"parameters": SOME, "buffers": SOME, "optimizer": SOME}},
    "replay": None,
}


def record(value: dict[str, Any]) -> Certificate:
    return from_json(Certificate, value, where="certificate", error=ProvenanceError)


def signed(value: dict[str, Any], *names: str) -> bytes:
    keys = [private(name) for name in names or (TRAINER,)]
    return sign_certificate(record(value), model=MODEL, keys=keys, trust=TRUST, now=NOW).content


@pytest.mark.parametrize("value", [G2, G3], ids=["G2", "G3"])
def test_what_was_signed_is_what_is_read(value: dict[str, Any]) -> None:
    content = signed(value)
    opened = open_certificate(content, trust=TRUST, now=NOW, where="certificate")
    assert to_json(opened.value) == value
    assert (opened.model, [each.name for each in opened.authorities]) == (MODEL, [TRAINER])
    payload = parse_envelope(content, where="certificate").payload
    statement = parse_statement(payload, predicate_type=PREDICATE_TYPE, where="certificate")
    assert statement.is_about(MODEL)


@pytest.mark.parametrize("value", [G2, G3], ids=["G2", "G3"])
def test_schema_and_code_are_of_one_mind(value: dict[str, Any]) -> None:
    assert agree("deletion", value)
    verdicts = [agree("deletion", each) for each in broken(copy.deepcopy(value))]
    assert len(verdicts) > 200 and verdicts.count(False) > len(verdicts) / 2


def test_there_is_no_word_for_less_than_g2() -> None:
    assert {*MEANS} == {"G2", "G3"}
    for level in ("G0", "G1", "g2", ""):
        with pytest.raises(ProvenanceError, match="level"):
            record({**G3, "level": level})


def test_the_commitment_shows_no_record() -> None:
    assert record(G3).target.words == "2 records"
    with pytest.raises(ProvenanceError, match="unknown key"):
        record({**G3, "target": {**G3["target"], "rows": [17, 4711]}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"means": "All of it is gone."}, "means: not what G3 means"),
        ({"replay": None}, "expected 'structure' of G2 or 'replay' of G3"),
        ({"structure": G2["structure"]}, "and not the other"),
        ({"target": {"classes": [], "authorities": [], "records": None}}, "one of the three"),
        ({"target": {"classes": ["open"], "authorities": [TRAINER], "records": None}}, "one of the three"),
        ({"not_reached": []}, "leaves out what no deletion reaches: number, hyper-parameters"),
        ({"to_destroy": [{**G3["to_destroy"][0], "path": "a/../../b"}]}, "is no path in the run's directory"),
        ({"to_destroy": [{**G3["to_destroy"][0], "path": "a//b"}]}, "is no path in the run's directory"),
        ({"expires": ISSUED}, "no longer valid"),
        ({"expires": "2026-05-31T00:00:00Z"}, "expired 2026-05-31"),
    ],
)
def test_what_could_not_be_read_is_not_signed(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ProvenanceError, match=message):
        signed({**G3, **change})


def test_a_trainer_signs_it_and_others_may_too() -> None:
    both = signed(G3, TRAINER, GOVERNANCE)
    assert len(parse_envelope(both, where="certificate").signatures) == 2
    assert len(open_certificate(both, trust=TRUST, now=NOW, where="certificate").authorities) == 1
    with pytest.raises(ProvenanceError, match="a trainer signs it; these keys are of: data-governance"):
        signed(G3, GOVERNANCE)
    with pytest.raises(ProvenanceError, match="is not in the trust file"):
        signed(G3, "a stranger")
    with pytest.raises(ProvenanceError, match="these keys are of: none"):
        sign_certificate(record(G3), model=MODEL, keys=[], trust=TRUST, now=NOW)


def test_a_trust_file_without_a_quorum_for_trainers_believes_none() -> None:
    silent = people.trust(*TRUST.authorities, documents={Role.DATA_GOVERNANCE: 1})
    with pytest.raises(ProvenanceError, match="names no quorum for documents of the role trainer"):
        open_certificate(signed(G3), trust=silent, now=NOW, where="certificate")


def test_every_word_of_the_vocabulary_can_be_said() -> None:
    said = [{"what": what, "detail": meaning[:400]} for what, meaning in UNREACHED.items()]
    assert len(record({**G3, "not_reached": said}).not_reached) == len(UNREACHED)

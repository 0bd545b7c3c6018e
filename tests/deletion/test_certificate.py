"""A certificate says what both ledgers show: whatever in it is changed, and signed again, does not hold."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from explorer import rundir
from explorer.deletion.finish import certify
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Parent
from explorer.errors import ProvenanceError, RunError
from explorer.provenance.deletion_certificate import ALWAYS, MEANS, Certificate, NotReached
from explorer.provenance.envelope import parse_envelope
from explorer.provenance.spellings import parse_time
from explorer.runlog.model_file import MODEL
from explorer.schema import to_json
from tests.audit.governed_run import NEWS, TRAINER, USUAL
from tests.deletion import deleted_runs
from tests.deletion.certified import (
    TRUST,
    Deletion,
    certified,
    checked,
    failures,
    replayed,
    signed_again,
    statement_of,
    structural,
)
from tests.provenance.people import EXPIRES, NOW, RISK, private

OTHER = "9" * 64


@pytest.fixture(scope="module", params=["G2", "G3"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Deletion:
    root = tmp_path_factory.mktemp(request.param)
    return structural(root) if request.param == "G2" else replayed(root)


@pytest.fixture(scope="module")
def g2(tmp_path_factory: pytest.TempPathFactory) -> Deletion:
    return structural(tmp_path_factory.mktemp("g2"))


@pytest.fixture(scope="module")
def g3(tmp_path_factory: pytest.TempPathFactory) -> Deletion:
    return replayed(tmp_path_factory.mktemp("g3"))


def test_it_holds(made: Deletion) -> None:
    found = checked(made)
    assert failures(found) == {} and found.deleted
    assert found.signed_by == (TRAINER,) and found.certificate.means == MEANS[found.certificate.level]
    assert {each.what for each in found.certificate.not_reached} == {*ALWAYS}
    assert "to be destroyed: model: model/model.safetensors" in found.said
    assert (
        f"to be destroyed: secret: private/secrets (the part of {NEWS}), private/secrets (the part of *)" in found.said
    )
    assert any(line.startswith("to be destroyed: numbers: ") and line.endswith(" more") for line in found.said)


def at(*path: Any, value: Any) -> Callable[[Any], None]:
    """A change of one place of the predicate."""

    def change(statement: Any) -> None:
        place = statement["predicate"]
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value(place[path[-1]]) if callable(value) else value

    return change


def subject(statement: Any) -> None:
    statement["subject"][0]["digest"]["sha256"] = OTHER


def other(digest: str) -> str:
    return OTHER


BOTH = [
    (subject, "model", "SHA-256"),
    (at("old", "run", value="another"), "old ledger", "certified is another"),
    (at("old", "ledger", "origin", value="example.com/another"), "old ledger", "certified is example.com/another"),
    (at("old", "ledger", "size", value=lambda size: size - 1), "old ledger", "certified is"),
    (at("old", "ledger", "root", value=other), "old ledger", "certified is"),
    (at("new", "run", value="another"), "new ledger", "certified is another"),
    (at("new", "ledger", "origin", value="example.com/another"), "new ledger", "certified is example.com/another"),
    (at("new", "ledger", "size", value=lambda size: size + 1), "new ledger", "certified is"),
    (at("new", "ledger", "root", value=other), "new ledger", "certified is"),
    (at("target", "classes", value=["open/mit"]), "plan", "the new run: found"),
    (at("target", "classes", value=["licensed"]), "target", "unknown class 'licensed'"),
    (at("taxonomy", value=other), "documents", "taxonomy: found 9999"),
    (at("policy", value=other), "documents", "policy: found 9999"),
    (at("trust", value=other), "documents", "trust: found 9999"),
    (at("to_destroy", value=[]), "numbers", "to_destroy leaves out"),
]
STRUCTURE = [
    (at("structure", "dropped", value=lambda names: names[1:]), "dropped", "certified as dropped are"),
    (at("structure", "dropped", value=lambda names: [*names, "zero"]), "dropped", "zero is not one of them"),
    (at("structure", "kept", "parameters", value=other), "kept", "certified roots of what was kept"),
    (at("structure", "kept", "buffers", value=other), "kept", "certified roots of what was kept"),
    (at("structure", "kept", "optimizer", value=other), "kept", "certified roots of what was kept"),
]
REPLAY = [
    (at("replay", "begins", value=4), "start", "certified beginning: found 4, expected 5"),
    (at("replay", "start", value=None), "start", "certified state"),
    *((at("replay", "start", name, value=other), "start", "certified state") for name in ("parameters", "buffers")),
    *((at("replay", "start", name, value=other), "start", "certified state") for name in ("optimizer", "random")),
    (at("replay", "steps", value=6), "batches", "certified number of steps: found 6, expected 7"),
    (at("replay", "influence", value=8), "influence", "first step of influence: found 8, expected 5"),
]


def refused(made: Deletion, change: Callable[[Any], None], claim: str, message: str) -> None:
    found = checked(made, signed_again(made.content, change))
    assert not found.deleted
    assert claim in failures(found), failures(found)
    assert message in failures(found)[claim]


@pytest.mark.parametrize(("change", "claim", "message"), BOTH)
def test_whatever_is_changed_does_not_hold(
    made: Deletion, change: Callable[[Any], None], claim: str, message: str
) -> None:
    refused(made, change, claim, message)


@pytest.mark.parametrize(("change", "claim", "message"), STRUCTURE)
def test_whatever_is_changed_of_the_structure(
    g2: Deletion, change: Callable[[Any], None], claim: str, message: str
) -> None:
    refused(g2, change, claim, message)


@pytest.mark.parametrize(("change", "claim", "message"), REPLAY)
def test_whatever_is_changed_of_the_replay(
    g3: Deletion, change: Callable[[Any], None], claim: str, message: str
) -> None:
    refused(g3, change, claim, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (at("format", value="explorer/deletion/v2"), "format"),
        (at("level", value="G1"), "level"),
        (at("level", value="G0"), "level"),
        (at("means", value="Deleted."), "means"),
        (at("level", value=lambda level: {"G2": "G3", "G3": "G2"}[level]), "means"),
        (at("target", "classes", value=[]), "one of the three"),
        (at("target", "authorities", value=["example.com/data-governance"]), "one of the three"),
        (at("not_reached", value=lambda said: said[1:]), "leaves out what no deletion reaches: number"),
        (at("not_reached", 0, "what", value="nothing"), "not_reached"),
        (at("to_destroy", 0, "path", value="../elsewhere"), "is no path in the run's directory"),
        (at("to_destroy", 0, "path", value="/etc/passwd"), "is no path in the run's directory"),
        (at("expires", value="2026-05-31T00:00:00Z"), "not after it was issued"),
        (at("issued", value="2026-06-02T00:00:00Z"), "not yet valid"),
        (at("extra", value="deleted"), "unknown key"),
        (lambda statement: statement["subject"].append(statement["subject"][0]), "expected one"),
        (lambda statement: statement["subject"][0].update(name="another.safetensors"), "subjects: another"),
        (at("target", "classes", value=lambda classes: [*classes, *classes]), "one of them twice"),
        (lambda statement: statement.update(predicateType="https://explorer.example/model/v1"), "predicateType"),
        (lambda statement: statement.update(more="words"), "not in canonical form"),
    ],
)
def test_what_no_certificate_can_say_is_not_even_read(
    made: Deletion, change: Callable[[Any], None], message: str
) -> None:
    with pytest.raises(ProvenanceError, match=message):
        checked(made, signed_again(made.content, change))


def test_it_expires(made: Deletion) -> None:
    with pytest.raises(ProvenanceError, match=f"expired {EXPIRES}"):
        checked(made, now=parse_time(EXPIRES))
    with pytest.raises(ProvenanceError, match="expired"):
        certify(made.old, made.new, keys=[private(TRAINER)], trust=TRUST, now=NOW, expires="2026-05-01T00:00:00Z")


def test_it_rests_on_what_its_level_is(g2: Deletion, g3: Deletion) -> None:
    replay = statement_of(g3.content)["predicate"]["replay"]
    for made, change in (
        (g2, at("replay", value=replay)),
        (g2, at("structure", value=None)),
        (g3, at("replay", value=None)),
    ):
        with pytest.raises(ProvenanceError, match="expected 'structure' of G2 or 'replay' of G3, and not the other"):
            checked(made, signed_again(made.content, change))


def test_a_certificate_of_one_level_does_not_pass_as_the_other(g2: Deletion, g3: Deletion) -> None:
    """All of it is as the other level has it, but what was done."""

    def as_replayed(statement: Any) -> None:
        replay = statement_of(g3.content)["predicate"]["replay"]
        statement["predicate"].update(level="G3", means=MEANS["G3"], structure=None, replay=replay)

    found = failures(checked(g2, signed_again(g2.content, as_replayed)))
    assert "the new ledger begins after 12 steps, and by the old one licensed/news" in found["start"]


def test_only_a_trainer_certifies(made: Deletion) -> None:
    with pytest.raises(ProvenanceError, match=r"wrong role: example\.com/model-risk"):
        checked(made, signed_again(made.content, lambda _: None, by=RISK))
    with pytest.raises(ProvenanceError, match="signed by no key of the trust file"):
        checked(made, signed_again(made.content, lambda _: None, by="a stranger"))
    with pytest.raises(ProvenanceError, match="a trainer signs it; these keys are of: model-risk"):
        certify(made.old, made.new, keys=[private(RISK)], trust=TRUST, now=NOW, expires=EXPIRES)


def test_other_signers_may_be_added(made: Deletion) -> None:
    both = [private(TRAINER), private(RISK)]
    envelope = certify(made.old, made.new, keys=both, trust=TRUST, now=NOW, expires=EXPIRES)
    assert len(envelope.signatures) == 2
    assert checked(made, envelope.content).deleted


def test_a_flipped_byte_breaks_the_signature(made: Deletion) -> None:
    content = made.content.replace(b'"sig":"', b'"sig":"A', 1)
    with pytest.raises(ProvenanceError):
        checked(made, content)
    envelope = parse_envelope(made.content, where="certificate")
    changed = envelope.payload.replace(b"licensed/news", b"licensed/newt")
    forged = type(envelope)(payload=changed, payload_type=envelope.payload_type, signatures=envelope.signatures)
    with pytest.raises(ProvenanceError, match="forged or changed"):
        checked(made, forged.content)


def test_additions_of_the_signer_are_listed_as_the_signer_s_word(made: Deletion) -> None:
    said = NotReached(what="descendants", detail="example.com/chat-2 was trained further from it")
    extended = certified(made.old, made.new, not_reached=[said], request=OTHER)
    found = checked(extended)
    assert found.deleted and found.certificate.request == OTHER
    assert any("example.com/chat-2" in line for line in found.said)
    assert any(OTHER in line for line in found.said)


def test_what_the_old_run_began_with_is_not_reached(tmp_path: Path) -> None:
    ledger = LedgerState(origin="example.com/base", size=9, root=OTHER)
    base = Parent(kind="model", ledger=ledger, model=OTHER, attestation=OTHER, admitted={})
    old = deleted_runs.write_old(tmp_path, USUAL, parents=(base,))
    based = certified(old, deleted_runs.replayed(old))
    found = checked(based)
    assert found.deleted and any("what the model that the old run began with" in line for line in found.said)
    less = at("not_reached", value=lambda said: [each for each in said if each["what"] != "base-model"])
    refused(based, less, "not reached", "leaves out: what the model that the old run began with had learned before")


def test_files_that_still_exist_are_listed(tmp_path: Path) -> None:
    made = replayed(tmp_path)
    assert f"{rundir.MODEL}/{MODEL}" in checked(made).remaining
    for each in checked(made).certificate.to_destroy:
        if each.sha256:
            (made.old / each.path).unlink()
    found = checked(made)
    assert found.deleted and found.remaining == ()


def test_every_field_of_the_record_was_changed_above(made: Deletion) -> None:
    """A field that is added one day is looked at, or it is the signer's word."""
    looked_at = {"format", "level", "means", "old", "new", "target", "structure", "replay"}
    looked_at |= {"taxonomy", "policy", "trust", "issued", "expires"}
    said = {"request", "not_reached", "to_destroy"}
    assert {*to_json(checked(made).certificate)} == looked_at | said == {*Certificate.__dataclass_fields__}


def test_a_run_of_its_own_is_no_deletion(made: Deletion) -> None:
    with pytest.raises(RunError, match="made by no deletion"):
        certify(made.new, made.old, keys=[private(TRAINER)], trust=TRUST, now=NOW, expires=EXPIRES)


def test_what_is_to_be_destroyed_is_listed_where_it_is(made: Deletion, tmp_path: Path) -> None:
    shutil.copytree(made.old / rundir.LEDGER, tmp_path / rundir.LEDGER)
    with pytest.raises(RunError, match="not the old run's own directory"):
        certified(tmp_path, made.new)


def test_what_would_be_refused_is_never_signed(tmp_path: Path) -> None:
    old = deleted_runs.write_old(tmp_path, USUAL)
    new = deleted_runs.replayed(old, begins=10)  # five steps after the class came in
    with pytest.raises(ProvenanceError, match=r"not certified: .*begins after 10 steps"):
        certified(old, new)

"""Reading by request: two machines, no key of the other's, an entry before any key, and what neither accepts."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer import rundir
from explorer.canonical import canonical
from explorer.disclosure import requests
from explorer.disclosure.requests import DAYS, MOST_DAYS, PAYLOAD_TYPE, parse_request
from explorer.disclosure.wrapped import naming, revoke
from explorer.entries.kinds import Access, GrantUse, encode
from explorer.errors import ExplorerError, LedgerError, ProvenanceError
from explorer.ledger.proof import make_proof
from explorer.ledger.storage import LedgerDirectory, blob_path
from explorer.project import AUDIT, Project, read_project, runs_of
from explorer.provenance.envelope import EnvelopeSignature, parse_envelope, sign_envelope
from explorer.provenance.keys import ReaderKey, public_text
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import sign_again
from tests.disclosure.grantees import (
    EVERYTHING,
    MIT,
    NEWS,
    OTHER_SEED,
    OTHERS,
    READER_SEED,
    READING,
    answer_to,
    envelope_of,
    grant_of,
    project_of,
    requested,
    shown,
    signed,
    write_project,
)
from tests.disclosure.packs import opened, packed
from tests.fuzz.parsers import Parser
from tests.fuzz.test_fuzz import survive
from tests.provenance.people import NOW, private

DAY = 86_400


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def run(template: Path, tmp_path: Path) -> Path:
    """The owner's."""
    runs = tmp_path / "owner" / "runs"
    shutil.copytree(template.parents[1], runs)
    return runs / template.parent.name / template.name


def copied(run: Path, to: Path) -> Path:
    """The reader's: without secrets, without the trainer's key, without the project's ledger."""
    made = to / "elsewhere" / run.name
    shutil.copytree(run, made, ignore=shutil.ignore_patterns(rundir.PRIVATE))
    assert not list(to.rglob("*.pem")) and not (made / rundir.SECRETS).exists()
    return made


def request_of(run: Path, *classes: str, **asked: Any) -> bytes:
    return requested(run, envelope_of(grant_of(run, *classes)), **asked)


def entries(run: Path) -> list[object]:
    return [each.entry for each in read_project(runs_of(run))]


def changed(request: bytes, *, by: Ed25519PrivateKey | None = None, **values: Any) -> bytes:
    """The request with other values, with its old signature or signed by somebody."""
    envelope = parse_envelope(request, where="request")
    value = json.loads(envelope.payload)
    for name, found in values.items():
        value[name] = {**value[name], **found} if isinstance(found, dict) and isinstance(value[name], dict) else found
    if by is None:
        return replace(envelope, payload=canonical(value)).content
    return sign_envelope(canonical(value), PAYLOAD_TYPE, [by]).content


def test_two_machines_and_neither_has_the_others_key(run: Path, tmp_path: Path) -> None:
    copy = copied(run, tmp_path / "reader")
    request = request_of(copy)
    made = answer_to(run, request)
    assert not list((tmp_path / "reader").rglob("*.pem")) and not (copy.parent.parent / AUDIT).exists()
    answer = shown(copy, made.content)
    assert answer.rows and answer.unread == () and answer.checked > 0
    wrapped, access = entries(run)
    assert isinstance(wrapped, GrantUse) and isinstance(access, Access) and made.entry == 1
    blob = access.blobs["request"]
    stored = (runs_of(run) / AUDIT / blob_path(blob.sha256)).read_bytes()
    assert parse_request(stored, where="stored").request == parse_request(request, where="sent").request


def test_a_second_request_is_a_second_entry_and_wraps_nothing_again(run: Path) -> None:
    for _ in range(2):
        answer_to(run, request_of(run))
    assert [type(each) for each in entries(run)] == [GrantUse, Access, Access]


def test_an_answer_has_the_keys_that_were_asked_for_and_no_others(run: Path) -> None:
    whole = answer_to(run, request_of(run, *EVERYTHING, kind="step"))
    part = answer_to(run, request_of(run, *EVERYTHING, kind="step", class_=NEWS, steps=range(5, 7)))
    assert part.keys == {(NEWS, "step"): 1} and sum(whole.keys.values()) > 3
    assert {row[1] for row in shown(run, part.content).rows} <= {5, 6}
    profile = answer_to(run, request_of(run, *EVERYTHING, kind="profile", class_=MIT))
    assert set(profile.keys) == {(MIT, "profile")}


def test_the_entry_comes_before_any_key(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def refuse(*_: Any, **__: Any) -> bytes:
        seen.append(len(entries(run)))
        raise KeyboardInterrupt

    monkeypatch.setattr(requests, "wrap", refuse)
    with pytest.raises(KeyboardInterrupt):
        answer_to(run, request_of(run))
    assert seen == [2]


def test_what_cannot_be_recorded_is_not_answered(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise LedgerError("the disk is full")

    monkeypatch.setattr(requests, "wrap", lambda *_, **__: pytest.fail("nothing may be wrapped"))
    monkeypatch.setattr(Project, "append", refuse)
    with pytest.raises(LedgerError, match="the disk is full"):
        answer_to(run, request_of(run))


def resigned(request: bytes) -> bytes:
    """The same request under another hint and beside the signature of a stranger."""
    envelope = parse_envelope(request, where="request")
    (own,) = envelope.signatures
    stranger = EnvelopeSignature(keyid="x", sig=bytes(64))
    return replace(envelope, signatures=(stranger, replace(own, keyid="a hint"))).content


@pytest.mark.parametrize("again", [lambda request: request, resigned])
def test_a_replayed_request_is_refused(run: Path, again: Callable[[bytes], bytes]) -> None:
    request = request_of(run)
    answer_to(run, request)
    with pytest.raises(ProvenanceError, match=r"this request was answered before: entry 1 of the project's ledger"):
        answer_to(run, again(request))
    assert len(entries(run)) == 2


NOT_SIGNED = "not signed by the reader that it names"


@pytest.mark.parametrize(
    ("values", "by", "message"),
    [
        ({"query": {"classes": [NEWS, MIT]}}, None, NOT_SIGNED),
        ({"query": {"first": 0, "stop": 1}}, None, NOT_SIGNED),
        ({"nonce": "0" * 32}, None, NOT_SIGNED),
        ({"query": {"classes": [MIT]}}, READER_SEED, "class open/mit: outside the grant"),
        ({"query": {"classes": ["*"]}}, READER_SEED, "numbers over several classes: outside the grant"),
        ({"query": {"classes": [NEWS, NEWS]}}, READER_SEED, "expected each once"),
        ({"query": {"classes": ["open/mitt"]}}, READER_SEED, "did you mean 'open/mit'"),
        ({"query": {"kind": "stepp"}}, READER_SEED, "did you mean 'step'"),
        ({"query": {"first": 4, "stop": 4}}, READER_SEED, "no steps 4:4"),
        ({"query": {"stop": 1000}}, READER_SEED, "no steps 0:1000"),
        ({"run": "another"}, READER_SEED, "found the run another, expected"),
        ({"ledger": {"root": "a" * 64}}, READER_SEED, "does not extend"),
        ({"ledger": {"origin": "example.com/other"}}, READER_SEED, "does not extend"),
        ({"ledger": {"size": 0}}, READER_SEED, "does not extend"),
        ({"reader": public_text(OTHER_SEED)}, OTHER_SEED, "not the key of example.com/auditor"),
        ({"reader": public_text(OTHER_SEED)}, READER_SEED, NOT_SIGNED),
        ({"issued": "2031-01-01T00:00:00Z", "expires": "2031-01-02T00:00:00Z"}, READER_SEED, "now it is"),
        ({"expires": "2031-01-01T00:00:00Z"}, READER_SEED, f"expected at most {MOST_DAYS} days"),
        ({"expires": "2020-01-01T00:00:00Z"}, READER_SEED, "the request expired"),
        ({"more": 1}, READER_SEED, "unknown key"),
    ],
)
def test_a_request_that_was_altered_or_asks_for_too_much(
    run: Path, values: dict[str, Any], by: Ed25519PrivateKey | None, message: str
) -> None:
    with pytest.raises(ExplorerError, match=message):
        answer_to(run, changed(request_of(run), by=by, **values))
    assert entries(run) == []


def test_a_request_for_the_kind_that_is_not_granted(run: Path) -> None:
    narrow = envelope_of(grant_of(run, entries=("step",)))
    request = changed(requested(run, narrow), by=READER_SEED, query={"kind": "profile"})
    with pytest.raises(ProvenanceError, match="entries of kind profile: outside the grant"):
        answer_to(run, request)


def test_a_reader_without_a_grant(run: Path) -> None:
    """A grant that the reader signed, and one to somebody else."""
    for envelope, message in (
        (envelope_of(grant_of(run), "reader"), "grant"),
        (envelope_of(grant_of(run, key=OTHERS.opens)), "not the key of"),
    ):
        request = changed(request_of(run), by=READER_SEED, grant=None)
        with pytest.raises(ProvenanceError, match="grant"):
            answer_to(run, request)
        request = changed(request_of(run), by=READER_SEED, grant=json.loads(envelope.content))
        with pytest.raises(ProvenanceError, match=message):
            answer_to(run, request)
    assert entries(run) == []


def test_an_expired_grant_and_an_expired_request(run: Path) -> None:
    request = request_of(run)
    with pytest.raises(ProvenanceError, match="the request expired"):
        answer_to(run, request, now=NOW + DAYS * DAY)
    short = envelope_of(replace(grant_of(run), expires="2026-06-02T00:00:00Z"))
    with pytest.raises(ProvenanceError, match="expired 2026-06-02"):
        answer_to(run, requested(run, short), now=NOW + 2 * DAY)
    assert entries(run) == []


def test_a_revoked_grant_and_one_that_was_replaced(run: Path) -> None:
    answer_to(run, request_of(run, *EVERYTHING))
    answer_to(run, request_of(run))  # of the same id, and later
    with pytest.raises(ProvenanceError, match="replaced by a later grant with this id"):
        answer_to(run, request_of(run, *EVERYTHING))
    with project_of(run) as project:
        revoke(naming(signed(grant_of(run))), runs=runs_of(run), project=project)
    with pytest.raises(ProvenanceError, match="was revoked: entry 4 of the project's ledger"):
        answer_to(run, request_of(run))
    assert len(entries(run)) == 5


def test_another_run_and_another_ledger(run: Path) -> None:
    """The same run, trained again: its ledger is another one."""
    request = request_of(run)
    sign_again(run, lambda index, entry: None if index > 18 else entry)
    with pytest.raises(ProvenanceError, match="does not extend"):
        answer_to(run, request)
    assert entries(run) == []


def test_where_the_secrets_are_not_nothing_is_answered(run: Path, tmp_path: Path) -> None:
    request = request_of(run)
    shutil.move(run / rundir.SECRETS, tmp_path / "secrets")
    with pytest.raises(ProvenanceError, match="its secrets are not here"):
        answer_to(run, request)
    assert entries(run) == []


def test_an_old_readers_key_cannot_ask(run: Path) -> None:
    with pytest.raises(ProvenanceError, match="of an earlier version and cannot sign"):
        request_of(run, key=ReaderKey(opens=READING.opens, signs=None))


# What the reader's machine refuses.


def test_the_answer_to_another_reader(run: Path) -> None:
    made = answer_to(run, request_of(run))
    with pytest.raises(ProvenanceError, match="the answer to another reader's request"):
        shown(run, made.content, key=OTHERS)
    with pytest.raises(ProvenanceError, match="the answer to another reader's request"):
        shown(run, made.content, key=ReaderKey(opens=READING.opens, signs=None))


def altered(content: bytes, **values: Any) -> bytes:
    return canonical({**json.loads(content), **values}) + b"\n"


def proof_of(run: Path, entry: Access, key: Ed25519PrivateKey) -> str:
    """The proof of an entry that somebody makes up, in a ledger of their own."""
    place = runs_of(run).parent / "forged"
    with Project.open(place, key=key, name="example.com/trainer") as project:
        index = project.append(entry)
    return make_proof(LedgerDirectory(place / AUDIT), index).content.decode()


def test_a_forged_entry(run: Path) -> None:
    content = answer_to(run, request_of(run)).content
    access = next(each for each in entries(run) if isinstance(each, Access))
    with pytest.raises(LedgerError, match="no trusted key has signed"):
        shown(run, altered(content, proof=proof_of(run, access, private("somebody else"))))


def test_an_entry_about_something_else(run: Path) -> None:
    """Signed by the trainer, and of another request: a receipt is for one question."""
    first = answer_to(run, request_of(run)).content
    second = answer_to(run, request_of(run, steps=range(5, 7))).content
    for mixed in (altered(first, proof=json.loads(second)["proof"]), altered(second, proof=json.loads(first)["proof"])):
        with pytest.raises(ProvenanceError, match="is not about this request"):
            shown(run, mixed)
    ledger = LedgerDirectory(runs_of(run) / AUDIT)
    with pytest.raises(ProvenanceError, match="entry 0 of the project's ledger is not about this request"):
        shown(run, altered(first, proof=make_proof(ledger, 0).content.decode()))
    own = make_proof(RunLedger(run).ledger, 0).content.decode()
    with pytest.raises(ProvenanceError, match="expected a project's ledger"):
        shown(run, altered(first, proof=own))


def test_an_entry_that_was_changed(run: Path) -> None:
    content = answer_to(run, request_of(run)).content
    access = next(each for each in entries(run) if isinstance(each, Access))
    proof = make_proof(LedgerDirectory(runs_of(run) / AUDIT), 1)
    other = replace(proof, extra=encode(replace(access, query="0" * 64)))
    with pytest.raises(LedgerError):
        shown(run, altered(content, proof=other.content.decode()))


def test_keys_of_one_answer_in_another(run: Path) -> None:
    first = answer_to(run, request_of(run)).content
    second = answer_to(run, request_of(run)).content
    assert json.loads(first)["keys"] != json.loads(second)["keys"]
    with pytest.raises(ProvenanceError, match="cannot be opened"):
        shown(run, altered(first, keys=json.loads(second)["keys"]))


def test_more_keys_than_were_asked_for(run: Path) -> None:
    whole = answer_to(run, request_of(run, *EVERYTHING)).content
    part = answer_to(run, request_of(run, *EVERYTHING, class_=NEWS)).content
    with pytest.raises(ProvenanceError, match="not in the query"):
        shown(run, altered(part, keys=json.loads(whole)["keys"]))


@pytest.mark.parametrize("bad", [b"", b"{}", b"[]", b'{"format":"explorer/reading-answer/v1"}', b"\xff"])
def test_what_is_no_answer(run: Path, bad: bytes) -> None:
    with pytest.raises(ProvenanceError, match=r"answer\.json"):
        shown(run, bad)


def test_what_an_answer_gave_stays_open(run: Path, tmp_path: Path) -> None:
    """The control, and the limit that SECURITY.md states: nothing takes keys back."""
    copy = copied(run, tmp_path / "reader")
    content = answer_to(run, request_of(copy)).content
    with project_of(run) as project:
        revoke(naming(signed(grant_of(run))), runs=runs_of(run), project=project)
    assert shown(copy, content, now=NOW + 10**8).rows
    assert len(entries(run)) == 3


def test_mutated_files_are_refused_in_words(run: Path) -> None:
    request = request_of(run)
    content = answer_to(run, request).content
    survive(Parser(read=lambda found: parse_request(found, where="r"), seeds=(request,)), count=300, seed=1)
    survive(Parser(read=lambda found: shown(run, found), seeds=(content,)), count=300, seed=2)


def test_an_unpacked_pack_is_enough_for_a_reader(run: Path, tmp_path: Path) -> None:
    """A pack without any grant: what it holds sealed opens with an answer."""
    pack = opened(packed(run).content)
    place = tmp_path / "audit"
    for name, content in pack.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    assert not (place / "grants").exists()
    assert shown(place, answer_to(run, requested(place, envelope_of(grant_of(run)))).content).rows

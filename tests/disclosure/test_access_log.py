"""The access log of a run: who was given keys, who read what, and nothing of another run."""

from dataclasses import replace
from pathlib import Path

import pytest

from explorer.disclosure.access_log import AccessLog, access_log
from explorer.disclosure.grants_in_force import named
from explorer.disclosure.wrapped import ledger_state, revoke, wrapped_path
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Access
from explorer.ledger.storage import blob_path
from explorer.project import AUDIT, Recorded, read_project, runs_of
from explorer.provenance.trust import Trust
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import MIT, NEWS, STEPS
from tests.disclosure import grantees
from tests.disclosure.grantees import (
    TRUST,
    answer_to,
    answered,
    envelope_of,
    grant_of,
    project_of,
    requested,
    wrapped,
    write_project,
)
from tests.provenance.people import NOW

ELSEWHERE = LedgerState(origin="example.com/another", size=3, root="a" * 64)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_project(tmp_path)


def log(run: Path, trust: Trust | None = TRUST) -> AccessLog:
    return access_log(RunLedger(run), trust=trust, now=NOW)


def append(run: Path, entry: Access) -> int:
    with project_of(run) as project:
        return project.append(entry)


def test_a_read_stands_in_it_with_whom_and_what(run: Path) -> None:
    assert log(run).logged == ()  # no project's ledger, and nothing on record
    path = wrapped(run, grant_of(run, NEWS, MIT)).path
    whole = answered(run, path)
    part = answered(run, path, class_=NEWS, steps=range(5, 7))
    given, first, second = log(run).logged
    assert [each.action for each in (given, first, second)] == ["wrapped", "read", "read"]
    assert first.known is not None and first.known.believed and first.id == "2026-0007"
    assert first.known.grant.grantee.name == "example.com/auditor"
    assert first.asked is not None and first.asked.steps == range(STEPS)
    assert first.asked.classes == (NEWS, MIT) and first.asked == whole.query
    assert second.asked == part.query  # its request says it, whatever steps it asks for
    assert given.fits and first.fits


def test_whoever_was_answered_by_request_is_named_without_a_file_of_keys(run: Path) -> None:
    answer_to(run, requested(run, envelope_of(grant_of(run))))
    given, read = log(run).logged
    assert read.known is not None and read.known.believed and read.known.grant.grantee.name == "example.com/auditor"
    assert [each.action for each in (given, read)] == ["wrapped", "read"] and read.asked is not None
    with project_of(run) as project:
        revoke(named(tuple(project.entries()), "2026-0007"), runs=runs_of(run), project=project)
    known = log(run).logged[1].known
    assert known is not None and not known.believed and "was revoked" in (known.why or "")


def test_a_request_that_was_erased_or_exchanged_says_nothing(run: Path) -> None:
    answer_to(run, requested(run, envelope_of(grant_of(run))))
    (entry,) = (each.entry for each in read_project(runs_of(run)) if isinstance(each.entry, Access))
    blob = runs_of(run) / AUDIT / blob_path(entry.blobs["request"].sha256)
    blob.unlink()
    assert log(run).logged[1].asked is None
    other = envelope_of(replace(grant_of(run), id="another"))
    with project_of(run) as project:
        stored = project.write_blob(requested(run, other))
        project.append(replace(entry, blobs={"request": stored}))
        garbage = project.write_blob(b"{}")
        project.append(replace(entry, blobs={"request": garbage}))
    assert [each.asked for each in log(run).logged[1:]] == [None, None, None]


def test_a_read_of_another_run_is_not_in_it(run: Path) -> None:
    wrapped(run, grant_of(run))
    read = Access(ledger=ELSEWHERE, grant="b" * 64, query="c" * 64, blobs={})
    append(run, read)
    assert [each.action for each in log(run).logged] == ["wrapped"]
    append(run, replace(read, ledger=ledger_state(RunLedger(run))))
    assert [each.action for each in log(run).logged] == ["wrapped", "read"]


def test_a_ledger_of_the_same_name_that_this_one_never_was_is_told_apart(run: Path) -> None:
    state = replace(ledger_state(RunLedger(run)), root="d" * 64)
    append(run, Access(ledger=state, grant="b" * 64, query="c" * 64, blobs={}))
    (one,) = log(run).logged
    assert not one.fits and one.known is None and one.asked is None


def test_nobody_is_believed_whom_the_reader_does_not(run: Path) -> None:
    wrapped(run, grant_of(run))
    (one,) = log(run, None).logged
    assert one.known is not None and not one.known.believed and one.known.why is None
    path = wrapped_path(run, "2026-0007")
    forged = grantees.envelope_of(grant_of(run), "somebody else")
    content = path.read_bytes()
    path.write_bytes(replace(grantees.read_wrapped(path), grant=forged).content)
    assert [each.known and (each.known.believed, bool(each.known.why)) for each in log(run).logged] == [(False, True)]
    path.write_bytes(content[:-20])
    (one,) = log(run).logged
    assert one.known is None


def test_a_revoked_grant_stays_on_record(run: Path) -> None:
    wrapped(run, grant_of(run))
    recorded = tuple(read_project(runs_of(run)))
    with project_of(run) as project:
        revoke(named(recorded, "2026-0007"), runs=runs_of(run), project=project)
    assert [(each.action, each.known) for each in log(run).logged] == [("wrapped", None), ("revoked", None)]


def test_what_is_not_understood_is_said(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from explorer.disclosure import access_log as module
    from explorer.entries.heads import write_entry
    from explorer.entries.kinds import decode

    later = decode(write_entry({"kind": "access", "version": 2, "blobs": {}}))
    monkeypatch.setattr(module, "read_project", lambda _: iter([Recorded(index=0, entry=later)]))  # pyright: ignore
    assert log(run).unknown == ("entry 0: access v2",)
    assert not (runs_of(run) / AUDIT).exists()

"""Certificates and the access log, as the ledger's view shows them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from explorer import rundir
from explorer.deletion.finish import CERTIFICATE
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Access
from explorer.errors import LedgerError
from explorer.page.html import fragment
from explorer.project import AUDIT, runs_of
from explorer.views.ledger.access_section import access_blocks
from explorer.views.ledger.deletion_section import certificate_blocks
from explorer.views.ledger.open_run import OpenRun, open_run
from tests.audit.governed_run import NEWS
from tests.deletion import certified
from tests.deletion.certified import Deletion, signed_again
from tests.disclosure.grantees import answered, grant_of, project_of, wrapped, write_project
from tests.provenance.people import NOW


@pytest.fixture(scope="module")
def deletion(tmp_path_factory: pytest.TempPathFactory) -> Deletion:
    made = certified.structural(tmp_path_factory.mktemp("papers") / "runs")
    (made.new / CERTIFICATE).write_bytes(made.content)
    return made


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that an auditor was let read, and read once whole and once in part."""
    run = write_project(tmp_path_factory.mktemp("reads"))
    path = wrapped(run, grant_of(run)).path
    answered(run, path)
    answered(run, path, steps=range(5, 7))
    return run


def opened(run: Path, *, trust: bool = True) -> OpenRun:
    return open_run(run, trust=run / rundir.GOVERNANCE / "trust.json" if trust else None, now=NOW)


def test_a_certificate_is_deleted_for_who_believes_its_signer_alone(deletion: Deletion, tmp_path: Path) -> None:
    shown = fragment(*certificate_blocks(opened(deletion.old), here=tmp_path))
    assert "\u2713 deleted" in shown and NEWS in shown and "claims held" in shown and "in this run" in shown
    assert "Stated by the signer, not checked" in shown and "To be destroyed, but still present" in shown
    assert "explorer delete verify " in shown and "in no entry" in shown
    unasked = fragment(*certificate_blocks(opened(deletion.old, trust=False), here=tmp_path))
    assert "\u2713 deleted" not in unasked and unasked.count("not checked") > 1
    assert "not in this run" in fragment(*certificate_blocks(opened(deletion.new), here=tmp_path))


def test_a_forged_certificate_is_not_shown_as_deleted(deletion: Deletion, tmp_path: Path) -> None:
    runs = Path(shutil.copytree(runs_of(deletion.old), tmp_path / "runs"))
    new, old = (runs / path.parent.name / path.name for path in (deletion.new, deletion.old))

    def lie(statement: dict) -> None:
        statement["predicate"]["structure"]["dropped"] = ["<b>x</b>"]

    for content in (signed_again(deletion.content, lie), signed_again(deletion.content, lie, by="stranger")):
        (new / CERTIFICATE).write_bytes(content)
        shown = fragment(*certificate_blocks(opened(old), here=tmp_path))
        assert "\u2713" not in shown and "claimed" in shown and "<b>" not in shown
    (new / CERTIFICATE).write_text(json.dumps({"payloadType": "<b>"}))
    shown = fragment(*certificate_blocks(opened(old), here=tmp_path))
    assert "Not a certificate: " in shown and "No certificate about this run" in shown and "<b>" not in shown


def test_the_log_names_reader_classes_and_steps(reads: Path) -> None:
    shown = fragment(*access_blocks(opened(reads)))
    assert "example.com/auditor" in shown and "keys wrapped" in shown and NEWS in shown
    assert "step entries, steps 0 to 11" in shown and "request not here" not in shown  # the signed requests say it
    assert "\u2713 Verified" in shown and "holds today" in shown
    assert f"{AUDIT} 2 --out entry-2.tlog-proof" in shown
    unasked = fragment(*access_blocks(opened(reads, trust=False)))
    assert "Not verified" in unasked and "\u2713" not in unasked and "no trust file" in unasked


def test_a_read_of_another_run_is_not_shown(tmp_path: Path) -> None:
    run = write_project(tmp_path)
    assert "There is no project&#39;s ledger in" in fragment(*access_blocks(opened(run)))
    other = LedgerState(origin="example.com/another", size=3, root="a" * 64)
    entry = Access(ledger=other, grant="b" * 64, query="c" * 64, blobs={})
    with project_of(run) as project:
        project.append(entry)
    assert "is about this run, so no access to it is on record" in fragment(*access_blocks(opened(run)))
    head = opened(run).ledger.ledger.checkpoint()
    with project_of(run) as project:
        project.append(replace(entry, ledger=LedgerState(origin=head.origin, size=head.size, root="d" * 64)))
    shown = fragment(*access_blocks(opened(run)))
    assert shown.count("<tr>") == 2 and "for a state that this ledger never had" in shown
    assert "unknown" in shown


def test_a_ledger_that_was_changed_is_not_believed(reads: Path, tmp_path: Path) -> None:
    runs = Path(shutil.copytree(runs_of(reads), tmp_path / "runs"))
    run = runs / reads.parent.name / reads.name
    (runs / AUDIT / "checkpoint").write_bytes((runs / AUDIT / "checkpoint").read_bytes().replace(b"\n3\n", b"\n2\n"))
    with pytest.raises(LedgerError):
        fragment(*access_blocks(opened(run)))

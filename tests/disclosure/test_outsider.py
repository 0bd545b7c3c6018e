"""Somebody who has only the directory, and a reader of one class who wants another: neither gets a number of it.

Every attack is also made where it must work: on a run that keeps nothing confidential, and on one that seals its
classes and forgets what is known of all of them together. In all runs `open` is public, and the class that is wanted is
`open/mit`; the reader has a grant for `licensed/news`.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import rundir
from explorer.disclosure.grants_in_force import covered_classes
from explorer.disclosure.wrapped import GrantKeys, read_wrapped
from explorer.errors import LedgerError, ProvenanceError
from explorer.governance import spool
from explorer.governance.journal import Journal
from explorer.ledger.storage import blob_path
from explorer.ledger.verify import verify
from explorer.project import runs_of
from explorer.provenance.commitments import commit
from explorer.provenance.grants import Grant
from explorer.provenance.keys import unwrap
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.run_keys import Keys, NoKeys
from explorer.runlog.run_ledger import Missing, RunLedger
from explorer.runlog.segments import read_numbers
from tests.audit.governed_run import sign_again
from tests.disclosure.attacks import (
    by_subtraction,
    in_database,
    in_files,
    in_spool,
    opened_blobs,
    shares_by_subtraction,
    spool_rows,
    truth,
)
from tests.disclosure.grantees import (
    MIT,
    NEWS,
    OPEN,
    OTHER,
    OTHERS,
    READER,
    TRUST,
    answered,
    grant_of,
    opened,
    wrapped,
    write_project,
)
from tests.provenance.people import NOW


def theirs(run: Path) -> Grant:
    """Of another reader, for the class that is wanted."""
    return replace(grant_of(run, MIT, key=OTHER), id="theirs")


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("sealed"))


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The control: nothing is confidential."""
    return write_project(tmp_path_factory.mktemp("public"), confidential=())


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The control: the classes are sealed, and what several classes made is not."""
    made = Journal.__init__

    def forget(journal: Journal, *arguments: Any, confidential: frozenset[str], **named: Any) -> None:
        made(journal, *arguments, confidential=confidential, **named)
        journal._sealer._sealed = confidential

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "__init__", forget)
        patch.setattr(spool, "_OF_SEVERAL", ())
        return write_project(tmp_path_factory.mktemp("leaky"))


def keys_for_news(run: Path) -> GrantKeys:
    return opened(run, wrapped(run, grant_of(run)).path)[1]


def outside(run: Path, directory: Path) -> Path:
    """The project as it is handed on: everything but what its owner alone can read."""
    shutil.copytree(run.parents[1], directory / "runs", ignore=shutil.ignore_patterns("private", "*.pem"))
    return directory / "runs" / run.parent.name / run.name


def test_no_file_and_no_table_has_a_number_of_it(sealed: Path) -> None:
    assert len(truth(sealed, MIT)) > 20
    assert in_files(sealed, MIT) == set()
    assert in_spool(sealed, MIT) == 0
    assert in_database(sealed, MIT) == 0


def test_where_nothing_is_confidential_all_of_them_have(public: Path) -> None:
    assert any(name.startswith("ledger/blobs/") for name in in_files(public, MIT))
    assert in_spool(public, MIT) == len(truth(public, MIT))
    assert in_database(public, MIT) > 0


def test_of_the_public_class_they_have_them_all_the_same(sealed: Path) -> None:
    """What is not confidential is as it was."""
    assert in_spool(sealed, OPEN) == len(truth(sealed, OPEN)) > 0
    assert in_database(sealed, OPEN) > 0


def test_keys_of_one_class_open_no_blob_of_another(sealed: Path, leaky: Path) -> None:
    assert opened_blobs(sealed, keys_for_news(sealed)) == {NEWS}
    assert opened_blobs(sealed, NoKeys()) == set()
    assert opened_blobs(sealed, RunLedger(sealed).keys) == {NEWS, MIT, "*"}  # the control: its owner


def test_the_joint_numbers_are_not_read_without_their_key(sealed: Path) -> None:
    ledger = RunLedger(sealed, keys=keys_for_news(sealed))
    for segment in ledger.segments():
        found = read_numbers(ledger, segment)
        assert found.joint is None and found.missing["joint"] == Missing.SEALED
        assert found.missing[f"numbers/{MIT}"] == Missing.SEALED


def test_nothing_comes_out_by_subtraction(sealed: Path) -> None:
    assert by_subtraction(sealed, MIT, keys_for_news(sealed)) == {}
    assert shares_by_subtraction(sealed, MIT) == {}


@pytest.mark.parametrize("which", ["public", "leaky"])
def test_with_the_joint_numbers_it_does(which: str, request: pytest.FixtureRequest) -> None:
    """A reader of all classes but one has the last one: that is why the joint key is for readers of all."""
    run: Path = request.getfixturevalue(which)
    expected = truth(run, MIT)
    found = by_subtraction(run, MIT, keys_for_news(run))
    assert set(found) >= set(expected)
    assert all(found[of] == pytest.approx(norm, rel=1e-3) for of, norm in expected.items())


def test_with_the_whole_in_the_spool_it_does_too(public: Path, leaky: Path) -> None:
    """Of steps in which the others are public: the share that is left is the one that is wanted."""
    for run in (public, leaky):
        rows = {of: share for of, share in shares_by_subtraction(run, MIT).items() if of[0] < 5}
        assert rows and any(abs(share) > 0.1 for share in rows.values())
    mine = {(row["step"], row["layer"]): row["share_num"] for row in spool_rows(public) if row["class"] == MIT}
    exact = shares_by_subtraction(public, MIT)
    assert mine and all(exact[of] == pytest.approx(share, rel=1e-3, abs=1e-4) for of, share in mine.items())


def test_the_keys_of_another_reader(sealed: Path) -> None:
    """Every file of wrapped keys stands in the directory for all to see; none opens for whom it is not."""
    file = read_wrapped(wrapped(sealed, theirs(sealed)).path)
    for (path, kind), content in file.keys.items():
        for said in (NEWS, MIT, OPEN, "*"):
            with pytest.raises(ProvenanceError, match="cannot be opened"):
                unwrap(content, READER, info=file.info(said, kind), where="k")
        assert unwrap(content, OTHER, info=file.info(path, kind), where="k")


def test_an_outsider_reads_nothing_and_can_still_verify(sealed: Path, tmp_path: Path) -> None:
    wrapped(sealed, theirs(sealed))
    run = outside(sealed, tmp_path)
    ledger = RunLedger(run)
    assert isinstance(ledger.keys, NoKeys)
    assert opened_blobs(run, ledger.keys) == set()
    checkpoint = ledger.ledger.checkpoint()
    found = verify(run / rundir.LEDGER, anchor=anchor_of_trust(TRUST, origin=checkpoint.origin), now=NOW)
    assert found.ok and found.blobs > 0
    for segment in ledger.segments():
        assert read_numbers(ledger, segment).missing[f"numbers/{MIT}"] == Missing.SEALED


def test_an_outsider_cannot_read_through_us(sealed: Path, tmp_path: Path) -> None:
    """Without the grantee's key nobody can ask, open what was wrapped ahead, or answer."""
    made = wrapped(sealed, grant_of(sealed))
    run = outside(sealed, tmp_path)
    path = run / made.path.relative_to(sealed)
    with pytest.raises(ProvenanceError, match="not the key of example"):
        answered(run, path, key=OTHERS)
    with pytest.raises(ProvenanceError, match="not the key of example"):
        opened(run, path, OTHER)
    with pytest.raises(ProvenanceError, match="its secrets are not here"):
        answered(run, path)


def test_a_guess_cannot_be_held_against_a_commitment(sealed: Path) -> None:
    """Though the true content is guessed: its salt follows from the key."""
    own = RunLedger(sealed)
    ledger = RunLedger(sealed, keys=NoKeys())
    (first, *_) = own.segments()
    content = own.blob(first.state, f"numbers/{MIT}", max_bytes=10**6)
    assert content is not None
    step = next(iter(ledger.read_steps(range(1)))).entry
    part, committed = content[: len(content) // 5], step.numbers[own.class_(MIT)]
    assert all(commit(salt, part).hex() != committed for salt in (b"\x01" * 32, bytes.fromhex(step.slots)))


def record_more(run: Path, keys: Keys) -> list[str]:
    """The classes whose numbers of the last segment these keys give."""
    ledger = RunLedger(run, keys=keys)
    last = list(ledger.segments())[-1]
    return [path for path in ledger.genesis.classes if keys.of(path, "step", last.first) is not None]


def test_what_comes_after_the_wrapping_stays_closed(tmp_path: Path) -> None:
    """Keys that were wrapped while the run was going on do not reach what it records then."""
    run = write_project(tmp_path)
    whole = tmp_path / "whole"
    shutil.copytree(run / rundir.LEDGER, whole)
    sign_again(run, lambda index, entry: entry if index < 17 else None)
    early = keys_for_news(run)
    shutil.rmtree(run / rundir.LEDGER)
    shutil.copytree(whole, run / rundir.LEDGER)
    assert early.of(NEWS, "step", 5) and record_more(run, early) == []
    assert record_more(run, keys_for_news(run)) == [NEWS]


def test_all_but_one_class_is_not_all(sealed: Path) -> None:
    """The joint key needs every class of the run; the public ones too, though everybody reads those."""
    genesis = RunLedger(sealed).genesis
    assert "*" not in covered_classes(genesis, grant_of(sealed, NEWS, MIT))
    assert "*" in covered_classes(genesis, grant_of(sealed, NEWS, OPEN))


def test_the_projects_ledger_names_no_class_and_no_number(sealed: Path) -> None:
    answered(sealed, wrapped(sealed, grant_of(sealed)).path)
    content = b"".join(each.read_bytes() for each in (runs_of(sealed) / "_audit").rglob("*") if each.is_file())
    assert NEWS.encode() not in content and b'"kind":"access"' in content


def test_a_damaged_blob_is_not_a_sealed_one(sealed: Path, tmp_path: Path) -> None:
    run = outside(sealed, tmp_path)
    ledger = RunLedger(run, keys=NoKeys())
    (first, *_) = ledger.segments()
    path = ledger.ledger.path / blob_path(first.state.entry.blobs["joint"].sha256)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LedgerError, match="the blob is damaged"):
        read_numbers(ledger, first)

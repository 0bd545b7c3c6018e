"""The certificates about a run: collected, checked against both ledgers, and never called more than they show."""

import shutil
from pathlib import Path

import pytest

from explorer.deletion.finish import CERTIFICATE
from explorer.deletion.run_certificates import Certificates, certificates
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Deletion as Entry
from explorer.project import Project, runs_of
from explorer.provenance.trust import Trust
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import NEWS, TRAINER
from tests.deletion import certified, deleted_runs
from tests.deletion.certified import TRUST, Deletion, signed_again
from tests.provenance.people import NOW, private


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of runs, one of them without a class that the other had, and certified. Tests read it."""
    made = certified.structural(tmp_path_factory.mktemp("certified") / "runs")
    (made.new / CERTIFICATE).write_bytes(made.content)
    return runs_of(made.old)


@pytest.fixture
def made(project: Path, tmp_path: Path) -> Deletion:
    """The same, to be changed."""
    shutil.copytree(project, tmp_path / "runs")
    paths = sorted((tmp_path / "runs").glob("*/*"), key=lambda path: (path / CERTIFICATE).exists())
    return Deletion(old=paths[0], new=paths[1], content=(paths[1] / CERTIFICATE).read_bytes())


def found(run: Path, trust: Trust | None = TRUST) -> Certificates:
    return certificates(RunLedger(run), trust=trust, now=NOW)


def record(made: Deletion, certificate: str) -> int:
    """Put a deletion on record, with this digest for its certificate."""
    head = RunLedger(made.old).ledger.checkpoint()
    entry = Entry(
        ledger=LedgerState(origin=head.origin, size=head.size, root=head.root.hex()),
        result=None,
        request="0" * 64,
        classes=(NEWS,),
        authorities=(),
        records=0,
        level="G2",
        evidence={"certificate": certificate},
        blobs={},
    )
    with Project.open(runs_of(made.old), key=private(TRAINER), name=TRAINER) as ledger:
        return ledger.append(entry)


def test_both_runs_know_of_it_and_it_holds(made: Deletion) -> None:
    for run, side in ((made.old, "had"), (made.new, "without")):
        (one,) = found(run).known
        assert (one.side, one.deleted, one.entry, one.fault) == (side, True, None, None)
        assert one.claimed is not None and one.claimed.target.classes == (NEWS,)
    still = {path for path in one.remaining if path.startswith("model/")}
    assert still == {"model/model.safetensors"}
    (made.old / "model" / "model.safetensors").unlink()
    assert not {path for path in found(made.old).known[0].remaining if path.startswith("model/")}


def test_without_a_trust_file_a_certificate_is_not_verified(made: Deletion) -> None:
    (one,) = found(made.old, None).known
    assert not one.deleted and one.verified is None and "no trust file" in (one.fault or "")


def test_a_forged_certificate_is_not_called_deleted(made: Deletion) -> None:
    """Signed by somebody else; and signed by the right key over what is not so."""
    stranger = signed_again(made.content, lambda _: None, by="stranger")
    (made.new / CERTIFICATE).write_bytes(stranger)
    (one,) = found(made.old).known
    assert not one.deleted and one.verified is None and "trusted are example.com" in (one.fault or "")

    def lie(statement: dict) -> None:
        statement["predicate"]["structure"]["dropped"] = []

    (made.new / CERTIFICATE).write_bytes(signed_again(made.content, lie))
    (one,) = found(made.old).known
    assert not one.deleted and one.verified is not None


def test_an_entry_and_its_certificate_are_one_and_a_missing_certificate_is_listed(made: Deletion) -> None:
    (before,) = found(made.old).known
    number = record(made, before.digest)
    (one,) = found(made.old).known
    assert (one.entry, one.deleted) == (number, True)
    record(made, "f" * 64)
    _, gone = found(made.old).known
    assert (gone.path, gone.digest, gone.deleted, gone.side) == (None, "f" * 64, False, "had")
    assert gone.deletion is not None and gone.deletion.classes == (NEWS,)


def test_a_certificate_of_other_runs_is_not_this_ones(made: Deletion, tmp_path: Path) -> None:
    other = deleted_runs.write_old(tmp_path / "other", deleted_runs.USUAL)
    moved = made.new.parent / other.name
    shutil.copytree(other, moved)
    assert found(moved).known == ()


def test_files_that_are_no_certificates_are_listed(made: Deletion) -> None:
    (made.new / CERTIFICATE).write_text('{"payloadType": "<b>"}')
    assert found(made.old).known == ()
    (damaged,) = found(made.old).damaged
    assert str(made.new / CERTIFICATE) in damaged


def test_the_old_run_is_looked_for_among_runs_and_nowhere_else(made: Deletion) -> None:
    shutil.move(made.old, made.old.parent.parent.parent / "elsewhere")
    (one,) = found(made.new).known
    assert not one.deleted and "is not below" in (one.fault or "")

    def climb(statement: dict) -> None:
        statement["predicate"]["old"]["run"] = "../../elsewhere"

    (made.new / CERTIFICATE).write_bytes(signed_again(made.content, climb))
    (one,) = found(made.new).known
    assert not one.deleted and "is not below" in (one.fault or "")

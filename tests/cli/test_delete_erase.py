"""`explorer delete erase`: one person's records, and a class; what still holds, and what no later run can do."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from explorer.cli.options import CANNOT_BE_TOLD
from explorer.data.digits import Digits
from explorer.errors import ProvenanceError
from explorer.provenance.commitments import check_commitment, read_salts
from explorer.provenance.policy import Quarantine, Rule
from explorer.runlog.documents import read_tag_rows
from explorer.runlog.run_ledger import RunLedger
from tests.cli.command import explorer, refused
from tests.governance import desk
from tests.training.deletions import NEWS, author, recipe_of, trained

ALL = (Rule(classes=("*",), weight=1.0),)
STRICT, LENIENT = (
    desk.policy(name=name, rules=ALL, quarantine=what)
    for name, what in (("strict", Quarantine.REFUSE), ("later", Quarantine.WEIGHT_ZERO))
)
RECORDS = (4, 7)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one run, and the documents of its author."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("erasing")
    trained(root, author(root, STRICT, LENIENT), recipe_of("strict", ["contributions"]))
    return root


@pytest.fixture
def project(original: Path, tmp_path: Path) -> Path:
    root = shutil.copytree(original, tmp_path / "project")
    source = run_in(root) / "governance" / "source.json"
    source.write_text(source.read_text().replace(str(original), str(root)))
    return root


def run_in(project: Path) -> Path:
    (run,) = (project / "runs" / "test").iterdir()
    return run


def erase_records(project: Path) -> None:
    words = [word for row in RECORDS for word in ("--record", str(row))]
    done = explorer("delete", "erase", run_in(project), *words, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "erased 2 records" in done.stdout
        and "the examples themselves, in shards by `explorer data erase`; and every copy of them" in done.stdout
    )


def test_nothing_is_erased_before_it_is_said_to_be(project: Path) -> None:
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    done = explorer("delete", "erase", run_in(project), NEWS)
    assert done.returncode == 1 and f"would erase {NEWS}" in done.stderr and "--yes erases" in done.stderr
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_one_person_is_erased_and_the_ledger_verifies(project: Path) -> None:
    run, trust = run_in(project), project / "desk" / "trust.json"
    assert explorer("ledger", "verify", run / "ledger", "--trust", trust).returncode == 0
    erase_records(project)
    assert explorer("ledger", "verify", run / "ledger", "--trust", trust).returncode == 0
    conforming = explorer("conform", run, "--trust", trust)
    assert conforming.returncode == 0, conforming.stderr


def test_their_commitments_cannot_be_opened_any_more(project: Path) -> None:
    split, run = Digits().load(None).train, RunLedger(run_in(project))
    commitments, before = read_tag_rows(run).tags.commitments, read_salts(project / "desk" / "salts")
    erase_records(project)
    after = read_salts(project / "desk" / "salts")
    for row in RECORDS:
        salt = before.of(row)
        assert salt is not None and after.of(row) is None
        check_commitment(commitments[row].tobytes(), salt=salt, content=split.content(row), where="kept")
    assert after.of(5) == before.of(5)


def test_a_later_run_refuses_them_or_keeps_them_out(project: Path) -> None:
    erase_records(project)
    with pytest.raises(ProvenanceError, match=r"slot 4 .*its salt was destroyed: .*must not train; so it is of 1 more"):
        trained(project / "again", project / "desk", recipe_of("strict"))
    later = RunLedger(trained(project / "again", project / "desk", recipe_of("later")))
    content = later.blob(next(iter(later.read([0], type(later.genesis)))), "quarantine", max_bytes=1_000)
    assert json.loads(content or b"") == {"erased": list(RECORDS)}


def test_a_class_is_erased_and_a_trace_says_what_is_not_here(project: Path) -> None:
    run, trust = run_in(project), project / "desk" / "trust.json"
    done = explorer("delete", "erase", run, NEWS, "--yes", "--json")
    assert (done.returncode, json.loads(done.stdout)["secrets"]) == (0, [NEWS, "*"])
    assert json.loads(done.stdout)["entry"] == 0
    audit = explorer("ledger", "show", project / "runs" / "_audit").stdout
    assert "erasure v1" in audit and NEWS in audit
    traced = explorer("trace", run, "--class", NEWS, "--trust", trust, "--check")
    assert traced.returncode == 0 and f"numbers/{NEWS}" in traced.stdout and "ledger: verified" in traced.stdout
    verified = explorer("ledger", "verify", run / "ledger", "--trust", trust, "--contents")
    assert verified.returncode == 0 and "blobs, by entry 0 of the project's ledger" in verified.stdout
    conforming = explorer("conform", run, "--trust", trust)
    assert conforming.returncode == CANNOT_BE_TOLD, conforming.stderr
    assert "whether it conforms cannot be told" in conforming.stderr
    assert f"numbers/{NEWS}: erased: entry 0 of the project's ledger" in conforming.stderr
    said = json.loads(explorer("conform", run, "--trust", trust, "--json").stdout)
    outcomes = {each["name"]: (each["holds"], each["outcome"]) for each in said["conditions"]}
    assert (
        outcomes["reconstructible"] == (False, "cannot be told")
        and said["outcome"] == "whether it conforms cannot be told"
    )


def test_what_was_erased_stands_in_the_way_of_another_deletion(project: Path) -> None:
    """Going on from a state that they shaped would be neither the run with them nor the one without."""
    run = run_in(project)
    assert explorer("delete", "plan", run, NEWS).returncode == 0
    erase_records(project)
    done = explorer("delete", "plan", run, NEWS)
    assert done.returncode == 1 and "2 records were erased since the run, first record 4" in done.stdout
    words = [word for row in RECORDS for word in ("--record", str(row))]
    assert explorer("delete", "plan", run, *words).returncode == 0  # themselves can be deleted still


def test_faults(project: Path) -> None:
    run = run_in(project)
    assert "has 899 rows" in refused("delete", "erase", run, "--record", "99999", "--yes")
    assert "salts belong to records" in refused("delete", "erase", run, NEWS, "--salts", "x", "--yes")
    assert "cannot open" in refused("delete", "erase", run, "--record", "1", "--salts", project / "none", "--yes")

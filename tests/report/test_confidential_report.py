"""The report of a run with confidential classes: whole for its owner, and kept where it belongs; honest for others."""

import json
import shutil
from pathlib import Path

import pytest

from explorer import rundir
from explorer.report.run_report import page_of, write_run_report
from tests.cli.command import explorer
from tests.governed_sample import Sample, write_governed_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_governed_run(tmp_path_factory.mktemp("report"), sample=Sample(confidential=("personal", "open/mit")))


@pytest.fixture(scope="module")
def outside(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("outside") / run.name
    shutil.copytree(run, made, ignore=shutil.ignore_patterns(rundir.PRIVATE))
    return made


def written(run: Path, page: Path) -> str:
    trust = run / rundir.GOVERNANCE / "trust.json"
    write_run_report(run, page, trust=trust, format=page.suffix[1:])
    return page.read_text()


def test_its_owner_has_all_figures_and_is_warned(run: Path, tmp_path: Path) -> None:
    page = written(run, tmp_path / "report.html")
    assert "holds numbers of open/mit, personal/customer, which are confidential: whoever has it has them." in page
    assert "The numbers of personal, open/mit are encrypted, and with them those over several classes" in page
    assert "recomputed from the ledger: 4 of 4 segments, and equal" in page
    document = json.loads(written(run, tmp_path / "report.json"))
    assert document["answer"].startswith("What moved this model: open/apache 58%, open/mit 24%")
    assert document["profiles"]["rows"] and document["integrity"]["sums_agree"]


def test_others_are_told_what_is_sealed(outside: Path, tmp_path: Path) -> None:
    page = written(outside, tmp_path / "report.html")
    assert "<h1>What moved this model was measured, and is sealed: needs a grant; denied everywhere: withheld." in page
    assert "Numbers of open/mit, personal/customer, and those over several classes at once, are sealed: needs a" in page
    assert "Class by layer" not in page  # a picture of nothing
    document = json.loads(written(outside, tmp_path / "report.json"))
    assert {line["share"] for line in document["classes"]} == {None}
    assert {row["class_"] for row in document["profiles"]["rows"]} == {"open/apache", "open/bsd"}
    assert all(each["holds"] for each in document["integrity"]["conditions"])


def test_what_is_sealed_is_not_written_beside_what_seals_it(run: Path, outside: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / run.name))
    done = explorer("report", str(copy), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.relative_to(copy).as_posix() for path in copy.rglob("report.*")] == ["private/report.html"]
    assert page_of(outside) == outside / "report.html"  # there is nothing to hide in it
    open_run = write_governed_run(tmp_path / "open")
    assert page_of(open_run, format="json") == open_run / "report.json"

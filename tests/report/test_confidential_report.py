"""The report of a run with confidential classes: whole for its owner, and kept where it belongs; honest for others."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from explorer import rundir
from explorer.page.pdf import source
from explorer.report.run_report import FORMATS, page_of, read_run, run_page, write_run_report
from tests.cli.command import explorer
from tests.governed_sample import Sample, write_governed_run
from tests.provenance.people import NOW


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


@pytest.mark.slow
def test_its_owner_has_all_figures_and_is_warned(run: Path, tmp_path: Path) -> None:
    page = written(run, tmp_path / "report.html")
    assert "shows confidential numbers of open/mit, personal/customer: sharing the report discloses them." in page
    assert "The numbers of personal, open/mit are encrypted, and with them those over several classes" in page
    assert "recomputed from the ledger: 4 of 4 segments, and equal" in page
    document = json.loads(written(run, tmp_path / "report.json"))
    assert document["answer"].startswith("What moved this model: open/apache 58%, open/mit 24%")
    assert document["profiles"]["rows"] and document["integrity"]["sums_agree"]


@pytest.mark.slow
def test_sealed_numbers_are_written_only_for_their_owner(run: Path, outside: Path, tmp_path: Path) -> None:
    """Wherever it is written to; a report without such numbers is a file like others."""
    for name, of, expected in (("sealed.html", run, 0o600), ("open.html", outside, 0o644)):
        before = os.umask(0o022)
        try:
            written(of, tmp_path / name)
        finally:
            os.umask(before)
        assert (tmp_path / name).stat().st_mode & 0o777 == expected


def test_others_see_only_that_numbers_are_sealed(outside: Path, tmp_path: Path) -> None:
    page = written(outside, tmp_path / "report.html")
    assert "<h1>What moved this model was measured, but is sealed: needs a grant; denied everywhere: withheld." in page
    assert "Numbers of open/mit, personal/customer, and those over several classes at once, are sealed: needs a" in page
    assert "Class by layer" not in page  # a picture of nothing
    document = json.loads(written(outside, tmp_path / "report.json"))
    assert {line["share"] for line in document["classes"]} == {None}
    assert {row["class_"] for row in document["profiles"]["rows"]} == {"open/apache", "open/bsd"}
    assert not any(each["contradictions"] for each in document["integrity"]["conditions"])
    outcomes = ["cannot be told", "holds", "cannot be told", "holds"]
    assert [each["outcome"] for each in document["integrity"]["conditions"]] == outcomes
    assert "Cannot be told: every gradient was routable" in page
    assert "Not checked: joint: sealed: needs a grant" in page
    assert "Whether the run conforms cannot be told: see Integrity." in page
    words = "what was denied cannot be told from this record: see Integrity"
    assert {line["deletable"]["words"] for line in document["classes"]} == {words}


def test_no_sealed_number_is_in_any_format(run: Path, outside: Path) -> None:
    """All shares are sealed, for those of the others would give these away; and so is what was measured of a sealed
    class, or of all classes together."""
    own, other = everything(run, drawn=False), everything(outside, drawn=True)
    sealed = {
        found
        for row in json.loads(own["json"])["profiles"]["rows"]
        if row["class_"] in ("open/mit", "personal/customer", "*")
        for found in (repr(row["entropy"]), repr(row["effective_rank"]))
        if len(found) > 8  # shorter ones are found anywhere
    }
    assert len(sealed) > 100
    for name, text in other.items():
        shares = set(re.findall(r"[0-9.]+%", text))
        assert shares <= {"100%"}, name  # "a column adds up to 100%"
        assert not [number for number in sealed if number in text], name
    for name in ("md", "json"):  # it can fail
        assert {"58%", "24%"} <= set(re.findall(r"[0-9.]+%", own[name])), name
    assert all(number in own["json"] for number in sealed)


def everything(run: Path, *, drawn: bool) -> dict[str, str]:
    """What every format is made of, those with pictures if asked for; of the PDF what is set, before it is packed."""
    content = read_run(run, trust=run / rundir.GOVERNANCE / "trust.json", now=NOW)
    made = {name: FORMATS[name](content).decode() for name in ("croissant", "json", "md", *(["html"] if drawn else []))}
    if not drawn:
        return made
    with source(run_page(content)) as template:
        return made | {"pdf": "".join(path.read_text() for path in sorted(template.parent.iterdir()))}


@pytest.mark.slow
def test_sealed_numbers_are_not_written_next_to_their_keys(run: Path, outside: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / run.name))
    done = explorer("report", str(copy), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [path.relative_to(copy).as_posix() for path in copy.rglob("report.*")] == ["private/report.html"]
    assert page_of(outside) == outside / "report.html"  # there is nothing to hide in it
    open_run = write_governed_run(tmp_path / "open")
    assert page_of(open_run, format="json") == open_run / "report.json"

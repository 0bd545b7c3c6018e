"""A command that a verb prints about a sweep of one's own files names the directory of these files, and so works."""

from pathlib import Path

import pytest
import yaml

from explorer import run_files, rundir
from explorer.run_files import RunRecord
from explorer.store.ingest import ingest
from tests.builders import plan_of, write_profile
from tests.cli.command import explorer
from tests.cli.test_ask import write_small
from tests.cli.test_busy_times import BUSY_WATCH

SPEC = {"name": "digits", "task": {"dataset": {"imagefolder": {"path": "photos"}}}}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of photos with a winner, whose times were profiled on a busy machine, and its specification."""
    desk = tmp_path_factory.mktemp("desk")
    runs = desk / "runs"
    write_small(runs)
    records = [run_files.read(RunRecord, run / rundir.RUN) for run in rundir.run_directories(runs / "digits")]
    for record in {record.recipe: record for record in records}.values():
        seconds = 0.02 if record.recipe == "fast" else 0.04
        write_profile(runs, record, seconds=seconds, rounds=(1.0, 0.99, 1.0, 1.01, 1.0), watch=BUSY_WATCH)
    rundir.write_json(runs / "digits" / rundir.SWEEP, plan_of(records) | {"spec": SPEC})
    ingest(runs)
    (desk / "photos.yaml").write_text(yaml.safe_dump(SPEC))
    return desk


@pytest.mark.parametrize(
    ("verb", "line"),
    [
        (("results", "digits"), "explorer confirm --seeds 3 --data DIR digits fast"),
        (("ask", "digits"), "explorer confirm --data DIR digits fast"),
        (("sweep", "status", "photos.yaml"), "explorer sweep profile photos.yaml --data DIR measures again"),
    ],
)
def test_verbs(desk: Path, verb: tuple[str, ...], line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXPLORER_DATA", raising=False)
    assert line in explorer(*verb, cwd=desk).stdout
    monkeypatch.setenv("EXPLORER_DATA", "data")
    assert line.replace(" --data DIR", "") in explorer(*verb, cwd=desk).stdout


def test_the_report(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXPLORER_DATA", raising=False)
    assert explorer("report", "digits", "--format", "md", cwd=desk).returncode == 0
    said = (desk / "runs" / "digits" / "report.md").read_text()
    for line in (
        "explorer confirm --data DIR digits fast",
        "explorer sweep plan digits.yaml --data DIR ",
        "explorer sweep run digits.yaml --data DIR ",
    ):
        assert line in said

"""The quickstart, on a fraction of its data and budgets."""

import shutil
from pathlib import Path

import pytest

from explorer.cli import quickstart
from explorer.store import frames
from explorer.store.published import database
from explorer.yaml_document import read_document
from tests.cli.command import explorer

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture
def less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The notebooks, with a sweep that takes seconds."""
    there = Path(shutil.copytree(NOTEBOOKS, tmp_path / "notebooks"))
    spec = there / "sweeps" / "source.yaml"
    text = spec.read_text()
    for full, small in (
        ("bytes_per_class: 20000", "bytes_per_class: 4000"),
        ("budgets: [0.25, 0.5, 1.0]", "budgets: [1.0]"),
        ("seeds: [0, 1, 2, 3]", "seeds: [0]"),
    ):
        assert full in text
        text = text.replace(full, small)
    spec.write_text(text)
    monkeypatch.setattr("explorer.cli.quickstart.notebook_directory", lambda: there)
    return there


@pytest.mark.usefixtures("less")
def test_the_specification_is_the_users_own(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    spec, documents = quickstart.specification(runs)
    content = read_document(spec).value
    assert (spec.parent / content["governance"]).resolve() == documents.resolve()
    changed = spec.read_bytes().replace(b"epochs: 0.75", b"epochs: 0.5")
    spec.write_bytes(changed)
    assert quickstart.specification(runs) == (spec, documents)
    assert spec.read_bytes() == changed, "a second call keeps what the user changed"


@pytest.mark.slow
@pytest.mark.usefixtures("less")
def test_the_quickstart_ends_with_a_governed_run_that_verifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    quickstart.quickstart(runs, workers=1)
    said = capsys.readouterr().out
    assert "for demonstration: three keys of one party, unencrypted, in one directory" in said
    rows = frames.results(database(runs), sweep="source")
    assert set(rows["recipe"]) == {"baseline", "alibi", "fast", "governed"} and len(rows) == 4
    governed = rows[rows["recipe"] == "governed"]
    assert governed["ledger_root"].notna().all() and rows["ledger_root"].notna().sum() == len(governed)
    run = runs / governed[governed["seed"] == 0]["directory"].iloc[0]
    for report in (run / "report.html", runs / "source" / "report.html"):
        assert report.stat().st_size > 1000 and report.as_uri() in said
    verify = ("ledger", "verify", run / "ledger", "--trust", run / "governance" / "trust.json")
    done = explorer(*verify)
    assert done.returncode == 0 and "cosigned by  example.com/model-risk" in done.stdout
    before = (run / "ledger" / "checkpoint").read_bytes()
    quickstart.quickstart(runs, workers=1)
    assert "4 of them already done" in capsys.readouterr().out
    assert (run / "ledger" / "checkpoint").read_bytes() == before
    assert explorer(*verify).returncode == 0

"""The governed end of the quickstart, on a hundredth of its data."""

import shutil
from pathlib import Path

import pytest

from explorer.cli import quickstart
from tests.cli.command import explorer

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture
def less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The notebooks, with a recipe that takes seconds."""
    there = Path(shutil.copytree(NOTEBOOKS, tmp_path / "notebooks"))
    recipe = there / "recipes" / "source.yaml"
    text = recipe.read_text().replace("bytes_per_class: 200000", "bytes_per_class: 20000")
    recipe.write_text(text.replace("epochs: 0.6", "epochs: 0.1"))
    monkeypatch.setattr("explorer.cli.notebooks.notebook_directory", lambda: there)
    return there


@pytest.mark.slow
@pytest.mark.usefixtures("less")
def test_the_quickstart_ends_with_a_governed_run_that_verifies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = quickstart.govern(tmp_path / "runs")
    said = capsys.readouterr().out
    assert "for demonstration: three keys of one party, unencrypted, in one directory" in said
    assert (run / "report.html").stat().st_size > 1000 and (run / "report.html").as_uri() in said
    verify = ("ledger", "verify", run / "ledger", "--trust", run / "governance" / "trust.json")
    done = explorer(*verify)
    assert done.returncode == 0 and "cosigned by  example.com/model-risk" in done.stdout
    before = (run / "ledger" / "checkpoint").read_bytes()
    assert quickstart.govern(tmp_path / "runs") == run, "a second call keeps what is there"
    assert (run / "ledger" / "checkpoint").read_bytes() == before
    assert explorer(*verify).returncode == 0

"""From scans to an audited run over shards of volumes, and of their slices, as a newcomer types it."""

import os
from pathlib import Path

import pytest

from tests.cli.command import explorer

scans = pytest.importorskip("tests.data.scans")

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "size"), [("brats", 16), ("brats_slices", 32)])
def test_from_scans_to_a_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: int) -> None:
    monkeypatch.chdir(tmp_path)
    scans.brats(tmp_path / "source")
    made = ("--param", "path=brats", "--param", f"size={size}", "--param", "provenance=folders")
    ends("data", "shard", name, "shards", *made, "--data", "source", "--shard-bytes", "20000")
    assert "guess" not in ends("init", "shards", "--governed")
    planned = ends("sweep", "plan", "shards.yaml", "--data", ".")
    assert "18 runs" in planned
    recipe = Path("governed.yaml").read_text()
    Path("governed.yaml").write_text(recipe.replace("budget: 1 ", "budget: 0.2 "))
    ends("run", "governed.yaml", "--data", ".")
    (run,) = Path("runs/single").iterdir()
    trust = ("--trust", "governed/trust.json")
    for cosigner in ("data-governance", "model-risk"):
        ends("ledger", "cosign", run / "ledger", "--key", f"governed/{cosigner}.pem", *trust)
    assert ends("conform", run, *trust).count("holds") == 4
    assert "bit for bit as recorded: 2 steps" in ends("replay", run, "--steps", "0:2", "--data", ".")
    assert "G3, exact by replay" in ends("delete", "run", run, "--record", "1", *trust, "--data", ".")


def ends(*words: str | os.PathLike[str]) -> str:
    """Return what a command prints that succeeds."""
    done = explorer(*map(str, words))
    assert done.returncode == 0, done.stderr
    return done.stdout

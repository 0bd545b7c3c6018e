"""`runs/reference/`: a fresh clone shows runs before anything is trained; a stranger verifies the ledger in them."""

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from explorer.canonical import digest
from explorer.store.frames import results
from explorer.store.published import database
from explorer.store.upkeep import bring_up
from tests.cli.command import explorer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # as for a script: the benchmarks' common module is next to it
try:
    PACKING = runpy.run_path(str(BENCHMARKS / "reference_runs.py"))
finally:
    sys.path.remove(str(BENCHMARKS))
MOST, TARGET, faults, packed_metrics, packed_plan = (
    PACKING[name] for name in ("MOST", "TARGET", "faults", "packed_metrics", "packed_plan")
)

ROOT = TARGET.parents[1]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with only the runs that a clone has."""
    tracked = [path for path in TARGET.rglob("*") if path.is_file() and not _ignored(path)]
    place = tmp_path_factory.mktemp("clone")
    for path in tracked:
        target = place / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return place


def _ignored(path: Path) -> bool:
    """What looking at the runs has left in them."""
    relative = path.relative_to(TARGET)
    return relative.parts[0] in ("_store", "explorer.duckdb") or path.name == ".lock"


def commands() -> list[str]:
    """The lines of runs/README.md about the recorded runs."""
    return re.findall(r"^explorer .*runs/reference.*$", (ROOT / "runs" / "README.md").read_text(), re.MULTILINE)


def expanded(line: str, place: Path) -> list[str]:
    """The words of a line as a shell in this directory gives them to the program."""
    words = line.split()
    return [str(next(iter(place.glob(word))).relative_to(place)) if "*" in word else word for word in words][1:]


def test_the_results_are_there_before_anything_is_trained(clone: Path) -> None:
    lines = [line for line in commands() if line.startswith("explorer results")]
    assert {line.split()[2] for line in lines} == {"source", "images-fresh", "text-fresh"}
    for line in lines:
        done = explorer(*expanded(line, clone), cwd=clone)
        assert done.returncode == 0 and "baseline" in done.stdout, done.stderr
    runs = clone / "runs" / "reference"
    assert bring_up(runs) == ()
    assert len(results(database(runs))) > 10


def test_a_stranger_verifies_the_ledger(clone: Path, tmp_path: Path) -> None:
    line, *others = [line for line in commands() if line.startswith("explorer ledger verify")]
    assert others
    (conform,) = [line for line in commands() if line.startswith("explorer conform")]
    for known in (line, *others, conform):
        assert explorer(*expanded(known, clone), cwd=clone).returncode == 0
    shutil.copytree(clone, tmp_path / "forged")
    (bundle, *_) = (path for path in (tmp_path / "forged").rglob("single/**/tile/entries/**/*") if path.is_file())
    content = bytearray(bundle.read_bytes())
    content[len(content) // 2] ^= 1
    bundle.write_bytes(content)
    assert explorer(*expanded(line, tmp_path / "forged"), cwd=tmp_path / "forged").returncode == 1


def test_a_stranger_verifies_the_statement_of_use(clone: Path, tmp_path: Path) -> None:
    """Each number is counted again from the ledgers; one that was raised by one is found."""
    (line,) = [line for line in commands() if line.startswith("explorer usage verify")]
    words = expanded(line, clone)
    assert explorer(*words, cwd=clone).returncode == 0
    statement = clone / words[2]
    (tmp_path / statement.name).write_text(statement.read_text().replace("450", "451"))
    assert (tmp_path / statement.name).read_text() != statement.read_text()
    words[2] = str(tmp_path / statement.name)
    assert explorer(*words, cwd=clone).returncode == 1


@pytest.mark.slow
def test_nothing_private_and_nothing_of_a_machine_is_in_them(clone: Path, tmp_path: Path) -> None:
    runs = Path(shutil.copytree(clone / "runs" / "reference", tmp_path / "copy"))
    shutil.rmtree(runs / "_store", ignore_errors=True)
    (runs / "explorer.duckdb").unlink(missing_ok=True)
    assert faults(runs, ["/home/", "/Users/", str(ROOT)]) == []
    assert sum(path.stat().st_size for path in runs.rglob("*") if path.is_file()) <= MOST
    (runs / "source" / "key.txt").write_text("-----BEGIN PRIVATE KEY-----")
    assert any("key.txt" in fault for fault in faults(runs, []))
    (runs / "source" / "plan.json").write_text('{"governance": "/srv/me/documents"}')
    assert any("plan.json: holds the path" in fault for fault in faults(runs, []))


def test_a_packed_plan_has_no_directories_of_its_machine() -> None:
    plan = {"name": "mine", "source": "/srv/me/a.yaml", "spec": {"governance": "/srv/me/documents"}, "spec_digest": "0"}
    packed = packed_plan(plan)
    assert packed["source"] == "mine.yaml" and packed["spec"] == {"governance": "documents"}
    assert packed["spec_digest"] == digest(packed["spec"])


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git checkout")
def test_looking_at_them_dirties_nothing_that_is_tracked() -> None:
    names = ("explorer.duckdb", "_store/store.duckdb", "source/.lock", "explore.ipynb", "exports/a.csv")
    made = [f"runs/reference/{name}" for name in (*names, "single/r/report.html", "single/r/run.pack.zip")]
    done = subprocess.run(["git", "check-ignore", *made], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == made
    kept = ["runs/reference/source/sweep.json", "runs/reference/README.md"]
    assert subprocess.run(["git", "check-ignore", *kept], cwd=ROOT, capture_output=True).returncode == 1


def test_thinned_measurements_keep_first_and_last() -> None:
    lines = [b'{"step": %d, "metric": "%s", "value": 1}' % (step, name) for step in range(100) for name in (b"a", b"b")]
    kept = packed_metrics(b"\n".join(lines) + b"\n", 10).splitlines()
    assert kept[0] == lines[0] and kept[-2:] == lines[-2:] and 20 <= len(kept) <= 24
    assert kept == [line for line in lines if line in kept]

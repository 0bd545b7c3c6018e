"""Governed runs over shards: nothing is read before it trains, and every example is compared with its tag then."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from explorer.canonical import canonical
from explorer.data.shards import shard_files
from explorer.data.shards.shard_index import digest_of
from explorer.provenance.commitments import read_salts
from explorer.runlog.documents import SALTS_FILE, quarantine_of
from explorer.runlog.run_ledger import RunLedger
from explorer.training.governed_project import begin_governed
from tests.cli.command import explorer, refused
from tests.data.shards.written import DIGITS, write

TASK = {"dataset": {"image_shards": {"path": "digits", "size": 8, "channels": 1, "window": 2}}, "model": "resnet8"}
TRAIN = {"epochs": 1, "batch_size": 16, "optimizer": {"sgd": {"lr": 0.1}}}
LATE = "simulated/class-00"  # trains in the second half only


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shard_files, "PAUSES", (0.0,))
    write(DIGITS, tmp_path / "data" / "digits")
    (tmp_path / "project").mkdir()
    begin_governed(tmp_path / "project", TASK, TRAIN, data=tmp_path / "data", now=int(time.time()))
    return tmp_path / "project"


def run(project: Path) -> Path:
    data, runs = project.parent / "data", project / "runs"
    assert explorer("run", project / "governed.yaml", "--data", data, "--runs", runs).returncode == 0
    made = (project / "runs" / "single").glob("*ssr1*")
    return max(made, key=lambda path: path.stat().st_mtime)  # one that was refused may have left a directory


def set_aside(made: Path) -> list[int]:
    """Return the examples in quarantine."""
    return sorted(quarantine_of(RunLedger(made)))


def trained(project: Path) -> tuple[int, int]:
    """Return two examples in one shard, of a class that trains."""
    index = json.loads((project.parent / "data" / "digits" / "index.json").read_bytes())
    before = 0
    for shard in index["train"]["shards"]:
        if shard["tag"] == "simulated/class-02":
            return before, before + 1
        before += shard["rows"]
    raise AssertionError("no such class")


def cosign(made: Path, project: Path) -> None:
    trust = project / "governed" / "trust.json"
    for name in ("data-governance", "model-risk"):
        key = project / "governed" / f"{name}.pem"
        assert explorer("ledger", "cosign", made / "ledger", "--key", key, "--trust", trust).returncode == 0


def shards_of(data: Path, tag: str) -> list[Path]:
    index = json.loads((data / "digits" / "index.json").read_bytes())
    return [data / "digits" / shard["name"] for shard in index["train"]["shards"] if shard["tag"] == tag]


def test_a_run_conforms_and_replays(project: Path) -> None:
    made = run(project)
    trust = project / "governed" / "trust.json"
    cosign(made, project)
    conforming = explorer("conform", made, "--trust", trust)
    assert conforming.returncode == 0 and conforming.stdout.count("holds: ") == 4
    assert "bit for bit as recorded" in explorer("replay", made, "--data", project.parent / "data").stdout
    trace = explorer("trace", made, "--layer", "conv", "--trust", trust).stdout
    assert LATE in trace and "class-02" in trace


def test_an_example_that_was_changed_after_it_was_tagged_does_not_train(project: Path) -> None:
    """Its shard and its index are as good as the others: only the signed tags tell."""
    data = project.parent / "data"
    path = shards_of(data, "simulated/class-02")[0]
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[3]["input"] = bytes(reversed(rows[3]["input"]))
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), path, store_schema=False)
    content = path.read_bytes()
    index = json.loads((data / "digits" / "index.json").read_bytes())
    (entry,) = (one for one in index["train"]["shards"] if one["name"] == path.relative_to(data / "digits").as_posix())
    entry["sha256"], entry["bytes"] = digest_of(content), len(content)
    (data / "digits" / "index.json").write_bytes(canonical(index))
    said = refused("run", project / "governed.yaml", "--data", data, "--runs", project / "runs")
    assert "the example of slot" in said and "compared with its tags when it is opened" in said
    # The control: without tags nobody could tell, and the run trains.
    recipe = project / "plain.yaml"
    recipe.write_text(json.dumps({"task": TASK, "train": TRAIN}))
    assert "steps" in explorer("run", recipe, "--data", data, "--runs", project / "runs").stdout


def test_what_never_trains_is_never_opened(project: Path) -> None:
    """A class whose shards are not there stops a run when it begins to train, and not before."""
    data = project.parent / "data"
    for path in shards_of(data, LATE):
        path.unlink()
    said = refused("run", project / "governed.yaml", "--data", data, "--runs", project / "runs")
    assert "no such object" in said
    policy = project / "governed" / "policy.yaml"
    policy.write_text(
        policy.read_text().replace("progress: [0, 0.5]", "progress: [0, 1]").replace("version: 1", "version: 2", 1)
    )
    assert explorer(*signing(policy)).returncode == 0
    assert (run(project) / "result.json").exists()


def signing(policy: Path) -> list[str]:
    """Return the command at the top of a policy."""
    text = policy.read_text().replace("\\\n#", "")
    line = next(line for line in text.splitlines() if "explorer policy sign" in line)
    return line[line.index("policy sign") :].split()


def test_a_class_is_deleted_after_its_shards(project: Path) -> None:
    """The new run never opens them, so they can be destroyed before it is made."""
    made, data, trust = run(project), project.parent / "data", project / "governed" / "trust.json"
    cosign(made, project)
    kept = {path: path.read_bytes() for path in shards_of(data, LATE)}
    for path in kept:
        path.unlink()
    shown = explorer("delete", "run", made, LATE, "--trust", trust, "--data", data).stdout
    assert "G3, exact by replay" in shown and "made, and not certified yet" in shown
    (new,) = (project / "runs" / "deletions").glob("*ssr1*")
    shutil.rmtree(new)
    for path in shards_of(data, "simulated/class-01"):  # the control: a class that trains is missed
        path.unlink()
    failed = explorer("delete", "run", made, LATE, "--trust", trust, "--data", data)
    assert failed.returncode == 1 and "no such object" in failed.stderr


def test_a_record_is_deleted_after_it_was_erased_from_its_shard(project: Path) -> None:
    """The new run opens the shard, proves its other rows and trains on them; the old one cannot be trained again."""
    made, data, trust = run(project), project.parent / "data", project / "governed" / "trust.json"
    cosign(made, project)
    gone, kept = map(str, trained(project))
    assert explorer("data", "erase", data / "digits", "--record", gone, "--yes").returncode == 0
    again = explorer("replay", made, "--data", data)
    assert again.returncode == 1 and f"example {gone} was erased" in again.stderr
    other = explorer("delete", "run", made, "--record", kept, "--trust", trust, "--data", data)
    assert other.returncode == 1 and f"example {gone} was erased" in other.stderr
    shown = explorer("delete", "run", made, "--record", gone, "--trust", trust, "--data", data)
    assert "G3, exact by replay" in shown.stdout and "made, and not certified yet" in shown.stdout


def test_a_new_run_goes_on_without_an_erased_record(project: Path) -> None:
    """Its salt is destroyed too, so the policy says what becomes of examples that nothing vouches for."""
    data, governed = project.parent / "data", project / "governed"
    gone = trained(project)[0]
    assert explorer("data", "erase", data / "digits", "--record", str(gone), "--yes").returncode == 0
    (salts,) = governed.rglob(SALTS_FILE)
    assert explorer("tags", "erase", salts, "--slot", str(gone)).returncode == 0
    assert set_aside(run(project)) == [gone]
    policy = governed / "policy.yaml"  # the control: a policy that refuses such examples
    written = policy.read_text().replace("quarantine: weight-zero", "quarantine: refuse")
    policy.write_text(written.replace("version: 1", "version: 2", 1))
    assert explorer(*signing(policy)).returncode == 0
    said = refused("run", project / "governed.yaml", "--data", data, "--runs", project / "runs")
    assert "its salt was destroyed" in said and "weight-zero" in said


@pytest.mark.slow
def test_shards_with_an_erased_record_are_tagged(project: Path, tmp_path: Path) -> None:
    """A project that begins after an erasure has no salt for the erased example, and trains on all others."""
    data, later = project.parent / "data", tmp_path / "later"
    gone = trained(project)[0]
    assert explorer("data", "erase", data / "digits", "--record", str(gone), "--yes").returncode == 0
    # In a process of its own: this one has the shards open.
    later.mkdir()
    begin = [sys.executable, "-m", "explorer", "init", str(data / "digits"), "--governed"]
    subprocess.run(begin, cwd=later, check=True, capture_output=True, text=True)
    (salts,) = later.rglob(SALTS_FILE)
    assert np.flatnonzero(read_salts(salts).destroyed).tolist() == [gone]
    made = explorer("run", later / "governed.yaml", "--data", data, "--runs", later / "runs")
    assert made.returncode == 0, made.stderr
    (directory,) = (later / "runs" / "single").glob("*ssr1*")
    assert set_aside(directory) == [gone]
    cosign(directory, later)
    shown = explorer("conform", directory, "--trust", later / "governed" / "trust.json")
    assert shown.returncode == 0 and "holds" in shown.stdout

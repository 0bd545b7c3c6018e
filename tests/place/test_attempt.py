"""Attempts at a run: what they publish, what the next one takes over, and what becomes of the second of two."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from explorer import run_files, rundir
from explorer.engine.checkpoint import KEEP
from explorer.errors import PlaceError
from explorer.machine_class import Machine
from explorer.objects import DirectoryObjects, Objects
from explorer.place.attempt import Attempt, collect
from explorer.place.leases import Claim, take
from explorer.place.published_sweep import ClassAt, Finding, PlanAt, Published, ResultAt
from explorer.run_files import ResultRecord, RunRecord
from tests.builders import CPU, run_record, write_run

HERE = Machine(hardware=CPU, versions={"torch": "2.11.0"})


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is large: none is kept in a record."""
    monkeypatch.setattr("explorer.place.published_sweep.SMALL", -1)


@pytest.fixture
def record() -> RunRecord:
    return run_record()


@pytest.fixture
def published(objects: Objects, record: RunRecord) -> Published:
    published = Published(objects)
    published.publish(
        PlanAt(sweep="digits", classes=(ClassAt(machine=HERE, runs=(record.run_id,), profile=False),)), [record]
    )
    return published


class Worker:
    """A worker that holds a run and has a directory for it."""

    def __init__(self, published: Published, record: RunRecord, directory: Path, *, epoch: int | None = None) -> None:
        self.directory = directory
        if epoch is None:
            claim = take(published.objects, record.run_id, host=directory.name, hardware="CPU")
            assert claim is not None
        else:  # one that others believe to be lost
            claim = Claim(
                run_id=record.run_id,
                epoch=epoch,
                holder=directory.name,
                host=directory.name,
                hardware="CPU",
                begun=0,
                until=0,
            )
        self.claim = claim
        self.attempt = Attempt(published, claim, directory)
        self.planned = published.run(record.run_id)

    def begin(self) -> int:
        return self.attempt.begin(self.planned)

    def train(
        self, record: RunRecord, *, accuracy: float = 0.9, step_seconds: float = 0.01, recording: float = 0.001
    ) -> None:
        """Leave what a finished run leaves; `step_seconds` and `recording` are times of a step."""
        made = write_run(self.directory / "made", record, metrics={"accuracy": accuracy}, step_seconds=step_seconds)
        result = run_files.read(ResultRecord, made / rundir.RESULT)
        metrics = result.metrics | {"ledger_seconds_per_step": recording}
        run_files.write(made / rundir.RESULT, dataclasses.replace(result, metrics=metrics))
        for path in made.iterdir():
            path.replace(self.directory / path.name)

    def checkpoint(self, step: int, content: bytes = b"tensors") -> None:
        """Leave a checkpoint, as the engine names it."""
        place = self.directory / rundir.CHECKPOINT
        rundir.write_bytes(place / f"step-{step:08d}.safetensors", content)
        rundir.write_bytes(place / f"step-{step:08d}.json", json.dumps({"step": step}).encode())
        rundir.write_bytes(self.directory / rundir.METRICS, b"line\n" * step)
        for path in sorted(place.glob("step-*"))[: -2 * KEEP]:  # the engine keeps the newest ones
            path.unlink()


def finished(published: Published, record: RunRecord, tmp_path: Path) -> ResultAt:
    """Let a worker finish the run; return what it published."""
    worker = Worker(published, record, tmp_path / "one")
    worker.train(record)
    worker.attempt.finish()
    result = published.find(ResultAt, f"results/{record.run_id}.json")
    assert result is not None
    return result


def files_below(directory: Path) -> dict[str, bytes]:
    paths = [path for path in directory.rglob("*") if path.is_file() and path.name != rundir.LOCK]
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.parametrize("most", [-1, 400, 2**18], ids=["no small files", "some", "all"])
def test_a_result_comes_back_as_it_was(
    published: Published, record: RunRecord, tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("explorer.place.published_sweep.SMALL", most)
    worker = Worker(published, record, tmp_path / "one")
    worker.begin()
    worker.train(record)
    assert worker.attempt.finish() is None
    result = collect(published, record, tmp_path / "home" / record.run_id)
    assert result.host == "one" and result.epoch == 1
    stored = len(list(published.objects.list(f"attempts/{record.run_id}/")))
    assert len(result.files.small) == len(result.files.digests) - stored
    came = files_below(tmp_path / "home" / record.run_id)
    assert came == {name: content for name, content in files_below(worker.directory).items() if "made" not in name}
    assert run_files.from_json(RunRecord, json.loads(came[rundir.RUN]), where="test") == record


def test_drafts_of_a_killed_process_go_when_a_result_comes_back(published, record, tmp_path):
    worker = Worker(published, record, tmp_path / "one")
    worker.train(record)
    worker.attempt.finish()
    home = tmp_path / "home" / record.run_id
    rundir.write_bytes(home / "ledger" / ".blob.2167.tmp", b"half")
    collect(published, record, home)
    assert (home / rundir.RESULT).exists() and not list(home.rglob("*.tmp"))


def test_the_next_attempt_continues_from_the_newest_checkpoint(published, record, tmp_path):
    first = Worker(published, record, tmp_path / "one")
    first.begin()
    for step in (10, 20, 30):
        first.checkpoint(step)
        first.attempt.save()
    second = Worker(published, record, tmp_path / "two", epoch=2)
    assert second.begin() == 30
    assert (second.directory / rundir.CHECKPOINT / "step-00000030.safetensors").read_bytes() == b"tensors"
    assert (second.directory / rundir.METRICS).read_bytes() == b"line\n" * 30
    # An attempt of a worker that was behind does not take the run back.
    second.checkpoint(40)
    second.attempt.save()
    first.checkpoint(35)
    first.attempt.save()
    assert Worker(published, record, tmp_path / "three", epoch=3).begin() == 40


def test_a_damaged_checkpoint_costs_only_time(large, published, record, tmp_path, caplog):
    first, second = Worker(published, record, tmp_path / "one"), Worker(published, record, tmp_path / "two", epoch=2)
    for worker, step in ((first, 10), (second, 20)):
        worker.checkpoint(step, content=b"tensors %d" % step)
        worker.attempt.save()
    digest = hashlib.sha256(b"tensors 20").hexdigest()
    published.objects.put(f"attempts/{record.run_id}/00000002/{digest}", b"tensors 2x")
    third = Worker(published, record, tmp_path / "three", epoch=3)
    assert third.begin() == 10
    assert "checkpoint of step 20" in caplog.text and "damaged" in caplog.text


def test_old_checkpoints_are_removed_and_shared_files_kept(large, published, record, tmp_path):
    worker = Worker(published, record, tmp_path / "one")
    worker.begin()
    rundir.write_bytes(worker.directory / "ledger" / "tile", b"never changes")
    for step in range(10, 100, 10):
        worker.checkpoint(step, content=b"tensors %d" % step)
        worker.attempt.save()
    kept = [listed.key for listed in published.objects.list(f"attempts/{record.run_id}/")]
    contents = [published.objects.read(key, max_bytes=1000) for key in kept]
    assert sorted(content for content in contents if content.startswith(b"tensors")) == [
        b"tensors 70",
        b"tensors 80",
        b"tensors 90",
    ]
    assert b"never changes" in contents


def test_nothing_but_the_result_is_left_of_a_finished_run(large, published, record, tmp_path):
    worker = Worker(published, record, tmp_path / "one")
    worker.begin()
    worker.checkpoint(10, content=b"tensors 10")
    worker.attempt.save()
    rundir_checkpoint = worker.directory / rundir.CHECKPOINT
    for path in rundir_checkpoint.iterdir():
        path.unlink()
    worker.train(record)
    worker.attempt.finish()
    result = published.find(ResultAt, f"results/{record.run_id}.json")
    assert result is not None
    left = {listed.key.rpartition("/")[2] for listed in published.objects.list(f"attempts/{record.run_id}/")}
    assert left == set(result.files.digests.values())
    assert list(published.objects.list(f"checkpoints/{record.run_id}/")) == []


# --- two attempts at once ---


def test_a_second_equal_result_is_silent(published, record, tmp_path):
    first, second = Worker(published, record, tmp_path / "one"), Worker(published, record, tmp_path / "two", epoch=2)
    first.train(record, step_seconds=0.01, recording=0.001)
    second.train(record, step_seconds=0.02, recording=0.002)  # times may differ
    assert second.attempt.finish() is None
    assert first.attempt.finish() is None
    result = published.find(ResultAt, f"results/{record.run_id}.json")
    assert result is not None and result.host == "two", "the first one published is the result"
    assert list(published.objects.list("findings/")) == []


def test_a_second_different_result_is_a_finding_and_both_are_kept(large, published, record, tmp_path):
    first, second = Worker(published, record, tmp_path / "one"), Worker(published, record, tmp_path / "two", epoch=2)
    first.train(record, accuracy=0.9)
    second.train(record, accuracy=0.8)
    assert first.attempt.finish() is None
    finding = second.attempt.finish()
    assert (
        finding is not None
        and finding.differs == ("metrics", "state_digest")
        and (finding.first, finding.epoch) == (1, 2)
    )
    assert published.find(Finding, f"findings/{record.run_id}/00000002.json") == finding
    for name, digest in finding.files.digests.items():
        content = published.objects.read(f"attempts/{record.run_id}/00000002/{digest}", max_bytes=10**6)
        assert content == (second.directory / name).read_bytes()
    home = tmp_path / "home" / record.run_id
    collect(published, record, home)
    assert run_files.read(ResultRecord, home / rundir.RESULT).metrics["accuracy"] == 0.9


# --- what is read from a place may be hostile ---


@pytest.mark.parametrize("name", ["run.json", "governance/trust.json", "private/run.pem", "private/salts"])
def test_an_attempt_replaces_nothing_that_comes_from_the_plan(published, record, tmp_path, name):
    result = finished(published, record, tmp_path)
    digest = result.files.digests[rundir.METRICS]
    files = dataclasses.replace(result.files, digests={**result.files.digests, name: digest})
    published.write(f"results/{record.run_id}.json", dataclasses.replace(result, files=files))
    with pytest.raises(PlaceError, match="is not a file that comes from an attempt"):
        collect(published, record, tmp_path / "home" / record.run_id)
    assert not (tmp_path / "home" / record.run_id / rundir.RESULT).exists()


@pytest.mark.parametrize("name", ["../run.json", "/etc/passwd", "a/../../b", "a//b", ".", "a\\b", ""])
def test_no_published_name_leads_out_of_the_run_directory(published, record, tmp_path, name):
    result = finished(published, record, tmp_path)
    digest = result.files.digests[rundir.METRICS]
    files = dataclasses.replace(result.files, digests={**result.files.digests, name: digest})
    published.write(f"results/{record.run_id}.json", dataclasses.replace(result, files=files))
    with pytest.raises(PlaceError, match="is not the name of a file in a run directory"):
        collect(published, record, tmp_path / "home" / record.run_id)
    assert not (tmp_path / "home" / "run.json").exists()


def test_a_changed_file_is_no_result(large, published, record, tmp_path):
    result = finished(published, record, tmp_path)
    published.objects.put(
        f"attempts/{record.run_id}/00000001/{result.files.digests[rundir.METRICS]}", b"better numbers"
    )
    home = tmp_path / "home" / record.run_id
    with pytest.raises(PlaceError, match="damaged: its digest is"):
        collect(published, record, home)
    assert not (home / rundir.RESULT).exists(), "a run without all of its files has no result"


@pytest.mark.parametrize("content", ["YmV0dGVyIG51bWJlcnM=", "no base 64!"])
def test_a_changed_small_file_is_no_result(published, record, tmp_path, content):
    result = finished(published, record, tmp_path)
    files = dataclasses.replace(result.files, small={**result.files.small, rundir.METRICS: content})
    published.write(f"results/{record.run_id}.json", dataclasses.replace(result, files=files))
    home = tmp_path / "home" / record.run_id
    with pytest.raises(PlaceError, match=r"'metrics\.jsonl': damaged: "):
        collect(published, record, home)
    assert not (home / rundir.RESULT).exists()


def test_small_files_fill_a_record_only_so_far(published, record, tmp_path, monkeypatch):
    monkeypatch.setattr("explorer.place.published_sweep.MAX_SMALL", 1000)
    worker = Worker(published, record, tmp_path / "one")
    for name, size in (("a", 300), ("b", 301), ("c", 302), ("d", 303)):
        rundir.write_bytes(worker.directory / name, name.encode() * size)
    files = published.upload(worker.directory, record.run_id, 1, known={})
    assert set(files.small) == {"a", "b", "c"} and set(files.digests) == {"a", "b", "c", "d"}
    stored = [listed.key.rpartition("/")[2] for listed in published.objects.list(f"attempts/{record.run_id}/")]
    assert stored == [files.digests["d"]]


def test_a_result_of_another_run_is_refused(published, record, tmp_path):
    finished(published, record, tmp_path)
    other = run_record(seed=1)
    published.objects.put(
        f"results/{other.run_id}.json", published.objects.read(f"results/{record.run_id}.json", max_bytes=10**6)
    )
    with pytest.raises(PlaceError, match="not the result of this run"):
        collect(published, other, tmp_path / "home" / other.run_id)


def test_a_place_holds_one_sweep(published, record):
    with pytest.raises(PlaceError, match="holds sweep 'digits'; expected an empty place, or 'other'"):
        published.publish(PlanAt(sweep="other", classes=(ClassAt(machine=HERE, runs=(), profile=False),)), [])


def test_an_empty_place_is_named(tmp_path):
    with pytest.raises(PlaceError, match=r"no sweep is published here; expected plan\.json"):
        Published(DirectoryObjects(tmp_path / "none")).plan()

"""Opening shards: every byte is verified, every fault is named, memory and cache are bounded."""

import hashlib
import logging
import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from explorer.data.shards import shard_cache, shard_files
from explorer.data.shards.shard_cache import ShardCache, limit
from explorer.data.shards.shard_index import Index
from explorer.errors import DataError, PlaceError
from explorer.objects import DirectoryObjects, Missing
from tests.data.shards.written import DIGITS, opened, write


class Faulty(DirectoryObjects):
    """A place that fails as it is told to, for a number of requests."""

    fault: Exception | None = None
    flips = False
    times = 0
    asked = 0

    def read(self, key: str, *, max_bytes: int) -> bytes:
        content = super().read(key, max_bytes=max_bytes)
        self.asked += 1
        if self.times:
            self.times -= 1
            if self.fault is not None:
                raise self.fault
            if self.flips:
                return content[:100] + bytes([content[100] ^ 1]) + content[101:]
        return content


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setattr(shard_files, "PAUSES", (0.0, 0.0, 0.0))
    return write(DIGITS, tmp_path / "place")


@pytest.fixture
def place(tmp_path: Path, index: Index) -> Faulty:
    return Faulty(tmp_path / "place")


def test_a_flipped_byte_is_named_wherever_it_is(place: Faulty, index: Index) -> None:
    files = opened(place, index)
    files.opened([0])  # the shard is whole
    path = place.directory / index.train.shards[3].name
    content = path.read_bytes()
    for position in np.linspace(0, len(content) - 1, 25).astype(int).tolist():
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(DataError, match=r"shard .*train/000003.parquet: damaged: .* the index says"):
            opened(place, index).opened([3])
    path.write_bytes(content)
    assert len(opened(place, index).opened([3])[0]) == index.train.shards[3].rows


@pytest.mark.parametrize("fault", [Missing("no such object"), PlaceError("503"), None])
def test_a_fault_that_passes_is_waited_out(place: Faulty, index: Index, fault: Exception | None) -> None:
    place.fault, place.flips, place.times = fault, fault is None, 3
    assert len(opened(place, index).opened([1])[0]) == index.train.shards[1].rows
    assert place.asked == 4


def test_a_fault_that_stays_is_an_error_and_is_tried_again_when_asked(place: Faulty, index: Index) -> None:
    files = opened(place, index)
    place.fault, place.times = PlaceError("place/train/000001.parquet: 503"), 4
    with pytest.raises(DataError, match=r"shard place/train/000001.parquet: 503"):
        files.opened([1])
    assert len(files.opened([1])[0]) == index.train.shards[1].rows


def test_what_failed_ahead_is_asked_for_again_when_it_is_needed(place: Faulty, index: Index) -> None:
    """A store that was away for a while ends no run that did not need it then."""
    files = opened(place, index)
    place.fault, place.times = Missing("no such object"), 4
    files.expect([1])
    for future in [*files._open.values()]:
        assert isinstance(future.exception(), DataError)
    assert len(files.opened([1])[0]) == index.train.shards[1].rows


def test_a_shard_that_is_gone_is_named(place: Faulty, index: Index) -> None:
    (place.directory / index.train.shards[2].name).unlink()
    files = opened(place, index)
    files.expect([2])  # nothing is said before it is needed
    with pytest.raises(DataError, match=r"train/000002.parquet: no such object"):
        files.opened([0, 2])


def test_a_slow_store_is_reported(place: Faulty, index: Index, monkeypatch, caplog) -> None:
    monkeypatch.setattr(shard_files, "PATIENCE", 0.02)
    go = threading.Event()
    read = place.read

    def slow(key: str, *, max_bytes: int) -> bytes:
        go.wait(300)
        return read(key, max_bytes=max_bytes)

    monkeypatch.setattr(place, "read", slow)
    files = opened(place, index)
    with caplog.at_level(logging.WARNING):
        threading.Timer(0.3, go.set).start()
        files.opened([0])
    assert any("waiting for shard" in line for line in caplog.messages)


def test_memory_is_bounded(place: Faulty, index: Index) -> None:
    one = opened(place, index).opened([0])[0].bytes
    files = opened(place, index, memory=3 * one)
    most = 0
    for number in range(len(index.train.shards)):
        files.opened([number])
        most = max(most, sum(future.result().bytes for future in files._open.values()))
    assert most <= 3 * one
    place.asked = 0
    files.opened([len(index.train.shards) - 1])
    assert place.asked == 0  # it is still open
    files.opened([0])
    assert place.asked == 1  # and this one was closed


def test_a_read_looks_at_few_of_the_open_shards(place: Faulty, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads are many and open shards are many: one may not cost the number of the other."""
    files, looks = opened(place, index), 0
    files.opened(range(len(index.train.shards)))
    done = Future.done

    def counted(future: Future[object]) -> bool:
        nonlocal looks
        looks += 1
        return done(future)

    monkeypatch.setattr(Future, "done", counted)
    for _ in range(100):
        files.opened([0])
    assert looks <= 100 and len(files._open) == len(index.train.shards)


def test_what_is_expected_is_there(place: Faulty, index: Index) -> None:
    files = opened(place, index)
    files.expect_examples(np.array([70, 3, 71, 4]))
    for future in files._open.values():
        future.result(300)
    assert list(files._open) == [4, 0]  # in the order in which they are needed
    place.asked = 0
    files.opened([0, 4])
    assert place.asked == 0


# --- the cache -------------------------------------------------------------------------------------------------------


def test_a_damaged_cache_is_read_again(place: Faulty, index: Index, tmp_path: Path) -> None:
    cache = ShardCache(10**9, tmp_path / "cache")
    opened(place, index, cache=cache).opened([0])
    opened(place, index, cache=cache).opened([0])
    assert place.asked == 1  # the second time it came from the cache
    (path,) = (tmp_path / "cache").glob("*/*")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert len(opened(place, index, cache=cache).opened([0])[0]) == index.train.shards[0].rows
    assert place.asked == 2
    assert hashlib.sha256(path.read_bytes()).hexdigest() == index.train.shards[0].sha256


def test_the_cache_is_bounded_and_survives_crashes(tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    cache = ShardCache(10_000, directory)
    contents = [bytes([number]) * 1_000 for number in range(40)]
    digests = [hashlib.sha256(content).hexdigest() for content in contents]
    for number, (digest, content) in enumerate(zip(digests, contents, strict=True)):
        cache.write(digest, content)
        os.utime(directory / digest[:2] / digest, (number, number))
        assert sum(path.stat().st_size for path in directory.glob("*/*")) <= 10_000
    assert cache.read(digests[-1]) == contents[-1] and cache.read(digests[0]) is None
    # A process that was killed while it wrote leaves a draft, which a later one removes.
    old, new = directory / "aa" / ".0.1.tmp", directory / "aa" / ".0.2.tmp"
    for draft in (old, new):
        draft.parent.mkdir(exist_ok=True)
        draft.write_bytes(b"half")
    past = time.time() - 2 * shard_cache.OLD
    os.utime(old, (past, past))
    ShardCache(10_000, directory)
    assert not old.exists() and new.exists()


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").mkdir()
    cache = ShardCache(10_000, tmp_path / "cache")
    (tmp_path / "cache" / "ab").write_bytes(b"a file where a directory would be")
    with caplog.at_level(logging.WARNING):
        cache.write("ab" + "0" * 62, b"content")
    assert "cannot write" in caplog.text and cache.read("ab" + "0" * 62) is None


def test_the_size_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(shard_cache.VARIABLE, raising=False)
    assert (limit(local=True), limit(local=False)) == (0, shard_cache.USUAL)
    for written, bytes_ in (("300MB", 300_000_000), ("1.5 gb", 1_500_000_000), ("0", 0), ("4096", 4_096)):
        monkeypatch.setenv(shard_cache.VARIABLE, written)
        assert limit(local=True) == limit(local=False) == bytes_
    monkeypatch.setenv(shard_cache.VARIABLE, "much")
    with pytest.raises(DataError, match="found 'much', expected a size such as 300MB"):
        limit(local=True)

"""Readers beside a writer: no error, never a partial state; a writer killed at any moment loses nothing."""

import multiprocessing
import os
import random
import time

import pytest

from explorer.errors import RunError, StoreError
from explorer.store import queries
from explorer.store.ingest import ingest, rebuild
from explorer.store.published import database
from explorer.store.queries import Question
from explorer.store.upkeep import bring_up
from tests.builders import run_record, write_run, write_sweep
from tests.cli.command import explorer

SPAWN = multiprocessing.get_context("spawn")
CONSISTENT = Question(
    sql="SELECT (SELECT count(*) FROM results), (SELECT count(*) FROM runs WHERE state = 'finished'), "
    "(SELECT count(*) FROM metrics WHERE metric = 'accuracy'), (SELECT count(*) FROM finals) // 2"
)


def read_in_a_loop(path, stop, answers):
    """Ask until told to stop; send how often, the fewest and most runs seen, and every inconsistent answer."""
    seen, wrong = [], []
    while not stop.is_set():
        try:
            (counts,) = queries.select(path, CONSISTENT).rows
        except Exception as error:
            wrong.append(repr(error))
            break
        seen.append(counts[0])
        if len(set(counts)) != 1:
            wrong.append(counts)
        time.sleep(0.01)  # a reader, not a load test: the writer has to get on
    answers.put((len(seen), seen == sorted(seen), max(seen, default=0), wrong))


def ingest_in_a_loop(runs):
    while True:
        rebuild(runs)


@pytest.mark.slow
def test_a_reader_beside_a_writer_sees_whole_snapshots_only(tmp_path):
    write_sweep(tmp_path, {"baseline": {1.0: (0.9, 0.8)}})
    ingest(tmp_path)
    stop, answers = SPAWN.Event(), SPAWN.Queue()
    readers = [SPAWN.Process(target=read_in_a_loop, args=(database(tmp_path), stop, answers)) for _ in range(2)]
    for reader in readers:
        reader.start()
    for seed in range(2, 10):
        write_run(tmp_path, run_record(seed=seed))
        ingest(tmp_path)
    time.sleep(1.0)  # the readers' start-up is slow; give each of them a last look
    stop.set()
    found = [answers.get(timeout=600) for _ in readers]
    for reader in readers:
        reader.join(600)
    for times, rising, most, wrong in found:
        assert wrong == []
        assert times > 3
        assert rising
        assert most == 10


@pytest.mark.slow
def test_reading_in_the_process_that_writes_shows_what_was_just_published(tmp_path):
    for seed in range(4):
        write_run(tmp_path, run_record(seed=seed))
        ingest(tmp_path)
        assert len(queries.results(database(tmp_path)).rows) == seed + 1


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_an_ingester_killed_at_any_moment_loses_nothing(tmp_path, times):
    write_sweep(tmp_path, {"baseline": {ssr: (0.7, 0.8, 0.9) for ssr in (0.25, 0.5, 1.0)}})
    expected = queries.results(ingest(tmp_path).database).rows
    chance = random.Random(7)
    for _ in range(times):
        worker = SPAWN.Process(target=ingest_in_a_loop, args=(tmp_path,))
        before = database(tmp_path).stat().st_mtime_ns
        worker.start()
        deadline = time.monotonic() + 60
        while database(tmp_path).stat().st_mtime_ns == before:
            assert worker.is_alive() and time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.4))
        worker.kill()
        worker.join(600)
        assert queries.results(database(tmp_path)).rows == expected
        assert ingest(tmp_path).problems == ()
        assert queries.results(database(tmp_path)).rows == expected
    assert sorted(path.name for path in (tmp_path / "_store").iterdir()) == [".lock", "store.duckdb"]


@pytest.fixture
def unprivileged():
    """Be somebody whom permissions stop, also where tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def enterable(tmp_path):
    """A directory that everybody may enter, though pytest keeps its own to itself."""
    for parent in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and parent.stat().st_mode & 0o055 != 0o055:
            parent.chmod(parent.stat().st_mode | 0o055)
    runs = tmp_path / "runs"
    runs.mkdir()
    yield runs
    for path in (runs, *runs.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)


def make_read_only(directory):
    for path in (*directory.rglob("*"), directory):
        path.chmod(0o555 if path.is_dir() else 0o444)


def test_a_read_only_directory_can_be_read_and_refuses_an_ingest_clearly(enterable, request):
    write_sweep(enterable, {"baseline": {1.0: (0.9,)}})
    ingest(enterable)
    write_run(enterable, run_record(seed=5))
    make_read_only(enterable)
    request.getfixturevalue("unprivileged")
    assert len(queries.results(database(enterable)).rows) == 1
    with pytest.raises((StoreError, RunError), match=r"cannot (lock|write)"):
        ingest(enterable)
    assert len(queries.results(database(enterable)).rows) == 1


@pytest.mark.slow
def test_a_report_beside_read_only_runs_says_where_else_it_can_go(enterable, request, tmp_path):
    write_sweep(enterable, {"baseline": {0.5: (0.8, 0.81), 1.0: (0.9, 0.91)}, "fast": {1.0: (0.92, 0.93)}})
    elsewhere = tmp_path / "report.json"
    assert explorer("report", "digits", "--format", "json", "--runs", enterable).returncode == 0  # also loads all parts
    elsewhere.touch()
    elsewhere.chmod(0o666)
    tmp_path.chmod(0o777)
    make_read_only(enterable)
    request.getfixturevalue("unprivileged")
    done = explorer("report", "digits", "--format", "json", "--runs", enterable)
    assert done.returncode == 1 and "name another place with --out" in done.stderr
    assert explorer("report", "digits", "--format", "json", "--out", elsewhere, "--runs", enterable).returncode == 0


def test_read_only_runs_without_a_database_are_an_error_that_says_what_to_do(enterable, request):
    write_sweep(enterable, {"baseline": {1.0: (0.9,)}})
    make_read_only(enterable)
    request.getfixturevalue("unprivileged")
    with pytest.raises(StoreError, match=r"has no database, and none can be made .*explorer store ingest"):
        bring_up(enterable)


def test_a_store_directory_that_cannot_be_made_is_an_error(tmp_path):
    write_run(tmp_path, run_record())
    (tmp_path / "_store").write_text("in the way")
    with pytest.raises(RunError, match="cannot lock"):
        ingest(tmp_path)


def test_a_snapshot_that_cannot_take_its_place_is_an_error_and_leaves_the_runs(tmp_path):
    write_run(tmp_path, run_record())
    database(tmp_path).mkdir()
    with pytest.raises(StoreError, match=r"cannot write .*explorer\.duckdb"):
        ingest(tmp_path)
    database(tmp_path).rmdir()
    ingest(tmp_path)
    assert len(queries.results(database(tmp_path)).rows) == 1

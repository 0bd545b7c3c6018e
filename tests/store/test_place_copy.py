"""Results at a place: what is published of a sweep, and what readers without its runs get to see."""

import json
import shutil
from pathlib import Path

import duckdb
import pytest

from explorer.errors import StoreError
from explorer.objects import Objects, open_objects
from explorer.store import place_copy, queries
from explorer.store.ingest import extract, ingest
from explorer.store.place_copy import copy_of, publish_results
from explorer.store.published import database, opened
from explorer.store.upkeep import bring_up
from explorer.views.explore import explore
from tests.builders import run_record, write_profile, write_run
from tests.cli.command import explorer, refused
from tests.sample import write_sample


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def runs(tmp_path) -> Path:
    """Two sweeps, of which `digits` is at a place."""
    write_sample(tmp_path / "runs")
    write_sample(tmp_path / "runs", sweep="secret", seeds=1)
    ingest(tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture(params=["directory", pytest.param("bucket", marks=pytest.mark.slow)])
def place(request, tmp_path) -> str:
    return str(tmp_path / "place") if request.param == "directory" else request.getfixturevalue("bucket")


def snapshot_key(objects: Objects) -> str:
    (listed,) = objects.list("snapshots/")
    return listed.key


@pytest.mark.slow
def test_readers_see_what_is_seen_at_home(runs, place):
    publish_results(runs, "digits", place)
    for more in ((), ("--rows",), ("--format", "csv"), ("--metric", "nll")):
        there, here = (explorer("results", "digits", *more, *where) for where in (("--at", place), ("--runs", runs)))
        assert there.returncode == here.returncode == 0, there.stderr
        shown = there.stdout.replace(f" --at {place}", ""), here.stdout.replace(f" --runs {runs}", "")
        assert shown[0] == shown[1] and "fast" in shown[0]
        assert more or f"explorer results digits --rows --at {place}" in there.stdout
    there, here = (explorer("ask", "digits", *where) for where in (("--at", place), ("--runs", runs)))
    assert (there.returncode, there.stdout.splitlines()[:3]) == (here.returncode, here.stdout.splitlines()[:3])
    assert len(explore(copy_of(place)).shown) == 45
    assert "did you mean 'digits'" in refused("results", "digit", "--at", place)


def test_no_row_of_another_sweep_leaves_this_machine(runs, place):
    publish_results(runs, "digits", place)
    copy = database(copy_of(place))
    assert queries.sweeps(copy) == ["digits"]
    with opened(copy) as connection:
        for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            assert "secret" not in str(connection.execute(f"FROM {table}").fetchall()), table
    assert b"secret" not in copy.read_bytes()
    assert queries.sweeps(database(runs)) == ["digits", "secret"], "the control: at home both are there"


@pytest.mark.slow
def test_an_old_copy_is_fetched_again_and_a_current_one_is_not(runs, place, monkeypatch):
    publish_results(runs, "digits", place)
    objects, first = open_objects(place), copy_of(place)
    before = snapshot_key(objects)
    count = sum(queries.states(database(first)).values())
    with monkeypatch.context() as patch:
        patch.setattr(place_copy.rundir, "write_bytes", lambda *_: pytest.fail("it was fetched again"))
        patch.setattr(place_copy.rundir, "write_json", lambda *_: None)
        assert copy_of(place) == first
    shutil.rmtree(next((runs / "digits").glob("*fast*")))
    ingest(runs)
    publish_results(runs, "digits", place)
    publish_results(runs, "digits", place)  # changes nothing
    assert len(list(objects.list("snapshots/"))) == 2, "a reader may be fetching the one before"
    assert bring_up(first) == (), "as a notebook that is open does"
    assert sum(queries.states(database(first)).values()) == count - 1
    shutil.rmtree(next((runs / "digits").glob("*fast*")))
    ingest(runs)
    publish_results(runs, "digits", place)
    assert before not in {listed.key for listed in objects.list("snapshots/")}


def test_a_damaged_snapshot_is_named_and_not_shown(runs, place):
    publish_results(runs, "digits", place)
    objects = open_objects(place)
    key = snapshot_key(objects)
    content = objects.read(key, max_bytes=2**30)
    objects.put(key, content[:-1] + bytes([content[-1] ^ 1]))
    assert f"{key}: damaged: its digest is" in refused("results", "digits", "--at", place)
    assert not list(place_copy.rundir.cache_directory().rglob("*.duckdb"))
    objects.put(key, content + b"more")
    assert "too large" in refused("results", "digits", "--at", place)
    objects.put(key, content)
    copy = copy_of(place)
    database(copy).write_bytes(b"changed in the cache")
    assert explorer("results", "digits", "--at", place).returncode == 0, "it is fetched again"
    pointer = json.loads(objects.read("snapshot.json", max_bytes=10_000))
    for changed in ({"size": 2**40}, {"digest": "../../etc/passwd"}, {"more": 1}):
        objects.put("snapshot.json", json.dumps({**pointer, **changed}).encode())
        assert "snapshot.json" in refused("results", "digits", "--at", place)
        (warning,) = bring_up(copy)
        assert "shown is what was fetched before" in warning


def test_a_place_without_results_says_what_is_expected(tmp_path):
    message = refused("results", "--at", tmp_path / "nowhere")
    assert "has no results yet" in message and "sweep run --at" in message
    assert "expected with explore" in refused("open", "sweep", "--at", tmp_path / "nowhere")


def test_a_snapshot_of_another_version_is_named(runs, tmp_path):
    publish_results(runs, "digits", str(tmp_path / "place"))
    copy = Path(shutil.copy(extract(runs, "digits"), tmp_path / "other.duckdb"))
    with duckdb.connect(copy) as connection:
        connection.execute("UPDATE schema_version SET version = 1")
    content = copy.read_bytes()
    objects = open_objects(str(tmp_path / "place"))
    digest = place_copy.hashlib.sha256(content).hexdigest()
    objects.put(f"snapshots/{digest}", content)
    pointer = {"format": 1, "sweep": "digits", "digest": digest, "size": len(content)}
    objects.put("snapshot.json", json.dumps(pointer).encode())
    assert "of another version of explorer" in refused("results", "--at", tmp_path / "place")


def test_a_copy_is_only_read(runs, tmp_path):
    publish_results(runs, "digits", str(tmp_path / "place"))
    copy = copy_of(str(tmp_path / "place"))
    before = database(copy).read_bytes()
    with pytest.raises(StoreError, match="a copy of what a place has published"):
        ingest(copy)
    assert "a copy of what a place has published" in refused("store", "ingest", "--runs", copy)
    assert database(copy).read_bytes() == before


def test_prices_of_the_user_stay_here(tmp_path):
    runs = tmp_path / "runs"
    record = run_record()
    write_run(runs, record)
    write_profile(runs, record)
    ingest(runs)
    priced = ("--hardware", "AMD EPYC", "--usd-per-hour", "12.34", "--source", "a contract")
    assert explorer("prices", "add", *priced, "--runs", runs).returncode == 0
    publish_results(runs, record.sweep, str(tmp_path / "place"))
    rates = []
    for where in (runs, copy_of(str(tmp_path / "place"))):
        with opened(database(where)) as connection:
            rates.append(connection.execute("SELECT usd_per_accelerator_hour FROM rates").fetchall())
    assert rates == [[(12.34,)], []]
    assert b"a contract" not in database(copy_of(str(tmp_path / "place"))).read_bytes()

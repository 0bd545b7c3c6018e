"""What is in the run directories decides: new, changed, gone and damaged runs; twice changes nothing."""

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from explorer import run_files, rundir
from explorer.errors import RunError, StoreError
from explorer.run_files import ProfileRecord, RunRecord
from explorer.store import published, queries
from explorer.store.ingest import ingest, rebuild
from explorer.store.published import database
from explorer.store.queries import Question
from explorer.store.run_sources import file_digest
from tests.builders import run_record, write_failure, write_profile, write_run, write_sweep

TABLES = ("runs", "finals", "metrics", "timings", "profiles", "prices", "problems", "results", "qualities")


@pytest.fixture
def runs(tmp_path):
    write_sweep(tmp_path, {"baseline": {0.5: (0.8, 0.81), 1.0: (0.9, 0.91)}, "fast": {1.0: (0.92,)}})
    return tmp_path


def ask(runs, sql):
    return queries.select(database(runs), Question(sql=sql)).rows


def everything(runs):
    with queries.opened(database(runs)) as connection:
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY ALL").fetchall() for name in TABLES}


def states(runs):
    return dict(ask(runs, "SELECT run_id, state FROM runs"))


def test_finished_runs_are_results(runs):
    done = ingest(runs)
    assert (done.added, done.unchanged, done.removed, done.problems) == (7, 0, 0, ())
    assert done.database == runs / "explorer.duckdb"
    assert ask(runs, "SELECT recipe, ssr, seed, quality FROM results ORDER BY ALL") == (
        ("baseline", 0.5, 0, 0.8),
        ("baseline", 0.5, 1, 0.81),
        ("baseline", 1.0, 0, 0.9),
        ("baseline", 1.0, 1, 0.91),
        ("fast", 1.0, 0, 0.92),
    )


def test_twice_changes_nothing(runs):
    ingest(runs)
    before, content = everything(runs), database(runs).read_bytes()
    again = ingest(runs)
    assert (again.added, again.unchanged, again.published) == (0, 7, False)
    assert database(runs).read_bytes() == content
    assert everything(runs) == before


def test_rebuild_gives_the_same_answers(runs):
    write_failure(runs, run_record(recipe="failed"))
    ingest(runs)
    shutil.rmtree(next((runs / "digits").glob("*fast*")))
    ingest(runs)
    write_run(runs, run_record(recipe="late"))
    ingest(runs)
    before = everything(runs)
    rebuild(runs)
    assert everything(runs) == before
    shutil.rmtree(runs / "_store")
    database(runs).unlink()
    ingest(runs)
    assert everything(runs) == before


def test_rebuild_shows_what_changed_since_even_if_as_much_happened(runs):
    """As many changes, and another content: counting changes would take the old snapshot for the new one."""
    ingest(runs)
    directory = next((runs / "digits").glob("*fast*"))
    shutil.rmtree(directory)
    write_run(runs, run_record(recipe="other"))
    rebuild(runs)
    assert {recipe for (recipe,) in ask(runs, "SELECT recipe FROM results")} == {"baseline", "other"}


def test_a_writer_killed_while_it_made_the_database_is_no_damage(runs):
    """What it left: a file cut off in its first block, and the log of a database that was to be made anew."""
    ingest(runs)
    before, store = everything(runs), runs / "_store"
    content = (store / "store.duckdb").read_bytes()
    (store / "store.duckdb").unlink()
    (store / "fresh.duckdb").write_bytes(content[:5000])
    (store / "fresh.duckdb.wal").write_bytes(b"cut off")
    (store / "store.duckdb.wal").write_bytes(b"of another database")
    ingest(runs)
    assert everything(runs) == before
    assert sorted(path.name for path in store.iterdir()) == [".lock", "store.duckdb"]


def test_what_a_killed_writer_left_is_removed_also_when_nothing_changed(runs):
    ingest(runs)
    left = runs / "_store" / "snapshot.duckdb"
    left.write_bytes(b"half a database")
    ingest(runs)
    assert not left.exists()


def test_rebuild_mends_a_snapshot_that_is_torn_in_the_middle(runs):
    ingest(runs)
    before, content = everything(runs), bytearray(database(runs).read_bytes())
    content[-262_144:] = b"\xaa" * 262_144
    database(runs).write_bytes(content)
    with pytest.raises(StoreError, match="explorer store rebuild"):
        for name in TABLES:
            ask(runs, f"FROM {name}")
    rebuild(runs)
    assert everything(runs) == before


def test_only_finished_runs_are_results_and_the_others_are_seen(runs):
    write_failure(runs, run_record(recipe="failed"))
    write_run(runs, run_record(recipe="half"), finished=False)
    running = write_run(runs, run_record(recipe="running"), finished=False)
    with rundir.locked(running, what="run"):
        ingest(runs)
    assert {recipe for (recipe,) in ask(runs, "SELECT recipe FROM results")} == {"baseline", "fast"}
    found = dict(ask(runs, "SELECT recipe, state FROM runs WHERE state <> 'finished'"))
    assert found == {"failed": "failed", "half": "interrupted", "running": "running"}
    ((failure, message, attempts),) = ask(
        runs, "SELECT failure, failure_message, attempts FROM runs WHERE recipe = 'failed'"
    )
    assert (failure, message, attempts) == ("exception", "out of memory", 2)
    ingest(runs)
    assert dict(ask(runs, "SELECT recipe, state FROM runs"))["running"] == "interrupted"


def test_a_run_that_finishes_later_becomes_a_result(runs):
    record = run_record(recipe="late")
    write_run(runs, record, finished=False)
    ingest(runs)
    write_run(runs, record, metrics={"accuracy": 0.7, "nll": 0.5})
    assert ingest(runs).added == 1
    assert ask(runs, "SELECT quality FROM results WHERE recipe = 'late'") == ((0.7,),)


@pytest.mark.slow
def test_a_run_that_was_run_again_counts_once_with_its_new_result(runs):
    record = run_record(recipe="again")
    directory = write_run(runs, record, metrics={"accuracy": 0.7, "nll": 0.5})
    ingest(runs)
    shutil.rmtree(directory)
    write_run(runs, record, metrics={"accuracy": 0.6, "nll": 0.6})
    ingest(runs)
    assert ask(runs, "SELECT quality FROM results WHERE recipe = 'again'") == ((0.6,),)
    last = "SELECT count(*), max(step) FROM metrics WHERE run_id LIKE '%again%' AND metric = 'accuracy'"
    assert ask(runs, last) == ((1, 80),)
    shutil.rmtree(directory)
    write_run(runs, record, metrics={"accuracy": 0.7, "nll": 0.5})
    ingest(runs)
    assert ask(runs, "SELECT quality FROM results WHERE recipe = 'again'") == ((0.7,),)
    assert ask(runs, last) == ((1, 80),)


def test_a_run_that_is_gone_is_gone(runs):
    ingest(runs)
    shutil.rmtree(next((runs / "digits").glob("*fast*")))
    assert ingest(runs).removed == 1
    assert ask(runs, "SELECT * FROM results WHERE recipe = 'fast'") == ()
    assert ingest(runs).removed == 0


def test_a_damaged_run_is_reported_and_the_others_go_on(runs):
    damaged = next((runs / "digits").glob("*fast*"))
    content = (damaged / rundir.METRICS).read_text()
    (damaged / rundir.METRICS).write_text(content + '{"step": 80, "metric": "lr", "value": 1}\n')
    (runs / "digits" / "no-run-record").mkdir()
    (runs / "digits" / "no-run-record" / rundir.RESULT).write_text("{}")
    for done in (ingest(runs), ingest(runs)):
        assert [problem.directory for problem in done.problems] == ["digits/no-run-record", f"digits/{damaged.name}"]
        assert "changed: digest" in done.problems[1].reason
    assert len(ask(runs, "SELECT * FROM results")) == 4
    assert states(runs)["no-run-record"] == "damaged"
    (damaged / rundir.METRICS).write_text(content)
    assert len(ingest(runs).problems) == 1
    assert len(ask(runs, "SELECT * FROM results")) == 5


def test_a_run_that_is_damaged_after_it_was_read_is_damaged_after_a_rebuild(runs):
    ingest(runs)
    (next((runs / "digits").glob("*fast*")) / rundir.METRICS).write_text("")
    assert rebuild(runs).problems


def test_what_is_no_run_is_left_alone(runs):
    (runs / "digits" / "notes").mkdir()
    (runs / "file").write_text("x")
    outside = write_run(runs / "_elsewhere", run_record(recipe="outside"))
    (runs / "digits" / outside.name).symlink_to(outside)
    (runs / "linked").symlink_to(outside.parent)
    assert ingest(runs).added == 7


def test_two_sweeps_may_hold_the_same_run(runs):
    write_run(runs, run_record(sweep="second", recipe="baseline", seed=1), metrics={"accuracy": 0.5, "nll": 1.0})
    ingest(runs)
    found = ask(
        runs, "SELECT sweep, quality FROM results WHERE recipe = 'baseline' AND ssr = 1 AND seed = 1 ORDER BY 1"
    )
    assert found == (("digits", 0.91), ("second", 0.5))
    assert queries.sweeps(database(runs)) == ["digits", "second"]


@pytest.mark.slow
def test_metrics_of_a_run_that_trains_are_there_only_live(runs):
    record = run_record(recipe="running")
    directory = write_run(runs, record, finished=False)
    count = "SELECT count(*) FROM metrics WHERE run_id LIKE '%running%'"
    with rundir.locked(directory, what="the run"):
        ingest(runs)
        assert ask(runs, count) == ((0,),)
        ingest(runs, live=True)
        assert ask(runs, count) == ((6,),)
        with (directory / rundir.METRICS).open("a") as file:
            file.write('{"step": 41, "metric": "train_loss", "value": 0.5}\n{"step": 4')
        ingest(runs, live=True)
        assert ask(runs, count) == ((7,),)
        ingest(runs)
        assert ask(runs, count) == ((0,),)
    write_run(runs, record)
    ingest(runs, live=True)
    before = everything(runs)
    rebuild(runs)
    assert everything(runs) == before


@pytest.mark.slow
def test_metrics_of_a_run_that_stopped_are_kept_and_follow_its_next_attempt(runs):
    directory = write_failure(runs, run_record(recipe="stopped"))
    count = "SELECT count(*), max(step) FROM metrics WHERE run_id LIKE '%stopped%'"
    ingest(runs)
    ((before, last),) = ask(runs, count)
    assert before == 6
    # The records do not change while the next attempt measures on, and fails alike.
    with (directory / rundir.METRICS).open("a") as file:
        file.write(f'{{"step": {last + 1}, "metric": "train_loss", "value": 0.5}}\n')
    ingest(runs)
    assert ask(runs, count) == ((before + 1, last + 1),)
    first = everything(runs)
    rebuild(runs)
    assert everything(runs) == first


def test_damaged_profiles_are_reported_and_not_used(runs):
    path = write_profile(runs, run_record(recipe="fast", methods=("fast",)))
    path.with_name("0123456789abcdef.json").write_bytes(path.read_bytes())
    path.write_text("{")
    done = ingest(runs)
    reasons = {problem.directory.rsplit("/")[-1]: problem.reason for problem in done.problems}
    assert "not JSON" in reasons[path.name]
    assert "not the one that the file is named for" in reasons["0123456789abcdef.json"]
    assert ask(runs, "SELECT train_seconds, time_source FROM results WHERE recipe = 'fast'") == ((None, None),)


def test_a_profile_that_is_made_again_changes_the_times(runs):
    record = run_record(recipe="fast", methods=("fast",))
    ingest(runs)
    path = write_profile(runs, record, seconds=0.5)
    ingest(runs)
    assert ask(runs, "SELECT train_seconds FROM results WHERE recipe = 'fast'") == ((40.0,),)
    path.unlink()
    ingest(runs)
    assert ask(runs, "SELECT train_seconds FROM results WHERE recipe = 'fast'") == ((None,),)


def test_a_sweep_without_a_profile_uses_that_of_another(runs):
    record = run_record(recipe="fast", methods=("fast",), sweep="second")
    write_run(runs, record)
    ingest(runs)
    seconds = "SELECT train_seconds FROM results WHERE sweep = 'second'"
    assert ask(runs, seconds) == ((pytest.approx(0.8),),)
    write_profile(runs, record, seconds=0.1)
    ingest(runs)
    assert ask(runs, seconds) == ((pytest.approx(8.0),),)


def test_a_second_ingester_waits_and_then_says_who_is_in_the_way(runs):
    with rundir.locked(runs / "_store", what="the database"), pytest.raises(RunError, match="in use by process"):
        ingest(runs, patience=0.1)
    assert ingest(runs, patience=0.1).added == 7


@pytest.mark.parametrize("content", [b"", b"not a database", b"\0" * 100_000])
def test_a_damaged_working_database_names_the_command_that_helps(runs, content):
    ingest(runs)
    before = everything(runs)
    (runs / "_store" / "store.duckdb").write_bytes(content)
    if content:
        with pytest.raises(StoreError, match="explorer store rebuild"):
            ingest(runs)
    rebuild(runs)
    assert everything(runs) == before


def test_a_working_database_torn_in_the_middle_names_the_command_that_helps(runs):
    ingest(runs)
    before = everything(runs)
    path = runs / "_store" / "store.duckdb"
    content = bytearray(path.read_bytes())
    content[12_288:] = b"\xaa" * (len(content) - 12_288)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="explorer store rebuild"):
        ingest(runs)
    rebuild(runs)
    assert everything(runs) == before


@pytest.mark.parametrize("other", [published.VERSION - 1, published.VERSION + 1], ids=["older", "newer"])
def test_a_database_of_another_schema_names_the_command_that_helps(runs, other):
    ingest(runs)
    for path in (runs / "_store" / "store.duckdb", database(runs)):
        with duckdb.connect(path) as connection:
            connection.execute("UPDATE schema_version SET version = ?", [other])
    with pytest.raises(StoreError, match="explorer store rebuild"):
        ingest(runs)
    with pytest.raises(StoreError, match="explorer store rebuild"):
        ask(runs, "FROM runs")
    rebuild(runs)
    assert len(ask(runs, "FROM results")) == 5


def without_defaults(kind, said):
    """The JSON of a record as it was before it had the fields that may be absent."""
    later = {field.name for field in dataclasses.fields(kind) if field.default is not dataclasses.MISSING}
    return {name: value for name, value in said.items() if name == "format" or name not in later}


def test_what_older_versions_wrote_is_read(runs):
    """Of runs, results and profiles that lack all that may be absent, nothing is asked for."""
    ingest(runs)
    before = everything(runs)
    shortened = 0
    for kind, pattern in ((RunRecord, "*/run.json"), (ProfileRecord, f"{rundir.PROFILES}/*.json")):
        for path in sorted((runs / "digits").glob(pattern)):
            said = rundir.read_json(path)
            older = without_defaults(kind, said)
            shortened += len(said) - len(older)
            rundir.write_json(path, older)
    for path in (runs / "digits").glob("*/result.json"):
        said = rundir.read_json(path)
        del said["timings"]["compile"]
        said["files"][rundir.RUN] = file_digest(path.with_name(rundir.RUN))
        rundir.write_json(path, said)
    assert shortened > 10
    rebuild(runs)
    after = everything(runs)
    assert after.keys() == before.keys()
    assert after["results"] == before["results"] and len(after["results"]) == 5
    assert after["profiles"] == before["profiles"]


def test_a_damaged_snapshot_is_named_and_made_anew(runs):
    ingest(runs)
    before = everything(runs)
    database(runs).write_bytes(b"not a database")
    with pytest.raises(StoreError, match="explorer store rebuild"):
        ask(runs, "FROM runs")
    assert ingest(runs).published
    assert everything(runs) == before


def test_an_absent_database_names_the_command_that_makes_it(tmp_path):
    with pytest.raises(StoreError, match=r"there is no database .*explorer store ingest"):
        queries.sweeps(database(tmp_path))
    with pytest.raises(StoreError, match="there is no directory"):
        ingest(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()


def test_an_empty_directory_makes_an_empty_database(tmp_path):
    assert ingest(tmp_path).added == 0
    assert queries.results(database(tmp_path)).rows == ()


def test_the_storage_version_is_the_oldest_supported(runs):
    ingest(runs)
    for path in (runs / "_store" / "store.duckdb", database(runs)):
        with duckdb.connect(path, read_only=True) as connection:
            (tags,) = connection.execute("SELECT tags FROM duckdb_databases() WHERE NOT internal").fetchone() or ({},)
        assert "v1.5.0" in tags["storage_version"]


def test_history_is_kept_in_the_working_database(runs):
    record = run_record(recipe="late")
    write_run(runs, record, finished=False)
    ingest(runs)
    write_run(runs, record)
    ingest(runs)
    with duckdb.connect(runs / "_store" / "store.duckdb", read_only=True) as connection:
        found = connection.execute("SELECT state FROM sources WHERE path LIKE '%late%' ORDER BY sequence").fetchall()
        indexes = connection.execute("SELECT count(*) FROM duckdb_indexes()").fetchone()
    assert found == [("interrupted",), ("finished",)]
    assert indexes == (0,)


def test_profiles_keep_their_split(runs):
    record = run_record(recipe="split", phases={"small": 30, "large": 50})
    path = write_profile(runs, record, seconds={"small": 0.01, "large": 0.03}, inference=0.002)
    assert run_files.read(ProfileRecord, path).key == path.stem
    ingest(runs)
    found = ask(runs, "SELECT phase, seconds, split['forward'], inference_seconds FROM profiles WHERE recipe = 'split'")
    assert found == (("large", 0.03, 0.012, 0.002), ("small", 0.01, 0.004, 0.002))


def test_records_are_kept_as_they_are(runs):
    ingest(runs)
    record = json.loads(next((runs / "digits").glob("*fast*/run.json")).read_text())
    ((identity, phases),) = ask(runs, "SELECT identity, phases FROM runs WHERE recipe = 'fast'")
    assert json.loads(identity) == record["identity"]
    assert phases == record["phases"]


DETACHED = "IO Error: Detached database 'work', but CHECKPOINT during DETACH failed"


@pytest.mark.parametrize(
    ("free", "words"),
    [
        (2**20, r"^the disk that holds .*_store is full: 1\.0 MiB are free, expected 16 or more\. .*Detached database"),
        (2**40, r"store\.duckdb: cannot be used \(.*Detached database.*explorer store rebuild"),
    ],
)
def test_a_full_disk_is_named_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, words: str) -> None:
    """The control: the same error of the database where there is room."""
    write_run(tmp_path, run_record())

    def refused(*_: object, **__: object) -> bool:
        raise duckdb.IOException(DETACHED)

    monkeypatch.setattr("explorer.store.ingest.publish", refused)
    monkeypatch.setattr("explorer.store.ingest.shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    with pytest.raises(StoreError, match=words):
        ingest(tmp_path)

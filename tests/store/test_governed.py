"""Governed runs in the database: sums that add up, decisions, profiles, heads; damage is told, others cost nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from explorer import rundir
from explorer.audit.shares import shares
from explorer.entries.kinds import Decision, encode
from explorer.errors import StoreError
from explorer.ledger.log import Log
from explorer.run_files import Timings
from explorer.runlog.run_ledger import RunLedger
from explorer.store import frames, queries, spool_reader
from explorer.store.ingest import GOVERNED, governed_rows, ingest, rebuild
from explorer.store.published import database
from explorer.store.queries import Question
from tests.audit.governed_run import CLASSES, LAYERS, NEWS, signer, write_governed_run
from tests.builders import change_result, run_record, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs")
    write_governed_run(directory, exact=True)
    write_run(directory, run_record())
    assert ingest(directory).problems == ()
    return directory


def governed_run(runs: Path) -> Path:
    (run,) = (runs / "digits").glob("*governed*")
    return run


def ask(runs: Path, sql: str) -> tuple[tuple[Any, ...], ...]:
    return queries.select(database(runs), Question(sql=sql)).rows


def test_contributions_are_sums_over_segments(runs: Path) -> None:
    assert set(frames.contributions(database(runs))["run_id"]) == {governed_run(runs).name}
    assert {(0, 4), (5, 9), (10, 11)} <= set(ask(runs, "SELECT DISTINCT first_step, last_step FROM contributions"))
    sums = "SELECT class, layer, sum(share_num), sum(examples) FROM contributions GROUP BY ALL"
    totals = {(path, layer): (num, examples) for path, layer, num, examples in ask(runs, sums)}
    found = shares(RunLedger(governed_run(runs)))
    for place, path in enumerate(CLASSES):
        for at, layer in enumerate(LAYERS):
            whole = sum(totals[each, layer][0] for each in CLASSES)
            assert totals[path, layer][0] / whole == pytest.approx(found.share[0, place, at], abs=1e-9)
            assert totals[path, layer][1] == found.examples[0, place, at]


def test_profiles_decisions_and_heads(runs: Path) -> None:
    assert ask(runs, "SELECT count(*), sum(chi) FILTER (class = '*'), max(step) FROM entropy") == ((32, 4.0, 9),)
    taken = ask(runs, "SELECT entry, step, action, rule, parameters, subjects, layers, superseded FROM decisions")
    assert taken == tuple(
        (entry, step, "freeze", "entropy-settled", {"tolerance": 0.01}, [NEWS], ["embed"], False)
        for entry, step in ((5, 3), (14, 9))
    )
    checkpoint = RunLedger(governed_run(runs)).ledger.checkpoint()
    assert ask(runs, "SELECT origin, size, root FROM ledger_heads") == (
        (checkpoint.origin, checkpoint.size, checkpoint.root.hex()),
    )
    assert len(frames.decisions(database(runs), run_id="nobody")) == 0


def test_results_say_what_governed_a_run_and_what_it_took(runs: Path, tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    change_result(run, timings=Timings(forward=2.0, other=1.0, governance=1.0, warmup=7.0, evaluation=8.0))
    write_run(tmp_path, run_record())
    late = run / rundir.ENTROPY / "step-00000009.parquet"
    rows = pq.read_table(late).to_pylist()
    for row, chi in zip((row for row in rows if row["class"] == "*"), (0.3, 0.9, float("nan"), 0.2), strict=True):
        row["chi"] = chi  # at the profile before it is 0.5 everywhere; chance is 0.1
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(late)), late)
    assert ingest(tmp_path).problems == ()
    columns = "policy, chi, ledger_overhead, ledger_size, ledger_root"
    ungoverned, found = ask(tmp_path, f"SELECT {columns} FROM results ORDER BY recipe")
    checkpoint = RunLedger(run).ledger.checkpoint()
    assert found == ("half-depth version 1", pytest.approx(0.8), 0.25, checkpoint.size, checkpoint.root.hex())
    assert ungoverned == (None,) * 5
    assert ask(runs, "SELECT chi, ledger_overhead FROM results WHERE policy IS NOT NULL") == (
        (pytest.approx(0.4), 0.0),
    )


def test_rebuilt_it_is_the_same(runs: Path) -> None:
    tables = {name: ask(runs, f"SELECT * FROM {name} ORDER BY ALL") for name in GOVERNED}
    assert [name for name, rows in tables.items() if not rows] == ["deletions"]
    rebuild(runs)
    assert {name: ask(runs, f"SELECT * FROM {name} ORDER BY ALL") for name in GOVERNED} == tables


def test_an_ungoverned_run_costs_a_look_at_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, run_record())
    monkeypatch.setattr(spool_reader, "select", lambda *_: pytest.fail("asked a spool"))
    assert ingest(tmp_path).problems == ()
    assert ask(tmp_path, "SELECT count(*) FROM contributions") == ((0,),)


def test_what_was_executed_again_supersedes(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, finished=False)
    again = Decision(
        step=5,
        action="re-execution",
        rule="other-bits",
        parameters={},
        condition=None,
        subjects=(),
        layers=(),
        evidence={},
        blobs={},
    )
    with Log.open(run / rundir.LEDGER, signer=signer(run)) as log:
        log.append([encode(again)])
    rows = governed_rows(run, ())["decisions"]
    assert [(step, superseded) for _, step, *_, superseded in rows] == [(3, False), (9, True), (5, False)]


def damage_schema(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns(["norm"]), path)


def damage_text(path: Path) -> None:
    table = pq.read_table(path)
    words = pa.array(["x"] * len(table))
    pq.write_table(table.set_column(table.schema.get_field_index("share_num"), "share_num", words), path)


def damage_link(path: Path) -> None:
    path.rename(path.with_suffix(".old"))
    path.symlink_to(path.with_suffix(".old"))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(b"PAR1 and no more"), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-40]), "cannot be read"),
        (damage_schema, "expected step, layer, class"),
        (damage_text, "cannot be read: Conversion Error"),
        (damage_link, "not a regular file"),
    ],
    ids=["no parquet", "cut off", "columns", "text", "link"],
)
def test_a_damaged_spool_is_told_and_the_others_go_on(
    tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    run = write_governed_run(tmp_path)
    write_run(tmp_path, run_record())
    damage(run / rundir.CONTRIBUTIONS / "segment-00000000.parquet")
    (problem,) = ingest(tmp_path).problems
    assert reason in problem.reason
    states = dict(ask(tmp_path, "SELECT run_id, state FROM runs"))
    assert states.pop(run.name) == "damaged" and set(states.values()) == {"finished"}


def test_a_damaged_ledger_is_told(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    (run / rundir.LEDGER / "checkpoint").write_bytes(b"nothing\n")
    (problem,) = ingest(tmp_path).problems
    assert "checkpoint" in problem.reason


def test_too_many_rows_and_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_governed_run(tmp_path)
    none = {name: spool_reader.RowLimit(free=10, a_byte=0) for name in spool_reader.MAX_ROWS}
    monkeypatch.setattr(spool_reader, "MAX_ROWS", none)
    with pytest.raises(StoreError, match=r"rows in [0-9]+ bytes; at most 10 are read"):
        spool_reader.segment_sums(run)
    monkeypatch.setattr(spool_reader, "MAX_FILES", 2)
    with pytest.raises(StoreError, match="3 files; at most 2 are read"):
        spool_reader.segment_sums(run)


@pytest.mark.parametrize("directory", [rundir.CONTRIBUTIONS, rundir.ENTROPY])
def test_a_small_file_that_claims_many_rows_is_refused_before_they_are_read(tmp_path: Path, directory: str) -> None:
    """Equal values take no room: some kilobytes are millions of rows, and each of them costs whoever reads it."""
    run = write_governed_run(tmp_path)
    path = next((run / directory).iterdir())
    row = pq.read_table(path).slice(0, 1)
    many = pa.table({name: pa.repeat(row[name][0].as_py(), 2**20) for name in row.column_names})
    with pq.ParquetWriter(path, many.schema, compression="zstd") as file:
        for _ in range(3):
            file.write_table(many, row_group_size=2**20)
    assert path.stat().st_size < 2**20
    with pytest.raises(StoreError, match=r"rows in [0-9]+ bytes; at most [0-9]+ are read from files of that size"):
        spool_reader.segment_sums(run) if directory == rundir.CONTRIBUTIONS else spool_reader.entropy_rows(run)


def test_a_run_in_a_new_version_replaces_its_rows(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    ingest(tmp_path)
    before = ask(tmp_path, "SELECT count(*) FROM contributions")
    change_result(run, finished_at="2026-11-22T12:00:00Z")
    ingest(tmp_path)
    assert ask(tmp_path, "SELECT count(*) FROM contributions") == before == ((3 * len(LAYERS) * 3 - 4,),)


def test_a_spool_without_rows(tmp_path: Path) -> None:
    assert spool_reader.segment_sums(tmp_path) == [] == spool_reader.entropy_rows(tmp_path)


def test_profiles_of_earlier_versions_are_read_with_those_of_this_one(tmp_path: Path) -> None:
    """A file without the probe's columns, beside one that has them; a file without entropy is refused."""
    run = write_governed_run(tmp_path)
    first, second = sorted((run / rundir.ENTROPY).iterdir())
    later = [name for name in pq.read_schema(first).names if name.startswith("told") or name.endswith("centred")]
    assert len(later) == 8
    pq.write_table(pq.read_table(first).drop_columns(later), first)
    rows = spool_reader.entropy_rows(run)
    assert len(rows) == pq.read_table(first).num_rows + pq.read_table(second).num_rows
    assert ingest(tmp_path).problems == ()
    pq.write_table(pq.read_table(second).drop_columns(["entropy"]), second)
    with pytest.raises(StoreError, match=rf"{second.name}: found columns .* expected step, layer"):
        spool_reader.entropy_rows(run)

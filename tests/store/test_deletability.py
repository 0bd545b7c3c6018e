"""What deleting takes, in the database: as the forecast has it, with the profile and the price that hold when asked."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import run_files, rundir
from explorer.entries.fields import LedgerState
from explorer.run_files import RunRecord, Timings
from explorer.runlog.forecast import forecast
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Origin, Target, write_origin
from explorer.store import frames, queries
from explorer.store.ingest import ingest, route_rows
from explorer.store.published import database
from explorer.store.queries import Question
from tests.audit.governed_run import CLASSES, MIT, NEWS, OPEN, write_governed_run
from tests.builders import change_result, run_record, write_profile, write_run
from tests.deletion.deleted_runs import SEALED, write_old


def ask(runs: Path, sql: str) -> tuple[tuple[Any, ...], ...]:
    return queries.select(database(runs), Question(sql=sql)).rows


def keep(run: Path, step: int) -> None:
    (run / rundir.KEPT).mkdir()
    for suffix in (".json", ".safetensors"):
        (run / rundir.KEPT / f"step-{step:08d}{suffix}").touch()


def phases(run: Path, counts: dict[str, int]) -> RunRecord:
    record = replace(run_files.read(RunRecord, run / rundir.RUN), phases=counts)
    run_files.write(run / rundir.RUN, record)
    return record


@pytest.mark.parametrize("contended", [True, False])
@pytest.mark.parametrize("counts", [{"all": 12}, {"cheap": 7, "dear": 5}])
def test_the_database_says_what_the_forecast_says(tmp_path: Path, contended: bool, counts: dict[str, int]) -> None:
    run = write_governed_run(tmp_path)
    keep(run, 5)
    record = phases(run, counts)
    change_result(
        run, files={}, contended=contended, timings=Timings(forward=36.0, evaluation=5.0, warmup=2.0), timed_steps=10
    )
    write_profile(tmp_path, record, seconds={name: 2.0 * place for place, name in enumerate(counts, start=1)})
    assert ingest(tmp_path).problems == ()
    rows = ask(
        tmp_path, "SELECT class, level, start_step, steps, seconds, seconds_low, seconds_high FROM deletion_forecasts"
    )
    assert len(rows) == 3
    for path, level, start, steps, *seconds in rows:
        found = forecast(RunLedger(run), Target(classes=(path,)))
        assert (level, start, steps) == (found.route.level, found.route.start, found.route.steps)
        assert seconds == pytest.approx([found.time.seconds, found.time.low, found.time.high])
    assert {row[0]: row[2] for row in rows} == {NEWS: 5, OPEN: 0, MIT: 0}


@pytest.mark.slow
def test_a_profile_or_a_price_that_comes_later_counts(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    ingest(tmp_path)
    assert ask(tmp_path, "SELECT DISTINCT seconds, seconds_high FROM deletion_forecasts") == ((None, None),)
    assert ask(tmp_path, "SELECT deletion_level, deletion_class, deletion_seconds, deletion_usd FROM results") == (
        ("G3", None, None, None),
    )
    write_profile(tmp_path, run_files.read(RunRecord, run / rundir.RUN), seconds=10.0)
    ingest(tmp_path)
    ((level, dearest, seconds, usd),) = ask(
        tmp_path, "SELECT deletion_level, deletion_class, deletion_seconds, deletion_usd FROM results"
    )
    assert (level, dearest, usd) == ("G3", NEWS, None) and seconds > 60
    header = "provider,instance,region,tenancy,accelerator,count,usd_per_hour,effective,retrieved,source"
    (tmp_path / "prices.csv").write_text(f"{header}\nown,box,,on demand,EPYC 7B13,1,36,,,us\n")
    ingest(tmp_path)
    assert ask(tmp_path, "SELECT deletion_usd FROM results")[0][0] == pytest.approx(seconds / 100)


def test_a_sealed_class_costs_a_start(tmp_path: Path) -> None:
    run = write_old(tmp_path, SEALED)
    rows = {row[0]: row for row in route_rows(RunLedger(run))}
    assert rows[NEWS][1:5] == ("G2", 0, 12, 0) and rows[MIT][1:5] == ("G3", 0, 0, 12)
    assert rows[NEWS][6:] == (5.0, 1.0, 30.0, None)


def test_an_ungoverned_run_has_no_forecast(tmp_path: Path) -> None:
    write_run(tmp_path, run_record())
    ingest(tmp_path)
    assert ask(tmp_path, "SELECT deletion_level, deletion_seconds FROM results") == ((None, None),)
    assert len(frames.deletion_forecasts(database(tmp_path))) == 0 == len(frames.deletions(database(tmp_path)))


def test_runs_that_deletions_made(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    state = LedgerState(origin="example.com/old", size=9, root="0" * 64)
    origin = Origin(level="G3", run="old", ledger=state, target=Target(classes=(NEWS,)), begins=0, state=None)
    write_origin(run, origin)
    assert ingest(tmp_path).problems == ()
    assert ask(tmp_path, "SELECT run_id, level, origin_run, origin, classes, records FROM deletions") == (
        (run.name, "G3", "old", "example.com/old", [NEWS], 0),
    )
    change_result(run, finished_at="2026-11-22T12:00:00Z")
    (run / rundir.ORIGIN).write_text("{}")
    (problem,) = ingest(tmp_path).problems
    assert "origin.json" in problem.reason


def test_a_policy_that_is_not_the_run_s_is_told(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    (run / rundir.GOVERNANCE / "policy.json").unlink()
    (problem,) = ingest(tmp_path).problems
    assert "policy.json" in problem.reason


@pytest.mark.slow
def test_a_thousand_steps_are_read_in_no_time(tmp_path: Path) -> None:
    run = RunLedger(write_governed_run(tmp_path, steps=1_000, every=100))
    best = min(_seconds(run) for _ in range(5))
    assert best < 0.15  # 0.02 s on a quiet machine


def _seconds(run: RunLedger) -> float:
    start = time.perf_counter()
    assert len(route_rows(run)) == len(CLASSES)
    return time.perf_counter() - start

"""Readers bring the database up to the run directories, show the runs of the present plan, and never forget."""

import csv
import io
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from explorer import rundir
from explorer.costing import COLUMNS
from explorer.errors import StoreError
from explorer.store import frames, queries
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.store.run_sources import gap_of, is_current
from explorer.store.upkeep import bring_up, refuse_gone
from tests.builders import plan_of, run_record, write_plan, write_run, write_sweep
from tests.cli.command import explorer, refused


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_sweep(tmp_path, {"baseline": {0.5: (0.8, 0.81), 1.0: (0.9, 0.91)}, "fast": {1.0: (0.92,)}})
    ingest(tmp_path)
    return tmp_path


def shown(runs: Path) -> int:
    return len(queries.results(database(runs)).rows)


@pytest.mark.slow
def test_a_snapshot_is_current_until_something_is_new_gone_or_damaged(runs: Path, tmp_path_factory) -> None:
    profile = next((runs / "digits" / rundir.PROFILES).glob("*.json"))
    run = next((runs / "digits").glob("*/result.json")).parent
    away = tmp_path_factory.mktemp("away")
    assert is_current(runs)
    write_run(runs, run_record(seed=7))
    assert not is_current(runs)
    ingest(runs)
    assert is_current(runs)
    run.rename(away / run.name)
    assert not is_current(runs)
    (away / run.name).rename(run)
    assert is_current(runs)
    sound = profile.read_text()
    profile.write_text("{")
    assert not is_current(runs)
    ingest(runs)
    assert not is_current(runs)  # its fault has to be told
    profile.write_text(sound)
    ingest(runs)
    assert is_current(runs)
    database(runs).unlink()
    assert not is_current(runs)


@pytest.mark.slow
def test_a_price_table_that_was_edited_removed_or_damaged_is_noticed(runs: Path) -> None:
    table = runs / "prices.csv"

    def cost() -> float:
        assert bring_up(runs) == ()
        return frames.results(database(runs))["cost_usd"].sum()

    def write(dollars: float) -> None:
        table.write_text(f"{','.join(COLUMNS[:-1])}\nown,box,,on demand,{hardware},1,{dollars},,2026-11,invoice\n")

    hardware = run_record().hardware.name
    write(36)
    once = cost()
    write(72)
    assert not is_current(runs)
    assert cost() == pytest.approx(2 * once) and once > 0
    table.unlink()
    assert not is_current(runs)
    assert cost() != pytest.approx(2 * once)
    table.write_text("no table")
    assert [told.startswith("the database is out of date") for told in bring_up(runs)] == [True]


def test_results_of_a_current_snapshot_load_neither_pandas_nor_what_writes(runs: Path) -> None:
    code = (
        "import sys; from explorer.cli.app import main\ntry:\n main()\nfinally:\n print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "results", "--runs", runs], capture_output=True, text=True, check=True
    )
    loaded = set(done.stderr.split())
    assert "explorer.store.queries" in loaded
    assert not loaded & {"explorer.store.ingest", "explorer.run_files", "pandas", "pyarrow", "pydantic"}


def test_nothing_is_missing(runs: Path) -> None:
    content = database(runs).read_bytes()
    assert bring_up(runs) == ()
    assert database(runs).read_bytes() == content


def test_runs_that_nobody_ingested_are_brought_in(runs: Path) -> None:
    write_run(runs, run_record(seed=7))
    write_run(runs, run_record(sweep="own", seed=7))
    assert gap_of(runs).finished == 2
    assert bring_up(runs) == ()
    assert shown(runs) == 7


@pytest.mark.slow
def test_an_unfinished_run_that_has_finished_since_is_brought_in(runs: Path) -> None:
    write_run(runs, run_record(seed=7), finished=False)
    ingest(runs)
    assert gap_of(runs).finished == 0
    write_run(runs, run_record(seed=7))
    bring_up(runs)
    assert shown(runs) == 6


def test_the_database_is_made_again(runs: Path) -> None:
    database(runs).unlink()
    assert bring_up(runs) == ()
    assert shown(runs) == 5


def test_a_damaged_profile_is_named_with_its_fault(runs: Path) -> None:
    """Not only by `store ingest`: without it a recipe just has no time."""
    profile = next((runs / "digits" / rundir.PROFILES).glob("*.json"))
    profile.write_text(profile.read_text().replace('"seconds"', '"secs"', 1))
    for _ in range(2):  # when it is found, and ever after
        (told,) = bring_up(runs)
        assert f"digits/{rundir.PROFILES}/{profile.name}" in told and "seconds: is missing" in told
        assert "explorer sweep profile" in told
    profile.unlink()
    ingest(runs)
    assert bring_up(runs) == ()


def test_a_plan_that_changed_is_brought_in_once(runs: Path) -> None:
    (fast, *_) = [run_record(recipe="fast", methods=("fast",))]
    write_plan(runs, [fast])
    assert gap_of(runs).other == 1
    bring_up(runs)
    assert shown(runs) == 1
    assert gap_of(runs).other == 0


def test_damaged_runs_and_plans_are_no_gap(runs: Path) -> None:
    run = write_run(runs, run_record(seed=7))
    (run / rundir.RUN).write_text("{")
    (runs / "digits" / rundir.SWEEP).write_text("{")
    bring_up(runs)
    gap = gap_of(runs)
    assert (gap.finished, gap.other, shown(runs)) == (0, 0, 5)
    assert len(queries.select(database(runs), queries.Question(sql="FROM problems")).rows) == 2


@pytest.mark.slow
def test_where_nothing_can_be_written_the_snapshot_is_shown_and_what_is_missing_is_said(runs: Path) -> None:
    write_run(runs, run_record(seed=7))
    shutil.rmtree(runs / "_store")
    (runs / "_store").write_text("in the way")  # nobody can lock it, not even root
    (words,) = bring_up(runs)
    assert words.startswith("1 finished run is not in the database, which cannot be written now (cannot lock")
    done = explorer("results", "--runs", runs)
    assert (done.returncode, "1 finished run is not in the database" in done.stderr) == (0, True)
    assert sum(line.startswith(("baseline", "fast")) for line in done.stdout.splitlines()) == 5
    out = runs.parent / "report.html"
    assert explorer("report", "digits", "--runs", runs, "--out", out).returncode == 0
    assert out.exists()


def test_a_reader_forgets_nothing(runs: Path) -> None:
    shutil.rmtree(runs / "digits")
    write_run(runs, run_record(sweep="other"))
    (words,) = bring_up(runs)
    assert words == "5 finished runs of the database have no directory any more; `explorer store ingest` forgets them"
    assert shown(runs) == 6
    ingest(runs)  # the control: who asks for it is obeyed
    assert shown(runs) == 1
    assert bring_up(runs) == ()


def test_no_report_is_made_of_directories_that_are_gone(runs: Path) -> None:
    refuse_gone(runs, "digits")
    content = database(runs).read_bytes()
    shutil.rmtree(runs / "digits")
    with pytest.raises(StoreError, match="the directories of its 5 finished runs are gone"):
        refuse_gone(runs, "digits")
    assert "are gone" in refused("report", "digits", "--runs", runs)
    assert not (runs / "digits").exists()
    explorer("results", "digits", "--composition", "--runs", runs)
    assert database(runs).read_bytes() == content


def test_results_ask_and_composition_leave_out_what_the_plan_leaves_out(runs: Path) -> None:
    kept = [run_record(ssr=ssr, seed=seed) for ssr in (0.5, 1.0) for seed in (0, 1)]
    write_plan(runs, kept)
    done = explorer("results", "--runs", runs)
    assert "fast" not in done.stdout
    command = f"`explorer sweep prune --runs {runs} digits`"
    assert f"digits: 1 run of an earlier specification is left out; {command}" in done.stderr
    every = explorer("results", "--all", "--format", "csv", "--runs", runs)
    rows = csv.DictReader(io.StringIO(every.stdout))
    assert [row["superseded"] for row in rows if row["recipe"] == "fast"] == ["true"]
    assert "left out" not in every.stderr
    asked = explorer("ask", "--runs", runs)
    assert "fast" not in asked.stdout and "left out" in asked.stderr
    assert set(frames.facets(database(runs))["runs"]) == {4}
    assert "explorer sweep prune" in explorer("results", "--runs", runs, "--json").stderr


def test_ask_names_the_remedy_where_nothing_is_left(runs: Path) -> None:
    write_plan(runs, [run_record(seed=77)])
    assert "no run of its present specification has finished. `explorer sweep run SPEC`" in refused_with_notes(runs)
    done = explorer("results", "--runs", runs)
    assert "no finished runs yet: 5 superseded" in done.stdout
    out = runs.parent / "report.md"
    assert explorer("report", "digits", "--format", "md", "--runs", runs, "--out", out).returncode == 0
    assert "5 runs of an earlier specification" in out.read_text()


def refused_with_notes(runs: Path) -> str:
    done = explorer("ask", "--runs", runs)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def test_the_plan_says_what_its_runs_are_called(runs: Path) -> None:
    planned = [run_record(ssr=ssr, seed=seed) for ssr in (0.5, 1.0) for seed in (0, 1)]
    planned += [run_record(recipe="fast", methods=("fast",))]
    plan = plan_of(planned, baseline="quick", tuning="by hand")
    plan["runs"] = [{**entry, "recipe": entry["recipe"].replace("fast", "quick")} for entry in plan["runs"]]
    rundir.write_json(runs / "digits" / rundir.SWEEP, plan)
    bring_up(runs)
    rows = frames.results(database(runs))
    assert set(rows["recipe"]) == {"baseline", "quick"}
    assert set(rows["baseline"]) == {"quick"} and set(rows["tuning"]) == {"by hand"}
    assert list(rows.loc[rows["is_baseline"], "recipe"]) == ["quick"]


def test_looking_costs_no_reading_of_runs(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    true_open = Path.open

    def watched(self: Path, *given, **more):
        opened.append(self)
        return true_open(self, *given, **more)

    monkeypatch.setattr(Path, "open", watched)
    begun = time.monotonic()
    assert gap_of(runs).finished == 0
    assert time.monotonic() - begun < 30
    assert not [path for path in opened if path.parent.parent.name == "digits"]

"""Quality measured here, time from a profile made elsewhere: a row more, and only where the two fit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import costing, run_files, rundir
from explorer.analysis.ladders import ladders
from explorer.costing import default_price, load_prices
from explorer.run_files import Hardware, PhaseProfile, ProfileRecord, RunRecord
from explorer.store import frames, queries
from explorer.store.ingest import ingest, rebuild
from explorer.store.published import database
from tests.audit.governed_run import write_governed_run
from tests.builders import CPU, H200, run_record, write_profile, write_run

T4 = Hardware(device="cuda", name="Tesla T4", threads=4)
PHASED = run_record(recipe="fast", methods=("resize",), phases={"small": 30, "large": 50, "none": 0})


def imported(runs: Path, record: RunRecord, hardware: Hardware = H200, **changes: Any) -> Path:
    """A profile of the run's recipe on other hardware, made there, in the place of imported ones."""
    elsewhere = run_record(recipe=record.recipe, methods=record.methods, hardware=hardware)
    profile = ProfileRecord(
        recipe_digest=elsewhere.recipe_digest,
        recipe=record.recipe,
        hardware=hardware,
        torch="2.12.0",
        phases={
            name: PhaseProfile(seconds=0.001 * place, low=0.0009 * place, high=0.0012 * place, windows=7)
            for place, name in enumerate(record.phases, start=1)
        },
        inference_seconds=0.0001,
        made_at="2026-11-20T12:00:00Z",
        effective=record.effective_digest,
    )
    profile = replace(profile, **changes)
    path = runs / rundir.PROFILES / f"{profile.key}.json"
    run_files.write(path, profile)
    return path


def rows(runs: Path, **asked: Any) -> list[dict[str, Any]]:
    assert ingest(runs).problems == ()
    table = queries.results(database(runs), **asked)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def places(runs: Path) -> list[tuple[str, str | None]]:
    return [(row["hardware"], row["time_source"]) for row in rows(runs)]


def test_a_run_has_one_row_more_with_the_time_and_the_price_of_the_other_machine(tmp_path: Path) -> None:
    write_run(tmp_path, PHASED, metrics={"accuracy": 0.75, "nll": 0.5})
    write_profile(tmp_path, PHASED, seconds=1.0)
    profile = run_files.read(ProfileRecord, imported(tmp_path, PHASED))
    own, other = sorted(rows(tmp_path), key=lambda row: row["hardware"])
    price = default_price(H200.name, load_prices())
    assert price is not None
    expected = costing.train_seconds(PHASED.phases, profile.phases)
    assert (own["hardware"], own["time_source"], own["train_seconds"]) == (CPU.name, "profiled", 80.0)
    assert [other[name] for name in ("device", "hardware", "threads", "world_size")] == ["cuda", H200.name, 8, 1]
    assert (other["time_source"], other["quality"]) == ("predicted", 0.75)
    times = [other[name] for name in ("train_seconds", "train_seconds_low", "train_seconds_high")]
    assert times == pytest.approx([expected.seconds, expected.low, expected.high])
    assert expected.seconds == pytest.approx(0.13)
    assert other["cost_usd"] == pytest.approx(costing.cost_usd(0.13, price))
    assert other["inference_seconds"] == 0.0001
    assert (other["wall_seconds"], other["ledger_overhead"]) == (None, None)
    same = ("sweep", "run_id", "directory", "recipe_digest", "state_digest", "steps", "examples", "methods")
    assert [own[name] for name in same] == [other[name] for name in same]


def test_an_older_profile_is_known_by_the_recipe_of_a_run(tmp_path: Path) -> None:
    write_run(tmp_path, PHASED)
    path = imported(tmp_path, PHASED, effective="", recipe_digest=PHASED.recipe_digest)
    said = rundir.read_json(path)
    del said["effective"]
    rundir.write_json(path, said)
    assert (H200.name, "predicted") in places(tmp_path)


def test_what_does_not_fit_predicts_nothing(tmp_path: Path) -> None:
    """One recipe for each reason, and one that fits, so that the profiles could be matched at all."""
    one_phase = {"small": PhaseProfile(seconds=1.0, low=1.0, high=1.0, windows=7)}
    reasons: dict[str, dict[str, Any]] = {
        "fits": {},
        "of another effective recipe": {"effective": "0" * 64},
        "older and of another recipe": {"effective": "", "recipe_digest": "1" * 64},
        "without a phase": {"phases": one_phase},
        "of its own hardware": {"hardware": CPU},
        "of an unfinished run": {},
        "of its own sweep": {},
    }
    for reason, changes in reasons.items():
        record = run_record(recipe=reason, methods=(reason,), phases=PHASED.phases)
        write_run(tmp_path, record, finished=reason != "of an unfinished run")
        path = imported(tmp_path, record, **changes)
        if reason == "of its own sweep":  # only who imports a profile says that it is to stand for other machines' runs
            (tmp_path / "digits" / rundir.PROFILES).mkdir()
            path.rename(tmp_path / "digits" / rundir.PROFILES / path.name)
    found = rows(tmp_path)
    assert [row["recipe"] for row in found if row["time_source"] == "predicted"] == ["fits"]
    assert len(found) == len(reasons)  # the unfinished one has no row, the one that fits has two


def test_a_run_that_was_made_there_stands_for_itself(tmp_path: Path) -> None:
    """Budget and seed count: what was not run there is predicted."""
    for seed in (0, 1):
        write_run(tmp_path, run_record(seed=seed))
    write_run(tmp_path, run_record(seed=0, hardware=H200))
    write_run(tmp_path, run_record(seed=1, hardware=H200, sweep="other"))  # which is no run of this sweep
    imported(tmp_path, run_record())
    found = {(row["hardware"], row["seed"]): row["time_source"] for row in rows(tmp_path, sweep="digits")}
    assert found == {
        (CPU.name, 0): None,
        (CPU.name, 1): None,
        (H200.name, 0): "profiled",
        (H200.name, 1): "predicted",
    }


def test_one_machine_lends_its_quality_and_the_newest_profile_its_time(tmp_path: Path) -> None:
    write_run(tmp_path, run_record(hardware=CPU), metrics={"accuracy": 0.5, "nll": 0.5})
    write_run(tmp_path, run_record(hardware=H200), metrics={"accuracy": 0.6, "nll": 0.5})
    imported(tmp_path, run_record(), T4)
    slow = {"all": PhaseProfile(seconds=1.0, low=1.0, high=1.0, windows=7)}
    imported(tmp_path, run_record(), T4, recipe_digest="1" * 64, phases=slow, made_at="2026-11-21T12:00:00Z")
    (row,) = [row for row in rows(tmp_path) if row["hardware"] == T4.name]
    assert (row["quality"], row["train_seconds"], row["time_source"]) == (0.5, 80.0, "predicted")


def test_an_imported_profile_of_the_same_hardware_is_a_profile(tmp_path: Path) -> None:
    """As the profile of another sweep is; that of the sweep itself comes first."""
    write_run(tmp_path, PHASED)
    imported(tmp_path, PHASED, CPU, recipe_digest=PHASED.recipe_digest)
    assert [(row["time_source"], row["train_seconds"]) for row in rows(tmp_path)] == [("profiled", pytest.approx(0.13))]
    write_profile(tmp_path, PHASED, seconds=1.0)
    assert [row["train_seconds"] for row in rows(tmp_path)] == [80.0]


def test_inference_is_relative_to_the_baseline_on_the_same_hardware(tmp_path: Path) -> None:
    for record, seconds in ((run_record(), 0.0001), (PHASED, 0.00015)):
        write_run(tmp_path, record)
        write_profile(tmp_path, record, seconds=1.0, inference=1.0)
        imported(tmp_path, record, inference_seconds=seconds)
    found = {(row["recipe"], row["hardware"]): row["inference_ratio"] for row in rows(tmp_path)}
    assert found["fast", H200.name] == pytest.approx(1.5)
    assert found["fast", CPU.name] == 1.0


def test_it_is_another_setting_and_seconds_that_were_measured_stay_where_they_were(tmp_path: Path) -> None:
    metrics = {"accuracy": 0.9, "nll": 0.3, "ledger_seconds_per_step": 0.001}
    write_run(tmp_path, PHASED, metrics=metrics)
    write_profile(tmp_path, PHASED, seconds=1.0)
    imported(tmp_path, PHASED)
    assert len(rows(tmp_path, metric="nll")) == 2
    assert [row["hardware"] for row in rows(tmp_path, metric="ledger_seconds_per_step")] == [CPU.name]
    where = database(tmp_path)
    found = ladders(frames.results(where), x="train_seconds")
    assert [(ladder.setting.hardware, ladder.time_source, ladder.label) for ladder in found] == [
        (CPU.name, "profiled", "fast"),
        (H200.name, "predicted", "fast"),
    ]
    phases = frames.schedules(where)
    assert list(phases[phases["hardware"] == H200.name]["seconds"]) == [0.002, 0.001]  # large, small
    counts = {(row.hardware, row.metric): (row.runs, row.predicted) for row in frames.facets(where).itertuples()}
    assert counts[H200.name, "accuracy"] == (1, 1) and counts[CPU.name, "accuracy"] == (1, 0)
    assert (H200.name, "ledger_seconds_per_step") not in counts


def test_a_deletion_is_forecast_once_and_for_the_machine_that_trained(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    record = run_files.read(RunRecord, run / rundir.RUN)
    write_profile(tmp_path, record, seconds=1.0)
    own = rows(tmp_path)[0]
    forecasts = frames.deletion_forecasts(database(tmp_path))
    imported(tmp_path, record)
    (again, other) = sorted(rows(tmp_path), key=lambda row: row["hardware"])
    assert again == own
    assert frames.deletion_forecasts(database(tmp_path)).equals(forecasts) and len(forecasts) == 3
    assert (other["deletion_level"], other["policy"], other["chi"]) == ("G3", own["policy"], own["chi"])
    assert [other[f"deletion_{name}"] for name in ("class", "seconds", "seconds_low", "seconds_high", "usd")] == [
        None
    ] * 5


@pytest.mark.slow
def test_it_comes_and_goes_with_the_file_and_a_damaged_one_is_told(tmp_path: Path) -> None:
    write_run(tmp_path, PHASED)
    path = imported(tmp_path, PHASED)
    before = rows(tmp_path)
    assert len(before) == 2
    content = path.read_bytes()
    path.write_bytes(content[:-9])
    (problem,) = ingest(tmp_path).problems
    assert problem.directory == f"{rundir.PROFILES}/{path.name}" and "not JSON" in problem.reason
    assert len(queries.results(database(tmp_path)).rows) == 1
    path.write_bytes(content)
    rebuild(tmp_path)
    assert rows(tmp_path) == before
    assert queries.sweeps(database(tmp_path)) == ["digits"]
    path.unlink()
    assert len(rows(tmp_path)) == 1

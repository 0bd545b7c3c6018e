"""What is counted and averaged in the database is what pandas and the standard library make of its rows."""

import statistics
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from explorer.analysis.ladders import SETTING
from explorer.errors import StoreError
from explorer.store import frames, queries
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.store.queries import Filter
from tests.builders import CPU, H200, run_record, write_failure, write_run, write_sweep

MEDIANS = (
    *("train_seconds", "steps", "examples", "usd_per_hour", "cost_usd", "inference_seconds"),
    *("deletion_seconds", "deletion_usd", "chi", "ledger_overhead"),
)
ENDING = ("time_source", "busy_profile", "peak_memory", "energy_kwh")
T4 = replace(H200, name="Tesla T4", threads=4)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sweeps on three machines; some runs are measured, some profiled; some seeds are missing; a control."""
    runs = tmp_path_factory.mktemp("runs")
    ladder = {"baseline": {0.5: (0.8, 0.7), 1.0: (0.9, 0.85, 0.95)}, "fast": {1.0: (0.92,)}}
    write_sweep(runs, ladder, hardware=CPU)
    write_sweep(runs, {"baseline": {1.0: (0.6, 0.5)}}, hardware=H200, sweep="second", step_seconds={"baseline": 0.5})
    for seed, seconds in enumerate((0.01, 0.02, 0.04)):
        write_run(runs, run_record(sweep="second", hardware=T4, seed=seed), contended=False, step_seconds=seconds)
    write_run(runs, replace(run_record(ssr=1.0, seed=3), control="rescaled-baseline", control_of=("fast",)))
    write_failure(runs, run_record(recipe="failed"))
    write_run(runs, run_record(recipe="half", sweep="second"), finished=False)
    return ingest(runs).database


@pytest.mark.parametrize("metric", [None, "nll"])
def test_means_are_those_of_the_rows(path: Path, metric: str | None) -> None:
    rows, means = frames.results(path, metric=metric), frames.means(path, metric=metric)
    at = SETTING.index("device")
    kinds = (*SETTING[:at], "format", *SETTING[at:])
    names = [*kinds, "recipe", "recipe_digest", "methods", "policy", "is_baseline", "baseline", "control", "ssr"]
    assert list(means.columns) == [*names, "n", "quality", *MEDIANS, *ENDING]
    groups = {key: group for key, group in rows.groupby(names, sort=False, dropna=False)}
    assert len(means) == len(groups) == 6
    for row, (_, group) in zip(means.to_dict("records"), groups.items(), strict=True):  # in the order of `results`
        first = group.iloc[0]
        assert all(row[name] == first[name] or pd.isna(row[name]) for name in names)
        assert row["n"] == group["seed"].nunique()
        assert row["quality"] == pytest.approx(statistics.mean(group["quality"]))
        for name in MEDIANS:
            known = group[name].dropna()
            assert row[name] == pytest.approx(statistics.median(known) if len(known) else float("nan"), nan_ok=True)
        assert row["time_source"] == "+".join(sorted(set(group["time_source"].dropna())))
    assert set(means["time_source"]) == {"profiled", "measured"}
    assert means["train_seconds"].notna().all() and means["cost_usd"].isna().any()


FILTERS = {
    "everything": Filter(),
    "dataset": Filter(dataset="digits"),
    "nothing": Filter(dataset="digit"),
    "sweep": Filter(sweep="second"),
    "hardware": Filter(hardware=T4.name),
    "all": Filter(dataset="digits", model="resnet8", sweep="second", hardware=H200.name, threads=8, world_size=1),
    "threads": Filter(sweep="second", threads=4),
    "another model": Filter(model="gpt", hardware=CPU.name),
    "an injection": Filter(sweep="' OR true --"),
}


@pytest.mark.parametrize("where", FILTERS.values(), ids=FILTERS)
def test_a_filter_keeps_what_agrees_in_everything(path: Path, where: Filter) -> None:
    rows = frames.results(path)
    wanted = {name: getattr(where, name) for name in Filter.__dataclass_fields__ if getattr(where, name) is not None}
    kept = rows[[all(row[name] == value for name, value in wanted.items()) for row in rows.to_dict("records")]]
    assert list(frames.results(path, where=where)["directory"]) == list(kept["directory"])
    assert list(frames.results(path, metric="nll", where=where)["directory"]) == list(kept["directory"])
    assert set(frames.means(path, where=where)["sweep"]) == set(kept["sweep"])
    assert list(frames.means(path, where=where).columns) == list(frames.means(path).columns)


def test_filters_leave_out_something(path: Path) -> None:
    found = {name: len(frames.results(path, where=where)) for name, where in FILTERS.items()}
    assert found == {
        **{"everything": 12, "dataset": 12, "nothing": 0, "sweep": 5, "hardware": 3, "all": 2, "threads": 3},
        **{"another model": 0, "an injection": 0},
    }


def test_facets_count_the_rows(path: Path) -> None:
    found = frames.facets(path)
    place = ["dataset", "model", "sweep", "device", "hardware", "threads", "world_size"]
    kind = ["metric", "unit", "higher_is_better", "format"]
    assert list(found.columns) == [*place, *kind, "is_quality", "runs", "predicted", "tunes"]
    counted = pd.concat([frames.results(path, metric=metric) for metric in queries.metrics(path)])
    expected = counted.groupby([*place, "metric"]).size()
    assert found.set_index([*place, "metric"])["runs"].to_dict() == expected.to_dict()
    assert dict(zip(found["metric"], found["is_quality"], strict=True)) == {"accuracy": True, "nll": False}
    assert found["predicted"].sum() == 0


def test_an_unknown_metric_is_an_error(path: Path) -> None:
    with pytest.raises(StoreError, match="unknown metric 'acuracy'; did you mean 'accuracy'"):
        frames.means(path, metric="acuracy")


def test_states_are_counted(path: Path, tmp_path: Path) -> None:
    assert queries.states(path) == {"finished": 12, "failed": 1, "interrupted": 1}
    assert queries.states(path, sweep="second") == {"finished": 5, "interrupted": 1}
    with pytest.raises(StoreError, match="unknown sweep 'secnd'"):
        queries.states(path, sweep="secnd")
    assert queries.states(ingest(tmp_path).database) == {}


def test_an_empty_store_answers_with_empty_tables(tmp_path: Path) -> None:
    write_failure(tmp_path, run_record())
    ingest(tmp_path)
    where = database(tmp_path)
    for found in (frames.results(where), frames.means(where), frames.facets(where), frames.schedules(where)):
        assert found.empty and len(found.columns) > 10
    assert queries.states(where) == {"failed": 1} and queries.metrics(where) == []

"""The list of a sweep's runs: every state, searched, sorted, grouped and paged."""

import pytest

from explorer.errors import StoreError
from explorer.run_files import Energy
from explorer.store.ingest import ingest
from explorer.store.run_list import GROUPS, SORTS, RunList
from tests.builders import change_result, run_record, write_failure, write_plan, write_run, write_sweep


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> RunList:
    """Nine finished runs, one that diverged, one interrupted, one superseded, one damaged; another sweep."""
    runs = tmp_path_factory.mktemp("list") / "runs"
    ladder = {"baseline": {0.5: (0.8, 0.7, 0.75), 1.0: (0.9, 0.85, 0.95)}, "fast": {1.0: (0.92, 0.91, 0.93)}}
    planned = write_sweep(runs, ladder)
    for seed, record in enumerate(planned[:3]):
        change_result(
            runs / "digits" / record.run_id, peak_memory=(seed + 1) * 2**20, energy=Energy(joules=9.0 - seed, steps=4)
        )
    hot, half = run_record(recipe="hot"), run_record(recipe="half")
    write_failure(runs, hot, kind="diverged", message="training diverged: the loss is nan at step 36")
    write_run(runs, half, finished=False)
    write_run(runs, run_record(recipe="old"))
    write_plan(runs, [*planned, hot, half])
    (write_run(runs, run_record(recipe="torn")) / "result.json").write_text("{")
    write_sweep(runs, {"baseline": {1.0: (0.5,)}}, sweep="other")
    return RunList(database=ingest(runs).database, sweep="digits", metric="accuracy")


def test_every_state_is_there(listed: RunList) -> None:
    counts = {"damaged": 1, "diverged": 1, "finished": 9, "interrupted": 1, "superseded": 1}
    assert dict(listed.counts(group="state")) == counts
    assert listed.counts() == [("", 13)]
    (hot,) = listed.page(count=9, search="HOT nan")
    assert (hot["state"], hot["message"]) == ("diverged", "training diverged: the loss is nan at step 36")
    assert hot["quality"] is None and hot["steps"] == 80
    (torn,) = listed.page(count=9, group="state", of_group="damaged")
    assert torn["message"] and torn["recipe"] is None
    assert listed.known() == {"time", "memory", "energy"}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", SORTS)
def test_any_column_sorts_and_unknown_values_are_last(listed: RunList, sort: str, descending: bool) -> None:
    rows = listed.page(count=99, sort=sort, descending=descending)
    values = [row[SORTS[sort]] for row in rows if row[SORTS[sort]] is not None]
    assert values == sorted(values, reverse=descending)
    assert all(row[SORTS[sort]] is None for row in rows[len(values) :])
    assert len({row["directory"] for row in rows}) == 13


def test_pages_follow_each_other_and_groups_hold_all(listed: RunList) -> None:
    whole = [row["directory"] for row in listed.page(count=99, sort="quality")]
    pages = [row["directory"] for at in range(0, 13, 4) for row in listed.page(first=at, count=4, sort="quality")]
    assert pages == whole
    for group in GROUPS:
        names = [name for name, _ in listed.counts(group=group)]
        found = [row["directory"] for name in names for row in listed.page(count=99, group=group, of_group=name)]
        assert sorted(found) == sorted(whole)
    assert [name for name, _ in listed.counts(group="ssr")][:2] == ["0.5", "1.0"]


def test_only_some_runs_in_the_order_that_is_asked_for(listed: RunList) -> None:
    two = [row["directory"] for row in listed.page(count=2, sort="quality", descending=True)]
    assert [row["directory"] for row in listed.rows(two[::-1])] == two[::-1]
    assert listed.rows(["digits/no-such-run"]) == []
    only = RunList(database=listed.database, sweep="digits", metric="accuracy", only=two)
    assert only.counts() == [("", 2)] and only.counts(search="zzz", group="recipe") == []
    assert RunList(database=listed.database, sweep="digits", metric="accuracy", only=[]).counts() == [("", 0)]


def test_hostile_words_find_nothing_and_break_nothing(listed: RunList) -> None:
    for words in ("'; DROP TABLE runs; --", "%", "$word0", "\\", 100 * "zq "):
        assert listed.counts(search=words) == [("", 0)]
    with pytest.raises(StoreError, match="cannot be ordered by 'recipe; DROP"):
        listed.page(count=1, sort="recipe; DROP TABLE runs")

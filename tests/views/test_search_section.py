"""The section on a search: what its pictures show is what `search.json` has, and it makes no claim."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from explorer import run_files
from explorer.analysis.equal_quality import Call
from explorer.errors import ExplorerError, RunError
from explorer.search.search_answer import FILE, Answer, MethodEffect, Moment, Place
from explorer.views.explorer.tabs.search_section import SearchSection, effects_chart, heading, spent_chart


def place(recipe: str, seconds: float | None, regret: float | None, *methods: str) -> Place:
    return Place(recipe=recipe, methods=methods, seconds=seconds, regret=regret, runs=3, measured=True)


ANSWER = Answer(
    sweep="digits",
    baseline="baseline",
    spec_digest="d",
    searcher="random",
    seed=0,
    metric="accuracy",
    target=0.93,
    recipes=4,
    spend=100.0,
    spent=80.0,
    runs=9,
    failed=0,
    ended="the time is spent",
    baseline_seconds=10.0,
    ranking=(
        place("ema-mixup", 5.0, 0.0, "ema", "mixup"),
        place("ema", 8.0, 0.6, "ema"),
        place("baseline", 10.0, 1.0),
        place("mixup", None, None, "mixup"),
    ),
    left_out=(),
    history=(
        Moment(runs=3, spent=30.0, recipe="baseline", seconds=10.0, regret=0.4, later=10.0),
        Moment(runs=6, spent=55.0, recipe="ema", seconds=7.5, regret=0.2, later=8.0),
        Moment(runs=9, spent=80.0, recipe="ema-mixup", seconds=5.0, regret=0.0, later=5.0),
    ),
    effects=(
        MethodEffect(method="ema", quality=0.02, low=0.01, high=0.03, runs=6, time=1.0),
        MethodEffect(method="mixup", quality=-0.01, low=-0.03, high=0.01, runs=6, time=0.5),
    ),
)


def drawn(chart: Any) -> list[dict[str, Any]]:
    return [row for rows in chart.to_dict()["datasets"].values() for row in rows]


def test_the_picture_has_what_was_in_front_after_what_was_spent() -> None:
    rows = [row for row in drawn(spent_chart(ANSWER, width=300)) if "spent" in row]
    assert [(row["spent"], row["seconds"], row["recipe"]) for row in rows] == [
        (30.0, 10.0, "baseline"),
        (55.0, 8.0, "ema"),
        (80.0, 5.0, "ema-mixup"),
    ]
    assert [row["seconds"] for row in drawn(spent_chart(ANSWER, width=300)) if "words" in row] == [10.0]


def test_effects_have_their_intervals_in_the_picture_and_in_words() -> None:
    chart = effects_chart(ANSWER, width=300).to_dict()
    rows = [row for rows in chart["datasets"].values() for row in rows if "method" in row]
    assert {(row["method"], row["quality"], row["low"], row["high"]) for row in rows} == {
        ("ema", 0.02, 0.01, 0.03),
        ("mixup", -0.01, -0.03, 0.01),
    }
    assert "mixup: -0.01 (-0.03 to +0.01)." in chart["description"]


def test_the_heading_names_the_winner_and_that_it_is_no_claim() -> None:
    assert "ema-mixup is in front (5 s to the target, expected regret 0.0%)" in heading(ANSWER)
    assert str(Call.SEARCHED).capitalize() in heading(ANSWER)
    # A recipe that is not expected to reach the target sooner is no winner.
    assert "no recipe is expected to reach the target sooner" in heading(replace(ANSWER, ranking=ANSWER.ranking[2:]))


def test_the_section_reads_the_file_and_says_where_there_is_none(tmp_path: Path) -> None:
    section = SearchSection(lambda **_: None)
    snapshot = cast(Any, SimpleNamespace(runs=tmp_path))
    shown = cast(Any, SimpleNamespace(question=SimpleNamespace(sweep="digits")))
    with pytest.raises(ExplorerError, match="No search chose the runs of this sweep"):
        section.show(snapshot, shown)
    (tmp_path / "digits").mkdir()
    run_files.write(tmp_path / "digits" / FILE, ANSWER)
    section.show(snapshot, shown)
    assert "ema-mixup is in front" in section._head.value and section.spent.chart is not None
    (tmp_path / "digits" / FILE).write_text('{"format": 1}')
    with pytest.raises(RunError, match="damaged Answer"):
        section.show(snapshot, shown)

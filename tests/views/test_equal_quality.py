from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from explorer.analysis.equal_quality import EqualQuality, Outcome, equal_quality
from explorer.views import theme
from explorer.views.axes import PAYMENTS
from explorer.views.equal_quality import equal_quality_table


@pytest.fixture(scope="module")
def comparisons(results: pd.DataFrame) -> list[EqualQuality]:
    return equal_quality(results)


def rows(comparisons: list[EqualQuality], **options: Any) -> list[str]:
    labels = [comparison.label for comparison in comparisons]
    html = equal_quality_table(
        comparisons,
        **{
            "payment": PAYMENTS["time"],
            "look": theme.look(["baseline", *labels], baseline="baseline"),
            "usd_per_hour": None,
        }
        | options,
    )
    return str(html).split("<tr")[2:]


def test_the_baseline_stands_first_and_then_the_cheapest(comparisons: list[EqualQuality]) -> None:
    found = rows(list(reversed(comparisons)))
    assert ["baseline" in found[0], "fast" in found[1], "heavy" in found[2]] == [True, True, True]
    assert "tuned baseline" in found[0]
    assert "0.52x" in found[1] and "0.28 to 0.97" in found[1] and "100%" in found[1]


def test_a_target_beyond_the_baseline_itself(results: pd.DataFrame) -> None:
    found = rows(equal_quality(results, target=0.999))
    assert "not reached" in found[0] and "1.00x" not in found[0]


def test_an_untuned_baseline_is_called_so(comparisons: list[EqualQuality]) -> None:
    assert "untuned baseline" in rows([replace(found, tuning=None) for found in comparisons])[0]
    assert "untuned" not in rows(comparisons)[0]


def test_a_recipe_that_does_not_reach_the_target_says_so_and_comes_last(comparisons: list[EqualQuality]) -> None:
    missed = replace(comparisons[0], outcome=Outcome.NOT_REACHED, recipe_x=None, ratio=None, reach_rate=0.2)
    found = rows([missed, comparisons[1]])
    assert "not reached" in found[2] and "x-quiet" in found[2]
    assert "20%" in found[2]


def test_a_recipe_past_the_target_at_its_lowest_budget_has_an_upper_limit(comparisons: list[EqualQuality]) -> None:
    assert "at most 0.52x" in rows([replace(comparisons[0], outcome=Outcome.BELOW)])[1]


def test_one_seed_is_n_1_without_an_interval(results: pd.DataFrame) -> None:
    found = rows(equal_quality(results[results["seed"] == 0]))
    assert "n=1" in found[1]
    assert " to " not in found[1]


def test_slower_inference_is_marked(comparisons: list[EqualQuality]) -> None:
    assert "1.05x slower" in rows([replace(comparisons[0], inference_ratio=1.05)])[1]
    assert "slower" not in rows([replace(comparisons[0], inference_ratio=1.02)])[1]


def test_time_is_priced_where_there_is_a_price(comparisons: list[EqualQuality]) -> None:
    assert "no price" in rows(comparisons)[1]
    assert "$3.20" in rows(comparisons, usd_per_hour=3600.0)[0]


def test_names_are_escaped(results: pd.DataFrame) -> None:
    hostile = results.replace({"recipe": {"fast": "<script>alert(1)</script>"}})
    html = "".join(rows(equal_quality(hostile)))
    assert "&lt;script&gt;" in html
    assert "<script>" not in html

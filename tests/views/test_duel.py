"""Two recipes side by side, as a page shows them."""

import math
import re
from html import unescape
from typing import Any

import pandas as pd
import pytest
from markupsafe import Markup

from explorer.analysis.side_by_side import PICKED, duel
from explorer.page import theme
from explorer.page.html import fragment
from explorer.views.explorer.payments import PAYMENTS
from explorer.views.explorer.tabs.two_recipes_section import duel_blocks
from tests.analysis.tables import rows, table

SEEDS = (-0.01, 0.002, 0.008)
LOOK = theme.look(["baseline", "fast"], baseline="baseline")


def recipe(name: str, gain: float, turn: int = 0, **changes: Any) -> list[dict[str, object]]:
    extra = {"methods": "", "inference_seconds": 0.001, "deletion_level": None, "deletion_seconds": math.nan}
    return rows(name, lambda ssr, s: gain + 0.8 + 0.05 * math.log(ssr) + SEEDS[(s + turn) % 3], **{**extra, **changes})


@pytest.fixture
def frame() -> pd.DataFrame:
    fast = recipe("fast", 0.05, 1, step=0.8, methods="ema+mixup", inference_seconds=0.002)
    return table(recipe("baseline", 0.0), fast)


def shown(frame: pd.DataFrame, first: str = "baseline", second: str = "fast", payment: str = "time") -> Markup:
    paid = PAYMENTS[payment]
    return fragment(*duel_blocks(duel(frame, first, second, x=paid.column), look=LOOK, payment=paid))


def cells(html: Markup, title: str) -> list[str]:
    """The texts of the row that begins with a title."""
    (row,) = (row for row in re.findall("<tr>(.*?)</tr>", html) if f'<th scope="row">{title}' in row)
    parts = re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row)
    return [" ".join(unescape(re.sub("<[^>]*>", "", part.replace("<small>", " "))).split()) for part in parts]


def test_a_row_for_each_budget_and_for_each_kind_of_equality(frame: pd.DataFrame) -> None:
    html = shown(frame)
    assert [len(cells(html, f"accuracy at budget {ssr}<")) for ssr in ("0.125", "0.25", "0.5", "1", "1.5")] == [4] * 5
    _, first, second, difference = cells(html, "accuracy at budget 1<")
    assert (first, second) == ("80.00% 1.67 min, n=3", "85.00% 1.33 min, n=3")
    assert difference.startswith("+5.00 points")
    assert cells(html, "accuracy at same time")[0].endswith("1.67 min")
    assert cells(html, "Time at equal accuracy")[3].startswith("speedup 3.40x")  # e / 0.8
    assert "reach rate 100%" in cells(html, "Time at equal accuracy")[3]
    assert cells(html, "Inference per example")[1:] == ["1 ms", "2 ms", "2.00x no interval"]
    assert cells(html, "Methods only here")[1:] == ["-", "ema, mixup", ""]
    assert cells(html, "Deletion")[1:] == ["no ledger", "no ledger", ""]


def test_the_sentence_ends_in_what_it_does_not_show(frame: pd.DataFrame) -> None:
    assert f"{PICKED}.</p>" in shown(frame)
    assert "fewer steps" not in shown(frame)
    assert "fewer steps" in shown(frame, payment="steps")


def test_an_interval_with_0_in_it_is_called_inconclusive() -> None:
    html = shown(table(recipe("baseline", 0.0), recipe("fast", 0.0, 1)))
    assert cells(html, "accuracy at budget 1<")[3].endswith("n=3, inconclusive")
    assert "inconclusive" in cells(html, "accuracy at same time")[3]
    assert "inconclusive" not in shown(table(recipe("baseline", 0.0), recipe("fast", 0.5, 1)))


def test_what_is_missing_is_said(frame: pd.DataFrame) -> None:
    apart = table(recipe("baseline", 0.0, budgets=(0.5, 1.0)), recipe("fast", 0.0, 1, budgets=(0.25, 0.75)))
    assert "baseline and fast share no budget." in shown(apart)
    one = shown(frame[frame["seed"] == 0])
    assert cells(one, "accuracy at budget 1<")[3] == "+6.20 points one seed, n=1"
    strangers = shown(table(recipe("baseline", 0.0), recipe("fast", 0.0, 1, seeds=(3, 4, 5))))
    assert cells(strangers, "accuracy at budget 1<")[3] == "- they share no seed"
    unpaid = frame.assign(cost_usd=math.nan)
    assert "there is no price for its hardware" in shown(unpaid, payment="cost")


@pytest.mark.parametrize(
    "hostile", ["<img src=x onerror=alert(1)>", "x" * 10_000, '"&=1+1', "\u05d0\u05d1\u202e\u05d2"]
)
def test_a_hostile_name_does_no_harm(frame: pd.DataFrame, hostile: str) -> None:
    named = frame.assign(recipe=frame["recipe"].replace("fast", hostile), methods=hostile)
    html = fragment(*duel_blocks(duel(named, "baseline", hostile), look=LOOK, payment=PAYMENTS["time"]))
    assert "<img" not in html and "\u202e" not in html
    assert len(html) < 20_000
    assert "<bdi" in html


def test_a_deletion_has_its_level_and_its_time() -> None:
    governed = recipe("fast", 0.0, 1, deletion_level="G3", deletion_seconds=90.0)
    assert cells(shown(table(recipe("baseline", 0.0), governed)), "Deletion")[1:] == ["no ledger", "G3 1.5 min", ""]

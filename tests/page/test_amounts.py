import doctest
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from explorer.page import amounts, document, html, markdown, terminal
from explorer.page.document import Span, clipped
from explorer.run_files import METRICS


@pytest.mark.parametrize("module", [amounts, document, html, markdown, terminal], ids=lambda module: module.__name__)
def test_examples_in_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("nothing", [None, float("nan"), np.nan, pd.NA, pd.NaT])
def test_nothing_is_a_dash_and_never_nan(nothing: object) -> None:
    value: float = nothing  # pyright: ignore[reportAssignmentType]
    words = [
        amounts.seconds(value),
        amounts.dollars(value),
        amounts.quality(value, METRICS["nll"]),
        amounts.ratio(value),
    ]
    assert words == [amounts.MISSING] * 4


def test_a_small_cost_keeps_three_digits() -> None:
    assert amounts.dollars(0.000123456) == "$0.000123"
    assert amounts.dollars(0.09999) == "$0.1"


@pytest.mark.parametrize("length", [1, 2, 59, 60, 61, 10_000])
def test_a_long_name_keeps_both_ends(length: int) -> None:
    name = "a" * (length // 2) + "z" * (length - length // 2)
    short = clipped(name)
    assert len(short) == min(length, 60)
    assert (short == name) == (length <= 60)
    assert short[0] == name[0] and short[-1] == "z"


def test_a_name_steers_nothing_around_it() -> None:
    hostile = "\x1b[31mred\r\nnext\u202eevil\u2066 \ud800 \x85."
    short = clipped(hostile)
    assert short == "\ufffd[31mred next\ufffdevil\ufffd \ufffd ."
    assert short.encode()
    assert clipped("\u0645\u062f\u0644") == "\u0645\u062f\u0644"  # Arabic letters stay as they are


def test_a_name_is_isolated_and_whole_on_hover() -> None:
    assert html.inline((Span("fast", "name"),)) == "<bdi>fast</bdi>"
    long = html.inline((Span('"><img src=x>' * 1000, "name"),))
    assert "<img" not in long and long.count("<bdi") == 1
    assert len(long) < 10_000  # escaped, so longer than it reads

import doctest
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from explorer.views import axes, question, sweep_panel, text


@pytest.mark.parametrize("module", [text, axes, question, sweep_panel], ids=lambda module: module.__name__)
def test_examples_in_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("nothing", [None, float("nan"), np.nan, pd.NA, pd.NaT])
def test_nothing_is_a_dash_and_never_nan(nothing: object) -> None:
    value: float = nothing  # pyright: ignore[reportAssignmentType]
    words = [text.seconds(value), text.dollars(value), text.quality(value, "nats"), text.ratio(value)]
    assert words == [text.MISSING] * 4


def test_a_small_cost_keeps_three_digits() -> None:
    assert text.dollars(0.000123456) == "$0.000123"
    assert text.dollars(0.09999) == "$0.1"

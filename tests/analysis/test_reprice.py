"""Another price changes cost and nothing else, and ranks may change with it."""

import numpy as np
import pandas as pd
import pytest

from explorer.analysis.reprice import own_price, reprice
from explorer.costing import Price, cost_usd
from explorer.errors import AnalysisError
from tests.analysis.tables import rows, table


def test_cost_is_what_costing_says_and_nothing_else_changes():
    frame = table(rows("baseline", lambda ssr, seed: ssr, world_size=2))
    price = Price(provider="aws", instance="big", accelerator="H200", count=8, usd_per_hour=64.0, source="list")
    found = reprice(frame, price)
    expected = [cost_usd(seconds, price, world_size=2) for seconds in frame["train_seconds"]]
    assert found["cost_usd"].tolist() == pytest.approx(expected)
    assert set(found["usd_per_hour"]) == {16.0}
    assert set(found["price_source"]) == {"aws big, on demand (list)"}
    changed = ["usd_per_hour", "price_source", "price_as_of", "cost_usd"]
    pd.testing.assert_frame_equal(found.drop(columns=changed), frame.drop(columns=changed, errors="ignore"))


def test_an_unknown_time_has_no_cost():
    frame = table(rows("baseline", lambda ssr, seed: ssr, train_seconds=np.nan))
    assert np.isnan(reprice(frame, own_price(3.0))["cost_usd"].to_numpy(dtype=float)).all()


@pytest.mark.parametrize("usd", [0, -1.0, float("nan"), float("inf")])
def test_a_price_that_is_none_is_refused(usd):
    with pytest.raises(AnalysisError, match="above 0"):
        own_price(usd)


def test_deletions_cost_what_their_time_costs():
    frame = table(rows("baseline", lambda ssr, seed: ssr, world_size=2, deletion_seconds=3600.0))
    frame["deletion_seconds/open"], frame["deletion_usd"] = 1800.0, 99.0
    found = reprice(frame, own_price(4.0))
    assert set(found["deletion_usd"]) == {8.0} and set(found["deletion_usd/open"]) == {4.0}

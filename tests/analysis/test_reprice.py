"""Another price changes cost and nothing else, and ranks may change with it."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from explorer.analysis.reprice import own_price, prices_of, reprice, reprice_at
from explorer.costing import Price, cost_usd, load_prices
from explorer.errors import AnalysisError, PriceError
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


def two_machines() -> pd.DataFrame:
    """Runs of an hour each, on hardware that aws has a price of, and on hardware that nobody has."""
    own = [rows("baseline", lambda ssr, seed: ssr, train_seconds=3600.0, hardware=name) for name in HARDWARE]
    return table(*own)


HARDWARE = ("NVIDIA H200", "a processor")


def test_every_machine_at_its_own_price_of_one_provider() -> None:
    frame = two_machines().assign(usd_per_hour=99.0, cost_usd=99.0)
    found = reprice_at(frame, load_prices(), provider="aws").set_index("hardware")
    h200, other = found.loc["NVIDIA H200"], found.loc["a processor"]
    assert h200["cost_usd"].to_list() == pytest.approx([63.296 / 8] * len(h200))
    assert set(h200["price_source"]) == {"aws p5en.48xlarge, on demand (dstackai/dstack#4110)"}
    assert set(h200["price_as_of"]) == {"2026-08-06"}
    assert other[["usd_per_hour", "cost_usd", "price_as_of"]].isna().all().all()
    assert set(other["price_source"]) == {"no price of aws for a processor"}
    assert reprice_at(frame, load_prices(), provider="gcp")["cost_usd"].max() == pytest.approx(83.49 / 8)
    pd.testing.assert_series_equal(found["train_seconds"].reset_index(drop=True), frame["train_seconds"])


def test_a_provider_that_no_price_names_is_refused() -> None:
    with pytest.raises(PriceError, match="unknown provider 'azur'; did you mean 'azure'"):
        reprice_at(two_machines(), load_prices(), provider="azur")


def test_another_currency_never_becomes_a_cost() -> None:
    euros = Price(
        **{"provider": "own", "instance": "box", "accelerator": "processor", "count": 1, "usd_per_hour": 2.0},
        **{"source": "bill", "own": True, "currency": "EUR"},
    )
    with pytest.raises(PriceError, match="EUR, which is not converted"):
        reprice(two_machines(), euros)
    dollars = Price(
        provider="own", instance="x", accelerator="H200", count=1, usd_per_hour=8.0, source="bill", own=True
    )
    found = reprice_at(two_machines(), [euros, dollars], provider="own")
    assert found.loc[found["hardware"] == "a processor", "usd_per_hour"].isna().all()
    with pytest.raises(PriceError, match="unknown provider 'own'"):
        reprice_at(two_machines(), [euros], provider="own")


def test_prices_come_back_from_a_table_as_they_were() -> None:
    prices = load_prices()
    assert prices_of(pd.DataFrame([asdict(price) for price in prices])) == prices

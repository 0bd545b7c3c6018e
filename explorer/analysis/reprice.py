"""Results at other prices: times stay as they are, costs change."""

from collections.abc import Iterable

import pandas as pd

from explorer.costing import Price, price_at
from explorer.errors import AnalysisError

DELETION, COST = "deletion_seconds", "deletion_usd"


def reprice(frame: pd.DataFrame, price: Price) -> pd.DataFrame:
    """Return the table of results with its cost columns at `price`, whatever hardware the runs used.

    Columns that change: usd_per_hour, price_source, price_as_of, cost_usd, and what deletions cost. A run whose time is
    unknown has no cost. Raises `PriceError` for a price that is not in US dollars.
    """
    return _at(frame, price.usd_per_accelerator_hour).assign(price_source=_source(price), price_as_of=price.as_of)


def reprice_at(frame: pd.DataFrame, prices: Iterable[Price], *, provider: str) -> pd.DataFrame:
    """Return the table with every run at that provider's price for the hardware that it used.

    Hardware without an on-demand price of the provider in US dollars has no cost; `price_source` says so. Raises
    `PriceError` for a provider that no price names.
    """
    prices = tuple(prices)
    by_name = {str(name): price_at(str(name), prices, provider) for name in frame["hardware"].unique()}
    rates = {name: price.usd_per_accelerator_hour for name, price in by_name.items() if price}
    sources = {name: _source(price) if price else without(provider, name) for name, price in by_name.items()}
    dates = {name: price.as_of if price else None for name, price in by_name.items()}
    names = frame["hardware"].astype(str)
    repriced = _at(frame, names.map(rates).astype(float))
    return repriced.assign(price_source=names.map(sources), price_as_of=names.map(dates))


def without(provider: str, hardware: str) -> str:
    """Return the text in place of a price's source where there is no price."""
    return f"no price of {provider} for {hardware}"


def prices_of(table: pd.DataFrame) -> tuple[Price, ...]:
    """Return the prices in a snapshot's table of prices."""
    return tuple(Price(**{str(name): value for name, value in row.items()}) for row in table.to_dict("records"))


def with_deletion_costs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the cost of every deletion whose seconds it has: of the costliest class, and of each."""
    seconds = [str(name) for name in frame.columns if name == DELETION or str(name).startswith(f"{DELETION}/")]
    costs = {f"{COST}{name.removeprefix(DELETION)}": frame[name] / 3600 * frame["usd_per_hour"] for name in seconds}
    return frame.assign(**costs)


def of_class(column: str, class_: str) -> str:
    """Return the column of one class for a column of the costliest.

    >>> of_class(DELETION, "open/mit")
    'deletion_seconds/open/mit'
    """
    return f"{column}/{class_}"


def own_price(usd_per_hour: float) -> Price:
    """Return the price that a user states for one accelerator. Raises `AnalysisError` unless it is above zero."""
    if not 0 < usd_per_hour < float("inf"):
        raise AnalysisError(f"price: found {usd_per_hour}; expected US dollars an hour, above 0")
    return Price(
        provider="own", instance="price", accelerator="any", count=1, usd_per_hour=usd_per_hour, source="given by hand"
    )


def _at(frame: pd.DataFrame, rate: "float | pd.Series[float]") -> pd.DataFrame:
    """Return the table with its costs at `rate` US dollars an hour of one accelerator."""
    usd_per_hour = rate * frame["world_size"]
    costed = frame.assign(usd_per_hour=usd_per_hour, cost_usd=frame["train_seconds"] / 3600 * usd_per_hour)
    return with_deletion_costs(costed)


def _source(price: Price) -> str:
    return f"{price.provider} {price.instance}, {price.tenancy} ({price.source})"

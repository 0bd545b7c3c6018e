"""The same results at another price. Times stay as they are; only what an hour costs is another."""

import pandas as pd

from explorer.costing import Price
from explorer.errors import AnalysisError


def reprice(frame: pd.DataFrame, price: Price) -> pd.DataFrame:
    """The table of results with the cost columns at `price`, whatever hardware the runs used.

    Columns that change: usd_per_hour, price_source, price_as_of, cost_usd. A run whose time is unknown has no cost.
    """
    usd_per_hour = price.usd_per_accelerator_hour * frame["world_size"]
    return frame.assign(
        usd_per_hour=usd_per_hour,
        price_source=f"{price.provider} {price.instance}, {price.tenancy} ({price.source})",
        price_as_of=price.retrieved or price.effective,
        cost_usd=frame["train_seconds"] / 3600 * usd_per_hour,
    )


def own_price(usd_per_hour: float) -> Price:
    """A price that the user states for one accelerator. Raises `AnalysisError` unless it is above zero."""
    if not 0 < usd_per_hour < float("inf"):
        raise AnalysisError(f"price: found {usd_per_hour}; expected US dollars an hour, above 0")
    return Price(
        provider="own", instance="price", accelerator="any", count=1, usd_per_hour=usd_per_hour, source="given by hand"
    )

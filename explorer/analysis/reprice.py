"""The same results at another price. Times stay as they are; only what an hour costs is another."""

import pandas as pd

from explorer.costing import Price
from explorer.errors import AnalysisError

DELETION, COST = "deletion_seconds", "deletion_usd"


def reprice(frame: pd.DataFrame, price: Price) -> pd.DataFrame:
    """The table of results with the cost columns at `price`, whatever hardware the runs used.

    Columns that change: usd_per_hour, price_source, price_as_of, cost_usd, and what deletions cost. A run whose time is
    unknown has no cost.
    """
    usd_per_hour = price.usd_per_accelerator_hour * frame["world_size"]
    return with_deletion_costs(frame.assign(usd_per_hour=usd_per_hour)).assign(
        price_source=f"{price.provider} {price.instance}, {price.tenancy} ({price.source})",
        price_as_of=price.retrieved or price.effective,
        cost_usd=frame["train_seconds"] / 3600 * usd_per_hour,
    )


def with_deletion_costs(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with US dollars beside the seconds of every deletion that it has: of the dearest class, and of each."""
    seconds = [str(name) for name in frame.columns if name == DELETION or str(name).startswith(f"{DELETION}/")]
    costs = {f"{COST}{name.removeprefix(DELETION)}": frame[name] / 3600 * frame["usd_per_hour"] for name in seconds}
    return frame.assign(**costs)


def of_class(column: str, class_: str) -> str:
    """The column of one class beside that of the dearest.

    >>> of_class(DELETION, "open/mit")
    'deletion_seconds/open/mit'
    """
    return f"{column}/{class_}"


def own_price(usd_per_hour: float) -> Price:
    """A price that the user states for one accelerator. Raises `AnalysisError` unless it is above zero."""
    if not 0 < usd_per_hour < float("inf"):
        raise AnalysisError(f"price: found {usd_per_hour}; expected US dollars an hour, above 0")
    return Price(
        provider="own", instance="price", accelerator="any", count=1, usd_per_hour=usd_per_hour, source="given by hand"
    )

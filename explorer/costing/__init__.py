"""From steps to time, and from time to money: the arithmetic, and a dated, sourced table of prices.

A price is a row of `prices.csv`: the cost of one instance for an hour, its number of accelerators, the date, and the
source. A run of `world_size` processes uses that many of the `count` accelerators and is charged for its share. For
hardware that is no accelerator, such as the user's own CPU, `count` is the number of training processes that share the
machine. Hardware without a row has no price: that is `None`, never zero. A price in another currency than US dollars is
shown, never converted, and never becomes a cost.

>>> cost_usd(1800, Price(provider="own", instance="box", accelerator="H200", count=2, usd_per_hour=8.0, source="us"))
2.0
"""

from explorer.costing.prices import (
    COLUMNS,
    FILE,
    OWN,
    SAME_TIME,
    USD,
    Duration,
    Price,
    StepTime,
    cost_usd,
    current,
    default_price,
    load_prices,
    matching,
    own_prices,
    parse_prices,
    price_at,
    providers,
    to_csv,
    train_seconds,
    wall_seconds,
)

__all__ = [
    "COLUMNS",
    "FILE",
    "OWN",
    "SAME_TIME",
    "USD",
    "Duration",
    "Price",
    "StepTime",
    "cost_usd",
    "current",
    "default_price",
    "load_prices",
    "matching",
    "own_prices",
    "parse_prices",
    "price_at",
    "providers",
    "to_csv",
    "train_seconds",
    "wall_seconds",
]

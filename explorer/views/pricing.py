"""At whose prices the explorer shows costs: the price table's, one provider's, or a number of the user's."""

from collections.abc import Iterator, Sequence
from datetime import date

import pandas as pd

from explorer.analysis.reprice import own_price, reprice, reprice_at
from explorer.costing import Price, age_words, price_at, providers
from explorer.views import text


def clouds(rows: pd.DataFrame, prices: Sequence[Price]) -> tuple[str, ...]:
    """The providers that price some hardware of these rows; "" for the price table's own choice comes first."""
    hardware = rows["hardware"].unique()
    return ("", *(name for name in providers(prices) if any(price_at(machine, prices, name) for machine in hardware)))


def at_price(rows: pd.DataFrame, prices: Sequence[Price], *, cloud: str, usd_per_hour: float | None) -> pd.DataFrame:
    """The rows with their costs at the user's own price, at those of a provider, or as the price table has them.

    Hardware that the provider has no price for has no cost then.
    """
    if usd_per_hour is not None:
        return reprice(rows, own_price(usd_per_hour))
    return reprice_at(rows, prices, provider=cloud) if cloud else rows


def price_words(rows: pd.DataFrame, *, today: date) -> str:
    """Which prices the costs of these rows are made with, hardware by hardware, and as of when.

    "$63.30/h as of 2026-08-06, dstackai/dstack#4110"
    """
    return "; ".join(_each(rows, today))


def _each(rows: pd.DataFrame, today: date) -> Iterator[str]:
    groups = rows.groupby(["hardware", "world_size"], sort=False)  # a run on several accelerators pays for all of them
    for (name, processes), of_it in groups:
        hardware = name if processes == 1 else f"{name}, {processes} processes"
        priced = of_it[of_it["usd_per_hour"].notna()]
        if priced.empty:
            yield f"no price for {name}"
            continue
        first = priced.iloc[0]
        words = f"{text.dollars(first['usd_per_hour'])}/h"
        if "price_source" in first:  # means of many sweeps do not say
            as_of = first["price_as_of"] if isinstance(first["price_as_of"], str) else ""
            age = age_words(as_of, today)
            words += f"{f' as of {as_of}' if as_of else ''}{f', {age}' if age else ''}, {first['price_source']}"
        yield f"{hardware}: {words}" if len(groups) > 1 else words

"""`explorer prices list`: which price a machine has, why this one, and what else there is."""

import datetime
from dataclasses import asdict
from typing import Annotated, Any

import typer

from explorer import costing
from explorer.cli.credentials import clock
from explorer.cli.output import print_json, print_table, visible
from explorer.cli.settings import RUNS, Json, Runs
from explorer.costing import OWN, USD, Price, age_words, stale
from explorer.costing.words import amount, dollars
from explorer.errors import PriceError

Hardware = Annotated[str | None, typer.Option("--hardware", metavar="NAME", help="Hardware, such as 'NVIDIA H200'.")]
Provider = Annotated[str | None, typer.Option("--provider", metavar="NAME", help="Only what this provider offers.")]

COLUMNS = (
    *("", "provider", "instance", "region", "tenancy", "accelerator", "count"),
    *("an hour", "each", "as of", "source"),
)


def list_(
    hardware: Hardware = None,
    provider: Provider = None,
    all: Annotated[bool, typer.Option("--all", help="Every price there is, whatever the hardware.")] = False,
    runs: Runs = RUNS,
    json: Json = False,
) -> None:
    """The prices of this machine, or of the hardware named: which of them costs are made with, and why."""
    if all and hardware is not None:
        raise PriceError("--all is for whatever hardware there is: expected it or --hardware NAME")
    prices = (*costing.load_prices(), *costing.own_prices(runs))
    if provider is not None:
        prices = tuple(price for price in prices if price.provider == provider)
    if all:
        _show(costing.current(prices), None, json=json)
        return
    name = _this_machine() if hardware is None else hardware
    used = costing.default_price(name, prices)
    found = costing.matching(name, prices)
    words, why = costing.price_words(used, hardware=name, today=today()), _why(used, found)
    if json:
        shown = [row_of(price) | {"used": price == used} for price in found]
        print_json({"hardware": name, "used": used and row_of(used), "words": words, "why": why, "prices": shown})
        return
    print(f"{visible(name)}: {visible(words)}")
    print(f"  {visible(why)}\n")
    if found:
        _show(found, used, json=False)


def _why(used: Price | None, found: list[Price]) -> str:
    """Why this price is used, of those that there are for the hardware."""
    foreign = sorted({price.currency for price in found} - {USD})
    aside = f"; what there is in {', '.join(foreign)} is not converted" if foreign else ""
    if used is None:
        if any(price.currency == USD for price in found):
            return f"what there is is not on demand: `explorer prices add` says what you pay{aside}"
        return f"costs are left out; `explorer prices add` says what a machine of your own costs{aside}"
    if used.own:
        mine = "a machine of your own" if used.provider == OWN else "the cheapest in your own prices"
        return f"{mine}, which comes first{aside}"
    rivals = sum(price.tenancy == used.tenancy and price.currency == USD for price in found)
    return f"the cheapest of {rivals} on demand{aside}" if rivals > 1 else f"the only one on demand{aside}"


def _show(prices: list[Price], used: Price | None, *, json: bool) -> None:
    if json:
        print_json([row_of(price) for price in prices])
        return
    rows = []
    for price in prices:
        old = age_words(price.as_of, today())
        money = [price.usd_per_hour, price.per_accelerator]
        shown = [dollars(each) if price.currency == USD else amount(each, price.currency) for each in money]
        place = (price.provider, price.instance, price.region or None, price.tenancy, price.accelerator)
        as_of = f"{price.as_of} ({old})" if old and price.as_of else price.as_of or old
        mark = "used" if price == used else "own" if price.own else ""
        rows.append([mark, *map(_visible, place), price.count, *shown, as_of, visible(price.source)])
    print_table(COLUMNS, rows, right=("count", "an hour", "each"))
    print("an hour: of the whole instance; each: of one accelerator, or of one of the runs that share the machine")


def _visible(text: str | None) -> str | None:
    return None if text is None else visible(text)


def row_of(price: Price) -> dict[str, Any]:
    """A price as JSON."""
    return asdict(price) | {"as_of": price.as_of, "stale": stale(price, today())}


def today() -> datetime.date:
    return datetime.datetime.fromtimestamp(clock(), datetime.UTC).date()


def _this_machine() -> str:
    from explorer.recipes.machine import hardware

    return hardware(threads=1).name

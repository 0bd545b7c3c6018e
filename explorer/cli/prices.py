"""`explorer prices`: prices of hardware by the hour, with their sources and dates; your own prices, and catalogues."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer import costing, rundir
from explorer.cli import options
from explorer.cli.verbs import part
from explorer.costing import OWN, USD, Price
from explorer.costing.prices import MAX_CATALOGUE_BYTES, check_date, check_text, parse_catalogue
from explorer.errors import PriceError
from explorer.page.amounts import age_words, money, price_words, stale
from explorer.page.document import Block
from explorer.page.terminal import Answer, table
from explorer.store.ingest import ingest
from explorer.store.published import database, opened

Hardware = Annotated[
    str | None, typer.Option("--hardware", metavar="NAME", help="Name of the hardware, such as 'NVIDIA H200'.")
]
Provider = Annotated[str | None, typer.Option("--provider", metavar="NAME", help="Only prices of this provider.")]

COLUMNS = (
    *("", "provider", "instance", "region", "tenancy", "accelerator", "count"),
    *("an hour", "each", "as of", "source"),
)

Rows = Sequence[Price]
MOST = 5000  # prices from one catalogue: every command that shows a cost reads the whole table


def list_(
    hardware: Hardware = None,
    provider: Provider = None,
    all: Annotated[bool, typer.Option("--all", help="List all prices, for any hardware.")] = False,
    runs: options.Runs = options.RUNS,
) -> Answer:
    """List the prices of this machine, or of the named hardware, and show which one is used and why."""
    if all and hardware is not None:
        raise PriceError("found --all and --hardware NAME; expected only one of them")
    prices = (*costing.load_prices(), *costing.own_prices(runs))
    if provider is not None:
        prices = tuple(price for price in prices if price.provider == provider)
    if all:
        current = costing.current(prices)
        return Answer(page=lambda: _blocks(current, None), record=lambda: [row_of(price) for price in current])
    name = part("prices list")(threads=1).name if hardware is None else hardware
    used = costing.default_price(name, prices)
    matching = costing.matching(name, prices)
    words, why = price_words(used, hardware=name, today=options.today()), _why(used, matching)
    return Answer(
        page=lambda: [f"{name}: {words}", f"  {why}\n", *(_blocks(matching, used) if matching else ())],
        record=lambda: {
            "hardware": name,
            "used": used and row_of(used),
            "words": words,
            "why": why,
            "prices": [row_of(price) | {"used": price == used} for price in matching],
        },
    )


def _why(used: Price | None, prices: list[Price]) -> str:
    """Return the reason for using this price, of all prices for the hardware."""
    # Exchange rates are dated too, so a foreign price is shown as it is and never used.
    foreign = sorted({price.currency for price in prices} - {USD})
    aside = f"; prices in {', '.join(foreign)} are not converted" if foreign else ""
    if used is None:
        if any(price.currency == USD for price in prices):
            return f"no known price is on demand; `explorer prices add` adds the one that you pay{aside}"
        return f"costs are left out; `explorer prices add` adds a price for your own machine{aside}"
    if used.own:
        mine = "your own machine" if used.provider == OWN else "the cheapest of your own prices"
        return f"{mine}, which takes precedence{aside}"
    rivals = sum(price.tenancy == used.tenancy and price.currency == USD for price in prices)
    return f"the cheapest of {rivals} on demand{aside}" if rivals > 1 else f"the only one on demand{aside}"


def _blocks(prices: list[Price], used: Price | None) -> list[Block | str]:
    rows = []
    for price in prices:
        old = age_words(price.as_of, options.today())
        rates = [price.usd_per_hour, price.per_accelerator]
        shown = [money(rate, price.currency) for rate in rates]
        place = (price.provider, price.instance, price.region or None, price.tenancy, price.accelerator)
        as_of = f"{price.as_of} ({old})" if old and price.as_of else price.as_of or old
        mark = "used" if price == used else "own" if price.own else ""
        rows.append([mark, *place, price.count, *shown, as_of, price.source])
    words = "an hour: of the whole instance; each: of one accelerator, or of one of the runs that share the machine"
    return [table(COLUMNS, rows, right=("count", "an hour", "each")), words]


def row_of(price: Price) -> dict[str, Any]:
    """Return the record of a price."""
    return asdict(price) | {"as_of": price.as_of, "stale": stale(price, options.today())}


def add(
    hardware: Annotated[
        str, typer.Option("--hardware", metavar="NAME", help="Words in the name of the hardware, such as 'AMD EPYC'.")
    ],
    usd_per_hour: Annotated[
        float, typer.Option("--usd-per-hour", metavar="USD", help="Price per hour of the whole machine.")
    ],
    source: Annotated[
        str, typer.Option("--source", metavar="TEXT", help="Source of the price, such as an invoice or a calculation.")
    ],
    count: Annotated[
        int,
        typer.Option("--count", metavar="N", help="Number of accelerators in the machine, or of runs that share it."),
    ] = 1,
    effective: Annotated[
        str, typer.Option("--effective", metavar="DATE", help="Date from which the price is valid, such as 2026-11-09.")
    ] = "",
    runs: options.Runs = options.RUNS,
) -> Answer:
    """Add the price of your own machine. From now on it is preferred to every other price of that hardware."""
    price = costing.Price(
        provider=costing.OWN,
        instance=hardware,
        accelerator=hardware,
        count=count,
        usd_per_hour=usd_per_hour,
        effective=effective,
        retrieved=options.today().isoformat(),
        source=source,
        own=True,
    )
    costing.to_csv([price], where="the new price")
    change = _change(runs, lambda rows: _with(rows, [price]))
    here = _hardware(runs)
    covered = [name for name in here if price.covers(name)]
    lines = [price_words(price, hardware=hardware, today=options.today()), *_lines(change)]
    if covered:
        lines.append(f"it is the price of {', '.join(covered)}")
    elif here:
        lines.append(f"no result here has hardware with these words in its name; known: {', '.join(here)}")
    return Answer(page=lambda: lines, record=lambda: change | {"price": row_of(price), "covers": covered})


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A catalogue: the vms.csv file of one cloud.")],
    provider: Annotated[
        str, typer.Option("--provider", metavar="NAME", help="Provider of the catalogue, such as aws.")
    ],
    retrieved: Annotated[
        str,
        typer.Option(
            "--retrieved", metavar="DATE", help="Date on which the catalogue was fetched, such as 2026-11-09."
        ),
    ],
    region: Annotated[str | None, typer.Option("--region", metavar="NAME", help="Only prices in this region.")] = None,
    accelerator: Annotated[
        str | None, typer.Option("--accelerator", metavar="NAME", help="Only prices of this accelerator.")
    ] = None,
    runs: options.Runs = options.RUNS,
) -> Answer:
    """Import on-demand and spot prices from a local catalogue in SkyPilot's schema.

    Each instance in each region counts once, in its cheapest zone. Prices of the same offer are replaced.
    """
    check_text(provider, at="--provider")
    if not check_date(retrieved, at="--retrieved"):
        raise PriceError("--retrieved: found nothing; expected the day the catalogue was fetched, such as 2026-11-09")
    content = rundir.read_bytes(file, max_bytes=MAX_CATALOGUE_BYTES, error=PriceError)
    origin = {"name": file.name, "provider": provider, "retrieved": retrieved}
    catalogue = parse_catalogue(content, **origin, region=region, accelerator=accelerator)
    skipped = ", ".join(f"{count} {reason}" for reason, count in catalogue.skipped.items())
    if not catalogue.prices:
        raise PriceError(f"{file}: no price in {catalogue.rows} rows{': ' if skipped else ''}{skipped}")
    if len(catalogue.prices) > MOST:
        raise PriceError(
            f"{file}: {len(catalogue.prices)} prices, at most {MOST} at once: name a --region or --accelerator"
        )
    change = _change(runs, lambda rows: _with(rows, catalogue.prices))
    lines = [f"{len(catalogue.prices)} prices of {provider} from {catalogue.rows} rows of {file.name}"]
    lines += [f"  rows left out: {skipped}"] if skipped else []
    return Answer(
        page=lambda: [*lines, *_lines(change)],
        record=lambda: change | {"rows": catalogue.rows, "prices": len(catalogue.prices), "skipped": catalogue.skipped},
    )


def remove(
    hardware: Hardware = None,
    provider: Provider = None,
    runs: options.Runs = options.RUNS,
) -> Answer:
    """Remove your own prices of a provider, of some hardware, or of both."""
    if hardware is None and provider is None:
        raise PriceError("name the prices to remove: expected --hardware NAME, --provider NAME or both")

    def kept(rows: Rows) -> tuple[Rows, int]:
        left = [
            price
            for price in rows
            if (provider not in (None, price.provider)) or not (hardware is None or price.covers(hardware))
        ]
        if len(left) == len(rows):
            raise PriceError(f"{runs / costing.FILE}: none of your {len(rows)} own prices matches")
        return left, len(rows) - len(left)

    change = _change(runs, kept)
    return Answer(page=lambda: _lines(change), record=lambda: change)


def _change(runs: Path, change: Callable[[Rows], tuple[Rows, int]]) -> dict[str, Any]:
    """Rewrite the user's own prices, whole or not at all, and re-price the database."""
    # The lock covers the reading too: two changes at once would otherwise lose one of them.
    path = runs / costing.FILE
    with rundir.locked(runs, what="the price table"):
        rows, gone = change(costing.own_prices(runs))
        rundir.write_bytes(path, costing.to_csv(rows, where=str(path)))
    published = database(runs).exists() and ingest(runs).published
    return {"file": str(path), "replaced": gone, "published": published}


def _hardware(runs: Path) -> list[str]:
    """List the hardware of the results; none before there is a database."""
    if not database(runs).exists():
        return []
    with opened(database(runs)) as connection:
        return [name for (name,) in connection.execute("SELECT DISTINCT hardware FROM results ORDER BY 1").fetchall()]


def _with(rows: Rows, new: Iterable[Price]) -> tuple[Rows, int]:
    """Replace the rows of the same offers by new ones, and return how many were replaced."""
    offers = {price.offer: price for price in new}
    kept = [price for price in rows if price.offer not in offers]
    return [*kept, *offers.values()], len(rows) - len(kept)


def _lines(change: dict[str, Any]) -> list[str]:
    gone = change["replaced"]
    aside = f"; {gone} earlier {'row is' if gone == 1 else 'rows are'} gone" if gone else ""
    lines = [f"written to {change['file']}{aside}"]
    return lines + ["the database is re-priced: every table and view uses the new prices"] * change["published"]

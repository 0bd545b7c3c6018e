"""Which price is used for a piece of hardware."""

from collections.abc import Iterable

from explorer.costing.price import OWN, USD, Price, day
from explorer.errors import PriceError, unknown

ON_DEMAND = "on demand"


def current(prices: Iterable[Price]) -> list[Price]:
    """The prices that hold now: of rows for the same offer, the one that took effect last."""
    latest: dict[tuple[str, ...], Price] = {}
    for price in prices:
        if price.offer not in latest or _since(price) >= _since(latest[price.offer]):
            latest[price.offer] = price
    return list(latest.values())


def matching(hardware: str, prices: Iterable[Price]) -> list[Price]:
    """The current prices of that hardware: in US dollars first, machines of one's own, then what else the user's file
    has, then what is shipped; on demand before the rest, and the cheapest first."""
    return sorted((price for price in current(prices) if price.covers(hardware)), key=_preference)


def default_price(hardware: str, prices: Iterable[Price]) -> Price | None:
    """The price that is used unless another one is chosen: the user's own, else the cheapest on demand.

    `None` means that there is no price for this hardware, or none in US dollars.
    """
    return next(filter(is_usable, matching(hardware, prices)), None)


def price_at(hardware: str, prices: Iterable[Price], provider: str) -> Price | None:
    """The price that is used of one provider's. Raises `PriceError` for a provider that no price names."""
    prices = tuple(prices)
    if provider not in (known := providers(prices)):
        raise PriceError(unknown("provider", provider, known))
    return default_price(hardware, (price for price in prices if price.provider == provider))


def providers(prices: Iterable[Price]) -> list[str]:
    """The providers with a price in US dollars, by name."""
    return sorted({price.provider for price in prices if price.currency == USD})


def is_usable(price: Price) -> bool:
    """Whether a price can become a cost without being asked for: what is shipped has to be on demand."""
    return price.currency == USD and (price.own or price.tenancy == ON_DEMAND)


def _since(price: Price) -> int:
    found = day(price.effective)
    return 0 if found is None else found.toordinal()


def _preference(price: Price) -> tuple[bool, bool, bool, bool, float]:
    return (
        price.currency != USD,
        not (price.own and price.provider == OWN),
        not price.own,
        price.tenancy != ON_DEMAND,
        price.per_accelerator,
    )

"""How a price is told: how much, as of when, who says so; and that it is old, or in no currency of ours. And how a time
is told that was measured while something else kept the machine busy."""

import datetime
from collections.abc import Iterable

from explorer.costing.price import USD, Price, day

BUSY = "profiled on a busy machine"
MOST_NAMES = 5  # of recipes in a sentence

STALE_DAYS = 180
UNDATED = "of unknown date"


def stale(price: Price, today: datetime.date) -> bool:
    """Whether nobody has seen the price hold for more than `STALE_DAYS`, or ever."""
    return bool(age_words(price.as_of, today))


def age_words(as_of: str, today: datetime.date) -> str:
    """What a reader has to know of a price's date: nothing for one that is fresh.

    >>> age_words("2026-01", datetime.date(2026, 11, 22))
    'over 9 months old'
    """
    known = day(as_of)
    if known is None:
        return UNDATED
    if (today - known).days <= STALE_DAYS:
        return ""
    months = 12 * (today.year - known.year) + today.month - known.month - (today.day < known.day)
    return f"over {months} months old"


def price_words(price: Price | None, *, hardware: str, today: datetime.date) -> str:
    """A price in words, for the hardware that it was looked up for.

    "$7.91/h as of 2026-08-06, one of 8 of aws p5en.48xlarge, dstackai/dstack#4110"
    """
    if price is None:
        return f"no price for {hardware}"
    money = dollars(price.per_accelerator) if price.currency == USD else amount(price.per_accelerator, price.currency)
    share = f"one of {price.count} of " if price.count > 1 else ""
    age = age_words(price.as_of, today)
    told = (
        f"{money}/h as of {price.as_of}" if price.as_of else f"{money}/h",
        age,
        f"{share}{price.provider} {price.instance}" + ("" if price.tenancy == "on demand" else f", {price.tenancy}"),
        price.source,
        "" if price.currency == USD else f"in {price.currency}, which is not converted",
    )
    return ", ".join(filter(None, told))


def busy_words(reasons: Iterable[str], *, again: str) -> str:
    """What to say under times that were profiled on a busy machine; nothing if there are no reasons to call it so.
    `again` is the command that measures them again.

    >>> busy_words(["the load average was 2"], again="explorer sweep profile digits.yaml")
    'profiled on a busy machine: the load average was 2; explorer sweep profile digits.yaml measures again'
    """
    told = "; ".join(dict.fromkeys(filter(None, reasons)))
    return f"{BUSY}: {told}; {again} measures again" if told else ""


def busy_times(recipes: Iterable[str]) -> str:
    """A sentence on recipes whose times were profiled on a busy machine; nothing if there are none.

    >>> busy_times(["baseline", "fast"])
    'Profiled on a busy machine: the times of baseline, fast; `explorer sweep profile` measures them again.'
    """
    names = list(dict.fromkeys(recipes))
    few = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    start = f"{BUSY[:1].upper()}{BUSY[1:]}"
    return f"{start}: the times of {few}; `explorer sweep profile` measures them again." if names else ""


def dollars(value: float) -> str:
    """US dollars with as many digits as tell something.

    >>> dollars(63.296), dollars(0.0526)
    ('$63.30', '$0.0526')
    """
    return f"${_rounded(value)}"


def amount(value: float, currency: str) -> str:
    """An amount in another currency, which comes first so that nobody takes it for dollars.

    >>> amount(2.5, "EUR")
    'EUR 2.50'
    """
    return f"{currency} {_rounded(value)}"


def _rounded(value: float) -> str:
    return f"{value:,.2f}" if value >= 0.1 else f"{value:.3g}"

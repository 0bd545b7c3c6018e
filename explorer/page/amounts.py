"""Amounts in words: numbers with their units, as people read them and as people type them.

A missing number is a dash, never "nan". Times are in seconds and money is in US dollars unless a name says otherwise.
"""

import datetime
import math
import re
from collections.abc import Iterable
from typing import Protocol

from explorer.costing import USD, Price
from explorer.costing.prices import day
from explorer.errors import ExplorerError

MISSING = "-"
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
MEMORY = {"kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}  # bytes, as typed
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": MINUTE, "h": HOUR, "d": DAY}  # of a time that is typed, in seconds

STALE_DAYS = 180  # a price that was last seen earlier is marked as old
UNDATED = "of unknown date"
BUSY = "profiled on a busy machine"
MOST_NAMES = 5  # of recipes in a sentence


class Metric(Protocol):
    """A metric that knows its unit."""

    def show(self, value: float) -> str: ...


class Scale(Metric, Protocol):
    """A metric that also knows its name, and whether its values lie between 0 and 1."""

    @property
    def name(self) -> str: ...
    @property
    def bounded(self) -> bool: ...


# ---- numbers as text


def seconds(value: float | None) -> str:
    """Return a time in the unit that suits it.

    >>> [seconds(v) for v in (0.0123, 4.56, 75, 5400, 200_000)]
    ['12.3 ms', '4.56 s', '1.25 min', '1.5 h', '2.31 days']
    """
    if value is None or missing(value):
        return MISSING
    # days begin at two, because 30 h reads better than 1.25 days
    for least, unit, name in ((2 * DAY, DAY, "days"), (HOUR, HOUR, "h"), (MINUTE, MINUTE, "min"), (0.1, 1.0, "s")):
        if value >= least:
            return f"{value / unit:.3g} {name}"
    return f"{value * 1000:.3g} ms"


def dollars(value: float | None) -> str:
    """Return US dollars with two decimals, or with three significant digits below ten cents.

    >>> [dollars(v) for v in (1234.5, 3.5, 0.01234, 0.0000012, 0)]
    ['$1,234.50', '$3.50', '$0.0123', '$0.0000012', '$0.00']
    """
    return MISSING if value is None or missing(value) else f"${_money(value)}"


def money(value: float, currency: str) -> str:
    """Return an amount in its currency; any other than US dollars comes first, so that it is not taken for dollars.

    >>> money(2.5, "EUR"), money(2.5, "USD")
    ('EUR 2.50', '$2.50')
    """
    return dollars(value) if currency == USD else f"{currency} {_money(value)}"


def quality(value: float | None, kind: Metric) -> str:
    """Return a value of a metric, written as the metric is."""
    return MISSING if value is None or missing(value) else kind.show(float(value))


def ratio(value: float | None) -> str:
    """Return a ratio to the baseline.

    >>> ratio(0.6049)
    '0.60x'
    """
    return MISSING if missing(value) else f"{value:.2f}x"


def memory(size: float | None) -> str:
    """Return bytes of memory in the unit that suits them.

    >>> [memory(v) for v in (1_000, 431 * 2**20, 1.5 * 2**30, None)]
    ['0.977 KiB', '431 MiB', '1.5 GiB', '-']
    """
    if size is None or missing(size):
        return MISSING
    name = next((name for name in ("GiB", "MiB") if size >= MEMORY[name.lower()]), "KiB")
    return f"{size / MEMORY[name.lower()]:.3g} {name}"


def energy(kwh: float | None) -> str:
    """Return kilowatt-hours in the unit that suits them.

    >>> [energy(v) for v in (12.345, 0.0456, 2e-6, None)]
    ['12.3 kWh', '45.6 Wh', '7.2 J', '-']
    """
    if kwh is None or missing(kwh):
        return MISSING
    if kwh >= 0.1:
        return f"{kwh:,.3g} kWh"
    return f"{kwh * 1e3:.3g} Wh" if kwh >= 1e-4 else f"{kwh * 3.6e6:.3g} J"


def flops(operations: float | None) -> str:
    """Return floating-point operations in the unit that suits them.

    >>> [flops(v) for v in (2.1e10, 3e15, 4.2e23, None)]
    ['21 GFLOP', '3 PFLOP', '4.2e+05 EFLOP', '-']
    """
    if operations is None or missing(operations):
        return MISSING
    units = ((1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"))
    unit, name = next((pair for pair in units if operations >= pair[0]), (1e6, "MFLOP"))
    return f"{operations / unit:.3g} {name}"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number of things.

    >>> count(1, "run"), count(1200, "run"), count(2, "entry", "entries")
    ('1 run', '1,200 runs', '2 entries')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def missing(value: float | None) -> bool:
    """Return whether there is no number: `None`, NaN or pandas' NA."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or math.isnan(value)


def _money(value: float) -> str:
    if value == 0 or value >= 0.1:
        return f"{value:,.2f}"
    digits = 2 - math.floor(math.log10(value))
    return f"{value:.{digits}f}".rstrip("0")


# ---- prices, and times that cannot be trusted, as text


def stale(price: Price, today: datetime.date) -> bool:
    """Return whether the price was last seen more than `STALE_DAYS` ago, or at no known date."""
    return bool(age_words(price.as_of, today))


def age_words(as_of: str, today: datetime.date) -> str:
    """Return a remark on the age of a price; empty for a recent one.

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
    """Return a price in words, for the hardware that it was looked up for.

    "$7.91/h as of 2026-08-06, one of 8 of aws p5en.48xlarge, dstackai/dstack#4110"
    """
    if price is None:
        return f"no price for {hardware}"
    rate = f"{money(price.per_accelerator, price.currency)}/h"
    share = f"one of {price.count} of " if price.count > 1 else ""
    parts = (
        f"{rate} as of {price.as_of}" if price.as_of else rate,
        age_words(price.as_of, today),
        f"{share}{price.provider} {price.instance}" + ("" if price.tenancy == "on demand" else f", {price.tenancy}"),
        price.source,
        "" if price.currency == USD else f"in {price.currency}, which is not converted",
    )
    return ", ".join(filter(None, parts))


def busy_words(reasons: Iterable[str], *, again: str) -> str:
    """Return the remark under times that were profiled on a busy machine; empty without reasons to call it busy.

    `again` is the command that measures them again.

    >>> busy_words(["the load average was 2"], again="explorer sweep profile digits.yaml")
    'profiled on a busy machine: the load average was 2; explorer sweep profile digits.yaml measures again'
    """
    reason = "; ".join(dict.fromkeys(filter(None, reasons)))
    return f"{BUSY}: {reason}; {again} measures again" if reason else ""


def busy_times(recipes: Iterable[str]) -> str:
    """Return a sentence on recipes whose times were profiled on a busy machine; empty if there are none.

    >>> busy_times(["baseline", "fast"])
    'Profiled on a busy machine: the times of baseline, fast; `explorer sweep profile` measures them again.'
    """
    names = list(dict.fromkeys(recipes))
    few = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    start = f"{BUSY[:1].upper()}{BUSY[1:]}"
    return f"{start}: the times of {few}; `explorer sweep profile` measures them again." if names else ""


# ---- amounts that are typed: `option` names the field in the error that is raised for anything else

_TIME = "a time above 0 with its unit (us, ms, s, min, h, d), such as 90s, 15min or 2h"
_QUALITY = "a number such as 0.93, or a percentage such as 93%"
_USD = "US dollars above 0, such as 2.50"
_INFERENCE = "a time such as 3ms, or a ratio to the baseline such as 1.02x"
_MEMORY = "memory above 0 with its unit (MiB, GiB, MB, GB), such as 2GiB"
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z%]*)")
_MOST = 40  # characters of an amount


def read_seconds(option: str, written: str) -> float:
    """Read a time above zero.

    >>> read_seconds("--max-time", "1.5h"), read_seconds("--max-time", "90 s")
    (5400.0, 90.0)
    """
    number, unit = _amount(option, written, units=UNITS, expected=_TIME)
    return _positive(option, written, number * UNITS[unit], _TIME)


def read_quality(option: str, written: str) -> float:
    """Read a quality in the unit of its metric; a fraction may be a percentage.

    >>> read_quality("--quality", "93%"), read_quality("--quality", "-0.5")
    (0.93, -0.5)
    """
    value, is_percentage = _quality(option, written)
    return value / 100 if is_percentage else value


def read_target(option: str, written: str, kind: Scale) -> float:
    """Read a quality of a known metric. Where values lie between 0 and 1, 97, 97% and 0.97 are the same.

    Raises `ExplorerError` for what the metric cannot be, such as 9700%.
    """
    value, is_percentage = _quality(option, written)
    if not kind.bounded:
        if is_percentage:
            raise unreadable(option, written, f"a number such as 0.35, because {kind.name} is no fraction")
        return value
    # A bare number above 1 can only be meant as a percentage: no fraction is that large.
    fraction = value / 100 if is_percentage or value > 1 else value
    if not 0 <= fraction <= 1:
        raise unreadable(option, written, f"{kind.name} from {kind.show(0.0)} to {kind.show(1.0)}")
    return fraction


def _quality(option: str, written: str) -> tuple[float, bool]:
    """Return the number of a quality, and whether it is a percentage."""
    text = written.strip()
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
    number, unit = _amount(option, rest, units=("", "%"), expected=_QUALITY, shown=written)
    return sign * number, bool(unit)


def read_inference(option: str, written: str) -> tuple[float | None, float | None]:
    """Read seconds an example, or else a ratio to the baseline.

    >>> read_inference("--max-inference", "3ms"), read_inference("--max-inference", "1.02x")
    ((0.003, None), (None, 1.02))
    """
    number, unit = _amount(option, written, units=("x", *UNITS), expected=_INFERENCE)
    if unit == "x":
        return None, _positive(option, written, number, _INFERENCE)
    return _positive(option, written, number * UNITS[unit], _INFERENCE), None


def read_usd(option: str, written: str) -> float:
    """Read US dollars above zero.

    >>> read_usd("--max-cost", "2.50")
    2.5
    """
    number, _ = _amount(option, written, units=("",), expected=_USD)
    return _positive(option, written, number, _USD)


def read_memory(option: str, written: str) -> float:
    """Read an amount of memory in bytes.

    >>> read_memory("--max-memory", "2GiB"), read_memory("--max-memory", "500 MB")
    (2147483648.0, 500000000.0)
    """
    number, unit = _amount(option, written, units=MEMORY, expected=_MEMORY)
    return _positive(option, written, number * MEMORY[unit], _MEMORY)


def as_typed(value: object) -> str:
    """Return an amount from code as a hand would type it: without an exponent.

    >>> as_typed(0.97), as_typed(1e-5), as_typed("97%")
    ('0.97', '0.00001', '97%')
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return str(value)
    return f"{value:.12f}".rstrip("0").rstrip(".")


def unreadable(option: str, written: str, expected: str) -> ExplorerError:
    """Return the error for a text that is not the expected amount."""
    return ExplorerError(f"{option}: found {written!r:.80}; expected {expected}")


def _amount(
    option: str, written: str, *, units: Iterable[str], expected: str, shown: str | None = None
) -> tuple[float, str]:
    match = _AMOUNT.fullmatch(written.strip().lower())
    if match is None or len(written) > _MOST or match[2] not in units:
        raise unreadable(option, written if shown is None else shown, expected)
    return float(match[1]), match[2]


def _positive(option: str, written: str, value: float, expected: str) -> float:
    if not 0 < value < math.inf:
        raise unreadable(option, written, expected)
    return value

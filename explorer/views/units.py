"""Amounts as people type them, with their unit: times, qualities, ratios, and levels of deletion by class."""

import math
import re

from explorer.errors import ExplorerError
from explorer.provenance.levels import Cost, read_cost

SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z%]*)")


def seconds(option: str, written: str) -> float:
    """A time above zero.

    >>> seconds("--max-time", "1.5h"), seconds("--max-time", "90 s")
    (5400.0, 90.0)
    """
    number, unit = _amount(option, written, expected=_TIME)
    if unit not in SECONDS:
        raise _error(option, written, _TIME)
    return _positive(option, written, number * SECONDS[unit], _TIME)


def quality(option: str, written: str) -> float:
    """A quality in the unit of its metric; a fraction may be a percentage.

    >>> quality("--quality", "93%"), quality("--quality", "-0.5")
    (0.93, -0.5)
    """
    sign, rest = (-1.0, written[1:]) if written.startswith("-") else (1.0, written)
    number, unit = _amount(option, rest, expected=_QUALITY)
    if unit not in ("", "%"):
        raise _error(option, written, _QUALITY)
    return sign * (number / 100 if unit else number)


def inference(option: str, written: str) -> tuple[float | None, float | None]:
    """Seconds an example, or else a ratio to the baseline.

    >>> inference("--max-inference", "3ms"), inference("--max-inference", "1.02x")
    ((0.003, None), (None, 1.02))
    """
    number, unit = _amount(option, written, expected=_INFERENCE)
    if unit == "x":
        return None, _positive(option, written, number, _INFERENCE)
    if unit not in SECONDS:
        raise _error(option, written, _INFERENCE)
    return _positive(option, written, number * SECONDS[unit], _INFERENCE), None


def usd(option: str, written: str) -> float:
    """US dollars above zero.

    >>> usd("--max-cost", "2.50")
    2.5
    """
    number, unit = _amount(option, written, expected=_USD)
    if unit:
        raise _error(option, written, _USD)
    return _positive(option, written, number, _USD)


def deletable(option: str, written: str) -> tuple[str, str, Cost | None]:
    """A class, the level at which it has to be deletable, and how much of training that may repeat; which classes and
    levels there are is not known here.

    >>> deletable("--deletable", "open/mit=G2, at most 1% of training")
    ('open/mit', 'G2', Cost(share=0.01, steps=None))
    """
    name, equals, asked = written.rpartition("=")
    level, at_most, most = asked.partition(", at most ")
    if not name or not equals or not level:
        raise _error(option, written, "CLASS=LEVEL, such as open/mit=G2 or 'open/mit=G2, at most 1% of training'")
    return name, level.strip().upper(), read_cost(most, where=option) if at_most else None


_TIME = "a time above 0 with its unit (us, ms, s, min, h, d), such as 90s, 15min or 2h"
_QUALITY = "a number such as 0.93, or a percentage such as 93%"
_USD = "US dollars above 0, such as 2.50"
_INFERENCE = "a time such as 3ms, or a ratio to the baseline such as 1.02x"


def _amount(option: str, written: str, *, expected: str) -> tuple[float, str]:
    found = _AMOUNT.fullmatch(written.strip().lower())
    if found is None or len(written) > 40:
        raise _error(option, written, expected)
    return float(found[1]), found[2]


def _positive(option: str, written: str, value: float, expected: str) -> float:
    if not 0 < value < math.inf:
        raise _error(option, written, expected)
    return value


def _error(option: str, written: str, expected: str) -> ExplorerError:
    return ExplorerError(f"{option}: found {written!r:.80}; expected {expected}")

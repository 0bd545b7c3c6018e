"""Numbers as people read them: times, money, qualities, ratios; and names of anybody's, cut to a length that fits.

A missing number is a dash, never "nan".
"""

import math
import re

from explorer.records import Metric

MISSING = "-"
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def seconds(value: float | None) -> str:
    """A time in the unit that suits it.

    >>> [seconds(v) for v in (0.0123, 4.56, 75, 5400, 200_000)]
    ['12.3 ms', '4.56 s', '1.25 min', '1.5 h', '2.31 days']
    """
    if value is None or missing(value):
        return MISSING
    for least, unit in ((2 * DAY, "days"), (HOUR, "h"), (MINUTE, "min"), (0.1, "s")):
        if value >= least:
            return f"{value / _UNITS[unit]:.3g} {unit}"
    return f"{value * 1000:.3g} ms"


def dollars(value: float | None) -> str:
    """US dollars with two decimals, or three significant digits below ten cents.

    >>> [dollars(v) for v in (1234.5, 3.5, 0.01234, 0.0000012, 0)]
    ['$1,234.50', '$3.50', '$0.0123', '$0.0000012', '$0.00']
    """
    if value is None or missing(value):
        return MISSING
    if value == 0 or value >= 0.1:
        return f"${value:,.2f}"
    digits = 2 - math.floor(math.log10(value))
    return f"${value:.{digits}f}".rstrip("0")


def quality(value: float | None, kind: Metric) -> str:
    """A value of a metric, written as the metric is.

    >>> quality(0.12345, Metric(name="nll", unit="nats", higher_is_better=False))
    '0.1235 nats'
    """
    return MISSING if value is None or missing(value) else kind.show(float(value))


def ratio(value: float | None) -> str:
    """A ratio to the baseline.

    >>> ratio(0.6049)
    '0.60x'
    """
    return MISSING if missing(value) else f"{value:.2f}x"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """
    >>> count(1, "run"), count(1200, "run"), count(2, "entry", "entries")
    ('1 run', '1,200 runs', '2 entries')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def clipped(name: str, most: int = 60) -> str:
    """A name on one line of at most so many characters: what is too long loses its middle. What would steer the text
    around it (control characters, changes of direction, half characters) is shown as the replacement character.

    >>> clipped("resnet8-with-a-name-that-never-ends", most=15), clipped("two\\nlines"), clipped("\\u202egnp.exe")
    ('resnet8…er-ends', 'two lines', '\ufffdgnp.exe')
    """
    line = _STEERING.sub("\N{REPLACEMENT CHARACTER}", " ".join(name.split()))
    if len(line) <= most:
        return line
    half = (most - 1) // 2
    return f"{line[: most - 1 - half]}\N{HORIZONTAL ELLIPSIS}{line[len(line) - half :]}"


def isolated(name: str, most: int = 60) -> str:
    """A clipped name for the middle of a sentence of plain text: one that is not in ASCII stands between the marks that
    keep its direction to itself (Unicode Bidirectional Algorithm, FSI and PDI).

    >>> isolated("fast"), isolated("\u05d0\u05d1")
    ('fast', '\u2068\u05d0\u05d1\u2069')
    """
    short = clipped(name, most)
    return short if short.isascii() else f"\u2068{short}\u2069"


def plain(words: str) -> str:
    """A sentence that names of anybody's are in, with what would steer the text around it shown as the replacement
    character, and a word that no line holds without its middle.

    >>> plain("\\u202egnp.exe needs less time")
    '�gnp.exe needs less time'
    """
    line = _STEERING.sub("\N{REPLACEMENT CHARACTER}", " ".join(words.split()))
    return _ENDLESS.sub(lambda found: clipped(found[0], LINE), line)


def missing(value: float | None) -> bool:
    """Whether there is no number: `None`, NaN or pandas' NA."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or math.isnan(value)


LINE = 160  # characters of a word
_ENDLESS = re.compile(rf"\S{{{LINE + 1},}}")
_UNITS = {"days": DAY, "h": HOUR, "min": MINUTE, "s": 1.0}
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")

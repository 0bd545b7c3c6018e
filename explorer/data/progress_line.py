"""A progress line while data are read: on a terminal, and only where reading takes longer than a second.

    reading photos: 12,000 of 50,000, 1,900 a second, 20 s left

The line is on standard error and is removed at the end.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

Item = TypeVar("Item")

AFTER = 1.0  # seconds without a line
EVERY = 0.2  # seconds from one line to the next
CLEAR = "\r\x1b[2K"  # back to the start of the line, and empty it


def watched(items: Iterable[Item], name: str, *, total: int | None, stream: TextIO | None = None) -> Iterator[Item]:
    """Yield the items, and show on a terminal how many of `total` are done, if that is known."""
    out = stream or sys.stderr
    if not out.isatty() or "JPY_PARENT_PID" in os.environ:  # the terminal of a notebook's cell shows every code
        yield from items
        return
    began = last = time.monotonic()
    shown = False
    try:
        for done, item in enumerate(items):
            now = time.monotonic()
            if now - began >= AFTER and (not shown or now - last >= EVERY):
                out.write(CLEAR + line(name, done, total, now - began))
                out.flush()
                shown, last = True, now
            yield item
    finally:
        if shown:
            out.write(CLEAR)
            out.flush()


def line(name: str, done: int, total: int | None, seconds: float) -> str:
    """Return the line, with the rate so far and the time that the rest takes at this rate.

    >>> line("reading photos", 1900, 5700, 2.0)
    'reading photos: 1,900 of 5,700, 950 a second, 4 s left'
    """
    rate = done / seconds
    if total is None:
        return f"{name}: {done:,}, {rate:,.0f} a second"
    if not rate:
        return f"{name}: 0 of {total:,}"
    left = (total - done) / rate
    duration = f"{left:.0f} s" if left < 120 else f"{left / 60:.0f} min"
    return f"{name}: {done:,} of {total:,}, {rate:,.0f} a second, {duration} left"

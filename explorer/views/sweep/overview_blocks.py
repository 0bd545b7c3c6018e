"""The overview of a sweep as blocks, for the terminal and the notebook: hosts, runs, pace, spend and faults.

Names of hosts and runs, and messages, come from a place that others write to: they are shown as names, or clipped.
"""

import datetime
from collections.abc import Iterator

from explorer.page.amounts import count, dollars, price_words, seconds
from explorer.page.document import Block, Bullets, Column, Facts, Paragraph, Row, Span, Table, Text, clipped
from explorer.sweep.overview import FaultLine, Held, HostLine, Overview

LONGEST_MESSAGE = 300  # characters


def overview_blocks(seen: Overview, *, most: int) -> Iterator[Block]:
    """Yield all that is known of a sweep at this moment, with at most so many runs, hosts and faults."""
    yield Paragraph((*_named(seen), Span(f": {count_words(seen)}")), "status")
    yield from amount_blocks(seen)
    yield from host_blocks(seen, most=most)
    yield from progress_blocks(seen, most=most)
    yield from fault_blocks(seen, most=most)


def count_words(seen: Overview) -> str:
    """Return how far a sweep is: "12 of 40 runs done, 4 in progress on 2 hosts, 23 to do, 1 failed"."""
    running, hosts = len(seen.in_progress), len({one.host for one in seen.in_progress if one.host})
    where = f" on {count(hosts, 'host')}" if hosts else ""
    parts = {
        f"{seen.done:,} of {count(seen.runs, 'run')} done": True,
        f"{running:,} in progress{where}": running > 0,
        f"{(left := seen.runs - seen.done - seen.failed - running):,} to do": left > 0,
        f"{seen.failed:,} failed": seen.failed > 0,
        "step times are being measured": bool(seen.measuring),
    }
    return ", ".join(words for words, holds in parts.items() if holds)


def amount_words(seen: Overview) -> dict[str, str]:
    """Return pace, expected end, and what was spent and is to come, in words by name; what is not known is left out."""
    words: dict[str, str] = {}
    if seen.runs_per_hour is not None:
        over = seconds(seen.window)
        words["pace"] = (
            f"{_rate(seen.runs_per_hour)} runs an hour, over {'the last ' if seen.in_progress else ''}{over}"
        )
    if seen.seconds_left is not None:
        workers = (
            "if this worker stays" if len(seen.in_progress) == 1 else f"if all {len(seen.in_progress)} workers stay"
        )
        end = f"in about {_roughly(seen.seconds_left)}, at {_clock(seen.now, seen.seconds_left)}"
        words["end"] = f"{end if seen.seconds_left >= 1 else 'due now'}, {workers}"
    if seen.spent_seconds:
        spent = f"about {_roughly(seen.spent_seconds)}" if seen.unread else seconds(seen.spent_seconds)
        words["spent"] = f"{spent} of machine time{_money(seen.spent_usd)}"
    if seen.to_come_seconds:
        words["to come"] = f"about {_roughly(seen.to_come_seconds)}{_money(seen.to_come_usd)}"
    if words and seen.prices:
        today = datetime.datetime.fromtimestamp(seen.now, datetime.UTC).date()
        known = (price_words(price, hardware=clipped(name), today=today) for name, price in seen.prices.items())
        words["price"] = "; ".join(known)
    return words


def amount_blocks(seen: Overview) -> Iterator[Block]:
    """Yield pace, expected end, spend and price."""
    if words := amount_words(seen):
        yield Facts(tuple(words.items()))
    if seen.unread:
        yield Paragraph(f"Spend and hosts: {count(seen.unread, 'older attempt')} not read yet, and estimated.", "note")


def host_blocks(seen: Overview, *, most: int) -> Iterator[Block]:
    """Yield what each host does and did."""
    titles = ("Host", "Hardware", "Running", "Done", "An hour", "Lost")
    columns = [Column(title, number=at > 1) for at, title in enumerate(titles)]
    if seen.hosts:
        yield Table(columns, [_host(line) for line in seen.hosts[:most]])
        yield from _more(len(seen.hosts) - most, "host")


def progress_blocks(seen: Overview, *, most: int) -> Iterator[Block]:
    """Yield which run is where, and since when."""
    held = (*seen.measuring, *seen.in_progress)
    if held:
        columns = [Column("In progress"), Column("Host"), Column("For", number=True)]
        yield Table(columns, [_held(one, seen.now) for one in held[:most]])
        yield from _more(len(held) - most, "run")


def fault_blocks(seen: Overview, *, most: int) -> Iterator[Block]:
    """Yield what went wrong, and where."""
    if seen.faults:
        yield Bullets([fault_words(fault) for fault in seen.faults[:most]], "warning")
        yield from _more(len(seen.faults) - most, "fault")


def fault_words(fault: FaultLine) -> Text:
    """Return a fault in a line: "fast-ssr1-s0-3f9c2a7d: lost worker on node-8: waits for a worker"."""
    parts = [Span(fault.run_id, "name"), Span(": ")] if fault.run_id else []
    parts.append(Span(fault.kind, "strong"))
    if fault.host:
        parts += [Span(" on "), Span(fault.host, "name")]
    return (*parts, Span(f": {clipped(fault.message, LONGEST_MESSAGE)}"))


def _named(seen: Overview) -> tuple[Span, ...]:
    name = (Span("sweep "), Span(seen.sweep, "name"))
    return (*name, Span(", for "), Span(seen.machine, "name")) if seen.machine else name


def _host(line: HostLine) -> Row:
    hourly = None if line.runs_per_hour is None else _rate(line.runs_per_hour)
    counts = (str(number or "") for number in (line.running, line.done, hourly, line.lost))
    return Row(((Span(line.host, "name"),), (Span(line.hardware, "name"),), *counts))


def _held(one: Held, now: float) -> Row:
    return Row(((Span(one.run_id, "name"),), (Span(one.host, "name"),), seconds(one.seconds(now))))


def _more(number: int, noun: str) -> Iterator[Block]:
    if number > 0:
        yield Paragraph(f"and {count(number, f'more {noun}')}", "note")


def _rate(hourly: float) -> str:
    """Return a number of runs an hour with three digits: "96.4", "31,800"."""
    return f"{float(f'{hourly:.3g}'):,.0f}" if hourly >= 100 else f"{hourly:.3g}"


def _roughly(value: float) -> str:
    """
    >>> _roughly(252.6), _roughly(5000)
    ('4.2 min', '1.4 h')
    """
    number, unit = seconds(value).split(" ")
    return f"{float(number):.2g} {unit}"


def _money(usd: float | None) -> str:
    return "" if usd is None else f", {dollars(usd)}"


def _clock(now: float, left: float) -> str:
    """Return a moment by the clock of this machine, with its day if that is another one."""
    try:
        begin, end = (datetime.datetime.fromtimestamp(moment).astimezone() for moment in (now, now + left))
    except (OverflowError, ValueError, OSError):
        return "a time that no calendar has"
    return f"{end:%H:%M}" if end.date() == begin.date() else f"{end:%a %d %b, %H:%M}"

"""How a running sweep shows itself: a progress bar for people, lines of JSON for programs."""

import json
import sys
from types import TracebackType
from typing import Self

from explorer.page.amounts import BUSY
from explorer.page.progress import Bar
from explorer.sweep.execute import Event

EVERY = 10  # runs between two lines where the output is no terminal


class JsonLines:
    """Every event as one line of JSON on standard output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, event: Event) -> None:
        line = {
            "event": event.kind,
            "run": event.run.record.run_id if event.run else None,
            "message": event.message,
            **{name: getattr(event, name) for name in ("done", "failed", "total", "fraction", "seconds_left")},
        }
        print(json.dumps(line), flush=True)


class ProgressBar:
    """A bar with the time left; where the output is no terminal, a line now and then."""

    def __init__(self, name: str) -> None:
        self._bar = Bar(name)

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, value, traceback)

    def show(self, event: Event) -> None:
        left = "" if event.seconds_left is None else f"about {duration(event.seconds_left)} left"
        runs = f"{event.done} of {event.total} runs"
        if event.kind == "profile":
            runs, left = f"measuring step times{' ' * bool(event.message)}{event.message}", "leave the machine idle"
        elif event.kind == "waiting":
            runs, left = event.message, ""
        elif event.kind == "stopping":
            runs, left = "stopping after this step", ""
        self._bar.update(event.fraction, state=runs, left=left)
        self._tell(event, runs, left)

    def _tell(self, event: Event, runs: str, left: str) -> None:
        if event.kind == "busy":
            self._bar.tell(f"{BUSY}: {event.message}")
        elif event.kind in ("failed", "retry", "warning"):
            name = f"{event.run.record.run_id}: " if event.run else ""
            self._bar.tell(f"{event.kind}: {name}{event.message}")
        elif not self._bar.is_drawn and (
            event.kind in ("profile", "waiting", "stopping") or (event.kind == "done" and event.done % EVERY == 0)
        ):
            print(f"{runs}{', ' if left else ''}{left}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return a time in whole seconds, minutes and hours.

    >>> duration(7.4), duration(90), duration(5400)
    ('7 s', '1 min 30 s', '1 h 30 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"

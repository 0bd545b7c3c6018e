"""How a running sweep shows itself: a progress bar for people, lines of JSON for programs."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self

from explorer.page.amounts import BUSY
from explorer.sweep.execute import Event

EVERY = 10  # runs between two lines where the output is no terminal


class Display(Protocol):
    """What a sweep reports to."""

    def show(self, event: Event) -> None: ...


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
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn(f"{name}"),
            BarColumn(bar_width=32),
            TextColumn("{task.fields[runs]}  {task.fields[left]}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task(name, total=1.0, runs="starting", left="")

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, value, traceback)

    def show(self, event: Event) -> None:
        left = "" if event.seconds_left is None else f"about {duration(event.seconds_left)} left"
        runs = f"{event.done} of {event.total} runs"
        if event.kind == "profile":
            runs, left = f"measuring step times{' ' * bool(event.message)}{event.message}", "leave the machine idle"
        elif event.kind == "waiting":
            runs, left = event.message, ""
        elif event.kind == "stopping":
            runs, left = "stopping after this step", ""
        self._progress.update(self._task, completed=event.fraction, runs=runs, left=left)
        self._tell(event, runs, left)

    def _tell(self, event: Event, runs: str, left: str) -> None:
        if event.kind == "busy":
            self._console.print(f"{BUSY}: {event.message}", markup=False, highlight=False)
        elif event.kind in ("failed", "retry", "warning"):
            name = f"{event.run.record.run_id}: " if event.run else ""
            self._console.print(f"{event.kind}: {name}{event.message}", markup=False, highlight=False)
        elif not self._console.is_terminal and (
            event.kind in ("profile", "waiting", "stopping") or (event.kind == "done" and event.done % EVERY == 0)
        ):
            print(f"{runs}{', ' if left else ''}{left}", file=sys.stderr, flush=True)


@contextmanager
def step_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for a single run; the function yielded takes steps done and steps in all. Nothing where the output is no
    terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn(name),
        BarColumn(bar_width=32),
        TextColumn("step {task.completed:.0f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def duration(seconds: float) -> str:
    """A time in whole seconds, minutes and hours.

    >>> duration(7.4), duration(90), duration(5400)
    ('7 s', '1 min 30 s', '1 h 30 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"

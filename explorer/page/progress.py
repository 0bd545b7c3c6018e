"""Progress: bars on standard error, and a page on standard output that is drawn again and again, on terminals."""

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from explorer.page.document import Block
from explorer.page.terminal import is_terminal, show

WIDTH = 32  # characters of a bar


class Bar:
    """A bar with two remarks after it, and lines of events above it."""

    def __init__(self, name: str) -> None:
        self._console, self._progress = _progress(name, TextColumn("{task.fields[state]}  {task.fields[left]}"))
        self._task = self._progress.add_task(name, total=1.0, state="starting", left="")

    @property
    def is_drawn(self) -> bool:
        """Return whether standard error is a terminal."""
        return self._console.is_terminal

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, value, traceback)

    def update(self, fraction: float, *, state: str, left: str) -> None:
        self._progress.update(self._task, completed=fraction, state=state, left=left)

    def tell(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False)


class Redrawn:
    """Blocks on a terminal, each time in the place of those before. The last ones stay."""

    def __init__(self) -> None:
        self._live = Live(console=Console(force_jupyter=False), auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, value, traceback)

    def draw(self, blocks: Iterable[Block | str]) -> None:
        """Draw blocks. A line that is longer than the terminal is cut off: broken, it would not be found again."""
        text = io.StringIO()
        show(blocks, file=text)
        self._live.update(Text(text.getvalue().rstrip(), no_wrap=True, overflow="ellipsis"), refresh=True)


@contextmanager
def step_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar for a single run; the function yielded takes steps done and steps in all."""
    _, progress = _progress(name, TextColumn("step {task.completed:.0f}"), TimeRemainingColumn())
    with progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _progress(name: str, *columns: ProgressColumn) -> tuple[Console, Progress]:
    # Said outright: FORCE_COLOR, which notebooks set, means colours to rich and a terminal, so bars in their output.
    console = Console(stderr=True, force_terminal=is_terminal(sys.stderr))
    shown = (TextColumn(name), BarColumn(bar_width=WIDTH), *columns)
    return console, Progress(*shown, console=console, transient=True, disable=not console.is_terminal)


def tell_rehearsal(names: Sequence[str]) -> None:
    """Announce on standard error that recipes are tried out, because it can take a while."""
    count = "1 recipe" if len(names) == 1 else f"{len(names)} recipes"
    print(f"trying a few steps of {count} before training starts", file=sys.stderr, flush=True)


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

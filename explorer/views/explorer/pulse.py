"""Pulse of the explorer: it looks whether the sweep that is shown trains, from here or elsewhere, and brings news in.

Nothing notifies a reader of files, so the kernel looks: every `IDLE` seconds whether the sweep's lock is held, which
takes about 20 microseconds, and while it is held every `TRAINING` seconds at the measurements of the runs in training.
New results are ingested only as often as keeps it to `SHARE` of the time. A process of the command line that started
the sweep is none the wiser.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from explorer.errors import ExplorerError
from explorer.store.learning_curves import is_training
from explorer.store.published import database
from explorer.store.upkeep import bring_up

IDLE, TRAINING = 5.0, 2.0  # seconds between two looks
SHARE = 0.1  # of the time, for ingesting new results and drawing them
LEAST = 6.0  # seconds between two ingests

_beating: list["Pulse"] = []  # the one of the view that was opened last: a kernel feeds one


class Pulse:
    """Looks at a sweep now and then, from the kernel's event loop.

    `sweep` returns the sweep that is shown; `on_growth` is called while it trains and once after that, and `on_results`
    when the database has new results.
    """

    def __init__(
        self, runs: Path, *, sweep: Callable[[], str], on_growth: Callable[[], None], on_results: Callable[[], None]
    ) -> None:
        self._runs, self._sweep = runs, sweep
        self._on_growth, self._on_results = on_growth, on_results
        self._was_training = False
        self._next_ingest = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, in the place of an earlier view's pulse. Without an event loop, as in a script, nothing happens."""
        for other in _beating:
            other.stop()
        _beating[:] = [self]
        self._again(IDLE if not self._trains() else TRAINING)

    def stop(self) -> None:
        """End it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def beat(self) -> float:
        """Look once, and return the seconds until the next look."""
        training = self._trains()
        # The last runs finish just before the lock is released, so there is one ingest after it.
        ended, self._was_training = self._was_training and not training, training
        if not training and not ended:
            return IDLE
        begun = time.monotonic()
        if ended or begun >= self._next_ingest:
            self._bring_in()
            self._next_ingest = time.monotonic() + max(LEAST, (time.monotonic() - begun) / SHARE)
        self._on_growth()
        return TRAINING

    def _bring_in(self) -> None:
        path = database(self._runs)
        before = path.stat().st_mtime_ns if path.exists() else 0
        try:
            bring_up(self._runs, patience=0.2)
        except ExplorerError:
            return  # another process ingests now, so the next look will find it done; Refresh says what is wrong
        if path.exists() and path.stat().st_mtime_ns != before:
            self._on_results()

    def _trains(self) -> bool:
        sweep = self._sweep()
        return bool(sweep) and (self._runs / sweep).is_dir() and is_training(self._runs, sweep)

    def _beat(self) -> None:
        self._again(self.beat())

    def _again(self, seconds: float) -> None:
        try:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._beat)
        except RuntimeError:
            self._timer = None

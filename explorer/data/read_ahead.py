"""The rows of the coming step, read and augmented by a second thread while this step computes.

Which rows a step has, and the draws that augment them, are pure functions of the step, so the bits are the same with
and without the thread. Rows are taken only for the very examples that they were read for: where a step turns out to
have others, it reads them itself. An error of the reader is raised where the rows are taken, in the step that they
belong to; where that step turns out to have others, it is none.

For a GPU the rows are put into pinned memory, from which they are copied without the program having to wait.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from torch import Tensor

from explorer.data.batches import Batches


class Wanted(NamedTuple):
    """The rows of a step to read: its examples in these slots."""

    step: int
    examples: np.ndarray  # their numbers, int64
    slots: np.ndarray  # int64, as many

    def fits(self, other: "Wanted") -> bool:
        return (
            self.step == other.step
            and np.array_equal(self.examples, other.examples)
            and np.array_equal(self.slots, other.slots)
        )


class _Read(NamedTuple):
    wanted: Wanted
    rows: tuple[Tensor, Tensor] | Exception  # inputs and labels, or why they could not be read


class ReadAhead:
    """A thread that prepares the rows of one step at a time."""

    def __init__(self, batches: Batches, note: Callable[[str, float, float], None]) -> None:
        """`note` is called in the thread, with each part of its work and when it began and ended."""
        self._batches, self._note = batches, note
        self._pins = batches.device.type == "cuda"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rows")
        self._coming: Future[_Read] | None = None

    def start(self, wanted: Callable[[], Wanted]) -> None:
        """Begin to prepare these rows, in place of any before; `wanted` is called by the thread."""
        self._coming = self._thread.submit(self._read, wanted)

    def take(self, wanted: Wanted) -> tuple[Tensor, Tensor] | None:
        """Wait for the rows; return them, augmented: inputs and labels. None if others were prepared, or nothing was.
        Raises what reading them raised."""
        coming, self._coming = self._coming, None
        read = None if coming is None else coming.result()
        if read is None or not read.wanted.fits(wanted):
            return None
        if isinstance(read.rows, Exception):
            raise read.rows
        return read.rows

    def _read(self, wanted: Callable[[], Wanted]) -> _Read:
        rows = wanted()
        try:
            return _Read(rows, self._rows(rows))
        except Exception as error:  # whether it matters is known when the rows are taken
            return _Read(rows, error)

    def _rows(self, rows: Wanted) -> tuple[Tensor, Tensor]:
        begin = time.perf_counter()
        inputs, labels = self._batches.read(rows.examples)
        read = time.perf_counter()
        inputs = self._batches.augment(inputs, rows.step, rows.slots)
        if self._pins:
            inputs, labels = inputs.pin_memory(), labels.pin_memory()
        self._note("read", begin, read)
        self._note("preprocess", read, time.perf_counter())
        return inputs, labels

"""The shards of one side, opened as they are needed: fetched, verified, kept in memory, and fetched ahead of their use.

Every file is verified by its digest in the index each time that it is opened, also from the cache on disk. What a store
refuses, loses or damages is asked for again with pauses; then it is an error that names the shard. Nothing is skipped.
"""

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from threading import RLock

import numpy as np
import pyarrow as pa

from explorer.data.shards import shard_table
from explorer.data.shards.shard_cache import ShardCache
from explorer.data.shards.shard_index import Layout, Shard
from explorer.errors import DataError, PlaceError
from explorer.objects import Objects

THREADS = 4  # that fetch: they wait for the store, or hash, which leaves the interpreter to others
PAUSES = (0.5, 2.0, 8.0)  # seconds before a shard is asked for again
PATIENCE = 30.0  # seconds after which a wait is reported

Look = Callable[[int, "Opened"], None]  # at a shard, by its number, when it is opened; it raises for a wrong one

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Opened:
    """The rows of a shard. Rows of variable length lie one behind the other: row i is data[offsets[i]:offsets[i+1]]."""

    data: np.ndarray  # uint8, of the column `input`
    offsets: np.ndarray
    labels: np.ndarray  # rows, or the bytes of all labels
    erased: np.ndarray  # rows, bool: zeros take their place
    bytes: int  # in memory

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def input(self, row: int) -> memoryview:
        return self.data[self.offsets[row] : self.offsets[row + 1]].data

    def inputs(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Return the inputs as an array, rows x shape. Raises ValueError where they have other sizes."""
        size = dtype.itemsize * int(np.prod(shape))
        if not np.array_equal(np.diff(self.offsets), np.full(len(self), size)):
            raise ValueError(f"inputs of other sizes than {size} bytes")
        return self.data[self.offsets[0] : self.offsets[-1]].view(dtype).reshape(len(self), *shape)


class ShardFiles:
    """The opened shards of a side, at most `memory` bytes of them, those that were used least recently closed first."""

    def __init__(
        self,
        objects: Objects,
        layout: Layout,
        *,
        cache: ShardCache | None,
        memory: int,
        pauses: Sequence[float] | None = None,
    ) -> None:
        """`pauses`: seconds before a shard is asked for again; None: `PAUSES`."""
        self.objects, self.layout = objects, layout
        self._cache, self._memory = cache, memory
        self._pauses = PAUSES if pauses is None else pauses
        self._open: OrderedDict[int, Future[Opened]] = OrderedDict()
        self._bytes = 0  # of those that are open by now
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="shards")
        self._lock = RLock()  # a future that is done already calls back at once
        self._look: Look = lambda number, opened: None
        self.fetched = 0  # shards that were read from their place

    def looking(self, look: Look) -> "ShardFiles":
        """Return the same shards, none of them open, with a look at each when it is opened."""
        files = ShardFiles(self.objects, self.layout, cache=self._cache, memory=self._memory, pauses=self._pauses)
        files._look = look
        return files

    def expect(self, numbers: Iterable[int]) -> None:
        """Begin to open these shards, those that are needed first at the beginning."""
        with self._lock:
            for number in numbers:
                self._begin(number)

    def expect_examples(self, examples: np.ndarray) -> None:
        """Begin to open the shards of these examples, which are needed in this order."""
        shards, first = np.unique(self.layout.shards_of(examples), return_index=True)
        self.expect(shards[np.argsort(first)].tolist())

    def in_turn(self, numbers: Sequence[int]) -> Iterator[tuple[int, Opened]]:
        """Yield these shards with their numbers; the next ones are opened meanwhile. Raises the error of `opened`."""
        for place, number in enumerate(numbers):
            self.expect(numbers[place : place + THREADS])
            yield number, self.opened([number])[0]

    def opened(self, numbers: Sequence[int]) -> list[Opened]:
        """Return these shards, all of them opened at the same time. Raises `DataError` for one that cannot be had."""
        with self._lock:
            futures = [self._begin(number) for number in numbers]
        shards = [self._waited(number, future) for number, future in zip(numbers, futures, strict=True)]
        self._close_some(set(numbers))
        return shards

    def _begin(self, number: int) -> Future[Opened]:
        future = self._open.get(number)
        if future is None or (future.done() and future.exception()):  # what failed is asked for again
            future = self._open[number] = self._threads.submit(self._opened, number)
            future.add_done_callback(self._count)
        self._open.move_to_end(number)
        return future

    def _waited(self, number: int, future: Future[Opened]) -> Opened:
        began = time.monotonic()
        while True:
            try:
                return future.result(timeout=PATIENCE)
            except Late:
                seconds = time.monotonic() - began
                log.warning("waiting for shard %s since %.0f s", self.where(number), seconds)

    def _count(self, future: Future[Opened]) -> None:
        with self._lock:
            self._bytes += 0 if future.exception() else future.result().bytes

    def _close_some(self, needed: set[int]) -> None:
        # Called for every read, so it looks at no more shards than it closes, and those that it may not close yet.
        with self._lock:
            closed: list[int] = []
            for number, future in self._open.items():
                if self._bytes <= self._memory:
                    break
                if number not in needed and future.done() and not future.exception():
                    self._bytes -= future.result().bytes
                    closed.append(number)
            for number in closed:
                del self._open[number]

    def table(self, number: int) -> pa.Table:
        """Return the rows of a shard as they are stored, without keeping them. Raises `DataError`."""
        shard = self.layout.shards[number]
        return shard_table.decode(self._verified(number, shard), shard, where=f"shard {self.where(number)}")

    # --- in the threads ---

    def _opened(self, number: int) -> Opened:
        """Return the rows. The digest says that the writer made these bytes, not that the writer made no mistake."""
        table = self.table(number)
        try:
            data, offsets = shard_table.binary(table.column("input").chunk(0))
            labels, erased = shard_table.labels_of(table), shard_table.erased_rows(table)
        except shard_table.DAMAGE as error:
            raise DataError(f"shard {self.where(number)}: not a shard: {error}") from error
        size = data.nbytes + offsets.nbytes + labels.nbytes + erased.nbytes + 4_096
        opened = Opened(data=data, offsets=offsets, labels=labels, erased=erased, bytes=size)
        self._look(number, opened)
        return opened

    def _verified(self, number: int, shard: Shard) -> bytes:
        """Return the content with the digest in the index, or without rows that were erased, from the cache or from the
        place."""
        if self._cache is not None and (kept := self._cache.read(shard.sha256)) is not None:
            if hashlib.sha256(kept).hexdigest() == shard.sha256:
                return kept
            log.warning("shard %s: damaged in the cache: it is read again", self.where(number))
            self._cache.drop(shard.sha256)
        for pause in (*self._pauses, None):
            try:
                content = self._fetched(number, shard)
            except DataError as error:
                if pause is None:
                    raise
                log.warning("%s; asking again in %g s", error, pause)
                time.sleep(pause)
                continue
            return content
        raise AssertionError("the last attempt returns or raises")

    def _fetched(self, number: int, shard: Shard) -> bytes:
        self.fetched += 1
        try:
            most = shard.bytes + shard_table.ERASED_BYTES * (shard.rows + 16)
            content = self.objects.read(shard.name, max_bytes=most)
        except PlaceError as error:
            raise DataError(f"shard {error}") from error
        digest = hashlib.sha256(content).hexdigest()
        if digest == shard.sha256:
            if self._cache is not None:
                self._cache.write(shard.sha256, content)
        elif not shard_table.is_partly_erased(content, shard, where=self.where(number)):
            raise DataError(
                f"shard {self.where(number)}: damaged: {len(content)} bytes with SHA-256 {digest[:16]}..., the index"
                f" says {shard.bytes} bytes with {shard.sha256[:16]}..."
            )
        return content

    def where(self, number: int) -> str:
        """Return the name of a shard, for messages."""
        return f"{self.objects.url}/{self.layout.shards[number].name}"

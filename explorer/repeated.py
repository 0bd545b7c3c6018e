"""A function that is called again and again in a thread of its own, while a block of code runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(act: Callable[[], bool], *, every: float, name: str) -> Iterator[None]:
    """Call `act` every so many seconds within the block, until it returns True. No call outlives the block."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(every):
            if act():
                return

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

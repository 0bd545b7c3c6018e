"""A worker process: it takes calls from its parent, one at a time, and answers each with a value or an exception.

`python -m explorer.sweep.worker DESCRIPTOR`, where the descriptor is an inherited socket. What travels over it is
pickled; both ends are this program, and nobody else holds the socket. A worker ignores Ctrl-C between calls: its
parent decides when to stop.
"""

import os
import pickle
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from explorer.sweep.guardian import die_with_parent


def answer(call: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bytes:
    """Make the call and pickle `(failed, value or exception)`. Whatever the call raises, the worker lives on."""
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        failed, value = False, call(*arguments, **keywords)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        failed, value = True, error
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return pickle.dumps((failed, value))
    except Exception as error:  # pickle raises what it likes
        return pickle.dumps((True, RuntimeError(f"{value!r:.500} cannot be sent: {error}")))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(os.environ)
    with Connection(int(sys.argv[1])) as parent:
        while True:
            try:
                request = parent.recv()
            except EOFError:
                return
            parent.send_bytes(answer(*request))


if __name__ == "__main__":
    main()

"""A process that does not outlive its parent, however the parent ends, and the environment such a child starts with.

A killed parent cannot tell anybody. So the child watches: on Linux through a pidfd, which the system signals at once;
elsewhere by asking for its parent four times a second.
"""

import contextlib
import os
import select
import shutil
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import explorer

PARENT = "EXPLORER_PARENT"
REMOVALS = 20  # attempts

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def child_environment(*, threads: int) -> dict[str, str]:
    """Return what to set in the environment of a child: its thread counts, its parent, and where this package lives.

    Thread counts have to be there before torch is imported.
    """
    root = str(Path(explorer.__file__).parent.parent)
    path = os.pathsep.join(dict.fromkeys([root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))
    return {**dict.fromkeys(_THREAD_VARIABLES, str(threads)), PARENT: str(os.getpid()), "PYTHONPATH": path}


def die_with_parent(environment: Mapping[str, str], *, remove: Path | None = None) -> None:
    """Kill this process as soon as the parent named in `environment` is gone, and remove the directory `remove`."""
    parent = int(environment[PARENT])
    threading.Thread(target=_watch, args=(parent, remove), name="guardian", daemon=True).start()


def _watch(parent: int, remove: Path | None) -> None:
    _wait_for_end(parent)
    if remove is not None:
        _remove(remove)
    os.kill(os.getpid(), signal.SIGKILL)


def _remove(directory: Path) -> None:
    """Remove it, more than once if need be: the rest of this process may be writing into it still."""
    for _ in range(REMOVALS):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(0.05)


def _wait_for_end(parent: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: a system without pidfd
        descriptor = os.pidfd_open(parent)
        if os.getppid() == parent:  # otherwise the number already belongs to another process
            select.select([descriptor], [], [])
        return
    while os.getppid() == parent:
        time.sleep(0.25)

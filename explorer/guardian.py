"""Child processes that do not outlive their parent, however it ends, and the environment that they start with.

A parent that is killed cannot stop its children, so each child watches its parent: on Linux through a pidfd, which the
kernel signals at once; elsewhere by polling four times a second.
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
REMOVALS = 20  # attempts: one second in all

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def child_environment(*, threads: int) -> dict[str, str]:
    """Return the environment variables of a child: its thread counts, its parent, and the place of this package.

    Thread counts are variables because they must be set before torch is imported.
    """
    # A checkout that is not installed must be importable in the child too, before anything of the same name.
    root = str(Path(explorer.__file__).parent.parent)
    path = os.pathsep.join(dict.fromkeys([root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]))
    return {**dict.fromkeys(_THREAD_VARIABLES, str(threads)), PARENT: str(os.getpid()), "PYTHONPATH": path}


def die_with_parent(environment: Mapping[str, str], *, remove: Path | None = None) -> None:
    """Kill this process as soon as the parent named in `environment` is gone, and remove the directory `remove`."""
    # A thread, because the main thread may be deep in a training step when the parent dies.
    parent = int(environment[PARENT])
    threading.Thread(target=_watch, args=(parent, remove), name="guardian", daemon=True).start()


def _watch(parent: int, remove: Path | None) -> None:
    _wait_for_end(parent)
    if remove is not None:
        _remove(remove)
    os.kill(os.getpid(), signal.SIGKILL)  # an exception in this thread would end only the thread


def _remove(directory: Path) -> None:
    """Remove the directory, again if need be: other threads of this process may still write into it."""
    for _ in range(REMOVALS):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(0.05)


def _wait_for_end(parent: int) -> None:
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: a system without pidfd
        descriptor = os.pidfd_open(parent)
        if os.getppid() == parent:  # otherwise the parent ended before, and its number may belong to another process
            select.select([descriptor], [], [])
        return
    # An orphan is adopted by another process, so its parent's number changes.
    while os.getppid() == parent:
        time.sleep(0.25)

"""The peak memory of a run, in bytes, of the device that trains it.

cuda    the most that torch had allocated on the GPU at one moment, without what its caching allocator kept in reserve
cpu     the most resident memory of the whole process: interpreter, libraries (torch takes some 300 MiB), data and
        training together: what a machine needs to repeat the run

A worker of a sweep trains one run after another, and a process remembers the highest peak of its life. So memory that
an earlier run left behind is given back first, and Linux is asked to begin a new peak. Where neither a new peak can be
asked for nor the old one was exceeded, the peak of this run is unknown: None.

A resumed run is measured from its last start, and one of several ranks in rank 0.
"""

import ctypes
import gc
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from explorer.recipes import machine

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_NEW_PEAK = "5"  # resets the peak: Linux, proc(5)


def watch_memory() -> Callable[[], int | None]:
    """Begin a measurement; the function that is returned ends it with the peak in bytes, or None."""
    device = machine.device()
    gc.collect()  # loops refer to themselves, so one whose steps were counted or timed is still there
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return lambda: torch.cuda.max_memory_allocated(device)
    with suppress(OSError, AttributeError):  # another C library than glibc gives memory back by itself, or not at all
        ctypes.CDLL(None).malloc_trim(0)
    before = _peak()
    try:
        _CLEAR.write_text(_NEW_PEAK)
        is_new = True
    except OSError:
        is_new = False

    def end() -> int | None:
        peak = _peak()
        return peak if is_new or peak > before else None

    return end


def _peak() -> int:
    """Return the peak of this process."""
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    # Linux counts in KiB and macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

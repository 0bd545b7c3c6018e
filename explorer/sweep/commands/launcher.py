"""The first process of a command's group: it starts the command, and ends all of it when the sweep is gone.

`python -I -S launcher.py PARENT PROGRAM [ARGUMENT...]`, in a session of its own. It imports nothing of the package, so
that it starts in milliseconds. It ends as the command does: with the same exit status, or by the same signal.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time


def watch(parent: int) -> None:
    """Kill the whole process group as soon as the parent is gone."""
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: a system without pidfd
        descriptor = os.pidfd_open(parent)
        if os.getppid() == parent:
            select.select([descriptor], [], [])
    # An orphan is adopted by another process, so its parent's number changes.
    while os.getppid() == parent:
        time.sleep(0.25)
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    threading.Thread(target=watch, args=(int(sys.argv[1]),), daemon=True).start()
    # Functions and not SIG_IGN, which the command would inherit: the signals are for the command.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    try:
        code = subprocess.Popen(sys.argv[2:]).wait()
    except OSError as error:
        sys.exit(f"cannot start {sys.argv[2]}: {error.strerror or error}")
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()

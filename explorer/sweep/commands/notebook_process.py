"""The process of a run that a notebook of the user's trains: `-m ... NOTEBOOK OUTPUT THREADS PARAMETERS`.

The notebook runs in a fresh kernel with its parameters, as papermill injects them. This process is the first of the
kernel's own, so that a sweep treats it as any command: its kernel ends with it, Ctrl-C interrupts the cell that runs,
and a cell that raises is an exit status with the traceback on standard error.
"""

import json
import signal
import sys
from pathlib import Path

from explorer.errors import ExplorerError
from explorer.sweep.kernels import KernelEngine


def main() -> None:
    notebook, output, threads, parameters = sys.argv[1:]
    engine = KernelEngine(threads=int(threads), runs_per_kernel=1)
    # A kernel is in a session of its own, where the signals of our group do not reach it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: engine.interrupt())
    try:
        engine.run(Path(notebook), json.loads(parameters), Path(output))
    except ExplorerError as error:
        sys.exit(str(error))
    finally:
        engine.close()


if __name__ == "__main__":
    main()

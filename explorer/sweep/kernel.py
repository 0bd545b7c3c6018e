"""The process of a sweep's notebook kernel: an ipykernel that dies with its parent and can be cleared between runs.

`python -m explorer.sweep.kernel -f CONNECTION_FILE`. The directory of the connection file belongs to this one kernel,
and is removed with it when its parent is killed. A module of its own, because a kernel should import nothing that only
its owner needs.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from IPython.core.interactiveshell import InteractiveShell

from explorer.guardian import die_with_parent
from explorer.sweep import process_state


class Kernel(IPythonKernel):
    """IPython's kernel, which a SIGINT interrupts in the code of a cell only.

    Anywhere else in the handling of a request, KeyboardInterrupt would end the handler before it replies, and the
    parent would wait for ever; while IPython writes the traceback of an exception, it would take that output's place.
    The parent interrupts until the run has ended, so none is lost.
    """

    def pre_handler_hook(self) -> None:
        self.saved_sigint_handler = signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    called = None  # the code that `frame` is running
    while frame is not None:
        if frame.f_code is InteractiveShell.run_code.__code__ and called is frame.f_locals["code_obj"]:
            raise KeyboardInterrupt
        called, frame = frame.f_code, frame.f_back


def main() -> None:
    die_with_parent(os.environ, remove=Path(sys.argv[sys.argv.index("-f") + 1]).parent)
    os.environ.pop("JPY_PARENT_PID", None)  # ipykernel's own watch is slower, and would cut the removal short
    # Before IPython starts, because it draws random numbers and adds paths.
    process_state.remember_start()
    IPKernelApp.launch_instance(kernel_class=Kernel)


if __name__ == "__main__":
    main()

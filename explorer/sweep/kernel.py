"""The process of a sweep's notebook kernel: an ipykernel that dies with its parent and can be cleared between runs.

`python -m explorer.sweep.kernel -f CONNECTION_FILE`. The directory of the connection file belongs to this one kernel,
and is removed with it when its parent is killed. A module of its own, because a kernel should import nothing that only
its owner needs.
"""

import os
import sys
from pathlib import Path

from ipykernel.kernelapp import IPKernelApp

from explorer.guardian import die_with_parent
from explorer.sweep import process_state


def main() -> None:
    die_with_parent(os.environ, remove=Path(sys.argv[sys.argv.index("-f") + 1]).parent)
    os.environ.pop("JPY_PARENT_PID", None)  # ipykernel's own watch is slower, and would cut the removal short
    # Before IPython starts, because it draws random numbers and adds paths.
    process_state.remember_start()
    IPKernelApp.launch_instance()


if __name__ == "__main__":
    main()

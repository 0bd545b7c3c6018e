"""The notebook kernel that a sweep starts: ipykernel, which dies with its parent and can be cleared between runs.

`python -m explorer.sweep.kernel -f CONNECTION_FILE`. The directory of the connection file belongs to this kernel
alone and is removed with it when its parent is killed.
"""

import os
import sys
from pathlib import Path

from ipykernel.kernelapp import IPKernelApp

from explorer.sweep import process_state
from explorer.sweep.guardian import die_with_parent


def main() -> None:
    die_with_parent(os.environ, remove=Path(sys.argv[sys.argv.index("-f") + 1]).parent)
    os.environ.pop("JPY_PARENT_PID", None)  # ipykernel's own watch is slower, and would cut the removal short
    process_state.remember_start()
    IPKernelApp.launch_instance()


if __name__ == "__main__":
    main()

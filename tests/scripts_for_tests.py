"""Executes scripts one after the other: `python -m tests.scripts_for_tests` reads [[script, *arguments], ...] as JSON.

Each script runs in a fork of one process that has imported what most of them import, which takes seconds. Prints
[[exit status, standard output, standard error], ...].
"""

import json
import os
import runpy
import sys
import tempfile
import traceback
from pathlib import Path

import altair  # noqa: F401
import pandas  # noqa: F401
import torch  # noqa: F401

import explorer.api
import explorer.training.run  # noqa: F401


def executed(script: str, arguments: list[str]) -> tuple[int, str, str]:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            os._exit(_status(script, arguments))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        errors.seek(0)
        return status, output.read(), errors.read()


def _status(script: str, arguments: list[str]) -> int:
    """Run the script as Python would; return its exit status."""
    sys.argv, sys.path[0] = [script, *arguments], str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    print(json.dumps([executed(script, arguments) for script, *arguments in json.load(sys.stdin)]))

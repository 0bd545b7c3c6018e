"""The command line as tests run it: in this process, as `python -m explorer` does."""

import contextlib
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from explorer.cli.app import main


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str


def explorer(*arguments: str | Path, cwd: Path | None = None) -> Done:
    """Run the command line in this process, as `python -m explorer` does."""
    out, err = io.StringIO(), io.StringIO()
    before, here = sys.argv, Path.cwd()
    sys.argv = ["explorer", *map(str, arguments)]
    os.chdir(cwd or here)
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as exit:
        code = exit.code or 0
    finally:
        sys.argv = before
        os.chdir(here)
        os.environ.pop("EXPLORER_DEBUG", None)
    assert isinstance(code, int)
    return Done(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def refused(*arguments: str | Path, cwd: Path | None = None) -> str:
    """What a command says when it refuses: on standard error, without a traceback, nothing on standard output."""
    done = explorer(*arguments, cwd=cwd)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr.strip()

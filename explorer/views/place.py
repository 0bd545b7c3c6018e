"""Where a notebook finds the runs that it is about."""

import os
from pathlib import Path


def runs_directory(runs: str | Path | None) -> Path:
    """The directory of runs that a notebook means: `runs`, or else $EXPLORER_RUNS, or else `runs/` beside its folder."""
    return Path(runs or os.environ.get("EXPLORER_RUNS") or Path.cwd().parent / "runs")

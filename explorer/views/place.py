"""Where a notebook finds the runs that it is about."""

import os
from pathlib import Path


def runs_directory(runs: str | Path | None) -> Path:
    """The directory of runs that a notebook means: `runs`, else $EXPLORER_RUNS, else `runs/` beside its folder."""
    return Path(runs or os.environ.get("EXPLORER_RUNS") or Path.cwd().parent / "runs")

"""Where the published snapshot lies; light, because every reader needs it."""

from pathlib import Path

DATABASE = "explorer.duckdb"
STORAGE_VERSION = "v1.5.0"  # the oldest DuckDB that is supported can read it


def database(runs: Path) -> Path:
    """The published snapshot of a directory of runs."""
    return runs / DATABASE

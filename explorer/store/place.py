"""Where the published snapshot lies and how it is opened; light, because every reader needs it."""

from pathlib import Path

DATABASE = "explorer.duckdb"
STORAGE_VERSION = "v1.5.0"  # the oldest DuckDB that is supported can read it

# The database needs no extension; without these settings DuckDB would look for one on the network.
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


def database(runs: Path) -> Path:
    """The published snapshot of a directory of runs."""
    return runs / DATABASE

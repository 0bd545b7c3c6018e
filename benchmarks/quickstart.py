"""Time the installation and the quickstart on this machine, from a clone in a fresh virtual environment.

    python benchmarks/quickstart.py [CLONE]        writes benchmarks/quickstart.md

CLONE is where to clone this repository to, and where everything is left to look at (default: a temporary directory).
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from options import options
from pages import write_page

ROOT = Path(__file__).resolve().parents[1]


def timed(*command: str | Path, cwd: Path) -> float:
    """Wall seconds of a command that has to succeed."""
    start = time.perf_counter()
    subprocess.run(command, cwd=cwd, check=True, stdout=sys.stderr)
    return time.perf_counter() - start


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("clone", nargs="?", type=Path, help="where the clone goes")
    chosen = parser.parse_args().clone
    with tempfile.TemporaryDirectory() as temporary:
        clone = (chosen or Path(temporary) / "explorer").resolve()
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        timed(sys.executable, "-m", "venv", ".venv", cwd=clone)
        install = timed(".venv/bin/pip", "install", "--quiet", "-e", ".", cwd=clone)
        first = timed(".venv/bin/explorer", "quickstart", cwd=clone)
        again = timed(".venv/bin/explorer", "quickstart", cwd=clone)
    lines = [
        "# Quickstart",
        "",
        f"Wall time on {os.cpu_count()} cores, from a clean clone in a fresh virtual environment. Made by"
        " `benchmarks/quickstart.py`.",
        "",
        "| step | seconds |",
        "|---|---|",
        f"| `pip install -e .` (packages from the local index or its cache) | {install:.0f} |",
        f"| `explorer quickstart`, 48 runs, 12 of them governed | {first:.0f} |",
        f"| `explorer quickstart` again: nothing to run, report written again | {again:.0f} |",
    ]
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

"""Code that runs first in the ranks of a run, to change one of them."""

import os
from pathlib import Path
from textwrap import indent

import pytest


def change_ranks(place: Path, patch: pytest.MonkeyPatch, code: str, *, only: int | None = None) -> None:
    """Let every rank that this process starts, or only one, execute the code before anything else. `place` is a
    directory for it."""
    which = "os.environ.get('RANK')" + ("" if only is None else f" == '{only}'")
    (place / "sitecustomize.py").write_text(f"import os\nif {which}:\n{indent(code, '    ')}\n")
    patch.setenv("PYTHONPATH", os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")]))

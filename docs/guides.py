"""The guides with the output of their commands: `python docs/guides.py [NAME...]` runs them and stores what they print.

They run one after the other in a new directory, because some continue others. A test runs them the same way.
"""

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
HERE = ROOT / "notebooks" / "guide"
ORDER = (
    "own_data",
    "one_hour",
    "own_model",
    "own_package",
    "own_loop_methods",
    "any_command",
    "governance",
    "deletion",
    "audit",  # it and the one before continue "governance"
    "shards",
    "huggingface",
    "accelerate",
    "many_machines",
)
TIMEOUT = 1800  # seconds for a cell
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # by which text steers a terminal


def executed(name: str, place: Path, smaller: Mapping[str, str] | None = None) -> nbformat.NotebookNode:
    """Return a guide after it was run in a directory, with a `smaller` size for each of some. Raises
    `CellExecutionError` where a cell fails."""
    notebook = nbformat.read(HERE / f"{name}.ipynb", as_version=4)
    for size, less in (smaller or {}).items():
        cells = [cell for cell in notebook.cells if cell.cell_type == "code" and size in cell.source]
        assert cells, f"{name}: no cell has {size!r}"
        for cell in cells:
            cell.source = cell.source.replace(size, less)
    resources = {"metadata": {"path": str(place)}}
    # A command that fails ends its cell with an error, which ends the notebook.
    NotebookClient(notebook, timeout=TIMEOUT, resources=resources, coalesce_streams=True, record_timing=False).execute()
    for output in (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs):
        if "text" in output:  # kernels ask programs for colours, and other people's programs obey
            output["text"] = CODES.sub("", output["text"])
    notebook.metadata.pop("language_info", None)  # the version of Python, which says nothing about the guide
    return notebook


def main() -> None:
    names = sys.argv[1:] or ORDER
    os.environ["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory() as place:
        for name in names:
            nbformat.write(executed(name, Path(place)), HERE / f"{name}.ipynb")
            print(name, flush=True)


if __name__ == "__main__":
    main()

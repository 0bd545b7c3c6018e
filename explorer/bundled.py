"""The directory of notebooks, sweep specifications, recipes and example policies that comes with the package."""

from pathlib import Path

import explorer
from explorer.errors import ExplorerError


def notebook_directory() -> Path:
    """Return the directory: `explorer/notebooks` in an installed wheel, `notebooks` next to the package in a clone.

    Raises `ExplorerError` for a package without it.
    """
    package = Path(explorer.__file__).parent
    # The wheel's own first: in site-packages, a `notebooks` next to the package belongs to something else.
    places = (package / "notebooks", package.parent / "notebooks")
    for directory in places:
        if (directory / "run.ipynb").is_file():
            return directory
    raise ExplorerError(f"no notebooks in {places[0]} or {places[1]}: install the package again")

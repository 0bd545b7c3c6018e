"""Public modules that moved: imports by an old path still work, and warn with the new one.

`MOVED` names modules and folders without `explorer.`; what lies below a folder moved with it, unless it has a line of
its own. Only what README, notebooks and SECURITY.md have shown is listed (`tests/frozen/public.json`).
"""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # importlib.abc would load importlib.resources, which takes as long as all of this package

MOVED: dict[str, str] = {
    "document": "yaml_document",
    "provenance.drafts": "provenance.signing",
    "provenance.routing": "provenance.routing_weights",
    "recipes.demonstration": "training.demonstration",
    "recipes.run": "training.run",
    "recorded": "runlog",
    "records": "run_files",
    "store.place": "store.published",
    "views.ledger_panel": "views.ledger.ledger_panel",
    "views.run_notebook": "views.sweep.run_notebook",
    "views.sweep_panel": "views.sweep.sweep_panel",
}
PACKAGE = "explorer."


class OldPaths:
    """Finder that gives the module at its new path for an import by its old one."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec that loads the moved module, or None for a module that did not move."""
        new = new_path(name)
        if new is None:
            return None
        warnings.warn(f"{name} moved to {new}", DeprecationWarning, stacklevel=2)
        return ModuleSpec(name, _Loader(new))


class _Loader(Loader):
    """Loader of a module that exists under another name."""

    def __init__(self, new: str) -> None:
        self.new = new

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(self.new)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import system has put the spec of the old name there


def new_path(name: str) -> str | None:
    """Return where a module of this old name is now, or None if it has not moved."""
    if not name.startswith(PACKAGE):
        return None
    old, below = name.removeprefix(PACKAGE), ""
    while old:
        if old in MOVED:
            return f"{PACKAGE}{MOVED[old]}{below}"
        old, _, last = old.rpartition(".")
        below = f".{last}{below}"
    return None


def install() -> None:
    """Put the finder first: for a folder that moved, the usual finders would load a second copy of each module."""
    sys.meta_path.insert(0, OldPaths())

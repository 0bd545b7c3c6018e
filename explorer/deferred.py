"""A grammar that is loaded when it is used: Altair pays for it at every start and never asks it.

`jsonschema`, with which Altair checks charts, offers to check IRIs (RFC 3987) too, where JupyterLab has installed the
grammar for it. To build that grammar takes 1.2 s of processor time, half of all that opens the explorer. A stand-in
takes its place among the modules and builds it for the first one that asks: what is checked stays the same.
"""

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

GRAMMAR = "rfc3987_syntax"


class Deferred(ModuleType):
    """Module that takes the place of the grammar until its first use."""

    def is_valid_syntax(self, term: str, value: str) -> bool:
        """Return what the grammar says of a text."""
        return self._loaded().is_valid_syntax(term, value)

    def __getattr__(self, name: str) -> Any:
        # What the import system asks of a module that it finds is no use of it.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._loaded(), name)

    def _loaded(self) -> ModuleType:
        if sys.modules.get(GRAMMAR) is self:
            del sys.modules[GRAMMAR]
        return import_module(GRAMMAR)


def install() -> None:
    """Put the stand-in among the modules, where the grammar is installed and not loaded yet."""
    if GRAMMAR not in sys.modules and (spec := PathFinder.find_spec(GRAMMAR)) is not None:
        module = Deferred(GRAMMAR, Deferred.__doc__)
        # As a package, so that its own modules can be imported by their names.
        module.__spec__, module.__path__ = spec, list(spec.submodule_search_locations or ())
        sys.modules[GRAMMAR] = module

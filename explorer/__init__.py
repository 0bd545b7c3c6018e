"""Explorer: find the cheapest training recipe that is as good as your baseline, and prove what went into the model.

Data flows one way through the package:

    data -> engine with methods -> run directory -> store -> analysis, audit -> views -> report

The run directory is the seam. Left of it there is torch and never a database; right of it there is DuckDB and
never torch, so results open on any laptop in a second. Import what you need from its own module
(`from explorer.functional import mixup`); importing only the package loads nothing heavy. `explorer.train` trains a
model of your own on a task of your own; `explorer.govern` puts a training loop of your own under a signed policy,
with tensors that `explorer.tag` has tagged as a `Split`; `explorer.layers` lists the layers that a policy for a model
can name; `explorer.replay` executes such a loop again and compares it with its ledger; `explorer.load_model` returns
the model of a recorded run, once its attestation is verified. `explorer.functional` has the methods as functions, for
a loop of your own; `explorer.begin` makes a run of a program that no sweep started and that reports by
`explorer.track`. `explorer.load` returns the results of a directory of runs or of an export, for anybody's notebook:
tables, comparisons, charts, questions.
"""

from importlib import import_module
from typing import Any

from explorer import deferred, moved

__version__ = "0.1.0"

_LAZY = {
    "begin": "explorer.sweep.commands.begun",
    "load": "explorer.api",
    "govern": "explorer.training.govern",
    "Governed": "explorer.training.govern",
    "layers": "explorer.training.model_layers",
    "Metric": "explorer.run_files",
    "Place": "explorer.training.custom",
    "replay": "explorer.training.govern",
    "Split": "explorer.data.dataset",
    "tag": "explorer.training.tagging",
    "train": "explorer.training.custom",
    "load_model": "explorer.training.model_files",
}
_MODULES = ("functional", "track")  # whole modules that belong to the public names


moved.install()
deferred.install()


def __getattr__(name: str) -> Any:
    """Return a public name. It is imported on first use, because it loads torch."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, for completion; nothing is loaded."""
    return sorted([*_LAZY, *_MODULES, "__version__"])

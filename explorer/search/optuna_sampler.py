"""Optuna's samplers as a proposer of tuning points: each follows from the results of those before it.

A sampler is asked and told in one fixed order with a fixed seed, so that a tuning that was killed is replayed from its
finished runs to the very point at which it stopped.
"""

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from explorer.errors import SweepError
from explorer.search.tuning import KEY, Values
from explorer.sweep.tune_key import Axis

KINDS = {"tpe": "TPESampler", "gp": "GPSampler", "cmaes": "CmaEsSampler"}
ALSO = {"cmaes": ("cmaes",)}  # packages that a sampler imports when it is first asked


class OptunaSampler:
    """One recipe's study."""

    def __init__(self, kind: str, axes: Sequence[Axis]) -> None:
        """Raises `SweepError` where Optuna, or what this sampler needs, is not installed."""
        optuna = import_optuna(f"tune: sampler {kind!r}", *ALSO.get(kind, ()))
        self._axes, self._failed = axes, optuna.trial.TrialState.FAIL
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = getattr(optuna.samplers, KINDS[kind])(seed=KEY)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._open: Any = None

    def ask(self) -> Values:
        """Return the next point."""
        self._open = self._study.ask()
        return {axis.key: self._suggested(axis) for axis in self._axes}

    def tell(self, quality: float | None) -> None:
        """Take the signed quality of the point that was asked last; None: it diverged."""
        if quality is None:
            self._study.tell(self._open, state=self._failed)
        else:
            self._study.tell(self._open, quality)

    def _suggested(self, axis: Axis) -> Any:
        if axis.scale == "of":
            return self._open.suggest_categorical(axis.key, axis.options)
        if axis.whole:
            return self._open.suggest_int(axis.key, math.ceil(axis.low), math.floor(axis.high), log=axis.scale == "log")
        return axis.rounded(self._open.suggest_float(axis.key, axis.low, axis.high, log=axis.scale == "log"))


def import_optuna(user: str, *also: str) -> Any:
    """Return Optuna, which the extra `search` installs, for a user that needs other packages of the extra `also`."""
    try:
        optuna, *_ = (import_module(name) for name in ("optuna", *also))
    except ImportError as error:
        raise SweepError(
            f"{user} needs {error.name}, which is not installed: pip install 'explorer[search]'"
        ) from error
    return optuna

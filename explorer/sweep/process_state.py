"""The state of a Python process that a notebook could change, taken once and put back between runs.

A kernel that is used again must start every run the way a fresh one does: same working directory, environment,
random generators and torch switches. What stays are imported modules, which is the reason to use it again.
"""

import gc
import os
import random
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """What `restore` puts back."""

    directory: Path
    environment: dict[str, str]
    filters: list[Any]
    path: list[str]
    random_state: Any
    numpy_state: Any
    torch_state: dict[str, Any] | None

    @classmethod
    def take(cls) -> "Session":
        """Return the state now. Modules that are not imported yet have none."""
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        return cls(
            directory=Path.cwd(),
            environment=dict(os.environ),
            filters=list(warnings.filters),
            path=list(sys.path),
            random_state=random.getstate(),
            numpy_state=numpy.random.get_state() if numpy else None,
            torch_state=_torch_state(torch) if torch else None,
        )

    def restore(self) -> None:
        """Put the state back. A module that was imported since `take` gets the state of a fresh import."""
        if torch := sys.modules.get("torch"):  # first: it imports more of itself, which warns, draws and adds paths
            _restore_torch(torch, self.torch_state or _FRESH_TORCH)
        os.chdir(self.directory)
        if dict(os.environ) != self.environment:
            os.environ.clear()
            os.environ.update(self.environment)
        if list(warnings.filters) != self.filters:
            warnings.resetwarnings()
            cast(list[Any], warnings.filters).extend(self.filters)
        sys.path[:] = self.path
        random.setstate(self.random_state)
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed(0)
            if self.numpy_state:
                numpy.random.set_state(self.numpy_state)


_FRESH_TORCH: dict[str, Any] = {"rng": None, "threads": None, "grad": True, "dtype": "float32", "deterministic": False}


def _torch_state(torch: Any) -> dict[str, Any]:
    return {
        "rng": torch.get_rng_state(),
        "threads": torch.get_num_threads(),
        "grad": torch.is_grad_enabled(),
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _restore_torch(torch: Any, state: dict[str, Any]) -> None:
    torch.default_generator.manual_seed(0)  # `torch.manual_seed` also queues a call for every absent backend
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)
    if state["rng"] is not None:
        torch.set_rng_state(state["rng"])
    torch.set_num_threads(state["threads"] or int(os.environ.get("OMP_NUM_THREADS") or torch.get_num_threads()))
    torch.set_grad_enabled(state["grad"])
    torch.set_default_dtype(getattr(torch, state["dtype"]))
    torch.use_deterministic_algorithms(state["deterministic"])


def clear(shell: InteractiveShell, session: Session) -> None:
    """Forget the last notebook: its names, its outputs, its changes to the process."""
    shell.reset(new_session=True)
    for name in ("last_value", "last_traceback", "last_type", "last_exc"):  # they keep a failed run's tensors alive
        if hasattr(sys, name):
            delattr(sys, name)
    session.restore()


@dataclass(slots=True)
class _Kernel:
    """What a kernel process knows about itself."""

    start: Session
    frozen: bool = False


_kernel: list[_Kernel] = []  # one entry in a kernel, none elsewhere


def remember_start() -> None:
    """Called by a kernel before it takes its first request."""
    _kernel.append(_Kernel(Session.take()))


def clear_kernel(*, used: bool = True) -> None:
    """Called inside a kernel between two runs; and before the first, because a kernel that starts draws random numbers
    too, and no run is to begin otherwise than another."""
    shell = get_ipython()
    assert shell is not None
    (kernel,) = _kernel
    clear(shell, kernel.start)
    if not used:
        return
    gc.collect()
    if not kernel.frozen:
        gc.freeze()  # what is alive now are modules; later collections need not walk through torch (0.1 s each)
        kernel.frozen = True


# What the kernel's owner asks it to execute, between two runs and before the first.
CLEAR = f"from {__name__} import clear_kernel; clear_kernel()"
BEGIN = f"from {__name__} import clear_kernel; clear_kernel(used=False)"

"""Process state that a notebook could change, taken once and restored between runs.

A reused kernel must start every run as a fresh one does: same working directory, environment, random generators and
torch switches. Only imported modules stay, which is the reason to reuse it.
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
    """A snapshot of the state, which `restore` puts back."""

    directory: Path
    environment: dict[str, str]
    filters: list[Any]
    path: list[str]
    random_state: Any
    numpy_state: Any
    torch_state: dict[str, Any] | None

    @classmethod
    def take(cls) -> "Session":
        """Take the state as it is now. Modules that are not imported yet have none, and are not imported for it."""
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
        # torch comes first: restoring it may import more of it, which changes warning filters, random state and paths.
        if torch := sys.modules.get("torch"):
            _restore_torch(torch, self.torch_state or _FRESH_TORCH)
        os.chdir(self.directory)
        if dict(os.environ) != self.environment:
            os.environ.clear()
            os.environ.update(self.environment)
        # Only where filters differ: a reset drops the caches by which Python shows a warning once.
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
    # Only where it differs: the call imports torch's compiler, and after an interrupt in the middle of that import a
    # second one fails, so a run that was stopped there would end with a traceback.
    if torch.are_deterministic_algorithms_enabled() != state["deterministic"]:
        torch.use_deterministic_algorithms(state["deterministic"])


def clear(shell: InteractiveShell, session: Session) -> None:
    """Forget the last notebook: its names, its outputs, its changes to the process."""
    shell.reset(new_session=True)
    # A traceback keeps the frames of a failed run alive, and with them its tensors.
    for name in ("last_value", "last_traceback", "last_type", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)
    session.restore()


@dataclass(slots=True)
class _Kernel:
    """The state of this process, if it is a kernel."""

    start: Session
    frozen: bool = False  # imported modules are exempt from garbage collection


_kernel: list[_Kernel] = []  # one entry in a kernel, none elsewhere


def remember_start() -> None:
    """Take the state that every run starts from. A kernel calls this before its first request."""
    _kernel.append(_Kernel(Session.take()))


def clear_kernel(*, used: bool = True) -> None:
    """Clear this kernel between two runs, or before the first one if it is not `used` yet.

    A kernel that starts draws random numbers too, so without the first call the first run would differ from the others.
    """
    shell = get_ipython()
    assert shell is not None
    (kernel,) = _kernel
    clear(shell, kernel.start)
    if not used:
        return
    gc.collect()
    if not kernel.frozen:
        gc.freeze()  # only modules are alive now; without this, every collection walks through torch (0.1 s)
        kernel.frozen = True


# Requests that the kernel's owner sends: between two runs, and before the first.
CLEAR = f"from {__name__} import clear_kernel; clear_kernel()"
BEGIN = f"from {__name__} import clear_kernel; clear_kernel(used=False)"

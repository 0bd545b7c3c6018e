"""The machine a run trains on, and the software it trains with, as far as they decide bits and speed."""

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

import explorer
from explorer import plugins
from explorer.engine.precision import Kernels, allow_tf32, tf32_allowed
from explorer.machine_class import Machine, cores
from explorer.run_files import Hardware

# The parts of the package that can change a result. `runlog` is not among them: it names tensors, and if it named them
# otherwise, every comparison with the record would fail.
TRAINING = ("data", "engine", "entries", "governance", "methods", "models", "provenance", "recipes", "training")
PACKAGES = ("torch", "numpy", "safetensors", "scikit-learn", "pillow", "pyarrow")


def device() -> torch.device:
    """Return the first CUDA device if there is one, else the CPU."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def hardware(*, threads: int) -> Hardware:
    """Return this machine, for runs of this many torch threads."""
    if torch.cuda.is_available():
        return Hardware(device="cuda", name=torch.cuda.get_device_name(0), threads=threads)
    return Hardware(device="cpu", name=_cpu_name(), threads=threads)


def this_machine(*, threads: int = 1) -> Machine:
    """Return this machine, with all that decides bits and speed."""
    cuda = torch.cuda.is_available()
    return Machine(
        hardware=hardware(threads=threads),
        versions=versions(),
        torch_build=_torch_build(),
        training_code=code_digest(TRAINING),
        cores=cores(),
        devices=torch.cuda.device_count() if cuda else 0,
    )


def fix_bits(*, threads: int, kernels: Kernels = "strict") -> None:
    """Set, for this process, what decides the last bits apart from the hardware: threads, kernels, and a true fp32.

    Everything is set every time: the next run of this process may have other settings.
    """
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(kernels == "strict")
    torch.backends.cudnn.benchmark = kernels == "fast"
    # Without it deterministic matrix products raise; it has to be set before the first one.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    allow_tf32(False, False)  # of convolutions on by default, and it rounds inputs to 10 bits


@contextmanager
def fixed_bits(*, threads: int, kernels: Kernels) -> Iterator[None]:
    """Set the same within the block only."""
    count, deterministic, tf32 = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), tf32_allowed()
    benchmark = torch.backends.cudnn.benchmark
    fix_bits(threads=threads, kernels=kernels)
    try:
        yield
    finally:
        torch.set_num_threads(count)
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cudnn.benchmark = benchmark
        allow_tf32(*tf32)


@cache
def _cpu_name() -> str:
    """Return the processor's name and the vector instructions that torch uses on it: they decide the last bits."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


@cache
def _torch_build() -> str:
    """Return what tells builds of torch of the same version apart: the commit, CUDA and cuDNN."""
    parts = [torch.__version__, f"commit {str(torch.version.git_version)[:12]}"]
    if torch.version.cuda is not None:
        parts += [f"CUDA {torch.version.cuda}", f"cuDNN {torch.backends.cudnn.version()}"]
    return ", ".join(parts)


@cache
def versions() -> dict[str, str]:
    """Return the installed versions that can change a result."""
    return {"explorer": explorer.__version__} | {name: importlib.metadata.version(name) for name in PACKAGES}


def environment(code: Iterable[str] = ()) -> dict[str, Any]:
    """Return the content of `environment.json`: the software and the platform of a run.

    `code` are the top-level names of other packages' code that trains; a run without any has no key for it.
    """
    others = {top: plugins.describe(top) for top in code}
    return {
        "format": 1,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": versions(),
        "code": code_digest(),
        "training_code": code_digest(TRAINING),
        **({"plugins": others} if others else {}),
    }


@cache
def code_digest(parts: tuple[str, ...] = (".",)) -> str:
    """Return the SHA-256 over the source files in these parts of the package: names and contents, in order."""
    root = Path(explorer.__file__).parent
    total = hashlib.sha256()
    for path in sorted(path for part in parts for path in (root / part).rglob("*.py")):
        total.update(f"{path.relative_to(root).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()

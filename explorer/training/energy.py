"""The energy of a run's timed steps, where the machine has a counter that this process may read.

cpu     RAPL, as Linux has it under /sys/class/powercap: the sum over processor packages. Its files are for root only,
        unless the owner of the machine says otherwise. Memory modules and the rest of the machine are not in it.
cuda    NVML, by the package nvidia-ml-py, which is optional: the energy of the whole card.

A counter counts everything on the device, idle or not and of all processes. So a run that shared the machine has no
energy, and nothing is divided among runs. Where nothing is measured, the record says why; nothing is estimated.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from explorer.engine.clock import Clock
from explorer.engine.fit import Fitted
from explorer.engine.meter import CounterError, Meter
from explorer.recipes import machine
from explorer.run_files import Energy

POWERCAP = Path("/sys/class/powercap")
RAPL, NVML = "RAPL package", "NVML total energy"
MOST_BYTES = 64  # of a file with one number
NONE = "the machine has no energy counter that this process may read"
SHARED = "other runs or processes shared the machine, whose counters do not tell them apart"
SHORT = "the counter did not move in the timed steps, which were too short for it"

Counter = Callable[[], float]


def card() -> str:
    """Return the name that NVML has for the GPU of this process; empty on a CPU."""
    device = machine.device()
    if device.type != "cuda":
        return ""
    return (
        f"GPU-{str(torch.cuda.get_device_properties(device).uuid).removeprefix('GPU-')}"  # torch leaves out the prefix
    )


def watch_energy(clock: Clock, cards: Sequence[str]) -> Callable[[Fitted, bool], Energy]:
    """Let the clock of a run on this machine also measure energy; `cards` are those of all its ranks. Return the
    function that gives the result of the run, from whether it was contended."""
    source = NVML if machine.device().type == "cuda" else RAPL
    try:
        counter = nvml(cards) if source == NVML else rapl(POWERCAP)
        counter()
    except CounterError as error:
        missing = str(error)
        return lambda fitted, contended: Energy(joules=None, missing=missing)
    meter = clock.meter = Meter(counter)

    def result(fitted: Fitted, contended: bool) -> Energy:
        missing = SHARED if contended else str(meter.fault) if meter.fault else "" if fitted.joules else SHORT
        if missing:
            return Energy(joules=None, missing=missing)
        return Energy(joules=fitted.joules, steps=fitted.metered_steps, source=source)

    return result


# --- RAPL ---


@dataclass(slots=True)
class _Package:
    """The counter of one processor package, in microjoules; it starts again from 0 after `most`."""

    place: Path
    most: int
    last: int
    total: int = 0

    def read(self) -> int:
        """Return the microjoules since the first reading. More than one new start between two readings is not seen:
        that takes minutes at full power, and spans of steps are shorter."""
        now = _number(self.place / "energy_uj")
        self.total += now - self.last + (self.most if now < self.last else 0)
        self.last = now
        return self.total


def rapl(powercap: Path) -> Counter:
    """Return the counter of all processor packages together, in joules. Raises `CounterError` where there is none."""
    # A package is there twice where it also has a memory-mapped interface (intel-rapl-mmio), and parts of it have zones
    # of their own (intel-rapl:0:0). The zone psys is the whole board, with the packages in it.
    zones = [zone for zone in sorted(powercap.glob("intel-rapl:*")) if zone.name.count(":") == 1]
    packages = [
        _Package(zone, most=_number(zone / "max_energy_range_uj"), last=_number(zone / "energy_uj"))
        for zone in zones
        if _text(zone / "name").startswith("package-")
    ]
    if not packages:
        raise CounterError(f"{NONE}: {powercap} has no package of RAPL")
    return lambda: sum(package.read() for package in packages) / 1e6


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode("ascii", errors="replace").strip()
    except OSError as error:
        raise CounterError(f"{NONE}: {path}: {error.strerror or error}") from error


def _number(path: Path) -> int:
    text = _text(path)
    if not text.isdecimal():
        raise CounterError(f"{NONE}: {path}: found {text!r}, expected microjoules")
    return int(text)


# --- NVML ---


def nvml(cards: Sequence[str]) -> Counter:
    """Return the counter of these GPUs together, in joules. Raises `CounterError` where there is none."""
    try:
        library: Any = importlib.import_module("pynvml")
    except ImportError as error:
        raise CounterError(f"{NONE}: the package nvidia-ml-py, which reads that of a GPU, is not installed") from error
    try:
        library.nvmlInit()
        # By name: NVML counts all cards of the machine, and a rank of several sees only its own.
        handles = [library.nvmlDeviceGetHandleByUUID(name) for name in cards]
    except library.NVMLError as error:
        raise CounterError(f"{NONE}: NVML: {error}") from error

    def read() -> float:
        try:
            return sum(library.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in handles) / 1e3
        except library.NVMLError as error:
            raise CounterError(f"{NONE}: NVML: {error}") from error

    return read

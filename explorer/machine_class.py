"""A class of machines: the hardware and the software that decide bits and speed, and whether a run can begin on one.

`explorer probe --json` prints the class of a machine, and a sweep that is planned elsewhere reads it. Two machines are
of one class if a run gives the same bits on both. A run has device, hardware and versions in its identity; the build of
torch and the training code stay out of it, and are known from the plan.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from explorer import rundir, schema
from explorer.canonical import digest
from explorer.errors import RunError
from explorer.run_files import Hardware, RunRecord
from explorer.schema import record

MAX_BYTES = 64 * 2**10
MAX_THREADS = 1024
Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]{1,200}$")]
Count = Annotated[int, Field(ge=0, le=2**20)]


@record
class Machine:
    """A machine as `explorer probe --json` prints it. None: not known, of one that is known from its runs only."""

    format: Literal["explorer/probe/v1"] = "explorer/probe/v1"
    hardware: Hardware
    versions: Annotated[dict[Text, Text], Field(min_length=1, max_length=100)]  # of the packages that can change bits
    torch_build: Text | None = None
    training_code: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None  # digest of the code that trains
    cores: Count | None = None
    devices: Count | None = None  # of CUDA

    @property
    def label(self) -> str:
        """Return the name of the hardware as schedulers and files take it: a label of RFC 1123, at most 30 characters.

        A sweep has no two classes of one label.
        """
        name = self.hardware.name
        label = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        return label if 0 < len(label) <= 30 else f"{label[:21] or 'machine'}-{digest(name)[:8]}"

    def hardware_of(self, threads: int, ranks: int = 1) -> Hardware:
        """Return the hardware of a run with so many torch threads in each of its processes."""
        return dataclasses.replace(self.hardware, threads=threads, world_size=ranks)

    def at_once(self, threads: int) -> int | None:
        """Return how many runs with so many threads it executes side by side; None where that is not known."""
        if self.hardware.device == "cuda":
            return None if self.devices is None else max(1, self.devices)
        return None if self.cores is None else max(1, self.cores // threads)

    @property
    def words(self) -> str:
        """Return the class in words: "NVIDIA H200 (cuda), torch 2.13.0"."""
        return f"{_hardware_words(self.hardware)}, torch {self.versions.get('torch', 'unknown')}"


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_machine(path: Path) -> Machine:
    """Return the machine in a file of unknown origin. Raises `RunError`, which names the file and the fault."""
    content = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=RunError)
    value = schema.parse_json(content, where=str(path), error=RunError, max_bytes=MAX_BYTES)
    made = schema.from_json(Machine, value, where=f"{path}: no output of `explorer probe --json`", error=RunError)
    hardware = made.hardware
    if not 1 <= hardware.threads <= MAX_THREADS or hardware.world_size != 1:
        raise RunError(
            f"{path}: hardware: found {hardware.threads} threads and {hardware.world_size} processes; expected 1 to"
            f" {MAX_THREADS} threads, and 1 process"
        )
    if not 1 <= len(hardware.name) <= 200 or not hardware.name.isprintable():
        raise RunError(f"{path}: hardware.name: found {hardware.name!r:.80}; expected up to 200 printable characters")
    return made


def why_not_here(run: RunRecord, here: Machine, *, planned: Machine | None = None) -> str | None:
    """Return a sentence that says why a run may not begin on a machine; None: it may.

    `planned` is the machine of the run's plan, whose build of torch and training code are compared where they are
    known. The software of a command is its own, so only the hardware counts.
    """
    # The name of the run holds its identity; the other fields of a record are held by nothing.
    identity = run.identity
    own = dataclasses.replace(here.hardware, threads=run.hardware.threads, world_size=run.hardware.world_size)
    if identity.get("hardware") != dataclasses.asdict(own):
        return f"planned for {_hardware_words(run.hardware)}, and this machine is {_hardware_words(own)}"
    recipe = identity.get("recipe")
    if isinstance(recipe, Mapping) and "set" in recipe:
        return None
    versions = identity.get("versions")
    if versions != here.versions:
        then: Mapping[str, object] = versions if isinstance(versions, Mapping) else {}
        names = [name for name in {**then, **here.versions} if then.get(name) != here.versions.get(name)]
        wanted, has = (", ".join(f"{name} {of.get(name, 'unknown')}" for name in names) for of in (then, here.versions))
        return f"planned for {wanted:.300}, and this machine has {has:.300}"
    if planned is None:
        return None
    if here.devices is not None and here.devices < run.hardware.devices:
        return f"planned for {run.hardware.devices} GPUs of one machine, and this one has {here.devices}"
    if None not in (planned.torch_build, here.torch_build) and planned.torch_build != here.torch_build:
        return f"planned for another build of torch: {planned.torch_build}, and this machine has {here.torch_build}"
    if None not in (planned.training_code, here.training_code) and planned.training_code != here.training_code:
        return (
            f"planned with training code of digest {str(planned.training_code)[:8]}, and this machine has"
            f" {str(here.training_code)[:8]} under the same version of explorer"
        )
    return None


def _hardware_words(hardware: Hardware) -> str:
    return f"{hardware.name} ({hardware.device})"

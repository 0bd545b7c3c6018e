"""Machines that this one can pretend to be: other hardware, another build of torch, other training code."""

from dataclasses import replace

import pytest

from explorer.machine_class import Machine
from explorer.recipes import machine

CODE = "0" * 64
H200: dict[str, str] = {"name": "NVIDIA H200", "device": "cuda", "torch": "2.13.0+cu130"}


def pretend(
    patch: pytest.MonkeyPatch,
    *,
    name: str | None = None,
    device: str | None = None,
    torch: str | None = None,
    build: str | None = None,
    code: str | None = None,
) -> Machine:
    """Let this process take itself for another machine; return that machine. What is not given stays as it is."""
    hardware, versions = machine.hardware(threads=1), machine.versions()
    hardware = replace(hardware, name=name or hardware.name, device=device or hardware.device)
    versions = versions | ({} if torch is None else {"torch": torch})
    patch.setattr(machine, "hardware", lambda *, threads: replace(hardware, threads=threads))
    patch.setattr(machine, "versions", lambda: versions)
    if build is not None:
        patch.setattr(machine, "_torch_build", lambda: build)
    if code is not None:
        patch.setattr(machine, "code_digest", lambda parts=(): code)
    return machine.this_machine()

"""Machines that this one can pretend to be: other hardware, another build of torch, other training code."""

import os
from dataclasses import replace
from pathlib import Path

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


def pretending(directory: Path, name: str) -> dict[str, str]:
    """Return the environment of processes, and of all that they start, that take themselves for hardware of this name.

    Python imports `sitecustomize` when it starts; the one that is written here patches the module once it is imported.
    """
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(f"NAME = {name!r}\n{SITE}")
    return {**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{Path(__file__).parent.parent}"}


SITE = """
import importlib.abc, importlib.machinery, sys

class Pretending(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "explorer.recipes.machine":
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        execute = found.loader.exec_module

        def patched(module):
            execute(module)
            module._cpu_name = lambda: NAME

        found.loader.exec_module = patched
        return found

sys.meta_path.insert(0, Pretending())
"""

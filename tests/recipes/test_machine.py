"""What is written down about the machine and the software."""

import importlib.metadata
import os
from pathlib import Path

import pytest
import torch

import explorer
from explorer.engine.precision import allow_tf32, tf32_allowed
from explorer.recipes import machine


def test_versions_are_the_installed_ones() -> None:
    found = machine.versions()
    assert found["torch"] == importlib.metadata.version("torch")
    assert found["explorer"] == explorer.__version__


def test_the_code_digest_follows_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = machine.code_digest()
    assert before == machine.code_digest.__wrapped__()
    (tmp_path / "explorer").mkdir()
    monkeypatch.setattr(machine.explorer, "__file__", str(tmp_path / "explorer" / "__init__.py"))
    digests = set()
    for content in ("x = 1\n", "x = 2\n"):
        (tmp_path / "explorer" / "a.py").write_text(content)
        digests.add(machine.code_digest.__wrapped__())
    (tmp_path / "explorer" / "a.py").rename(tmp_path / "explorer" / "b.py")
    digests.add(machine.code_digest.__wrapped__())
    assert len(digests | {before}) == 4


def test_bits_are_fixed_for_the_process() -> None:
    machine.fix_bits(threads=1)
    assert torch.get_num_threads() == 1
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.allow_tf32
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"]


def test_fast_kernels_are_those_of_one_run() -> None:
    """Neither they nor tf32 reach the next run of the process."""
    machine.fix_bits(threads=1, kernels="fast")
    assert not torch.are_deterministic_algorithms_enabled() and torch.backends.cudnn.benchmark
    allow_tf32(True, True)
    machine.fix_bits(threads=1)
    assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark
    assert tf32_allowed() == (False, False)


def test_bits_are_fixed_within_a_block() -> None:
    machine.fix_bits(threads=1)
    allow_tf32(False, True)
    with machine.fixed_bits(threads=2, kernels="fast"):
        assert torch.get_num_threads() == 2 and not torch.are_deterministic_algorithms_enabled()
        assert tf32_allowed() == (False, False)
    assert torch.get_num_threads() == 1 and torch.are_deterministic_algorithms_enabled()
    assert tf32_allowed() == (False, True)


def test_hardware_names_the_vector_instructions() -> None:
    """Two processors of one name may differ in them, and then in the last bits."""
    found = machine.hardware(threads=3)
    assert found.threads == 3
    if found.device == "cpu":
        assert torch.backends.cpu.get_cpu_capability() in found.name

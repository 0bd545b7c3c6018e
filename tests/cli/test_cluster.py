"""`explorer sweep run --on` and `--device`, where what they need is not there."""

import json

import pytest

from explorer.cli import sweep
from tests.cli.command import refused
from tests.sweep.sweeps import spec


def test_without_the_extra_the_command_says_what_to_install(tmp_path, monkeypatch):
    def absent(name):
        raise ModuleNotFoundError("No module named 'distributed'", name="distributed")

    written = tmp_path / "tiny.yaml"
    written.write_text(json.dumps(spec(recipes={"baseline": []}, budgets=[1.0])))
    monkeypatch.setattr(sweep, "part", absent)
    command = ("sweep", "run", written, "--runs", tmp_path / "runs", "--on", "local-dask:2")
    assert refused(*command).endswith("--on needs distributed, which is not installed: pip install 'explorer[cluster]'")
    assert not (tmp_path / "runs" / "tiny").exists()


@pytest.mark.parametrize("gpus", ["7", "zero", ""])
def test_gpus_that_are_not_there_are_refused(tmp_path, monkeypatch, gpus):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    written = tmp_path / "tiny.yaml"
    written.write_text(json.dumps(spec()))
    words = refused("sweep", "run", written, "--runs", tmp_path / "runs", "--device", gpus)
    assert words.endswith(f"--device: found '{gpus}', expected none, because this machine shows no GPU")

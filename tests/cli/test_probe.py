"""`explorer probe`, and plans for the machine that it describes."""

import json
from pathlib import Path

import pytest
import yaml

from explorer import rundir, schema
from explorer.machine_class import read_machine
from explorer.recipes.machine import this_machine
from explorer.views.sweep.sweep_panel import plan_blocks
from tests.cli.command import explorer, refused
from tests.pretended_machines import H200, pretend
from tests.sweep.sweeps import spec


def test_the_machine_is_shown_and_read_back(tmp_path: Path) -> None:
    page, record = explorer("probe"), explorer("probe", "--json")
    here = this_machine()
    for text in (here.hardware.name, here.torch_build, here.training_code, *here.versions):
        assert str(text) in page.stdout
    (tmp_path / "here.json").write_text(record.stdout)
    assert read_machine(tmp_path / "here.json") == here  # tests have one thread


def test_a_plan_for_another_machine_says_so_and_is_not_run_here(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        there = pretend(patch, **H200)
        rundir.write_json(tmp_path / "h200.json", json.loads(explorer("probe", "--json").stdout) | {"devices": 8})
    path, runs = tmp_path / "tiny.yaml", tmp_path / "runs"
    path.write_text(yaml.safe_dump(spec(on=[{"probe": "h200.json"}])))
    reason = f"planned for NVIDIA H200 (cuda), and this machine is {this_machine().hardware.name} (cpu)"
    shown = explorer("sweep", "plan", path, "--runs", runs)
    assert shown.returncode == 0
    assert f"planned for NVIDIA H200 (cuda), torch 2.13.0+cu130, as known from {tmp_path / 'h200.json'}" in shown.stdout
    assert f"this machine does not execute it: {reason}" in shown.stdout
    assert "were tried out on this machine" in shown.stdout
    assert "next, on a machine of that class: explorer sweep run" in shown.stdout
    planned = json.loads(explorer("sweep", "plan", path, "--runs", runs, "--json").stdout)
    assert planned["machine"] == schema.to_json(there) | {"devices": 8}
    assert planned["workers"] == 8  # side by side on such a machine
    assert planned["why_not_here"] == reason
    assert any(reason in str(block) for block in plan_blocks(planned))  # in a notebook
    assert refused("sweep", "run", path, "--runs", runs).endswith(
        f"explorer: {path}: this machine does not execute the sweep: {reason}"
    )
    assert not runs.exists()


def test_a_plan_for_this_machine_says_nothing_of_machines(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(spec()))
    shown = explorer("sweep", "plan", path, "--runs", tmp_path / "runs")
    assert "planned for" not in shown.stdout and "this machine" not in shown.stdout
    assert "\nnext: explorer sweep run" in shown.stdout
    planned = json.loads(explorer("sweep", "plan", path, "--runs", tmp_path / "runs", "--json").stdout)
    assert planned["machine"] == schema.to_json(this_machine())
    assert planned["why_not_here"] is None
    assert not any("This machine" in str(block) for block in plan_blocks(planned))

"""A run begins on machines of its class only, and a file that describes one is read with suspicion."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from explorer import rundir, schema
from explorer.errors import RunError
from explorer.machine_class import MAX_BYTES, Machine, read_machine, why_not_here
from explorer.run_files import RunRecord
from tests.builders import H200, run_record

HERE = Machine(
    hardware=H200,
    versions={"explorer": "1", "torch": "2.13.0", "numpy": "2.4"},
    torch_build="2.13.0+cu130, commit 1",
    training_code="a" * 64,
    cores=64,
    devices=8,
)


def recorded(planned: Machine, *, threads: int = 4, **changes: Any) -> RunRecord:
    hardware = planned.hardware_of(threads)
    identity = {"hardware": dataclasses.asdict(hardware), "versions": planned.versions, **changes}
    return dataclasses.replace(run_record(), identity=identity, hardware=hardware)


def test_a_run_of_the_class_may_begin_with_any_number_of_threads():
    assert why_not_here(recorded(HERE), HERE, planned=HERE) is None
    assert why_not_here(recorded(HERE, threads=16), HERE, planned=HERE) is None
    assert why_not_here(recorded(HERE), HERE) is None


@pytest.mark.parametrize(
    ("planned", "reason"),
    [
        (
            dataclasses.replace(HERE, hardware=dataclasses.replace(H200, name="NVIDIA H100")),
            "planned for NVIDIA H100 (cuda), and this machine is NVIDIA H200 (cuda)",
        ),
        (
            dataclasses.replace(HERE, hardware=dataclasses.replace(H200, device="cpu")),
            "planned for NVIDIA H200 (cpu), and this machine is NVIDIA H200 (cuda)",
        ),
        (
            dataclasses.replace(HERE, versions=HERE.versions | {"torch": "2.12.0"}),
            "planned for torch 2.12.0, and this machine has torch 2.13.0",
        ),
        (
            dataclasses.replace(HERE, versions={"explorer": "1", "torch": "2.13.0"}),
            "planned for numpy unknown, and this machine has numpy 2.4",
        ),
        (
            dataclasses.replace(HERE, torch_build="2.13.0+cu126, commit 1"),
            "planned for another build of torch: 2.13.0+cu126, commit 1, and this machine has 2.13.0+cu130, commit 1",
        ),
        (
            dataclasses.replace(HERE, training_code="b" * 64),
            "planned with training code of digest bbbbbbbb, and this machine has aaaaaaaa under the same version of"
            " explorer",
        ),
    ],
)
def test_a_run_of_another_class_says_why_it_may_not_begin(planned: Machine, reason: str):
    assert why_not_here(recorded(planned), HERE, planned=planned) == reason


def test_what_is_not_known_of_a_machine_is_not_compared():
    known_by_runs = dataclasses.replace(HERE, torch_build=None, training_code=None)
    assert why_not_here(recorded(HERE), HERE, planned=known_by_runs) is None


def test_the_identity_counts_and_not_the_fields_that_nothing_holds():
    """`run.json` may be edited; its identity is in the name of the run."""
    other = dataclasses.replace(HERE, hardware=dataclasses.replace(H200, name="NVIDIA H100"))
    disguised = dataclasses.replace(recorded(other), hardware=HERE.hardware_of(4))
    assert why_not_here(disguised, HERE) is not None
    for key, damage in (("versions", None), ("versions", ["torch"]), ("hardware", "NVIDIA H200")):
        identity = {**recorded(HERE).identity, key: damage}
        assert why_not_here(dataclasses.replace(recorded(HERE), identity=identity), HERE) is not None


def test_the_software_of_a_command_is_not_that_of_explorer():
    command = recorded(HERE, versions={"python": "3.9", "jax": "1"}, recipe={"task": {}, "set": {}, "scale": {}})
    assert why_not_here(command, HERE, planned=HERE) is None
    elsewhere = dataclasses.replace(HERE, hardware=dataclasses.replace(H200, name="NVIDIA H100"))
    assert why_not_here(command, elsewhere, planned=HERE) is not None


@pytest.mark.parametrize(
    ("device", "cores", "devices", "threads", "runs"),
    [
        ("cuda", 64, 8, 4, 8),
        ("cuda", 64, None, 4, None),
        ("cpu", 64, 0, 4, 16),
        ("cpu", 2, 0, 4, 1),
        ("cpu", None, 0, 4, None),
    ],
)
def test_runs_side_by_side(device: Any, cores: int | None, devices: int | None, threads: int, runs: int | None):
    hardware = dataclasses.replace(H200, device=device)
    made = dataclasses.replace(HERE, hardware=hardware, cores=cores, devices=devices)
    assert made.at_once(threads) == runs


def test_a_machine_is_read_as_it_was_written(tmp_path: Path):
    rundir.write_json(tmp_path / "h200.json", schema.to_json(HERE))
    assert read_machine(tmp_path / "h200.json") == HERE


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"format": "explorer/probe/v2"}, "format"),
        ({"core": 3}, "core: unknown key; did you mean 'cores'?"),
        ({"hardware": None}, "hardware"),
        ({"hardware": {"device": "tpu", "name": "x", "threads": 1}}, r"hardware\.device"),
        ({"hardware": {"device": "cpu", "name": "\x1b[2J", "threads": 1}}, r"hardware\.name: found '\\x1b\[2J'"),
        ({"hardware": {"device": "cpu", "name": "x" * 201, "threads": 1}}, r"hardware\.name"),
        ({"hardware": {"device": "cpu", "name": "", "threads": 1}}, r"hardware\.name"),
        ({"hardware": {"device": "cpu", "name": "x", "threads": 0}}, "hardware: found 0 threads"),
        ({"hardware": {"device": "cpu", "name": "x", "threads": 1, "world_size": 8}}, "and 8 processes"),
        ({"versions": {}}, "versions"),
        ({"versions": {"torch": "2\n"}}, "versions"),
        ({"versions": {f"p{index}": "1" for index in range(101)}}, "versions"),
        ({"training_code": "abc"}, "training_code"),
        ({"cores": -1}, "cores"),
        ({"devices": 1.5}, "devices"),
    ],
)
def test_a_file_of_unknown_origin_is_refused_by_file_and_key(tmp_path: Path, changes: dict[str, Any], fault: str):
    path = tmp_path / "probe.json"
    rundir.write_json(path, schema.to_json(HERE) | changes)
    with pytest.raises(RunError, match=rf"probe\.json: .*{fault}"):
        read_machine(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 10_000, b'{"format":1,"format":1}', b"NaN"])
def test_what_is_no_probe_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "probe.json").write_bytes(content)
    with pytest.raises(RunError, match=r"probe\.json"):
        read_machine(tmp_path / "probe.json")


def test_a_large_file_is_not_read(tmp_path: Path):
    (tmp_path / "probe.json").write_bytes(json.dumps(schema.to_json(HERE)).encode() + b" " * MAX_BYTES)
    with pytest.raises(RunError, match=r"probe\.json: too large"):
        read_machine(tmp_path / "probe.json")
    with pytest.raises(RunError, match="cannot read"):
        read_machine(tmp_path / "absent.json")

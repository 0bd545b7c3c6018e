"""Files that are whole or absent, and locks that die with their holder."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from explorer import rundir
from explorer.errors import RunError

HOLDER = """
import sys, time
from pathlib import Path
from explorer import rundir
with rundir.locked(Path(sys.argv[1]), what="it"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_json_comes_back(tmp_path: Path) -> None:
    value = {"a": [1, 0.1, None, "ü"], "b": {}}
    rundir.write_json(tmp_path / "deep" / "a.json", value)
    assert rundir.read_json(tmp_path / "deep" / "a.json") == value
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.json"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused_both_ways(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        rundir.write_json(tmp_path / "a.json", value)
    (tmp_path / "a.json").write_text(json.dumps(value))
    with pytest.raises(RunError, match=r"a\.json: damaged: not JSON \((NaN|Infinity) is not JSON\)"):
        rundir.read_json(tmp_path / "a.json")


@pytest.mark.parametrize("fault", ["write", "fsync", "replace"])
def test_a_disk_that_refuses_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    path = tmp_path / "a.json"
    rundir.write_json(path, 1)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    owner: object = os if fault == "fsync" else Path
    with monkeypatch.context() as patch:
        patch.setattr(owner, {"write": "open"}.get(fault, fault), full)
        with pytest.raises(RunError, match=r"cannot write .*a\.json: No space left on device"):
            rundir.write_json(path, 2)
    assert rundir.read_json(path) == 1
    assert [found.name for found in tmp_path.iterdir()] == ["a.json"]


DAMAGED = {
    "empty": (b"", "damaged: not JSON"),
    "cut": (b'{"a": [1, 2', "damaged: not JSON"),
    "binary": (b"\xff\xfe\x00", "damaged: not JSON"),
    "two values": (b"1 2", "damaged: not JSON"),
    "nested too deeply": (b"[" * 100_000, "damaged: not JSON"),
    "too large": (b" " * (rundir.MAX_JSON_BYTES + 1), "too large: 16777217 bytes, at most 16777216"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    content, message = DAMAGED[name]
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(RunError, match=rf"a\.json: {message}"):
        rundir.read_json(tmp_path / "a.json")


def test_absent_files_and_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot read .*a\.json: No such file"):
        rundir.read_json(tmp_path / "a.json")
    with pytest.raises(RunError, match=r"cannot read .*: Is a directory"):
        rundir.read_json(tmp_path)


def test_run_directories(tmp_path: Path) -> None:
    for name in ("run-b", "run-a", "_profiles", ".hidden"):
        rundir.write_json(tmp_path / name / rundir.RUN, {})
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "run-a")
    assert [path.name for path in rundir.run_directories(tmp_path)] == ["run-a", "run-b"]
    assert rundir.run_directories(tmp_path / "absent") == []


def held_by_another(directory: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(rundir.__file__).parents[1],
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    return holder


def test_a_lock_keeps_others_out_and_dies_with_its_holder(tmp_path: Path) -> None:
    with held_by_another(tmp_path) as holder:
        assert rundir.is_locked(tmp_path)
        with (
            pytest.raises(RunError, match=rf"run x is in use by process {holder.pid}: wait for it or stop it"),
            rundir.locked(tmp_path, what="run x", patience=0.05),
        ):
            pytest.fail("entered")
        holder.kill()
        holder.wait()
    assert not rundir.is_locked(tmp_path)
    with rundir.locked(tmp_path, what="run x"):
        assert rundir.is_locked(tmp_path)
    assert not rundir.is_locked(tmp_path)


def test_patience_waits_for_the_holder(tmp_path: Path) -> None:
    with held_by_another(tmp_path) as holder:
        start = time.monotonic()
        subprocess.Popen(["/bin/sh", "-c", f"sleep 0.3; kill -9 {holder.pid}"]).wait()
        with rundir.locked(tmp_path, what="run x", patience=10):
            assert time.monotonic() - start >= 0.3
        holder.wait()


def test_no_lock_without_a_directory(tmp_path: Path) -> None:
    assert not rundir.is_locked(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RunError, match="cannot lock"),
        rundir.locked(tmp_path / "file", what="it"),
    ):
        pytest.fail("entered")


def test_no_lock_on_a_full_disk(tmp_path: Path) -> None:
    """`/dev/full` in the place of the lock refuses what is written to it, and everything else that a file allows."""
    (tmp_path / rundir.LOCK).symlink_to("/dev/full")
    with pytest.raises(RunError, match="cannot lock"), rundir.locked(tmp_path, what="it"):
        raise AssertionError("this must not be reached")

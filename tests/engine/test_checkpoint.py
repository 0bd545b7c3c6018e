"""Checkpoints: whole or not at all, and every damage noticed."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from explorer import rundir
from explorer.engine.checkpoint import (
    Background,
    Checkpoint,
    checkpoints,
    load_checkpoint,
    load_newest,
    remove_all,
    save_checkpoint,
)
from explorer.errors import CheckpointError, RunError

RUN = "resnet8-digits-test-ssr1-s0-01234567"


def made(step: int) -> Checkpoint:
    tensors = {
        "model/weight": torch.full((3, 2), float(step)),
        "model/half": torch.tensor([1.5], dtype=torch.bfloat16),
        "model/count": torch.tensor(step),
        "model/nhwc": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    }
    return Checkpoint(step=step, tensors=tensors, plain={"offset": step, "timings": {"other": 0.1}, "none": None})


def saved(directory: Path, *steps: int) -> Path:
    """Save checkpoints of these steps; return the JSON file of the last."""
    for step in steps:
        save_checkpoint(directory, made(step), run_id=RUN)
    return directory / f"step-{steps[-1]:08d}.json"


def step_of(directory: Path, run_id: str = RUN) -> int | None:
    found = load_newest(directory, run_id=run_id)
    return None if found is None else found.step


def test_everything_comes_back(tmp_path: Path) -> None:
    checkpoint = made(7)
    save_checkpoint(tmp_path, checkpoint, run_id=RUN)
    found = load_newest(tmp_path, run_id=RUN)
    assert found is not None
    assert (found.step, found.plain) == (7, checkpoint.plain)
    assert found.tensors.keys() == checkpoint.tensors.keys()
    for name, tensor in checkpoint.tensors.items():
        assert torch.equal(found.tensors[name], tensor) and found.tensors[name].dtype == tensor.dtype


def test_nan_in_a_tensor_comes_back_bit_for_bit(tmp_path: Path) -> None:
    odd = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])
    save_checkpoint(tmp_path, Checkpoint(step=1, tensors={"x": odd}, plain={}), run_id=RUN)
    found = load_newest(tmp_path, run_id=RUN)
    assert found is not None and torch.equal(found.tensors["x"].view(torch.int32), odd.view(torch.int32))


def test_no_checkpoint() -> None:
    assert load_newest(Path("/nowhere"), run_id=RUN) is None


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 10, 9, 11)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"step-{step:08d}.{kind}" for step in (9, 11) for kind in ("json", "safetensors")
    ]


def test_a_later_one_that_could_not_be_used_gives_way(tmp_path: Path) -> None:
    """After falling back from step 9 to step 5, two good ones are kept again, not the bad one and a good one."""
    saved(tmp_path, 5, 9).write_text("damaged")
    assert step_of(tmp_path) == 5
    saved(tmp_path, 6)
    assert sorted(path.stem for path in tmp_path.glob("*.json")) == ["step-00000005", "step-00000006"]


def edited(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def damage(record: Path) -> None:
        value = json.loads(record.read_bytes())
        change(value)
        record.write_text(json.dumps(value))

    return damage


def flipped(record: Path) -> None:
    tensors = record.with_suffix(".safetensors")
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)


def cut(kind: str) -> Callable[[Path], None]:
    def damage(record: Path) -> None:
        path = record.with_suffix(kind)
        path.write_bytes(path.read_bytes()[:-1] if kind == ".safetensors" else path.read_bytes()[:-20])

    return damage


DAMAGES: dict[str, Callable[[Path], object]] = {
    "tensors: one bit": flipped,
    "tensors: cut": cut(".safetensors"),
    "tensors: empty": lambda record: record.with_suffix(".safetensors").write_bytes(b""),
    "tensors: absent": lambda record: record.with_suffix(".safetensors").unlink(),
    "tensors: a pickle": lambda record: torch.save({}, record.with_suffix(".safetensors")),
    "json: cut": cut(".json"),
    "json: empty": lambda record: record.write_bytes(b""),
    "json: binary": lambda record: record.write_bytes(b"\xff\x00"),
    "json: a list": lambda record: record.write_text("[]"),
    "json: NaN": lambda record: record.write_text(record.read_text().replace('"offset": 2', '"offset": NaN')),
    "json: nested too deeply": lambda record: record.write_text("[" * 100_000),
    "json: huge": lambda record: record.write_bytes(b" " * (rundir.MAX_JSON_BYTES + 1)),
    "json: another step": edited(lambda value: value.update(step=3)),
    "json: another offset": edited(lambda value: value["plain"].update(offset=0)),
    "json: lone surrogate": edited(lambda value: value["plain"].update(none="\ud800")),
    "json: enormous number": edited(lambda value: value["plain"].update(offset=10**30)),
    "json: another format": edited(lambda value: value.update(format=2)),
    "json: another run": edited(lambda value: value.update(run_id="other")),
    "json: key missing": edited(lambda value: value.pop("sha256")),
    "json: key too many": edited(lambda value: value.update(extra=1)),
    "json: step as text": edited(lambda value: value.update(step="2")),
    "json: a directory": lambda record: (record.unlink(), record.mkdir()),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_falls_back_loudly(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    record = saved(tmp_path, 1, 2)
    DAMAGES[name](record)
    with pytest.raises(CheckpointError, match=r"step-00000002"):
        load_checkpoint(record, run_id=RUN)
    with caplog.at_level(logging.WARNING):
        assert step_of(tmp_path) == 1
    assert "step-00000002" in caplog.text and "falling back" in caplog.text


def test_undamaged_is_not_complained_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved(tmp_path, 1, 2)
    assert step_of(tmp_path) == 2
    assert not caplog.records


def test_two_damaged_mean_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved(tmp_path, 1, 2)
    for record in tmp_path.glob("*.json"):
        record.write_text("{}")
    assert step_of(tmp_path) is None
    assert len(caplog.records) == 2


def test_another_runs_checkpoint_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved(tmp_path, 1)
    assert step_of(tmp_path, run_id="another") is None
    assert f"of run {RUN}, not of another" in caplog.text


@pytest.mark.parametrize("dies_at", [1, 2])
def test_a_death_while_writing_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    """At the first or at the second file: what is there is always a whole checkpoint."""
    saved(tmp_path, 1)
    replace = Path.replace
    calls = 0

    def dying(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == dies_at:
            raise OSError(28, "No space left on device")
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", dying)
        with pytest.raises(RunError, match="No space left"):
            saved(tmp_path, 2)
    assert step_of(tmp_path) == 1
    saved(tmp_path, 2)
    assert step_of(tmp_path) == 2


def test_removing_all_leaves_nothing_of_ours(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoint"
    saved(directory, 1, 2)
    (directory / ".step-00000003.safetensors.17.tmp").write_bytes(b"half")
    (directory / "step-00000004.safetensors").write_bytes(b"no record")
    remove_all(directory)
    assert not directory.exists()
    remove_all(directory)
    saved(directory, 1)
    (directory / "notes.txt").write_text("somebody else's")
    remove_all(directory)
    assert [path.name for path in directory.iterdir()] == ["notes.txt"]


# --- in the background ---


def test_a_checkpoint_is_of_the_moment_at_which_it_was_asked_for(tmp_path: Path) -> None:
    tensor = torch.zeros(1000)
    with Background() as background:
        background.save(tmp_path, Checkpoint(step=1, tensors={"a": tensor}, plain={}), run_id=RUN)
        tensor.fill_(1)  # the next step, while it may still be written
        background.save(tmp_path, Checkpoint(step=2, tensors={"a": tensor}, plain={}), run_id=RUN)
    newest, before = (load_checkpoint(path, run_id=RUN) for path in checkpoints(tmp_path))
    assert (newest.step, before.step) == (2, 1)
    assert bool((newest.tensors["a"] == 1).all()) and bool((before.tensors["a"] == 0).all())


def test_an_error_of_the_writing_is_raised(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    checkpoint = Checkpoint(step=1, tensors={"a": torch.zeros(1)}, plain={})
    with pytest.raises(RunError, match="file"), Background() as background:
        background.save(tmp_path / "file", checkpoint, run_id=RUN)
    with Background() as background:
        background.save(tmp_path / "file", checkpoint, run_id=RUN)
        with pytest.raises(RunError, match="file"):
            background.save(tmp_path, checkpoint, run_id=RUN)  # the next one says that this one is not there
        background.save(tmp_path, checkpoint, run_id=RUN)
    assert len(checkpoints(tmp_path)) == 1


def test_a_run_that_is_stopped_waits_for_its_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Background() as background:
        background.save(tmp_path, Checkpoint(step=1, tensors={"a": torch.zeros(9)}, plain={}), run_id=RUN)
        raise KeyboardInterrupt
    assert len(checkpoints(tmp_path)) == 1


def test_an_error_of_the_run_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ZeroDivisionError), Background() as background:
        background.save(tmp_path / "file", Checkpoint(step=1, tensors={}, plain={}), run_id=RUN)
        raise ZeroDivisionError

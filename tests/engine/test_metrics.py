"""`metrics.jsonl`: one line a number, cut back to the checkpoint, never NaN."""

import json
from pathlib import Path

import pytest

from explorer.engine.metrics import MetricsWriter
from explorer.errors import RunError, TrainingError


def test_lines_come_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsWriter(path, offset=0) as writer:
        writer.write(1, "train_loss", 0.1 + 0.2)
        writer.write(2, "accuracy", 1.0)
        assert writer.flush() == path.stat().st_size
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "metric": "train_loss", "value": 0.1 + 0.2},
        {"step": 2, "metric": "accuracy", "value": 1.0},
    ]


def test_what_lies_behind_the_checkpoint_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsWriter(path, offset=0) as writer:
        writer.write(1, "nll", 1.0)
        offset = writer.flush()
        writer.write(2, "nll", 2.0)
    with MetricsWriter(path, offset=offset) as writer:
        writer.write(3, "nll", 3.0)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 3]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none_stop_training(tmp_path: Path, value: float) -> None:
    with (
        MetricsWriter(tmp_path / "m", offset=0) as writer,
        pytest.raises(TrainingError, match=rf"train_loss is {value} at step 7: training diverged; a lower"),
    ):
        writer.write(7, "train_loss", value)
    assert (tmp_path / "m").read_bytes() == b""


def test_a_file_shorter_than_the_checkpoint_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"12345")
    with pytest.raises(RunError, match="damaged: 5 bytes, the checkpoint expects 6 or more"):
        MetricsWriter(tmp_path / "m", offset=6)
    assert (tmp_path / "m").read_bytes() == b"12345"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write .*: Is a directory"):
        MetricsWriter(tmp_path, offset=0)

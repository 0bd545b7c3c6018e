"""Training to the end: interruption, divergence, evaluations, damaged checkpoints, and the same bits in the end."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from explorer import rundir
from explorer.engine.clock import Clock
from explorer.engine.fit import AUTOMATIC, SHARE, FitOptions, Fitted, MetricsWriter, fit, state_digest
from explorer.engine.loop import Loop
from explorer.engine.optimizer import AdamWSpec, SGDSpec
from explorer.errors import RunError, TrainingError
from explorer.methods.ema import EMA
from explorer.methods.sam import SAM
from explorer.run_files import Timings
from tests.data_for_tests import CPU
from tests.loop_for_tests import noise_loop, small_net

KINDS: dict[str, Any] = {
    "plain": dict,
    "nesterov": lambda: {"optimizer": SGDSpec(lr=0.1, nesterov=True)},
    "no momentum": lambda: {"optimizer": SGDSpec(lr=0.1, momentum=0.0)},
    "adamw": lambda: {"optimizer": AdamWSpec(lr=0.01, weight_decay=0.1)},
    "bf16": lambda: {"precision": "bf16"},
    "tf32": lambda: {"precision": "tf32"},
    "fp16": lambda: {"precision": "fp16"},
    "group norm": lambda: {"model": small_net("group")},
    "microbatches": lambda: {"microbatch_size": 3},
    "bf16, adamw, microbatches": lambda: {
        "precision": "bf16",
        "optimizer": AdamWSpec(lr=0.01),
        "microbatch_size": 3,
        "model": small_net("group"),
    },
    "sam and ema": lambda: {"methods": [SAM(interval=2), EMA(half_life=0.3)], "optimizer": AdamWSpec(lr=0.01)},
}


def trained(loop: Loop, directory: Path, **options: Any) -> Fitted:
    directory.mkdir(exist_ok=True)
    return fit(loop, FitOptions(directory=directory, run_id="r", **{"evaluations": 2, **options}))


def stopped(directory: Path, at: int, kind: str = "plain", **options: Any) -> None:
    loop = noise_loop(**KINDS[kind]())
    with pytest.raises(KeyboardInterrupt):
        trained(loop, directory, stop=lambda: loop.state.step >= at, **options)


def lines(directory: Path) -> list[dict]:
    return [json.loads(line) for line in (directory / rundir.METRICS).read_text().splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_twice_and_resumed_is_the_same_run(kind: str, tmp_path: Path) -> None:
    whole = noise_loop(**KINDS[kind]())
    expected = trained(whole, tmp_path / "whole")
    stopped(tmp_path / "parts", 3, kind)
    stopped(tmp_path / "parts", 6, kind)
    loop = noise_loop(**KINDS[kind]())
    found = trained(loop, tmp_path / "parts")
    assert (found.state_digest, found.metrics, found.resumed) == (expected.state_digest, expected.metrics, 2)
    for name, tensor in whole.tensors().items():
        assert torch.equal(loop.tensors()[name], tensor), name
    metrics = [(tmp_path / name / rundir.METRICS).read_bytes() for name in ("whole", "parts")]
    assert metrics[0] == metrics[1]


def test_metrics_are_written_where_they_belong(tmp_path: Path) -> None:
    fitted = trained(noise_loop(), tmp_path, evaluations=3)
    found = lines(tmp_path)
    assert [line["step"] for line in found if line["metric"] == "accuracy"] == [3, 7, 10]
    assert [line["step"] for line in found if line["metric"] == "train_loss"] == list(range(1, 11))
    assert [line["value"] for line in found if line["metric"] == "lr"] == [0.1] * 10
    last = {line["metric"]: line["value"] for line in found if line["step"] == 10}
    assert {name: last[name] for name in ("accuracy", "nll")} == fitted.metrics


def test_evaluating_more_often_changes_no_bit_of_the_model(tmp_path: Path) -> None:
    counts = (0, 1, 2, 5, 10, 100)
    digests = {trained(noise_loop(), tmp_path / str(n), evaluations=n).state_digest for n in counts}
    assert len(digests) == 1


class FakeClock(Clock):
    """A clock that counts a second for a step, and `evaluation` seconds for an evaluation."""

    evaluation = 0.0
    evaluations = 0

    def timings(self, before: Timings) -> Timings:
        parts = {"forward": float(self.timed_steps), "evaluation": self.evaluation * self.evaluations}
        return Timings(**{name: seconds + getattr(before, name) for name, seconds in parts.items()})

    def end(self, part: str) -> None:
        self.evaluations += part == "evaluation"


def evaluated_at(directory: Path, *, seconds: float, **options: Any) -> list[int]:
    """Return the steps at which a run of 100 seconds is evaluated, where an evaluation takes so many seconds."""
    loop = noise_loop(total_steps=100)
    loop.clock = FakeClock(CPU, warmup_steps=0, split=False)
    loop.clock.evaluation = seconds
    trained(loop, directory, **options)
    return [line["step"] for line in lines(directory) if line["metric"] == "accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "steps"),
    [(0.1, [*range(10, 101, 10)]), (3.3, [*range(10, 101, 10)]), (6.5, [10, 20, 40, 60, 80, 100]), (40, [10, 100])],
)
def test_automatic_evaluations_take_at_most_a_quarter_of_the_time(
    seconds: float, steps: list[int], tmp_path: Path
) -> None:
    """The cost of the first one is not known before it, so that very slow ones are taken once too often."""
    found = evaluated_at(tmp_path / "automatic", seconds=seconds, evaluations=AUTOMATIC)
    assert found == steps
    if seconds < 40:
        assert len(found) * seconds <= 1.01 * SHARE * (100 + len(found) * seconds) + seconds
    # The control: who asks for ten gets ten, whatever they cost, and 0 is none but the last.
    assert evaluated_at(tmp_path / "ten", seconds=seconds, evaluations=10) == list(range(10, 101, 10))
    assert evaluated_at(tmp_path / "none", seconds=seconds, evaluations=0) == [100]


def test_losses_can_be_read_while_the_run_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever watches a run sees its losses within `FLUSH_SECONDS`, long before the buffer is full."""
    seen: dict[float, int] = {}
    for seconds in (0.0, 1e6):
        monkeypatch.setattr("explorer.engine.fit.FLUSH_SECONDS", seconds)
        directory = tmp_path / str(seconds)

        def look(done: int, _: int, directory: Path = directory, seconds: float = seconds) -> None:
            if done == 5:
                seen[seconds] = len(lines(directory))

        trained(noise_loop(), directory, evaluations=0, on_progress=look)
    assert seen == {0.0: 10, 1e6: 0}  # a loss and a learning rate for each of five steps


def test_the_digest_knows_names_shapes_and_bits() -> None:
    one, other = noise_loop(), noise_loop()
    assert state_digest(one) == state_digest(other)
    with torch.no_grad():
        other.setting.model.get_parameter("7.bias").view(torch.int32)[0] ^= 1
    assert state_digest(one) != state_digest(other)
    assert state_digest(noise_loop(seed=1)) != state_digest(one)


def test_divergence_is_one_clear_error(tmp_path: Path) -> None:
    loop = noise_loop(optimizer=SGDSpec(lr=100.0), model=torch.nn.Sequential(torch.nn.Flatten(), Exploding()))
    with pytest.raises(
        TrainingError, match=r"training diverged: the loss is (nan|inf) at step \d+: the first layer .* is '1'"
    ):
        trained(loop, tmp_path)
    assert all(line["value"] < float("inf") for line in lines(tmp_path))


class Exploding(torch.nn.Linear):
    """Logits that grow without bound as soon as weights are large."""

    def __init__(self) -> None:
        super().__init__(48, 3)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) ** 9


def test_a_diverged_run_leaves_no_checkpoint_of_nan(tmp_path: Path) -> None:
    """Losses are checked before each checkpoint, so resuming cannot go on from the ruins."""
    loop = noise_loop(optimizer=SGDSpec(lr=100.0), model=torch.nn.Sequential(torch.nn.Flatten(), Exploding()))
    with pytest.raises(TrainingError):
        trained(loop, tmp_path, checkpoint_seconds=0)
    fresh = noise_loop(optimizer=SGDSpec(lr=100.0), model=torch.nn.Sequential(torch.nn.Flatten(), Exploding()))
    with pytest.raises(TrainingError):
        trained(fresh, tmp_path, checkpoint_seconds=0)


def test_a_damaged_checkpoint_costs_time_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected = trained(noise_loop(), tmp_path / "whole")
    stopped(tmp_path / "parts", 6, checkpoint_seconds=0)
    checkpoints = sorted((tmp_path / "parts" / rundir.CHECKPOINT).glob("*.safetensors"))
    assert [path.stem for path in checkpoints] == ["step-00000005", "step-00000006"]
    checkpoints[-1].write_bytes(checkpoints[-1].read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        found = trained(noise_loop(), tmp_path / "parts")
    assert "step-00000006" in caplog.text
    assert (found.state_digest, found.resumed) == (expected.state_digest, 1)
    metrics = [(tmp_path / name / rundir.METRICS).read_bytes() for name in ("whole", "parts")]
    assert metrics[0] == metrics[1]


def test_a_checkpoint_at_every_step_changes_nothing(tmp_path: Path) -> None:
    expected = trained(noise_loop(), tmp_path / "none", checkpoint_seconds=1e9)
    found = trained(noise_loop(), tmp_path / "every", checkpoint_seconds=0)
    assert found.state_digest == expected.state_digest
    assert not (tmp_path / "none" / rundir.CHECKPOINT).exists()
    assert len(list((tmp_path / "every" / rundir.CHECKPOINT).glob("*.json"))) == 2


def test_progress_and_timings(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    stopped(tmp_path, 4, checkpoint_seconds=0, on_progress=lambda done, total: heard.append((done, total)))
    fitted = trained(noise_loop(), tmp_path, on_progress=lambda done, total: heard.append((done, total)))
    assert heard == [(done, 10) for done in (1, 2, 3, 5, 6, 7, 8, 9, 10)]
    assert fitted.timed_steps == 10
    timings = fitted.timings
    assert min(timings.forward, timings.backward, timings.optimizer, timings.evaluation, timings.checkpoint) > 0
    assert timings.warmup == 0


# --- metrics.jsonl ---


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

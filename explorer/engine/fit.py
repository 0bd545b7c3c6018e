"""Training a run from its newest checkpoint to its end: steps, metrics, checkpoints, evaluation, interruption.

The files on disk are always enough: a run that is killed at any moment continues from its newest checkpoint, repeats
the steps after it, and ends with the same bits as an uninterrupted run.

Measurements are lines of `metrics.jsonl`, appended while the run trains, and truncated to the checkpoint on resume:

    {"step": 12, "metric": "train_loss", "value": 1.9459}
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from explorer import rundir
from explorer.engine.checkpoint import KEEP, Background, Checkpoint, load_newest, save_checkpoint
from explorer.engine.gradients import check_finite
from explorer.engine.loop import Loop
from explorer.engine.method import Kind, Saving
from explorer.engine.trunk import Evaluation, Left, Measured, Shared, longest, measured_in
from explorer.errors import DivergedError, RunError
from explorer.run_files import Timings, Trunk, from_json, record, to_json

MODEL = "model/"  # prefix of parameters and buffers in `Loop.tensors`
CHECKPOINT_SECONDS = 10.0  # the most work that can be lost; shorter runs never write a checkpoint
LOSS_POINTS = 200  # lines of training loss in `metrics.jsonl`, about
FLUSH_POINTS = 50  # losses kept on the device before they are read: each read makes the program wait for the device
FLUSH_SECONDS = 2.0  # or after this time: a reader of the run's curve sees it grow
GO, STOP = 0, 1  # rank 0 tells the others before each step
AUTOMATIC = 1  # evaluations: as many as the time allows, and `EVALUATIONS` at most
EVALUATIONS = 10
SHARE = 0.25  # of the wall time of a run: what automatic evaluations take at most

Progress = Callable[[int, int], None]  # (steps done, total steps)
Stop = Callable[[], bool]


# --- metrics.jsonl ---


class MetricsWriter:
    """The only writer of a run's metrics. Use as a context manager."""

    def __init__(self, path: Path, *, offset: int) -> None:
        """Open the file and drop everything after `offset`: bytes that were written after the checkpoint."""
        self._path = path
        with self._reported():
            self._file = path.open("ab")
            size = self._file.tell()
            if size < offset:
                self._file.close()
                raise RunError(f"{path}: damaged: {size} bytes, the checkpoint expects {offset} or more")
            self._file.truncate(offset)
            self._file.seek(offset)

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, step: int, metric: str, value: float) -> None:
        """Append one measurement after `step` steps. Raises `DivergedError` if the value is not finite."""
        if not math.isfinite(value):
            raise DivergedError(
                f"{metric} is {value} at step {step}: training diverged; a lower learning rate may help"
            )
        line = json.dumps({"step": step, "metric": metric, "value": value})
        with self._reported():
            self._file.write(line.encode() + b"\n")

    def show(self) -> None:
        """Hand what was written to the operating system, where other processes can read it."""
        with self._reported():
            self._file.flush()

    def flush(self) -> int:
        """Sync the file to disk; return its length in bytes."""
        with self._reported():
            self._file.flush()
            os.fsync(self._file.fileno())
        return self._file.tell()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(f"cannot write {self._path}: {error.strerror or error}") from error


# --- training ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    """The result of training."""

    metrics: dict[str, float]
    timings: Timings
    timed_steps: int  # steps that are neither warm-up nor set aside
    resumed: int  # how often
    state_digest: str  # of the final model, see `state_digest`
    trunk: Trunk | None = None  # with which it began
    joules: float = 0.0  # of timed steps, by the clock's meter
    metered_steps: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FitOptions:
    """Options for watching and saving a run; none of them changes its result."""

    directory: Path
    run_id: str
    evaluations: int = AUTOMATIC  # spread evenly over the run, the last at its end; 0: only that one
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    on_progress: Progress = lambda done, total: None
    shared: Shared | None = None  # first steps that are those of other runs too
    stop: Stop = lambda: False  # asked after each step; true saves a checkpoint if it may, raises KeyboardInterrupt
    defers: bool | None = None  # losses are looked at from time to time only; None: where each look waits for a device


def fit(loop: Loop, options: FitOptions) -> Fitted:
    """Train to the end. Raises `DivergedError` when a loss is not finite, and KeyboardInterrupt when asked to stop."""
    before, measured = _resume(loop, options)
    loop.align()
    loop.call("before_fit")
    with MetricsWriter(options.directory / rundir.METRICS, offset=before.offset) as writer, Background() as background:
        session = _Session(loop, options, writer, background, before, measured)
        session.train()
        metrics = session.finish()
    if (timeline := loop.clock.ahead.timeline()) is not None:
        rundir.write_json(options.directory / rundir.TIMELINE, to_json(timeline))
    joules, metered_steps = _metered(loop, before)
    return Fitted(
        metrics=metrics | _method_metrics(loop),
        timings=loop.clock.timings(before.timings),
        timed_steps=before.timed_steps + loop.clock.timed_steps,
        resumed=before.resumed,
        state_digest=_agreed(loop),
        trunk=before.trunk,
        joules=joules,
        metered_steps=metered_steps,
    )


def _metered(loop: Loop, before: "_Before") -> tuple[float, int]:
    """Return the joules of the run so far, and the steps that they are of."""
    meter = loop.clock.meter
    here = (0.0, 0) if meter is None else (meter.joules, meter.steps)
    return before.joules + here[0], before.metered_steps + here[1]


def follow(loop: Loop) -> None:
    """Train to the end as a rank that writes no file. Raises KeyboardInterrupt when rank 0 was asked to stop."""
    loop.align()
    loop.call("before_fit")
    while loop.state.step < loop.setting.total_steps:
        if loop.ranks.told(GO) == STOP:
            raise KeyboardInterrupt
        loop.step()
    loop.call("after_fit")
    loop.call("after_run")
    _agreed(loop)


def _agreed(loop: Loop) -> str:
    """Return the digest of the final model. Raises `RunError` for a rank that has come to another one."""
    digests = loop.ranks.gathered(state_digest(loop))
    for rank, digest in enumerate(digests):
        if digest != digests[0]:
            raise RunError(f"rank {rank} ended with other bits than rank 0: model {digest[:16]}, not {digests[0][:16]}")
    return digests[0]


def affordable_evaluations(*, training: float, one: float) -> int:
    """Return how many evaluations of `one` second each fit into `SHARE` of a run with so many seconds of training:
    1, which is the final one, to `EVALUATIONS`.

    >>> affordable_evaluations(training=60.0, one=1.0), affordable_evaluations(training=60.0, one=5.0)
    (10, 4)
    """
    room = training * SHARE / (1 - SHARE)
    return max(1, int(min(EVALUATIONS, room / one))) if one > 0 else EVALUATIONS


def _method_metrics(loop: Loop) -> dict[str, float]:
    """Return the metrics that methods and the loss scale of fp16 report about the whole run."""
    skipped = {} if loop.loss_scale is None else {"skipped_steps": float(loop.loss_scale.skipped)}
    return skipped | {name: value for method in loop.methods for name, value in method.metrics(loop.state).items()}


def state_digest(loop: Loop) -> str:
    """Return the SHA-256 over the model's parameters and buffers: names, types, shapes and bytes, sorted by name."""
    return _digest_of(loop.tensors())


def _digest_of(tensors: Mapping[str, Tensor]) -> str:
    return model_digest({name: tensor for name, tensor in tensors.items() if name.startswith(MODEL)})


def model_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of `state_digest` for these tensors, whose names begin with `model/`."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        plain = tensor.cpu().contiguous()
        # The header has the length in bytes, so no two lists of tensors give the same stream.
        header = f"{name}|{plain.dtype}|{tuple(plain.shape)}|{plain.numel() * plain.element_size()}\n"
        total.update(header.encode())
        total.update(plain.flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def metrics_bytes(checkpoint: Checkpoint) -> int:
    """Return the length of `metrics.jsonl` at the checkpoint. Raises `RunError` for a damaged one."""
    return from_json(_Before, checkpoint.plain, where=f"checkpoint of step {checkpoint.step}").offset


@record
class _Before:
    """State of earlier processes of this run other than tensors: `plain` in a checkpoint."""

    offset: int = 0  # bytes of `metrics.jsonl`
    timings: Timings = field(default_factory=Timings)
    timed_steps: int = 0
    resumed: int = 0  # how often
    evaluations: int = 0
    trunk: Trunk | None = None  # with which the run began
    carried: tuple[Evaluation, ...] = ()  # of a run that will leave its trunk to longer ones
    joules: float = 0.0
    metered_steps: int = 0


def _resume(loop: Loop, options: FitOptions) -> tuple[_Before, Measured]:
    """Bring the loop to the run's newest checkpoint, or else to the longest one of its trunk, if there is one."""
    checkpoint = load_newest(options.directory / rundir.CHECKPOINT, run_id=options.run_id)
    if checkpoint is not None:
        before = from_json(_Before, checkpoint.plain, where=f"checkpoint of step {checkpoint.step}")
        loop.restore(checkpoint.tensors, step=checkpoint.step)
        return replace(before, resumed=before.resumed + 1), measured_in(checkpoint, before.carried)
    begun = None if options.shared is None else longest(options.shared, digest_of=_digest_of)
    if begun is None:
        return _Before(), Measured()
    checkpoint, left, measured = begun
    loop.restore(checkpoint.tensors, step=checkpoint.step)
    return _Before(trunk=Trunk(run=left.run, step=checkpoint.step, state=left.state)), measured


def _may_defer(loop: Loop) -> bool:
    """Return whether losses can be looked at long after their step, so that no step waits for the device."""
    # What records the steps needs numbers in each of them, ranks have to agree in each, and so has the scale of fp16:
    # there a look costs nothing more.
    records = any(method.kind is Kind.RECORD for method in loop.methods)
    return (
        loop.setting.batches.device.type == "cuda" and loop.ranks.size == 1 and loop.loss_scale is None and not records
    )


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors in memory of the host."""
    return {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}


def _values(scalars: Sequence[Tensor]) -> list[float]:
    """Return the numbers in these scalars, by one copy from the device."""
    return torch.stack([*scalars]).tolist() if scalars else []


class _Session:
    """This process's share of the run."""

    def __init__(
        self,
        loop: Loop,
        options: FitOptions,
        writer: MetricsWriter,
        background: Background,
        before: _Before,
        measured: Measured,
    ) -> None:
        self.loop, self.options, self.writer, self.background, self.before = loop, options, writer, background, before
        total, shared = loop.setting.total_steps, options.shared
        self._every = max(1, total // LOSS_POINTS)
        self._automatic = options.evaluations == AUTOMATIC
        # Places of longer runs lie within the shared steps: there they are measured for those runs.
        self._places = self._places_of(total, below=total)
        self._others = [] if shared is None else [(n, self._places_of(n, below=shared.step + 1)) for n in shared.longer]
        self._evaluations = before.evaluations
        self._pending: list[tuple[int, float, Tensor]] = []
        self._unseen: list[tuple[int, Tensor]] = []  # losses of which it is not known whether they are finite
        self._defers = _may_defer(loop) if options.defers is None else options.defers
        loop.checks_passes = not self._defers
        # From which a divergence is located as long as there is no checkpoint.
        self._start = (loop.state.step, _copied(loop.tensors())) if self._defers and not before.resumed else None
        self._saved_at = self._shown_at = time.monotonic()
        if before.trunk is not None and loop.state.step == before.trunk.step and not before.resumed:
            self._write_again(measured)
        # A run that was stopped before longer ones were planned has kept no measurements for them, and leaves nothing.
        grows = shared is not None and shared.longer and len(measured) == loop.state.step < shared.step
        self._growing = measured if grows else None

    def _places_of(self, total: int, *, below: int) -> dict[int, int]:
        """Return the steps of a run's evaluations, without the final one, each with its number."""
        count = EVALUATIONS if self._automatic else self.options.evaluations
        places = {round(total * place / count): place for place in range(1, count)}
        return {step: place for step, place in places.items() if 0 < step < min(total, below)}

    def train(self) -> None:
        loop, total = self.loop, self.loop.setting.total_steps
        first = loop.state.step
        while loop.state.step < total:
            loop.clock.start_step(loop.state.step - first)
            lr = loop.learning_rate()
            loop.ranks.told(GO)
            loss = self._step()
            loop.clock.end_step()
            self._after_step(loop.state.step, lr, loss)

    def _step(self) -> Tensor:
        if not self._defers:
            return self.loop.step()
        try:
            loss = self.loop.step()
        except Exception:
            # What fails after a loss that is not finite is a consequence of it.
            if (latest := self.loop.state.loss) is not None:
                self._unseen.append((self.loop.state.step + 1, latest.detach()))
            self._look()
            raise
        self._unseen.append((self.loop.state.step, loss))
        return loss

    def _look(self) -> None:
        """Raise `DivergedError` if one of the losses since the last look is not finite. The steps since the newest
        checkpoint are then made again, with a look in each pass, for the message that names class and layer."""
        unseen, self._unseen = self._unseen, []
        values = _values([loss for _, loss in unseen])
        bad = next((at for at, value in enumerate(values) if not math.isfinite(value)), None)
        if bad is None:
            return
        loop, (step, _) = self.loop, unseen[bad]
        checkpoint = load_newest(self.options.directory / rundir.CHECKPOINT, run_id=self.options.run_id)
        if checkpoint is not None:
            loop.restore(checkpoint.tensors, step=checkpoint.step)
        else:
            assert self._start is not None  # or it was resumed from one
            loop.restore(self._start[1], step=self._start[0])
        loop.checks_passes, self._defers = True, False
        try:
            while loop.state.step < step:
                loop.step()
        except DivergedError:
            if loop.state.step + 1 == step:
                raise
        raise DivergedError(
            f"training diverged: the loss is {values[bad]} at step {step}; the steps before it, made again, do not lead"
            " there: kernels, the model or the task are not deterministic, so layer and class are unknown"
        )

    def finish(self) -> dict[str, float]:
        """Evaluate the final weights; return their metrics."""
        self._flush_losses()
        self.loop.call("after_fit")
        metrics = self._evaluate()
        self.writer.flush()
        self.loop.call("after_run")
        return metrics

    def _after_step(self, step: int, lr: float, loss: Tensor) -> None:
        # Measure.
        if step % self._every == 0 or step == 1:
            self._pending.append((step, lr, loss))
        if len(self._pending) >= FLUSH_POINTS or time.monotonic() - self._shown_at >= FLUSH_SECONDS:
            self._flush_losses()
            self.writer.show()
            self._shown_at = time.monotonic()
        if self._growing is not None:
            self._growing.add(loss, lr)
        self._evaluate_between(step)
        # Save. One method that cannot save now forbids it, even while the run is stopping: a ledger's segment is whole
        # or not there. The run then resumes from an earlier checkpoint.
        answers = [method.saving(self.loop.state) for method in self.loop.methods]
        saving = Saving.NOT_NOW if Saving.NOT_NOW in answers else max(answers, default=Saving.ALLOWED)
        if saving is Saving.KEPT:
            self._save(rundir.KEPT, keep=None)
        if self._growing is not None and self.options.shared is not None and step == self.options.shared.step:
            if saving:
                self._leave(self.options.shared, self._growing)
            self._growing = None
        stop = self.options.stop()
        if saving and (stop or time.monotonic() - self._saved_at >= self.options.checkpoint_seconds):
            self._save(rundir.CHECKPOINT, keep=KEEP)
            self._saved_at = time.monotonic()
        if stop:
            if step < self.loop.setting.total_steps:  # at the end the others do not ask any more
                self.loop.ranks.told(STOP)
            raise KeyboardInterrupt
        self.options.on_progress(step, self.loop.setting.total_steps)

    def _evaluate_between(self, step: int) -> None:
        """Evaluate after this step, if it is a place of this run or of a longer one that will begin with its steps."""

        def due(total: int, places: dict[int, int]) -> bool:
            return step in places and (not self._automatic or self._affords(places[step], total))

        mine = due(self.loop.setting.total_steps, self._places)
        others = self._growing is not None and any(due(total, places) for total, places in self._others)
        if not mine and not others:
            return
        self._flush_losses()
        metrics = self._evaluate(write=mine)
        if self._growing is not None:
            self._growing.evaluations.append(Evaluation(step=step, metrics=metrics))

    def _write_again(self, measured: Measured) -> None:
        """Write what the steps of the trunk measured, as if this run had made them."""
        evaluations = {evaluation.step: evaluation.metrics for evaluation in measured.evaluations}
        for step, loss, lr in measured.steps():
            if step % self._every == 0 or step == 1:
                self._write_loss(step, lr, loss)
            for name, value in evaluations.get(step, {}).items() if step in self._places else ():
                self.writer.write(step, name, value)

    def _affords(self, place: int, total: int) -> bool:
        """Return whether the automatic evaluation number `place` of a run of `total` steps is one of those that `SHARE`
        of its time allows."""
        timings = self.loop.clock.timings(self.before.timings)
        steps = self.before.timed_steps + self.loop.clock.timed_steps
        if not steps:
            return False  # nothing but warm-up so far: a run this short has too few steps for a curve
        step = timings.training() / steps
        # An unmeasured evaluation counts as training steps on as many examples, which takes longer: it goes forward
        # and backward.
        batches = self.loop.setting.batches
        one = step * len(batches.dataset.test) / batches.pace.largest
        if self._evaluations:
            one = timings.evaluation / self._evaluations
        affordable = affordable_evaluations(training=step * total, one=one)
        # Those that remain are spread evenly over the ten places; the tenth is the end, which is always evaluated.
        return place * affordable // EVALUATIONS > (place - 1) * affordable // EVALUATIONS

    def _evaluate(self, *, write: bool = True) -> dict[str, float]:
        self._evaluations += 1
        self.loop.clock.restart()
        metrics = self.loop.evaluate()
        self.loop.clock.end("evaluation")
        for name, value in metrics.items() if write else ():
            self.writer.write(self.loop.state.step, name, value)
        return metrics

    def _flush_losses(self) -> None:
        self._look()
        pending, self._pending = self._pending, []
        for (step, lr, _), value in zip(pending, _values([loss for _, _, loss in pending]), strict=True):
            self._write_loss(step, lr, value)

    def _write_loss(self, step: int, lr: float, loss: float) -> None:
        self.writer.write(step, "train_loss", loss)
        self.writer.write(step, "lr", lr)

    def _leave(self, shared: Shared, measured: Measured) -> None:
        """Leave the state to longer runs."""
        self.loop.clock.restart()
        self._look()
        tensors = self.loop.tensors()
        check_finite(tensors, step=self.loop.state.step)
        left = Left(
            run=self.options.run_id,
            state=_digest_of(tensors),
            evaluations=tuple(measured.evaluations),
            ledger=None if shared.record is None else shared.record.head,
        )
        checkpoint = Checkpoint(step=self.loop.state.step, tensors=tensors | measured.tensors(), plain=to_json(left))
        save_checkpoint(shared.place, checkpoint, run_id=shared.key, keep=None)
        self.loop.clock.end("checkpoint")

    def _save(self, name: str, *, keep: int | None) -> None:
        self.loop.clock.restart()
        self._flush_losses()
        tensors = self.loop.tensors()
        check_finite(tensors, step=self.loop.state.step)
        joules, metered_steps = _metered(self.loop, self.before)
        # The metrics are on disk before the checkpoint that counts on them: `flush` syncs.
        before = _Before(
            offset=self.writer.flush(),
            timings=self.loop.clock.timings(self.before.timings),
            timed_steps=self.before.timed_steps + self.loop.clock.timed_steps,
            resumed=self.before.resumed,
            evaluations=self._evaluations,
            trunk=self.before.trunk,
            carried=() if self._growing is None else tuple(self._growing.evaluations),
            joules=joules,
            metered_steps=metered_steps,
        )
        if self._growing is not None:
            tensors |= self._growing.tensors()
        checkpoint = Checkpoint(step=self.loop.state.step, tensors=tensors, plain=to_json(before))
        self.background.save(self.options.directory / name, checkpoint, run_id=self.options.run_id, keep=keep)
        self.loop.clock.end("checkpoint")
